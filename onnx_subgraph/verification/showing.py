"""Decide whether an output can show a difference. If no error could exceed its bound, its equality is no evidence.

An output shows nothing if it is NaN or infinite everywhere, if it is the same for all feeds, if two runs on the same feeds
differ, or if its bound is more than `WIDE` of its own spread. The last happens in chaotic networks, whose roundings grow until
they are as large as the output. Numbers of 8 bits are coarser than that, and show no less.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from onnx_subgraph.verification.blocks import Array, spread_of, sum_of_squares
from onnx_subgraph.verification.bounds import Bound, epsilon, is_float
from onnx_subgraph.verification.case import Case
from onnx_subgraph.verification.judge import flatten
from onnx_subgraph.verification.verdict import Showing

WIDE = 0.1
"""The largest ratio of an output's bound to its spread; above it, the output shows nothing."""
ROUNDINGS = 2
"""As many roundings of its own type may be the bound of an output."""
OF_NONE = 3.0
"""If none of n elements differs, up to 3 / n of all may (the rule of three, for a confidence of 95 %)."""
UNDEFINED = "it is NaN or infinite everywhere"
"""Why an output of no number shows nothing."""


def showings(cases: Sequence[Case], random: Collection[str] = (), *, given: bool = False) -> tuple[Showing, ...]:
    """What each output of the reference can show in these cases, in order. random: outputs that differ from run to run.

    given: whether the user set the bounds; then they are never too wide.
    """
    cases = [case for case in cases if not case.unsteady]
    flat = [flatten(case.outputs) for case in cases]
    names = dict.fromkeys(name for outputs in flat for name in outputs)
    fed = any(case.feeds for case in cases)
    found = []
    for name in names:
        seen = [(outputs[name], case.bounds[name]) for outputs, case in zip(flat, cases, strict=True) if name in outputs]
        if name in random:
            found.append(Showing(name, "it is random: two runs on the same inputs differ"))
        else:
            found.append(_showing(name, seen, fed=fed, given=given))
    return tuple(found)


def _showing(name: str, seen: Sequence[tuple[Array, Bound]], *, fed: bool, given: bool) -> Showing:
    arrays = [array for array, _ in seen if array.size]
    if not arrays:
        return Showing(name, "it is empty")
    floats = is_float(arrays[0])
    if floats and not any(np.isfinite(array).any() for array in arrays):
        return Showing(name, UNDEFINED)
    if fed and len(seen) > 1 and _same(arrays):
        return Showing(name, "it is the same for all inputs that were tried")
    power = min(filter(None, (_power(array, allowed) for array, allowed in seen)), default=None)
    if not given and power is not None and power > _widest(arrays[0]):
        far = f" by {power:.0%} of its spread" if np.isfinite(power) else ", and it has no spread"
        return Showing(name, f"its own rounding moves it{far}" if floats else "its values flip by rounding")
    return Showing(name, "", power) if floats else Showing(name, unseen=min(1.0, OF_NONE / sum(array.size for array in arrays)))


def is_too_wide(array: Array, allowed: Bound) -> bool:
    """Whether no error of an output could exceed this bound."""
    return (_power(array, allowed) or 0.0) > _widest(array)


def _widest(array: Array) -> float:
    """The largest ratio of a bound to the spread: `WIDE`, or a few roundings of a coarse type."""
    return max(WIDE, ROUNDINGS * epsilon(array)) if is_float(array) else WIDE


def _same(arrays: Sequence[Array]) -> bool:
    """Whether all arrays are equal, or all hold the same number everywhere."""
    first = arrays[0]
    if all(array.shape == first.shape for array in arrays):
        return all(_equal(array, first) for array in arrays)
    number = first.reshape(-1)[:1]
    return all(_equal(array.reshape(-1), np.broadcast_to(number, array.size)) for array in arrays)


def _equal(one: Array, other: Array) -> bool:
    return np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")


def _power(array: Array, allowed: Bound) -> float | None:
    """The bound relative to the spread, or to the size where all elements are equal; for integers, the fraction that may flip.

    None where the bound is zero, or the array is empty.
    """
    if not array.size:
        return None
    if not is_float(array):
        return float(allowed.element) or None
    with np.errstate(all="ignore"):
        values = spread_of(array)
        spread = values.deviation or max(values.largest, -values.least)
        own = float(np.sqrt(sum_of_squares(allowed.element) / allowed.element.size))
    bound = allowed.aggregate if np.isfinite(allowed.aggregate) else own
    if not np.isfinite(bound) or (bound and not spread):
        return np.inf
    return bound / spread if spread else None
