"""Find the largest part of a model that a backend may compute in lower precision while every output stays within an accuracy.

The rest is computed by the backend's usual engines. The part is consecutive in the order of the graph, so few values pass between
engines. First the model is divided into stretches of about equal work, and each is measured alone. Rounding errors of different
operators are taken to be independent, so the squares of errors add up. Consecutive stretches that may be within the accuracy by
this estimate are measured together, those with the most work first.
"""

from __future__ import annotations

import math
import warnings
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, combinations, pairwise
from pathlib import Path

from onnx_subgraph import temporary
from onnx_subgraph.clock import Progress
from onnx_subgraph.engine.session import EngineSession
from onnx_subgraph.errors import OnnxSubgraphWarning
from onnx_subgraph.model.files import load, write_temporary
from onnx_subgraph.model.shapes import copied, infer_shapes
from onnx_subgraph.partitioning.choice import partition_model
from onnx_subgraph.partitioning.runners import runners_of
from onnx_subgraph.partitioning.work import likely_sizes
from onnx_subgraph.partitioning.worth import MEASURED, work
from onnx_subgraph.verification.rounding import Truth
from onnx_subgraph.verification.sessions import Session
from onnx_subgraph.verification.truth import UnknownError

STRETCHES = 8
"""The number of stretches that are measured alone."""
HOPE = 0.7
"""The factor of the estimated errors; it grows when a measured one is larger."""
MARGIN = 0.8
"""The fraction of the accuracy that may be used on these feeds; the rest is a reserve for other feeds."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a model. results: what its nodes compute. nodes: their number. of: the number of nodes of the model.

    error: the largest error of an output against float64, relative to that output's largest element.
    """

    results: tuple[str, ...]
    nodes: int
    of: int
    error: float


class Parts:
    """Measures how the outputs change if a stretch of the model at `path` is computed by `coarse`, and the rest by `usual`.

    coarse, usual: names of backends. truth: of the original.
    """

    def __init__(self, truth: Truth, path: Path, coarse: str, usual: str) -> None:
        self._truth = truth
        self._path = path
        self._runners = runners_of((coarse, usual), isolated=None, runs=True)
        self._model = load(path)
        infer_shapes(self._model)
        self._nodes = [node for node in self._model.graph if node.op_type != "Constant"]

    def within(self, accuracy: float, tell: Progress) -> Part | None:
        """The stretch with the most work that keeps the accuracy; None where none does, or that is unknown.

        Raises what `partition` raises.
        """
        tell(f"tune: which part {self._runners[0].asked.name} may compute")
        try:
            return self._within(MARGIN * accuracy)
        except UnknownError:
            return None

    def _within(self, bound: float) -> Part | None:
        errors = [self._error(start, end) for start, end in pairwise(self._borders)]
        factor = HOPE
        for start, end, estimate in self._largest_first(errors):
            if factor * estimate > bound:
                continue
            if (error := self._error(start, end)) <= bound:
                return Part(self._results(start, end), end - start, len(self._nodes), error)
            factor = max(factor, error / estimate)
        return None

    def _largest_first(self, errors: Sequence[float]) -> list[tuple[int, int, float]]:
        """The first node, the end and the estimated error of consecutive stretches, those with the most work first."""
        runs = list(combinations(range(len(errors) + 1), 2))
        runs.sort(key=lambda run: self._done[self._borders[run[0]]] - self._done[self._borders[run[1]]])
        return [(self._borders[first], self._borders[last], math.hypot(*errors[first:last])) for first, last in runs]

    @cached_property
    def _done(self) -> list[float]:
        """The estimated time of the nodes before each node, and of all, in seconds."""
        sizes = likely_sizes(self._model, {})
        return [0.0, *accumulate(work([node], self._model, sizes) for node in self._nodes)]

    @cached_property
    def _borders(self) -> list[int]:
        """The numbers of the nodes at which a stretch begins, and the end."""
        each = self._done[-1] / STRETCHES
        starts = (bisect_left(self._done, number * each) for number in range(1, STRETCHES))
        return sorted({0, *starts, len(self._nodes)})

    def _results(self, start: int, end: int) -> tuple[str, ...]:
        return tuple(str(output.name) for node in self._nodes[start:end] for output in node.outputs if output.name)

    def _error(self, start: int, end: int) -> float:
        """The largest error of an output if these nodes are computed by `coarse`; infinite where the model does not run."""
        asked, running = ({one.asked.name: getattr(one, which) for one in self._runners} for which in ("asked", "running"))
        with temporary.folder() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore", OnnxSubgraphWarning)  # an engine that fails is left out when the result is verified
            results = {self._runners[0].asked.name: self._results(start, end)}
            made = partition_model(copied(self._model), list(asked.values()), MEASURED, results=results)
            path = write_temporary(made.model, self._path, folder)
            try:
                opened = EngineSession(path, backends=running, weights=self._path.resolve().parent)
            except Exception:  # onnxruntime's errors have no common base
                return math.inf
            session = Session(opened, tuple(argument.name for argument in opened.get_outputs()))
            return max((one.kernels for one in self._truth.roundings(session)), default=math.inf)
