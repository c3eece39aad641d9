"""Which products of a model may be rounded while every output stays within an accuracy of float64: found by evaluating it.

Rounding only what costs the least accuracy for the weights that it makes smaller is a knapsack; it is filled greedily.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import onnx_ir as ir

from onnx_subgraph.clock import Progress
from onnx_subgraph.kernels import Description
from onnx_subgraph.rewriting.numerics import FLOAT32, NUMERICS, allow_rounding, products
from onnx_subgraph.verification.memory import open_model
from onnx_subgraph.verification.reference import Reference
from onnx_subgraph.verification.rounding import Truth
from onnx_subgraph.verification.sessions import Failure
from onnx_subgraph.verification.trial import CPU

MOST_PRODUCTS = 128
"""Of a model with more products none is tried by itself: the last ones, whose error the fewest operators follow, are taken."""

MARGIN = 0.5
"""The part of the accuracy that is used up on the feeds at hand, so that on others the outputs keep it as well."""


@dataclass(frozen=True, slots=True)
class Rounded:
    """Products that may be rounded. results: what they give, by name. of: how many products there are.

    error: the largest distance of an output from float64, as a share of that output's largest element.
    """

    numerics: str
    results: tuple[str, ...]
    of: int
    error: float


class Precision:
    """What rounding products of a fused model does to its outputs. library: of the kernels that round.

    Every method raises UnknownError where the original can't be evaluated in float64.
    """

    def __init__(self, reference: Reference, model: ir.Model, library: Description) -> None:
        self._truth = Truth(reference)
        self._home: Path = reference.path.resolve().parent
        self._model = model
        self._library = library

    @cached_property
    def _weights(self) -> dict[str, int]:
        """Result of a product → the bytes of its weights."""
        return {str(node.outputs[0].name): sum(map(_bytes, node.inputs)) for node in products(self._model)}

    def within(self, accuracy: float, tell: Progress) -> list[Rounded]:
        """As many products as keep within the accuracy, the coarsest rounding first; no finer one where all may have it."""
        found: list[Rounded] = []
        bound = MARGIN * accuracy
        for numerics in reversed([one for one in NUMERICS if one != FLOAT32]):
            tell(f"tune: round products to {numerics}")
            if rounded := self._most(numerics, bound):
                found.append(rounded)
            if rounded and len(rounded.results) == rounded.of:
                break
        return found

    def _most(self, numerics: str, bound: float) -> Rounded | None:
        every = tuple(self._weights)
        if not every:
            return None
        if (error := self._error(numerics, every)) <= bound:
            return Rounded(numerics, every, len(every), error)
        order = self._cheapest_first(numerics) if len(every) <= MOST_PRODUCTS else every[::-1]
        fits, exceeds, best = 0, len(order), 0.0
        while exceeds - fits > 1:
            middle = (fits + exceeds) // 2
            if (error := self._error(numerics, order[:middle])) <= bound:
                fits, best = middle, error
            else:
                exceeds = middle
        return Rounded(numerics, tuple(order[:fits]), len(every), best) if fits else None

    def _cheapest_first(self, numerics: str) -> Sequence[str]:
        """The products in the order of the error that each makes alone, for the bytes that it saves."""
        cost = {name: self._error(numerics, (name,)) / max(1, size) for name, size in self._weights.items()}
        return sorted(cost, key=cost.__getitem__)

    def _error(self, numerics: str, results: Sequence[str]) -> float:
        """Infinite where the model does not run so."""
        allow_rounding(self._model, numerics, results)
        session = open_model(self._model, self._home, CPU, optimised=True, libraries=(self._library.path,))
        if isinstance(session, Failure):
            return float("inf")
        return max((one.kernels for one in self._truth.roundings(session)), default=float("inf"))


def _bytes(value: ir.Value | None) -> int:
    return 0 if value is None or value.const_value is None else value.const_value.nbytes
