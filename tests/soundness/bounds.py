"""Parts of random graphs whose sizes follow from other sizes by arithmetic: they differ where an input is short."""

from __future__ import annotations

import numpy as np

from tests.soundness.growth import Growth, Value

EARLIEST = 12
"""The opset at which Min and Max took integers."""


def cut(growth: Growth) -> None:
    """The elements up to a computed end, sometimes cut again at the same end, and sometimes their number."""
    value = growth.pick(lambda v: v.dtype == "float32" and v.rank >= 1)
    if value is None or growth.opset < EARLIEST:
        return
    axis = growth.random.randrange(value.rank)
    (sizes,) = growth.node("Shape", [value], ("int64", (value.rank,)))
    (size,) = growth.node("Gather", [sizes, growth.ints(axis)], ("int64", (1,)), axis=0)
    operator, number, long = growth.random.choice(["Min", "Max", "Sub"]), growth.random.randint(1, 5), value.shape[axis]
    (end,) = growth.node(operator, [size, growth.ints(number)], ("int64", (1,)))
    at = {"Min": min(long, number), "Max": max(long, number), "Sub": long - number}[operator]
    for _ in range(growth.random.randint(1, 2)):
        left = len(range(value.shape[axis])[:at])
        if not left:
            return
        shape = (*value.shape[:axis], left, *value.shape[axis + 1 :])
        (value,) = growth.node("Slice", [value, growth.ints(0), end, growth.ints(axis)], (value.dtype, shape))
        if growth.random.random() < 0.5:
            (value,) = growth.node("Tanh", [value], (value.dtype, shape))
    if growth.random.random() < 0.6:
        _counted(growth, value, axis, end)


def _counted(growth: Growth, value: Value, axis: int, end: Value) -> None:
    """The number of elements along an axis, beside the end that was asked for, as floats."""
    (sizes,) = growth.node("Shape", [value], ("int64", (value.rank,)))
    (left,) = growth.node("Gather", [sizes, growth.weight(np.array([axis], np.int64), "n")], ("int64", (1,)), axis=0)
    (both,) = growth.node("Concat", [left, end], ("int64", (2,)), axis=0)
    growth.node("Cast", [both], ("float32", (2,)), to=1)
