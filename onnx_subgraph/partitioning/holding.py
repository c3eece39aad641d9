"""Each engine by itself: is what its backend gave as near to the truth as what onnxruntime gives?

The values that flow into an engine are noted down while the partitioned model is verified. On them the region is run by
onnxruntime and evaluated in float64. So an engine that is wrong is seen although the model behind it hides that, as a
LayerNormalization hides a factor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from onnx_subgraph.backends.array import Array
from onnx_subgraph.backends.backend import Backend, Signature
from onnx_subgraph.backends.onnxruntime import OnnxRuntime
from onnx_subgraph.engine.sample import NUMBERS
from onnx_subgraph.verification.accuracy import Accuracy, accuracy
from onnx_subgraph.verification.rounding import distance
from onnx_subgraph.verification.truth import Exact, UnknownError

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_subgraph.backends.subgraph import Subgraph

RUNS = 2
"""So many runs of each engine are noted down."""
MOST_WEIGHTS = 1 << 30
"""Bytes of weights up to which a region is evaluated in float64."""
_Run = tuple[Sequence[Array], Sequence[Array]]
"""The inputs of a run, and what came out."""


class Watched(Backend):
    """A backend, and the first runs of each region: its inputs and what came out."""

    def __init__(self, inner: Backend) -> None:
        self.name, self.version = inner.name, inner.version
        self.specializes, self.concurrent = inner.specializes, inner.concurrent
        self._inner = inner
        self.regions: dict[str, Subgraph] = {}
        self.runs: dict[str, list[_Run]] = defaultdict(list)

    def supports(self, node: ir.Node) -> bool:
        """As the backend does."""
        return self._inner.supports(node)

    def compile(self, subgraph: Subgraph, signature: Signature) -> Any:
        """As the backend does, and which region it is."""
        self.regions[subgraph.name] = subgraph
        return subgraph.name, self._inner.compile(subgraph, signature)

    def run(self, compiled: Any, inputs: Sequence[Array]) -> Sequence[Array]:
        """As the backend does, noted down."""
        name, region = compiled
        outputs = self._inner.run(region, inputs)
        if len(self.runs[name]) < RUNS:
            self.runs[name].append((list(inputs), list(outputs)))
        return outputs


def wrong(watched: Iterable[Watched]) -> dict[str, str]:
    """The engines whose results are further from the truth than they may be: name → how far, in words."""
    found = {}
    for name, region, runs in _noted(watched):
        worst = max(_held(region, runs), key=lambda found: found.gravity, default=None)
        if worst is not None and not worst.holds:
            found[name] = (
                f"by itself its result {worst.problem}"
                if worst.problem
                else f"by itself it is {worst.fused:.2g} from the truth; {worst.bound:.2g} is allowed"
            )
    return found


def further(watched: Iterable[Watched], accuracy: float) -> dict[str, str]:
    """The engines with a result that is further from the truth than the accuracy: name → how far, in words.

    accuracy: a share of the largest element of the result.
    """
    found = {}
    for name, region, runs in _noted(watched):
        away = max((distance(mine, exact) for mine, _, exact in _results(region, runs)), default=0.0)
        if away > accuracy:
            found[name] = f"by itself it is {away:.1e} of its largest element from the truth; {accuracy:.1e} is allowed"
    return found


def apart(watched: Iterable[Watched]) -> dict[str, float]:
    """How far each engine's results are from onnxruntime's, as a share of the largest element: name → the furthest."""
    plain, found = OnnxRuntime(), {}
    for name, region, runs in _noted(watched):
        compiled = plain.compile(region, ())
        pairs = ((mine, own) for inputs, outputs in runs for mine, own in zip(outputs, plain.run(compiled, inputs), strict=False))
        found[name] = max((distance(mine, own) for mine, own in pairs if own.dtype.kind in NUMBERS), default=0.0)
    return found


def _noted(watched: Iterable[Watched]) -> Iterator[tuple[str, Subgraph, list[_Run]]]:
    return ((name, one.regions[name], runs) for one in watched for name, runs in one.runs.items())


def _held(region: Subgraph, runs: Sequence[_Run]) -> Iterator[Accuracy]:
    return (accuracy(*result) for result in _results(region, runs))


def _results(region: Subgraph, runs: Sequence[_Run]) -> Iterator[tuple[Array, Array, Array]]:
    """Every result of these runs, onnxruntime's and the truth; nothing where that can't be had."""
    if region.nbytes > MOST_WEIGHTS:
        return
    exact, plain = Exact(onnx.load_from_string(region.serialized(whole=True))), OnnxRuntime()
    compiled = plain.compile(region, ())
    for inputs, outputs in runs:
        try:
            truth: Mapping[str, Array] = exact(dict(zip(region.inputs, inputs, strict=True)))
        except UnknownError:
            return
        for name, mine, own in zip(region.outputs, outputs, plain.run(compiled, inputs), strict=False):
            yield np.asarray(mine), own, np.asarray(truth[name])
