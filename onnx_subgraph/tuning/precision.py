"""Find which products of a model may be rounded while every output stays within an accuracy of float64, by evaluating the model.

Which products to round is a knapsack problem (error against bytes of weights); it is solved greedily.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import onnx_ir as ir

from onnx_subgraph.clock import Progress
from onnx_subgraph.kernels import Description
from onnx_subgraph.rewriting.numerics import allow_rounding, products
from onnx_subgraph.targets import FLOAT32, NUMERICS
from onnx_subgraph.verification.memory import open_model
from onnx_subgraph.verification.rounding import Truth
from onnx_subgraph.verification.sessions import Failure
from onnx_subgraph.verification.trial import CPU

MOST_PRODUCTS = 128
"""Above this number no product is tried alone. The last products are rounded first, because few operators follow them."""

MARGIN = 0.5
"""The fraction of the accuracy that may be used on these feeds; the rest is a reserve for other feeds."""


@dataclass(frozen=True, slots=True)
class Rounded:
    """Products that may be rounded. results: their names. of: the total number of products.

    error: the largest error of an output against float64, relative to that output's largest element.
    """

    numerics: str
    results: tuple[str, ...]
    of: int
    error: float


class Precision:
    """Measures how rounded products change the outputs of a fused model, whose weights are in `home`. library: the kernels.

    Every method raises UnknownError where the original can't be evaluated in float64.
    """

    def __init__(self, truth: Truth, model: ir.Model, home: Path, library: Description) -> None:
        self._truth = truth
        self._home = home
        self._model = model
        self._library = library

    @cached_property
    def _weights(self) -> dict[str, int]:
        """Result of a product → the bytes of its weights."""
        return {str(node.outputs[0].name): sum(map(_bytes, node.inputs)) for node in products(self._model)}

    def within(self, accuracy: float, tell: Progress) -> list[Rounded]:
        """The most products that keep the accuracy, the coarsest rounding first. Stops where all products may have a rounding."""
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
        """The products in the order of the error that each causes alone, relative to the bytes of its weights."""
        cost = {name: self._error(numerics, (name,)) / max(1, size) for name, size in self._weights.items()}
        return sorted(cost, key=cost.__getitem__)

    def _error(self, numerics: str, results: Sequence[str]) -> float:
        """The largest error; infinite where the model does not run."""
        allow_rounding(self._model, numerics, results)
        session = open_model(self._model, self._home, CPU, optimised=True, libraries=(self._library.path,))
        if isinstance(session, Failure):
            return float("inf")
        return max((one.kernels for one in self._truth.roundings(session)), default=float("inf"))


def _bytes(value: ir.Value | None) -> int:
    return 0 if value is None or value.const_value is None else value.const_value.nbytes
