"""The floating types for which an execution provider has kernels, for providers that are not installed.

The table is checked in and written by `benchmarks/kernel_table.py`. Each provider's entry names the version of onnxruntime that
it was taken from. Its `limits` are written by hand: what kernels refuse although they are registered for the types.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from onnx_subgraph.operators.schemas import schema

if TYPE_CHECKING:
    import onnx_ir as ir

_TABLE = Path(__file__).with_name("kernels.json")
_TYPES = {"f": "tensor(float)", "d": "tensor(double)", "h": "tensor(float16)", "b": "tensor(bfloat16)"}


class Kernel(NamedTuple):
    """A kernel for the versions `first` to `last` of an operator (None: no upper bound).

    types: floating ones, as `tensor(float)`.
    """

    first: int
    last: int | None
    types: frozenset[str]

    def serves(self, version: int) -> bool:
        """Whether the kernel is used for an operator whose schema dates from `version`."""
        return self.first == version or (self.last is not None and self.first < version <= self.last)


class Limit(NamedTuple):
    """What a kernel refuses when it is created or run.

    apart: the names of inputs that it does not take together. attribute, values: it takes no other values of this attribute.
    """

    apart: frozenset[str] = frozenset()
    attribute: str = ""
    values: tuple[str, ...] = ()


class KernelTable(NamedTuple):
    """The kernels of a provider in one version of onnxruntime, and their limits, by domain and operator."""

    provider: str
    onnxruntime: str
    kernels: Mapping[tuple[str, str], tuple[Kernel, ...]]
    limits: Mapping[tuple[str, str], tuple[Limit, ...]]


@cache
def providers() -> tuple[str, ...]:
    """The execution providers that have a table."""
    return tuple(_read())


@cache
def kernel_table(provider: str) -> KernelTable | None:
    """The table of a provider; None where it has none."""
    entry = _read().get(provider)
    if entry is None:
        return None
    kernels = {
        (domain, name): tuple(
            Kernel(first, last, frozenset(_TYPES[letter] for letter in letters)) for first, last, letters in rows
        )
        for domain, operators in entry["kernels"].items()
        for name, rows in operators.items()
    }
    limits = {
        (domain, name): tuple(
            Limit(frozenset(one.get("apart", ())), one.get("attribute", ""), tuple(one.get("values", ()))) for one in rows
        )
        for domain, operators in entry.get("limits", {}).items()
        for name, rows in operators.items()
    }
    return KernelTable(provider, entry["onnxruntime"], kernels, limits)


def limit_of(provider: str, name: str, domain: str, given: Sequence[bool], attributes: Iterable[ir.Attr]) -> str | None:
    """What the kernel of a provider refuses in a node; None where nothing is known. given: whether the node has each input.

    Some of it shows only when the kernel runs, so that no session can be asked.
    """
    table, known = kernel_table(provider), schema(name, domain)
    if table is None or known is None:
        return None
    inputs = {formal.name for formal, has in zip(known.inputs, given, strict=False) if has}
    values = {a.name: a.value for a in attributes if not a.is_ref()}
    for limit in table.limits.get((domain, name), ()):
        if limit.apart and limit.apart <= inputs:
            return f"its kernel on {provider} does not take {' and '.join(sorted(limit.apart))} together"
        if limit.attribute and values.get(limit.attribute, "") not in limit.values:
            return f"its kernel on {provider} takes only {limit.attribute}={' or '.join(limit.values)}"
    return None


@cache
def _read() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(_TABLE.read_text(encoding="utf-8"))
    return table
