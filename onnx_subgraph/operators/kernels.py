"""The floating types for which an execution provider has kernels, for providers that are not installed.

The table is checked in and written by `benchmarks/kernel_table.py`. Each provider's entry names the version of onnxruntime that
it was taken from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

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


class KernelTable(NamedTuple):
    """The kernels of a provider in one version of onnxruntime, by domain and operator."""

    provider: str
    onnxruntime: str
    kernels: Mapping[tuple[str, str], tuple[Kernel, ...]]


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
    return KernelTable(provider, entry["onnxruntime"], kernels)


@cache
def _read() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(_TABLE.read_text(encoding="utf-8"))
    return table
