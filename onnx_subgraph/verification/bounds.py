"""The bound of each output: how far the outputs of a model may differ, from how far they move when its roundings change.

For an output r of the reference, with noise draws n_k = |r_k - r| (k = 1…K, see `noise`), element i may differ by

    bound_i = ELEMENT * (max_k n_ik + max_k rms(n_k)) + FLOOR * eps(dtype) * (|r_i| + rms(r))

and the root mean square of all its differences may be at most

    AGGREGATE * max_k rms(n_k) + FLOOR * eps(dtype) * rms(r).

with NARROW_FLOOR for FLOOR in dtypes of 16 bits and fewer. For inputs of many magnitudes the smallest normal number is added to
both, because kernels may flush what is below it to zero; in these dtypes, the smallest number.

The first bound catches a large error in few elements. The second catches a small error in all elements: a mean of many
differences is known more precisely than a single one, so its bound can be several times tighter. The differences of few
elements, or those that all come from one rounding, are as good as a single one: their root mean square changes from draw to
draw, and the largest one counts.

Where the reference is NaN or infinite the candidate must be the same. The exception is an element where a noise draw gave a
finite number: the original itself is unstable there, so it is not compared. Outputs of integers, booleans or strings must be
equal; but where noise itself flips elements (ties of an argmax), a small multiple of that fraction may flip.

A detector selects rows by their scores, and a rounding exchanges rows with nearly equal scores. So a few elements of a draw may
jump: at most `MOST_JUMPS` of them, each by `JUMP` times more than nearly all others move. They do not count in n. As many
elements of a candidate, times `FLIPS`, may differ within the range of r. The root mean square is that of the others.

An output may join parts of different scales, such as boxes and scores (`parts`). Each is held to a bound of its own as well.

If the allowed root mean square reaches the standard deviation of r itself, the network is chaotic: a rounding may exchange any
two of its values. A few draws do not show how far each element goes, so differences up to max r - min r are allowed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onnx_subgraph.verification.blocks import Array, Spread, elementwise, spread_of, sum_of_squares, wide

ELEMENT = 8.0
"""The allowed difference of an element, in units of its largest noise plus the root mean square of the loudest draw."""
AGGREGATE = 3.0
"""The allowed root mean square of the differences, in units of that of the loudest draw of noise."""
FLOOR = 4.0
"""Units in the last place that any fused kernel may differ, even without noise: exp, tanh and erf are approximated that well."""
NARROW_FLOOR = 1.0
"""The same for dtypes of 16 bits and fewer: their kernels compute in float32 and round once."""
FLIPS = 2.0
"""The allowed fraction of flipped integers, or of elements that jump, in units of the largest fraction that noise flipped."""
JUMP = 100.0
"""How much further than the others an element moves that jumps."""
MANY = 256
"""The fewest elements of a part whose root mean square is bounded."""
MOST_JUMPS = 0.05
"""The largest fraction of elements that jump in one draw; if more move far, the noise is large."""


@dataclass(slots=True)
class Noise:
    """How K draws of noise changed one float output. largest: the largest difference of each element.

    loudest: the largest root mean square of the differences of one draw; 0 without draws.
    flips: the largest fraction of elements that one draw changed, if the output is not of floats, or that jumped, if it is; those
    do not count otherwise. unsteady: where the reference is NaN or infinite, but a draw gave a finite number; None if nowhere.
    reshaped: whether a draw gave another shape. parts: masks of the parts of the output, each with its own noise.
    """

    largest: Array | None = None
    unsteady: Array | None = None
    loudest: float = 0.0
    flips: float = 0.0
    reshaped: bool = False
    parts: tuple[tuple[Array, Noise], ...] = ()

    def add(self, reference: Array, other: Array, *, with_flips: bool = True) -> None:
        """Add one draw: the same output without noise and with noise inside the model.

        with_flips: whether the elements that flip or jump count. In many draws nearly every output has some.
        """
        if reference.shape != other.shape or reference.size == 0:
            self.reshaped |= reference.shape != other.shape  # elements can't be compared
            return
        if not is_float(reference):
            self.flips = max(self.flips, float(np.mean(reference != other)) * with_flips)
            return
        for mask, noise in self.parts:
            noise.add(reference[mask], other[mask], with_flips=with_flips)
        difference = difference_of(reference, other)
        finite = np.isfinite(difference)
        difference[~finite] = 0.0
        numbers = ~np.isfinite(reference) & np.isfinite(other)
        if numbers.any():
            self.unsteady = numbers if self.unsteady is None else self.unsteady | numbers
        jumped = _jumped(reference, difference)
        self.flips = max(self.flips, float(np.mean(jumped)) * with_flips)
        difference[jumped] = 0.0
        self.largest = difference if self.largest is None else np.maximum(self.largest, difference, out=self.largest)
        count = int((finite & ~jumped).sum())
        self.loudest = max(self.loudest, float(np.sqrt(sum_of_squares(difference) / max(1, count))))


@dataclass(frozen=True, slots=True)
class Bound:
    """The largest difference allowed.

    element: for each element (float64, the output's shape); for integers a scalar, the allowed fraction of different elements.
    aggregate: for the root mean square over the output; infinite when the user set rtol or atol.
    free: elements that may have any value; None if there are none. jumps: the fraction of elements that may differ by `furthest`.
    parts: masks of the parts of the output, each with a bound that holds as well.
    """

    element: Array
    aggregate: float = np.inf
    free: Array | None = None
    jumps: float = 0.0
    furthest: float = 0.0
    parts: tuple[tuple[Array, Bound], ...] = ()

    def limits(self, shape: tuple[int, ...]) -> Array:
        """The allowed difference of each element of an output of floats: the smallest, where it is in a part."""
        found = np.broadcast_to(self.element, shape).copy()
        for mask, part in self.parts:
            found[mask] = np.minimum(found[mask], part.limits(found[mask].shape))
        return found

    def times(self, factor: float) -> Bound:
        """The bound for a candidate whose roundings are larger by `factor`; bounds of discrete outputs are not scaled."""
        if factor == 1.0 or np.isinf(self.aggregate):
            return self
        parts = tuple((mask, part.times(factor)) for mask, part in self.parts)
        return replace(self, element=self.element * factor, aggregate=self.aggregate * factor, parts=parts)


NOTHING = Noise()


def is_float(array: Array) -> bool:
    """Whether the array holds real or complex floating-point numbers, including ml_dtypes' bfloat16 and float8."""
    return array.dtype.kind in "fc" or array.dtype.name.startswith(("bfloat16", "float8"))


def epsilon(array: Array) -> float:
    """The relative spacing of the array's dtype: 2^-23 for float32, 2^-10 for float16, 2^-7 for bfloat16, 2^-2 for float8e5m2."""
    return float(limits(array.dtype).eps)


def smallest(array: Array) -> float:
    """The smallest normal number of the array's dtype; of one of 16 bits and fewer, the smallest number."""
    found = limits(array.dtype)
    return float(found.smallest_normal if array.dtype.itemsize > 2 else found.smallest_subnormal)


def limits(dtype: np.dtype) -> Any:
    """Numpy's description of a floating-point dtype, or ml_dtypes'."""
    if issubclass(dtype.type, np.inexact):  # ml_dtypes' are not, whatever their kind is
        return np.finfo(dtype)
    import ml_dtypes

    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]


def bound(
    reference: Array,
    noise: Noise = NOTHING,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    fix_overflows: bool = False,
    flushed: bool = False,
) -> Bound:
    """The bound for one output, from its noise; with rtol or atol it is just atol + rtol * |reference|.

    fix_overflows: the candidate may have any value where the reference is NaN or infinite. flushed: numbers that are not normal
    may be zero.
    """
    if not is_float(reference):
        return Bound(np.asarray(min(1.0, FLIPS * noise.flips)))
    free = ~np.isfinite(reference) if fix_overflows else noise.unsteady
    if rtol is not None or atol is not None:
        near, far = atol or 0.0, rtol or 0.0
        return Bound(elementwise(lambda block: near + far * _magnitude(block), reference), free=free)
    spread, unit = spread_of(reference), _unit(reference)
    scale = _scale(reference, spread)
    local = noise.largest if noise.largest is not None and noise.largest.shape == reference.shape else np.zeros(())
    least = unit * scale + (smallest(reference) if flushed else 0.0)
    everywhere = ELEMENT * noise.loudest + least
    element = elementwise(lambda block, moved: unit * _magnitude(block) + (ELEMENT * moved + everywhere), reference, local)
    aggregate = AGGREGATE * noise.loudest + least
    furthest = spread.furthest
    if noise.loudest and aggregate >= spread.deviation:
        element, aggregate = np.maximum(element, furthest), max(aggregate, furthest)
    parts = tuple(
        (mask, _of_part(bound(reference[mask], part, fix_overflows=fix_overflows, flushed=flushed))) for mask, part in noise.parts
    )
    return Bound(element, aggregate, free, min(1.0, FLIPS * noise.flips), furthest, parts)


def _of_part(whole: Bound) -> Bound:
    """The bound of a part: of few elements, one or two may have all of the noise, so they are not judged together."""
    few = whole.element.size < MANY
    return replace(whole, aggregate=max(whole.aggregate, float(whole.element.max()))) if few else whole


def _jumped(reference: Array, difference: Array) -> Array:
    """The elements that jump in a draw. The differences are finite."""
    unit = _unit(reference)
    floor = unit * _scale(reference, spread_of(reference))
    if difference.max() <= JUMP * floor:
        return np.zeros(reference.shape, bool)
    usual = float(np.quantile(difference, 1.0 - MOST_JUMPS)) + floor
    return elementwise(lambda moved, block: moved > JUMP * (usual + unit * _magnitude(block)), difference, reference, dtype=bool)


def _magnitude(block: Array) -> Array:
    """The absolute value of each element, 0 for NaN and infinity."""
    magnitude = np.abs(wide(block))
    return np.where(np.isfinite(magnitude), magnitude, 0.0)


def _unit(reference: Array) -> float:
    return (FLOOR if reference.dtype.itemsize > 2 else NARROW_FLOOR) * epsilon(reference)


def _scale(reference: Array, spread: Spread) -> float:
    """The root mean square of an output."""
    return float(np.sqrt(spread.squares / reference.size)) if reference.size else 0.0


def difference_of(reference: Array, other: Array) -> Array:
    """The absolute difference of each element, in float64, in a new array."""
    with np.errstate(invalid="ignore", over="ignore"):
        return elementwise(lambda mine, theirs: np.abs(wide(theirs) - wide(mine)), reference, other)
