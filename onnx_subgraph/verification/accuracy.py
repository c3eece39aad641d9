"""How near to the truth a fused result is, beside how near the unfused one is.

A fusion rounds elsewhere than what it replaces, so neither is the measure of the other: both are held against float64, and a
fusion that is nearer to it than what it replaces is never wrong, however far the two are apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
SLACK = 4.0
"""How many times further from the truth than the unfused result the fused one may be …"""
FLOOR = 64.0
"""… and how many units in the last place of the largest value are always allowed: kernels approximate tanh and erf."""
ATTRIBUTE = 4 * 2.0**-24
"""What a float64 result may lose besides, of its largest value, where a number became an attribute: those are float32."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The largest distances of one output from the truth, in the output's own unit.

    fused, unfused: of each result; 0 where there is no unfused one, infinite where what should be a number is none.
    bound: what is allowed to the fused one. problem: "" or what is wrong besides the distance (its shape, its dtype).
    """

    fused: float
    unfused: float
    bound: float
    problem: str = ""

    @property
    def holds(self) -> bool:
        """Whether the fused result is as near to the truth as it has to be."""
        return not self.problem and self.fused <= self.bound


def accuracy(fused: np.ndarray, unfused: np.ndarray | None, exact: np.ndarray, *, stored: bool = False) -> Accuracy:
    """Holds one output of the fused graph, and of the unfused one, against its float64 truth. stored: see `ATTRIBUTE`."""
    if fused.shape != exact.shape:
        return _refused(f"has shape {list(fused.shape)}, not {list(exact.shape)}")
    if unfused is not None and fused.dtype != unfused.dtype:
        return _refused(f"is {fused.dtype}, not {unfused.dtype}")
    if fused.dtype.kind in "bui":
        return Accuracy(0.0, 0.0, 0.0) if bool((fused == exact).all()) else _refused("has other integers")
    if not exact.size:
        return Accuracy(0.0, 0.0, 0.0)
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
    return Accuracy(worst, float(np.nan_to_num(noise, nan=np.inf)), float(bound))


def has_float_attribute(model: onnx.ModelProto) -> bool:
    """Whether a number of the model is stored as an attribute, which is float32 whatever it is computed with."""
    nodes = (*model.graph.node, *(n for f in model.functions for n in f.node))
    return any(a.type in (onnx.AttributeProto.FLOAT, onnx.AttributeProto.FLOATS) for n in nodes for a in n.attribute)


def _refused(problem: str) -> Accuracy:
    return Accuracy(float("inf"), 0.0, 0.0, problem)


def _largest(dtype: np.dtype) -> float:
    return float(np.finfo(dtype).max) if dtype.kind == "f" else np.inf
