"""Compare two sets of outputs numerically: a bound for each element, and whether the differences stay within it.

The bound comes from the model: how far its outputs move when every float result inside it is moved by a rounding (`noise`). This
module does not use onnxruntime: it takes arrays and returns findings, so that it can be tested by itself.

For an output r of the reference, with noise draws n_k = |r_k - r| (k = 1…K, see `noise`), element i may differ by

    bound_i = ELEMENT * (max_k n_ik + rms(n)) + FLOOR * eps(dtype) * (|r_i| + rms(r))

and the root mean square of all its differences may be at most

    AGGREGATE * rms(n) + FLOOR * eps(dtype) * rms(r).

with NARROW_FLOOR for FLOOR in dtypes of 16 bits and fewer. The first bound catches a large error in few elements. The second
catches a small error in all elements: a mean of many differences is known more precisely than a single one, so its bound can be
several times tighter. Where the reference is NaN or infinite the candidate must be the same. The exception is an element where a
noise draw gave a finite number: the original itself is unstable there, so it is not compared. Outputs of integers, booleans or
strings must be equal; but where noise itself flips elements (ties of an argmax), a small multiple of that fraction may flip.

If the allowed root mean square reaches the standard deviation of r itself, the network is chaotic: a rounding may exchange any
two of its values. A few draws do not show how far each element goes, so differences up to max r - min r are allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

ELEMENT = 8.0
"""The allowed difference of an element, in units of its largest noise plus the typical noise of its output."""
AGGREGATE = 3.0
"""The allowed root mean square of the differences, in units of the noise's."""
FLOOR = 4.0
"""Units in the last place that any fused kernel may differ, even without noise: exp, tanh and erf are approximated that well."""
NARROW_FLOOR = 1.0
"""The same for dtypes of 16 bits and fewer: their kernels compute in float32 and round once."""
FLIPS = 2.0
"""The allowed fraction of flipped integers, in units of the largest fraction that noise flipped."""


@dataclass(slots=True)
class Noise:
    """How K draws of noise changed one float output: the sum of squares and, for each element, the largest difference.

    flips: for an output that is not of floats, the largest fraction of its elements that one draw changed. unsteady: where the
    reference is NaN or infinite, but a draw gave a finite number; None if nowhere.
    """

    largest: Array | None = None
    unsteady: Array | None = None
    squares: float = 0.0
    count: int = 0
    flips: float = 0.0

    def add(self, reference: Array, other: Array) -> None:
        """Add one draw: the same output without noise and with noise inside the model."""
        if reference.shape != other.shape or reference.size == 0:
            return  # the shape depends on the data and changed: elements can't be compared
        if not is_float(reference):
            self.flips = max(self.flips, float(np.mean(reference != other)))
            return
        difference = _difference(reference, other)
        finite = np.isfinite(difference)
        difference = np.where(finite, difference, 0.0)
        numbers = ~np.isfinite(reference) & np.isfinite(other)
        if numbers.any():
            self.unsteady = numbers if self.unsteady is None else self.unsteady | numbers
        self.largest = difference if self.largest is None else np.maximum(self.largest, difference)
        self.squares += float(np.sum(difference**2))
        self.count += int(finite.sum())

    def among(self, draws: int) -> Noise:
        """The noise if this one were among so many draws, and the others moved nothing."""
        return replace(self, count=self.count * draws)

    @property
    def rms(self) -> float:
        """Root mean square over all elements and draws; 0 without draws."""
        return float(np.sqrt(self.squares / self.count)) if self.count else 0.0


@dataclass(frozen=True, slots=True)
class Bound:
    """The largest difference allowed.

    element: for each element (float64, the output's shape); for integers a scalar, the allowed fraction of different elements.
    aggregate: for the root mean square over the output; infinite when the user set rtol or atol.
    free: elements that may have any value; None if there are none.
    """

    element: Array
    aggregate: float = np.inf
    free: Array | None = None

    def times(self, factor: float) -> Bound:
        """The bound for a candidate whose roundings are larger by `factor`; bounds of discrete outputs are not scaled."""
        return self if np.isinf(self.aggregate) else Bound(self.element * factor, self.aggregate * factor, self.free)


@dataclass(frozen=True, slots=True)
class Finding:
    """The comparison of one output.

    error, bound: at the element `worst`, whose ratio of error to bound is largest. problem: another defect, or "".
    compared: the number of finite or discrete elements that were compared.
    overflows: the number of elements where the reference is NaN or infinite and the candidate finite, if nothing else is wrong.
    """

    error: float
    bound: float
    worst: tuple[int, ...] = ()
    problem: str = ""
    compared: int = 0
    overflows: int = 0

    @property
    def equal(self) -> bool:
        return not self.problem and self.error <= self.bound


NOTHING = Noise()


def is_float(array: Array) -> bool:
    """Whether the array holds real or complex floating-point numbers, including ml_dtypes' bfloat16 and float8."""
    return array.dtype.kind in "fc" or array.dtype.name.startswith(("bfloat16", "float8"))


def epsilon(array: Array) -> float:
    """The relative spacing of the array's dtype: 2^-23 for float32, 2^-10 for float16, 2^-7 for bfloat16."""
    if array.dtype.kind in "fc":
        return float(np.finfo(array.dtype).eps)
    import ml_dtypes

    return float(ml_dtypes.finfo(array.dtype).eps)  # type: ignore[no-untyped-call]


def bound(
    reference: Array,
    noise: Noise = NOTHING,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    fix_overflows: bool = False,
) -> Bound:
    """The bound for one output, from its noise; with rtol or atol it is just atol + rtol * |reference|.

    fix_overflows: the candidate may have any value where the reference is NaN or infinite.
    """
    if not is_float(reference):
        return Bound(np.asarray(min(1.0, FLIPS * noise.flips)))
    free = ~np.isfinite(reference) if fix_overflows else noise.unsteady
    wide = _wide(reference)
    finite = np.isfinite(wide)
    magnitude = np.where(finite, np.abs(wide), 0.0)
    if rtol is not None or atol is not None:
        return Bound(np.asarray((atol or 0.0) + (rtol or 0.0) * magnitude), free=free)
    scale = float(np.sqrt(np.mean(magnitude**2))) if magnitude.size else 0.0
    floor = (FLOOR if reference.dtype.itemsize > 2 else NARROW_FLOOR) * epsilon(reference)
    local = noise.largest if noise.largest is not None and noise.largest.shape == reference.shape else 0.0
    element = np.asarray(ELEMENT * (local + noise.rms) + floor * (magnitude + scale))
    aggregate = AGGREGATE * noise.rms + floor * scale
    values = wide[finite].view(np.float64)  # of complex numbers, both parts
    if noise.rms and aggregate >= np.std(values):
        furthest = float(np.ptp(values))
        element, aggregate = np.maximum(element, furthest), max(aggregate, furthest)
    return Bound(element, aggregate, free)


def compare(reference: Array, candidate: Array, allowed: Bound) -> Finding:
    """Compare one output of the candidate with the reference's."""
    if reference.dtype != candidate.dtype:
        return _refused(f"dtype is {candidate.dtype}, the reference's is {reference.dtype}")
    if reference.shape != candidate.shape:
        return _refused(f"shape is {list(candidate.shape)}, the reference's is {list(reference.shape)}")
    if reference.size == 0:
        return Finding(0.0, 0.0)
    if not is_float(reference):
        return _compare_exactly(reference, candidate, float(allowed.element))
    problem, overflows = _misplaced(_wide(reference), _wide(candidate), allowed.free)
    difference = _difference(reference, candidate)
    finite = np.isfinite(difference)
    difference = np.where(finite, difference, 0.0)
    limits = np.broadcast_to(allowed.element, reference.shape)
    # ratio of difference to bound; infinite where the bound is 0 and there is a difference
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = np.where(difference > 0.0, difference / limits, 0.0)
    worst = tuple(int(i) for i in np.unravel_index(int(np.argmax(excess)), reference.shape))
    error, limit, compared = float(difference[worst]), float(limits[worst]), int(finite.sum())
    if not problem and error <= limit and compared:
        rms = float(np.sqrt(np.sum(difference**2) / compared))
        if rms > allowed.aggregate:
            problem = f"differs by {rms:.3g} in root mean square over {compared} elements, {allowed.aggregate:.3g} is allowed"
    return Finding(error, limit, worst, problem, compared, overflows)


def compare_all(reference: Mapping[str, Any], candidate: Mapping[str, Any], bounds: Mapping[str, Bound]) -> dict[str, Finding]:
    """Compare all outputs; elements of sequences and maps separately. Returns name, or name[key], → finding."""
    mine, theirs = flatten(reference), flatten(candidate)
    findings = {}
    for name in mine.keys() | theirs.keys():
        if name not in theirs:
            findings[name] = _refused("the candidate does not yield it")
        elif name not in mine:
            findings[name] = _refused("the reference does not yield it")
        else:
            findings[name] = compare(mine[name], theirs[name], bounds[name])
    return {name: findings[name] for name in (*mine, *(name for name in theirs if name not in mine))}


def flatten(outputs: Mapping[str, Any]) -> dict[str, Array]:
    """Outputs as arrays: sequences and maps by element (`name[0]`, `name[key]`), without absent optionals."""
    flat: dict[str, Array] = {}
    for name, value in outputs.items():
        if isinstance(value, list):
            flat |= flatten({f"{name}[{i}]": item for i, item in enumerate(value)})
        elif isinstance(value, Mapping):
            flat |= flatten({f"{name}[{key}]": item for key, item in value.items()})
        elif value is not None:
            flat[name] = np.asarray(value)
    return flat


def _refused(problem: str) -> Finding:
    return Finding(float("inf"), 0.0, (), problem)


def _wide(array: Array) -> Array:
    return array if array.dtype.kind == "c" else array.astype(np.float64)


def _difference(reference: Array, other: Array) -> Array:
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(np.abs(_wide(other) - _wide(reference)), np.float64)


def _misplaced(reference: Array, candidate: Array, free: Array | None) -> tuple[str, int]:
    """The first element where one is NaN or infinite and the other is different, and the number of those with a finite candidate.

    "" if there is none. The count is 0 where anything else is wrong.
    """
    if reference.dtype.kind == "c":
        real, imaginary = _misplaced(reference.real, candidate.real, free), _misplaced(reference.imag, candidate.imag, free)
        return (real[0] or imaginary[0], real[1] + imaginary[1])
    wrong = (
        (~np.isfinite(reference) | ~np.isfinite(candidate))
        & ~(np.isnan(reference) & np.isnan(candidate))
        & (reference != candidate)
    )
    if free is not None:
        wrong &= ~free
    if not wrong.any():
        return "", 0
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    count = int(wrong.sum())
    numbers = bool((~np.isfinite(reference) & np.isfinite(candidate))[wrong].all())
    said = f"is {candidate[index]:.3g} at {list(index)}, where the reference is {reference[index]} ({count} such elements)"
    return (f"{said}: the reference overflows, it does not" if numbers else said), count if numbers else 0


def _compare_exactly(reference: Array, candidate: Array, allowed: float) -> Finding:
    unequal = np.asarray(reference != candidate)
    fraction = float(np.mean(unequal))
    if fraction <= allowed:
        return Finding(fraction, allowed, (), "", reference.size)
    index = tuple(int(i) for i in np.argwhere(unequal)[0])
    problem = (
        f"is {candidate[index]!r} at {list(index)}, where the reference is {reference[index]!r}; "
        f"{int(unequal.sum())} of {reference.size} elements differ, {int(allowed * reference.size)} may"
    )
    return Finding(fraction, allowed, index, problem, reference.size)
