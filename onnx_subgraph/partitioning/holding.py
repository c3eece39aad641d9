"""Check each engine separately: are its backend's results as accurate as onnxruntime's?

The operands of an engine are recorded while the partitioned model is verified. On them the region is run by onnxruntime and
evaluated in float64. So a wrong engine is found even if the rest of the model hides its error, as a LayerNormalization hides a
constant factor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from onnx_subgraph.backends.array import Array
from onnx_subgraph.backends.backend import Backend, Signature
from onnx_subgraph.backends.onnxruntime import OnnxRuntime
from onnx_subgraph.evaluator.truth import Exact, UnknownError
from onnx_subgraph.verification.accuracy import Accuracy, accuracy
from onnx_subgraph.verification.rounding import distance

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_subgraph.backends.subgraph import Subgraph

RUNS = 2
"""The number of runs of each engine that are recorded."""
MOST_WEIGHTS = 1 << 30
"""The most bytes of weights of a region that is evaluated in float64."""
INNER = 4.0
"""The factor by which results inside a model may exceed an accuracy of the outputs, which is measured too: most operators average
errors. Results of a backend that computes wrongly are further off."""
_Run = tuple[Sequence[Array], Sequence[Array]]
"""The inputs and outputs of a run."""


class Watched(Backend):
    """A backend that records the first runs of each region."""

    def __init__(self, inner: Backend) -> None:
        self.name, self.version = inner.name, inner.version
        self.specializes, self.concurrent = inner.specializes, inner.concurrent
        self._inner = inner
        self.regions: dict[str, Subgraph] = {}
        self.runs: dict[str, list[_Run]] = defaultdict(list)

    def supports(self, node: ir.Node) -> bool:
        """Ask the inner backend."""
        return self._inner.supports(node)

    def compile(self, subgraph: Subgraph, signature: Signature) -> Any:
        """Compile with the inner backend, and remember the region."""
        self.regions[subgraph.name] = subgraph
        return subgraph.name, self._inner.compile(subgraph, signature)

    def run(self, compiled: Any, inputs: Sequence[Array]) -> Sequence[Array]:
        """Run with the inner backend, and record inputs and outputs."""
        name, region = compiled
        outputs = self._inner.run(region, inputs)
        if len(self.runs[name]) < RUNS:
            self.runs[name].append((list(inputs), list(outputs)))
        return outputs


def wrong(watched: Iterable[Watched]) -> dict[str, str]:
    """The engines whose results exceed their bound: name → the error, in words."""
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


def further(watched: Iterable[Watched], accuracy: float, final: Collection[str]) -> dict[str, str]:
    """The engines whose results are less accurate than required: name → the error, in words.

    accuracy: relative to the largest element of the result. final: the engines that compute an output of the model; the others
    may be `INNER` times as far off.
    """
    found = {}
    for name, region, runs in _noted(watched):
        away = max((distance(mine, exact) for mine, _, exact in _results(region, runs)), default=0.0)
        if away > (allowed := accuracy if name in final else INNER * accuracy):
            found[name] = f"by itself it is {away:.1e} of its largest element from the truth; {allowed:.1e} is allowed"
    return found


def apart(watched: Iterable[Watched]) -> dict[str, float]:
    """The largest difference of each engine's results from onnxruntime's, relative to the largest element: name → difference."""
    plain, found = OnnxRuntime(), {}
    for name, region, runs in _noted(watched):
        compiled = plain.compile(region, ())
        pairs = ((mine, own) for inputs, outputs in runs for mine, own in zip(outputs, plain.run(compiled, inputs), strict=False))
        found[name] = max((distance(mine, own) for mine, own in pairs), default=0.0)
    return found


def _noted(watched: Iterable[Watched]) -> Iterator[tuple[str, Subgraph, list[_Run]]]:
    return ((name, one.regions[name], runs) for one in watched for name, runs in one.runs.items())


def _held(region: Subgraph, runs: Sequence[_Run]) -> Iterator[Accuracy]:
    return (accuracy(*result) for result in _results(region, runs))


def _results(region: Subgraph, runs: Sequence[_Run]) -> Iterator[tuple[Array, Array, Array]]:
    """Every result of these runs: the backend's, onnxruntime's and the float64 one. Empty where there is no float64 result."""
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
