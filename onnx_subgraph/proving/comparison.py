"""Compare a fused model with the unfused one: both are run by onnxruntime without optimisation and compared with float64.

Each comparison that finds no difference is repeated with a planted error. A comparison that misses it proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx

from onnx_subgraph.verification.accuracy import accuracy, has_float_attribute
from onnx_subgraph.verification.sessions import Failure, open_session, run

PROVIDER = "CPUExecutionProvider"
BLIND = "is compared by a judge that does not see a planted error"
Arrays = Mapping[str, np.ndarray]


class NotRunError(Exception):
    """Neither model runs here, so there is nothing to compare; the message says why."""


class Exact:
    """A model before fusing, with its feeds, its float64 results, and onnxruntime's results (or its error).

    nearby: gives the float64 results for feeds that differ in the last digit. A fusion may have an error of that size: Softmax of
    scores of a million turns on the last digit of a query.
    """

    def __init__(
        self, proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray], truth: Arrays, nearby: Callable[[], Arrays] | None = None
    ) -> None:
        self.proto = proto
        self.feeds = dict(feeds)
        self.truth = truth
        self.nearby = nearby
        self._unfused: dict[str, np.ndarray] | str | None = None

    @property
    def unfused(self) -> dict[str, np.ndarray] | str:
        """The outputs of the model, or why there are none."""
        if self._unfused is None:
            self._unfused = outputs(self.proto, self.feeds)
        return self._unfused


def difference(exact: Exact, fused: onnx.ModelProto) -> str | None:
    """None when the fused model is accurate enough compared with the unfused one, else what is wrong. Raises NotRunError."""
    results = outputs(fused, exact.feeds)
    if isinstance(results, str):
        if isinstance(exact.unfused, str):
            raise NotRunError(results)
        return results
    stored = has_float_attribute(fused) and not has_float_attribute(exact.proto)
    for name, truth in exact.truth.items():
        if name not in results:
            return f"{name} is missing"
        unfused = None if isinstance(exact.unfused, str) else exact.unfused[name]
        problem = distance(results[name], unfused, np.asarray(truth), stored=stored)
        if problem is not None and exact.nearby is not None and unfused is not None:
            unfused = np.asarray(exact.nearby()[name]).astype(unfused.dtype)
            problem = distance(results[name], unfused, np.asarray(truth), stored=stored)
        if problem is not None:
            return f"{name} {problem}"
        if results[name].size and distance(planted(results[name]), unfused, np.asarray(truth), stored=stored) is None:
            return f"{name} {BLIND}"
    return None


def outputs(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray] | str:
    """The results of onnxruntime without optimisation, or its error."""
    session = open_session(model.SerializeToString(), PROVIDER, optimised=False, threads=1)
    results = session if isinstance(session, Failure) else run(session, feeds)
    return (
        f"onnxruntime says: {results.message}" if isinstance(results, Failure) else {n: np.asarray(a) for n, a in results.items()}
    )


def distance(fused: np.ndarray, unfused: np.ndarray | None, exact: np.ndarray, *, stored: bool = False) -> str | None:
    """How the error of the fused output exceeds its bound, in words, or None. stored: see `accuracy`.

    Integers that are those of the unfused output are right, too: TopK and ArgMax choose one of several values that are equal in
    float32 and differ in float64.
    """
    if unfused is not None and fused.dtype.kind in "biu" and fused.dtype == unfused.dtype and np.array_equal(fused, unfused):
        return None
    found = accuracy(fused, unfused, exact, stored=stored)
    if found.holds:
        return None
    return found.problem or f"is {found.fused:.3g} from the truth, {found.bound:.3g} is allowed"


def planted(output: np.ndarray) -> np.ndarray:
    """The output with an obvious error: its first finite element is changed, of integers every bit."""
    flat = output.reshape(-1).copy()
    at = int(np.argmax(np.isfinite(flat.astype(np.float64))))
    flat[at] = ~flat[at] if flat.dtype.kind in "biu" else flat[at] + 1 + abs(flat[at])
    return flat.reshape(output.shape)
