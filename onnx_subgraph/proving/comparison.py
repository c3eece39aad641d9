"""Whether a fused model is as near to the truth as the unfused one, and whether that was seen at all.

Both are run by onnxruntime without optimisation and held against the float64 truth. Each comparison that finds nothing is made
once more with an error planted in it: a judge that can't say no proves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from onnx_subgraph.verification.sessions import Failure, open_session, run

PROVIDER = "CPUExecutionProvider"
EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
SLACK = 4.0
"""How many times further from the truth than the unfused model the fused one may be …"""
FLOOR = 64.0
"""… and how many units in the last place of the largest value are always allowed: kernels approximate tanh and erf."""
ATTRIBUTE = 4 * 2.0**-24
"""What a float64 result may lose besides, of its largest value, where a number became an attribute: those are float32."""

Arrays = Mapping[str, np.ndarray]


class NotRunError(Exception):
    """Neither model runs here, so there is nothing to compare; the text says why."""


class Exact:
    """A model before fusing, its feeds, the truth, and what onnxruntime makes of it (in words where it makes nothing)."""

    def __init__(self, proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray], truth: Arrays) -> None:
        self.proto = proto
        self.feeds = dict(feeds)
        self.truth = truth
        self._unfused: dict[str, np.ndarray] | str | None = None

    @property
    def unfused(self) -> dict[str, np.ndarray] | str:
        """The outputs of the model, or why there are none."""
        if self._unfused is None:
            self._unfused = outputs(self.proto, self.feeds)
        return self._unfused


def difference(exact: Exact, fused: onnx.ModelProto) -> str | None:
    """None when the fused model is as near to the truth as the unfused one, else what is wrong. Raises NotRunError."""
    results = outputs(fused, exact.feeds)
    if isinstance(results, str):
        if isinstance(exact.unfused, str):
            raise NotRunError(results)
        return results
    stored = _has_float_attribute(fused) and not _has_float_attribute(exact.proto)
    for name, truth in exact.truth.items():
        if name not in results:
            return f"{name} is missing"
        unfused = None if isinstance(exact.unfused, str) else exact.unfused[name]
        problem = distance(results[name], unfused, np.asarray(truth), stored=stored)
        if problem is not None:
            return f"{name} {problem}"
        if results[name].size and distance(planted(results[name]), unfused, np.asarray(truth), stored=stored) is None:
            return f"{name} is compared by a judge that does not see a planted error"
    return None


def outputs(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray] | str:
    """What onnxruntime computes without optimisation, or what it says instead."""
    session = open_session(model.SerializeToString(), PROVIDER, optimised=False, threads=1)
    results = session if isinstance(session, Failure) else run(session, feeds)
    return (
        f"onnxruntime says: {results.message}" if isinstance(results, Failure) else {n: np.asarray(a) for n, a in results.items()}
    )


def distance(fused: np.ndarray, unfused: np.ndarray | None, exact: np.ndarray, *, stored: bool = False) -> str | None:
    """How the fused output is further from the exact one than it may be, in words, or None. stored: see `ATTRIBUTE`."""
    if fused.shape != exact.shape:
        return f"has shape {list(fused.shape)}, not {list(exact.shape)}"
    if unfused is not None and fused.dtype != unfused.dtype:
        return f"is {fused.dtype}, not {unfused.dtype}"
    if fused.dtype.kind in "bui":
        return None if bool((fused == exact).all()) else "has other integers"
    if not exact.size:
        return None
    with np.errstate(all="ignore"):
        narrow = np.abs(exact) < _largest(fused.dtype) / 2
        finite = np.isfinite(exact) & narrow
        error = np.abs(fused.astype(np.float64) - exact)[finite]
        noise = 0.0 if unfused is None else np.abs(unfused.astype(np.float64) - exact)[finite].max(initial=0.0)
    scale = max(1e-6, np.abs(exact[finite]).max(initial=0.0))
    floor = FLOOR * EPSILON.get(fused.dtype.name, 2.0**-23)
    if stored and fused.dtype == np.float64:
        floor += ATTRIBUTE
    bound = SLACK * (0.0 if not np.isfinite(noise) else float(noise)) + floor * scale
    worst = float(np.nan_to_num(error, nan=np.inf).max(initial=0.0))
    return None if worst <= bound else f"is {worst:.3g} from the truth, {bound:.3g} is allowed"


def planted(output: np.ndarray) -> np.ndarray:
    """The output with an error that any judge must see: the first element is another one."""
    flat = output.reshape(-1).copy()
    flat[0] = not flat[0] if flat.dtype == np.bool_ else flat[0] + 1 + abs(flat[0])
    return flat.reshape(output.shape)


def _largest(dtype: np.dtype) -> float:
    return float(np.finfo(dtype).max) if dtype.kind == "f" else np.inf


def _has_float_attribute(model: onnx.ModelProto) -> bool:
    nodes = (*model.graph.node, *(n for f in model.functions for n in f.node))
    return any(a.type in (onnx.AttributeProto.FLOAT, onnx.AttributeProto.FLOATS) for n in nodes for a in n.attribute)
