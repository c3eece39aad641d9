"""Compare the errors of a fused and an unfused result, both measured against a float64 result.

A fusion rounds in other places than the nodes it replaces, so neither result is the reference for the other. A fused result that
is nearer to the float64 result than the unfused one is never wrong, however far the two are apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from onnx_subgraph.verification.bounds import limits

EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
SLACK = 4.0
"""How many times the unfused result's error the fused result's error may be …"""
FLOOR = 64.0
"""… plus this many units in the last place of the largest value, because kernels approximate tanh and erf."""
LEAST = 1e-12
"""The largest value of a result counts as at least this, so that kernels may differ slightly where the truth is zero."""
FAR = 1e5
"""Elements this many times larger than the median are compared separately."""
ATTRIBUTE = 4 * 2.0**-24
"""Additional error of a float64 result, relative to its largest value, if a number became an attribute (always float32)."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The largest errors of one output against the float64 result, in the output's unit.

    fused, unfused: the errors of the two results. unfused is 0 where there is no such result, infinite where it is NaN or
    infinite and the truth is finite.
    bound: the allowed error of the fused result. problem: another defect (its shape, its dtype), or "".
    compared: the number of elements that could show an error: finite and not zero, or integers, and no overflow in both graphs.
    overflows: the number of elements where the unfused result is NaN or infinite, but the fused one is finite, and the truth fits
    the dtype.
    """

    fused: float
    unfused: float
    bound: float
    problem: str = ""
    compared: int = 1
    overflows: int = 0

    @property
    def holds(self) -> bool:
        """Whether the fused result is within its bound."""
        return not self.problem and self.fused <= self.bound

    @property
    def gravity(self) -> tuple[int, float]:
        """A sort key, larger is worse: problems before errors, and errors by their ratio to the bound."""
        return 2 if self.problem else 1, self.fused / self.bound if self.bound else self.fused


def accuracy(
    fused: np.ndarray,
    unfused: np.ndarray | None,
    exact: np.ndarray,
    *,
    stored: bool = False,
    reads_infinity: bool = False,
    undefined: bool = False,
) -> Accuracy:
    """Compare one output of the fused graph, and of the unfused one, with the float64 result.

    Integers must all be those of the float64 result, or all those of the unfused graph: a rounding can move them. Where
    the unfused result overflows, the fused one may do so as well.
    stored: whether `ATTRIBUTE` applies. reads_infinity: whether an operand or constant is infinite. Then an infinite result, such
    as a hidden score, is no overflow, and must stay. undefined: whether a NaN is no overflow either, and must stay.
    """
    if fused.shape != exact.shape:
        return _refused(f"has shape {list(fused.shape)}, not {list(exact.shape)}")
    if unfused is not None and fused.dtype != unfused.dtype:
        return _refused(f"is {fused.dtype}, not {unfused.dtype}")
    if fused.dtype.kind in "OSU":
        same = np.array_equal(fused, exact if unfused is None else unfused)  # the text of a number depends on its type
        return Accuracy(0.0, 0.0, 0.0, compared=fused.size) if same else _refused("has other text")
    if fused.dtype.kind in "bui":
        same = np.array_equal(fused, exact) or (unfused is not None and np.array_equal(fused, unfused))
        return Accuracy(0.0, 0.0, 0.0, compared=exact.size) if same else _refused("has other integers")
    if not exact.size:
        return Accuracy(0.0, 0.0, 0.0, compared=0)
    exact, wide = exact.astype(np.float64), fused.astype(np.float64)  # what is cast to eight bits stays of eight bits
    own = exact if unfused is None else unfused.astype(np.float64)
    floor = FLOOR * EPSILON.get(fused.dtype.name, 2.0**-23) + (ATTRIBUTE if stored and fused.dtype == np.float64 else 0.0)
    with np.errstate(all="ignore"):
        finite = np.isfinite(exact) & (np.abs(exact) < largest(fused.dtype) / 2)
        huge = np.isfinite(exact) & ~finite
        stays, kept = (array * np.sign(exact) >= largest(fused.dtype) / 4 for array in (own, wide))
        if (lost_size := huge & stays & ~kept).any():
            return _other(wide, exact, lost_size)
        infinite = np.isinf(exact) & (own == exact) & (wide != exact)
        if reads_infinity and infinite.any():
            return _other(wide, exact, infinite)
        numbers = np.isnan(exact) & np.isnan(own) & ~np.isnan(wide)
        if undefined and numbers.any():
            return _other(wide, exact, numbers)
        lost = finite & ~np.isfinite(own)
        compared = finite & ~(lost & _same(wide, own))
        distances = [_distance(wide[part], own[part], exact[part], floor) for part in parts_by_size(exact, compared)]
    error, noise, bound = max(distances, key=lambda d: d[0] / d[2], default=(0.0, 0.0, floor))
    return Accuracy(
        error,
        np.inf if lost.any() else noise,
        bound,
        compared=int((compared & (exact != 0)).sum()),
        overflows=int((lost & np.isfinite(wide)).sum()),
    )


def _same(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The elements that are equal, or NaN in both."""
    return np.asarray((one == other) | (np.isnan(one) & np.isnan(other)))


def parts_by_size(exact: np.ndarray, finite: np.ndarray) -> list[np.ndarray]:
    """The finite elements, with far larger ones in a separate part.

    Otherwise a mask of -1e9 would loosen the bound of all others.
    """
    size = np.abs(exact)
    counted = finite & (exact != 0)
    usual = _median(size[counted]) if counted.any() else 0.0
    large = finite & (size > FAR * usual)
    return [part for part in (finite & ~large, large) if part.any()]


def _median(values: np.ndarray) -> float:
    """The median, as of `np.median`, which imports numpy.ma when it is first called."""
    middle = (values.size - 1) // 2, values.size // 2
    return float(np.partition(values, middle)[[*middle]].mean())


def _distance(fused: np.ndarray, own: np.ndarray, exact: np.ndarray, floor: float) -> tuple[float, float, float]:
    """The largest errors of the fused and the unfused result, and the bound of the fused one."""
    error = float(np.nan_to_num(np.abs(fused - exact), nan=np.inf).max(initial=0.0))
    noise = float(np.abs(own - exact)[np.isfinite(own)].max(initial=0.0))
    return error, noise, SLACK * noise + floor * max(LEAST, float(np.abs(exact).max(initial=0.0)))


def has_float_attribute(model: onnx.ModelProto) -> bool:
    """Whether the model stores a number as an attribute; attributes are float32 even if the computation is float64."""
    nodes = (*model.graph.node, *(n for f in model.functions for n in f.node))
    return any(a.type in (onnx.AttributeProto.FLOAT, onnx.AttributeProto.FLOATS) for n in nodes for a in n.attribute)


def _other(fused: np.ndarray, exact: np.ndarray, wrong: np.ndarray) -> Accuracy:
    """A result that is wrong at some elements, of which the first is told."""
    at = int(np.argmax(wrong))
    return _refused(f"is {fused.reshape(-1)[at]:.3g}, not {exact.reshape(-1)[at]:.3g}")


def _refused(problem: str) -> Accuracy:
    return Accuracy(float("inf"), 0.0, 0.0, problem)


def largest(dtype: np.dtype) -> float:
    """The largest number of a dtype."""
    return float(limits(dtype).max) if dtype.kind == "f" else np.inf
