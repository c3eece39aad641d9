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
LEAST = 1e-12
"""The largest value of a result counts as this at least: where the truth is zero throughout, kernels may differ by so little."""
FAR = 1e5
"""How many times larger than the median an element is that is not measured with the others."""
ATTRIBUTE = 4 * 2.0**-24
"""What a float64 result may lose besides, of its largest value, where a number became an attribute: those are float32."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The largest distances of one output from the truth, in the output's own unit.

    fused, unfused: of each result; 0 where there is no unfused one, infinite where what should be a number is none.
    bound: what is allowed to the fused one. problem: "" or what is wrong besides the distance (its shape, its dtype).
    compared: how many elements could show an error: those that are finite and not zero, or of integers. overflows: of how many
    the unfused result is NaN or infinite, though the truth is a number that its dtype holds and the fused result is one, too.
    """

    fused: float
    unfused: float
    bound: float
    problem: str = ""
    compared: int = 1
    overflows: int = 0

    @property
    def holds(self) -> bool:
        """Whether the fused result is as near to the truth as it has to be."""
        return not self.problem and self.fused <= self.bound

    @property
    def gravity(self) -> tuple[int, float]:
        """The larger, the worse: a problem is worse than any distance, and distances count in units of their bounds."""
        return 2 if self.problem else 1, self.fused / self.bound if self.bound else self.fused


def accuracy(fused: np.ndarray, unfused: np.ndarray | None, exact: np.ndarray, *, stored: bool = False) -> Accuracy:
    """Holds one output of the fused graph, and of the unfused one, against its float64 truth. stored: see `ATTRIBUTE`."""
    if fused.shape != exact.shape:
        return _refused(f"has shape {list(fused.shape)}, not {list(exact.shape)}")
    if unfused is not None and fused.dtype != unfused.dtype:
        return _refused(f"is {fused.dtype}, not {unfused.dtype}")
    if fused.dtype.kind in "bui":
        return Accuracy(0.0, 0.0, 0.0, compared=exact.size) if bool((fused == exact).all()) else _refused("has other integers")
    if not exact.size:
        return Accuracy(0.0, 0.0, 0.0, compared=0)
    wide, own = fused.astype(np.float64), exact if unfused is None else unfused.astype(np.float64)
    floor = FLOOR * EPSILON.get(fused.dtype.name, 2.0**-23) + (ATTRIBUTE if stored and fused.dtype == np.float64 else 0.0)
    with np.errstate(all="ignore"):
        finite = np.isfinite(exact) & (np.abs(exact) < largest(fused.dtype) / 2)
        distances = [_distance(wide[part], own[part], exact[part], floor) for part in parts_by_size(exact, finite)]
    error, noise, bound = max(distances, key=lambda d: d[0] / d[2], default=(0.0, 0.0, floor))
    lost = finite & ~np.isfinite(own)
    return Accuracy(
        error,
        np.inf if lost.any() else noise,
        bound,
        compared=int((finite & (exact != 0)).sum()),
        overflows=int((lost & np.isfinite(wide)).sum()),
    )


def parts_by_size(exact: np.ndarray, finite: np.ndarray) -> list[np.ndarray]:
    """The finite elements, those far larger than the others apart: a mask of -1e9 is no measure of what stands beside it."""
    size = np.abs(exact)
    usual = np.median(size[finite & (exact != 0)]) if (finite & (exact != 0)).any() else 0.0
    large = finite & (size > FAR * usual)
    return [part for part in (finite & ~large, large) if part.any()]


def _distance(fused: np.ndarray, own: np.ndarray, exact: np.ndarray, floor: float) -> tuple[float, float, float]:
    """How far the fused and the unfused result are from the truth at most, and how far the fused one may be."""
    error = float(np.nan_to_num(np.abs(fused - exact), nan=np.inf).max(initial=0.0))
    noise = float(np.abs(own - exact)[np.isfinite(own)].max(initial=0.0))
    return error, noise, SLACK * noise + floor * max(LEAST, float(np.abs(exact).max(initial=0.0)))


def has_float_attribute(model: onnx.ModelProto) -> bool:
    """Whether a number of the model is stored as an attribute, which is float32 whatever it is computed with."""
    nodes = (*model.graph.node, *(n for f in model.functions for n in f.node))
    return any(a.type in (onnx.AttributeProto.FLOAT, onnx.AttributeProto.FLOATS) for n in nodes for a in n.attribute)


def _refused(problem: str) -> Accuracy:
    return Accuracy(float("inf"), 0.0, 0.0, problem)


def largest(dtype: np.dtype) -> float:
    """The largest number of a dtype."""
    return float(np.finfo(dtype).max) if dtype.kind == "f" else np.inf
