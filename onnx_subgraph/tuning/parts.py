"""Find the largest part of a model that a backend may compute in lower precision while every output stays within an accuracy.

The rest is computed by the backend's usual engines. The part is consecutive in the order of the graph, so few values pass between
engines. The model is divided into stretches of about equal work, and a part consists of whole stretches. It is taken for granted
that a longer part has no smaller error, so two measurements for each stretch are enough.
"""

from __future__ import annotations

import math
import warnings
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path

from onnx_subgraph import temporary
from onnx_subgraph.clock import Progress
from onnx_subgraph.engine.session import EngineSession
from onnx_subgraph.errors import OnnxSubgraphWarning
from onnx_subgraph.evaluator.truth import UnknownError
from onnx_subgraph.files.models import load, write_temporary
from onnx_subgraph.model.shapes import copied, infer_shapes
from onnx_subgraph.partitioning.choice import partition_model
from onnx_subgraph.partitioning.runners import runners_of
from onnx_subgraph.partitioning.work import likely_sizes
from onnx_subgraph.partitioning.worth import MEASURED, work
from onnx_subgraph.verification.rounding import Truth
from onnx_subgraph.verification.sessions import Session

STRETCHES = 10
"""The number of stretches."""
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

    coarse, usual: names of backends. truth: of the original. shapes: input → shape, as chosen by the user, for estimates of work.
    """

    def __init__(
        self, truth: Truth, path: Path, coarse: str, usual: str, shapes: Mapping[str, tuple[int, ...]] | None = None
    ) -> None:
        self._truth = truth
        self._path = path
        self._runners = runners_of((coarse, usual), isolated=None, runs=True)
        self._shapes = shapes or {}
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
        """Moves a window over the stretches: its end as far as the error allows, then its start."""
        borders, best = self._borders, None
        last, most = 1, 0.0
        for first, start in enumerate(borders[:-1]):
            last = max(last, first + 1)
            while last < len(borders):
                end = borders[last]
                if (share := self._done[end] - self._done[start]) > most:
                    if (error := self._error(start, end)) > bound:
                        break
                    best, most = Part(self._results(start, end), end - start, len(self._nodes), error), share
                last += 1
        return best

    @cached_property
    def _done(self) -> list[float]:
        """The estimated time of the nodes before each node, and of all, in seconds."""
        sizes = likely_sizes(self._model, self._shapes)
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
        asked = [one.asked for one in self._runners]
        running = {one.asked.name: one.running for one in self._runners}
        with temporary.folder() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore", OnnxSubgraphWarning)  # an engine that fails is left out when the result is verified
            made = partition_model(copied(self._model), asked, MEASURED, results={asked[0].name: self._results(start, end)})
            path = write_temporary(made.model, self._path, folder)
            try:
                opened = EngineSession(path, backends=running, weights=self._path.resolve().parent)
            except Exception:  # onnxruntime's errors have no common base
                return math.inf
            session = Session(opened, tuple(argument.name for argument in opened.get_outputs()))
            return max((one.kernels for one in self._truth.roundings(session)), default=math.inf)
