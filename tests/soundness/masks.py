"""Masks, indices and tables as exporters write them around attention, and things that look like them.

`simplify` knows what they are: a choice of two numbers, one number everywhere, a count, bounds, a part of a Concat. Each function
adds such nodes with details drawn, some of which change what may be known.
"""

from __future__ import annotations

import numpy as np

from tests.soundness.growth import Growth, Value

NUMBERS = (0.0, 0.0, 1.0, -1.0, -1e4, -np.inf, float(np.finfo(np.float32).min), np.inf, np.nan)
BITS = (True, True, False)
ELEMENTWISE = ("Cos", "Sin", "Neg", "Exp", "Abs", "Sqrt")


def condition(growth: Growth) -> Value | None:
    """A condition that is computed, or that is the same everywhere, or both joined."""
    value = growth.pick(lambda v: v.dtype == "float32" and v.rank >= 1)
    if value is None:
        return None
    zero = growth.weight(np.zeros((), np.float32))
    (drawn,) = growth.node(growth.random.choice(["Greater", "Less"]), [value, zero], ("bool", value.shape))
    kind = growth.random.choice(["computed", "computed", "joined", "everywhere", "counted"])
    if kind == "computed":
        return drawn
    (sizes,) = growth.node("Shape", [value], ("int64", (value.rank,)))
    if kind == "counted" and growth.opset >= 12:
        counting = along(growth, sizes, value, growth.random.randrange(value.rank), 0, 1)
        bound = growth.weight(np.array(growth.random.choice([0, 0, 1, -1]), np.int64))
        (same,) = growth.node("GreaterOrEqual", [counting, bound], ("bool", counting.shape))
    else:
        bit = growth.weight(np.array(growth.random.choice(BITS)))
        (same,) = growth.node("Expand", [bit, sizes], ("bool", value.shape))
    if kind == "everywhere":
        return same
    return growth.node(growth.random.choice(["And", "Or"]), [same, drawn], ("bool", value.shape))[0]


def along(growth: Growth, sizes: Value, value: Value, axis: int, start: int, step: int) -> Value:
    """Integers that count along an axis of a value, with its other axes of size 1. sizes: its shape."""
    (size,) = growth.node("Gather", [sizes, growth.weight(np.array(axis, np.int64), "n")], ("int64", ()))
    ends = [growth.weight(np.array(number, np.int64), "n") for number in (start, step)]
    length = len(range(start, value.shape[axis], step))
    (numbers,) = growth.node("Range", [ends[0], size, ends[1]], ("int64", (length,)))
    shape = [length if axis == i else 1 for i in range(value.rank)]
    target = growth.ints(*(-1 if axis == i else 1 for i in range(value.rank)))
    return growth.node("Reshape", [numbers, target], ("int64", shape))[0]


def bounded(growth: Growth) -> None:
    """A mask of two numbers, or of a number and a table, with operators on it.

    Its numbers are so large that a normalization of them is mostly rounding. So other operators read only where it is above -2.
    """
    visible = {value.name for value in growth.values}
    keep = condition(growth)
    if keep is None:
        return
    one = _numbers(growth, keep) if growth.random.random() < 0.3 else growth.weight(_number(growth))
    pair = [one, growth.weight(_number(growth))]
    growth.random.shuffle(pair)
    (mask,) = growth.node("Where", [keep, *pair], ("float32", keep.shape))
    for _ in range(growth.random.randint(1, 3)):
        mask = _step(growth, mask)
    growth.hidden |= {value.name for value in growth.values if value.is_float} - visible
    (above,) = growth.node("Greater", [mask, growth.weight(np.float32(-2))], ("bool", mask.shape))
    growth.node("Cast", [above], ("float32", mask.shape), to=1)


def _number(growth: Growth) -> np.ndarray:
    return np.array(growth.random.choice(NUMBERS), np.float32)


def _numbers(growth: Growth, like: Value) -> Value:
    """Rows of a table, for the last axis of a value: 0 or 1 picks the row."""
    table = growth.weight(growth.numbers((2, like.shape[-1]), "float32") * np.float32(growth.random.choice([1, 1e4])))
    (bits,) = growth.node("Cast", [like], ("int64", like.shape), to=7)
    last = growth.weight(np.array(-1, np.int64), "n")
    (row,) = growth.node("Gather", [bits, last], ("int64", like.shape[:-1]), axis=-1)
    return growth.node("Gather", [table, row], ("float32", (*like.shape[:-1], like.shape[-1])))[0]


def _step(growth: Growth, mask: Value) -> Value:
    """One of the operators with which exporters keep masks finite."""
    same = ("float32", mask.shape)
    kind = growth.random.choice(["infinite", "infinite", "clip", "clip", "bound", "cast", "where", "sum"])
    if kind == "infinite":
        (asked,) = growth.node(growth.random.choice(["IsInf", "IsNaN"]), [mask], ("bool", mask.shape))
        pair = [growth.weight(_number(growth)), mask]
        if growth.random.random() < 0.3:
            pair.reverse()
        return growth.node("Where", [asked, *pair], same)[0]
    if kind == "clip":
        low, high = sorted(float(n) for n in growth.random.sample([-1e30, -1e4, -3.0, 0.0, 3.0, 1e4], 2))
        bounds = [growth.weight(np.array(number, np.float32)) for number in (low, high)]
        return growth.node("Clip", [mask, *bounds[: growth.random.choice([1, 2])]], same)[0]
    if kind == "bound":
        return growth.node(growth.random.choice(["Max", "Min"]), [mask, growth.weight(_number(growth))], same)[0]
    if kind == "cast":
        dtype, number = growth.random.choice([("float64", 11), ("float16", 10), ("bool", 9), ("int32", 6)])
        (other,) = growth.node("Cast", [mask], (dtype, mask.shape), to=number)
        return growth.node("Cast", [other], same, to=1)[0]
    if kind == "where":
        keep = growth.pick(lambda v: v.dtype == "bool" and v.shape == mask.shape)
        return mask if keep is None else growth.node("Where", [keep, mask, growth.weight(_number(growth))], same)[0]
    return growth.node("Add", [mask, growth.weight(_number(growth))], same)[0]


def taken(growth: Growth) -> None:
    """Elements of a matrix gathered by indices that count along its rows and columns, in some order."""
    matrix = growth.pick(lambda v: v.rank == 2 and v.dtype in ("float32", "int64"))
    if matrix is None or growth.opset < 12:
        return
    (sizes,) = growth.node("Shape", [matrix], ("int64", (2,)))
    start, step = growth.random.choice([0, 0, 0, 1]), growth.random.choice([1, 1, 1, 2])
    row, column = (along(growth, sizes, matrix, axis, start, step) for axis in (0, 1))
    shape = (row.shape[0], column.shape[1])
    if growth.random.random() < 0.5:
        (both,) = growth.node("Add", [row, column], ("int64", shape))
        (target,) = growth.node("Shape", [both], ("int64", (2,)))
        pair = []
        for one in (row, column):
            (whole,) = growth.node("Expand", [one, target], ("int64", shape))
            axis = growth.weight(np.array([2], np.int64), "n") if growth.opset >= 13 else None
            said = {"axes": [2]} if axis is None else {}
            pair.append(growth.node("Unsqueeze", [whole, axis][: 1 if axis is None else 2], ("int64", (*shape, 1)), **said)[0])
        if matrix.shape[0] == matrix.shape[1] and growth.random.random() < 0.3:
            pair.reverse()
        (indices,) = growth.node("Concat", pair, ("int64", (*shape, 2)), axis=growth.random.choice([-1, 2]))
        growth.node("GatherND", [matrix, indices], (matrix.dtype, shape))
        return
    (flat,) = growth.node("Reshape", [matrix, growth.ints(-1)], (matrix.dtype, (matrix.shape[0] * matrix.shape[1],)))
    if growth.random.random() < 0.7:
        (stride,) = growth.node("Gather", [sizes, growth.weight(np.array(1, np.int64), "n")], ("int64", ()))
    else:
        stride = growth.weight(np.array(growth.random.randint(1, matrix.shape[1]), np.int64), "n")
    (starts,) = growth.node("Mul", [row, stride], ("int64", row.shape))
    (places,) = growth.node("Add", [starts, column], ("int64", shape))
    growth.node("Gather", [flat, places], (matrix.dtype, shape))


def doubled(growth: Growth) -> None:
    """Values joined with themselves or with others, elementwise operators, and a Split of the result."""
    value = growth.pick(lambda v: v.dtype == "float32" and v.rank >= 2)
    if value is None:
        return
    other = growth.pick(lambda v: v.dtype == "float32" and v.shape == value.shape) or value
    last = value.shape[-1]
    (joined,) = growth.node("Concat", [value, other], ("float32", (*value.shape[:-1], 2 * last)), axis=-1)
    for _ in range(growth.random.randint(0, 2)):
        operator = growth.random.choice(ELEMENTWISE)
        operand = joined if operator != "Sqrt" else growth.node("Abs", [joined], ("float32", joined.shape))[0]
        (joined,) = growth.node(operator, [operand], ("float32", joined.shape))
    parts = [last, last] if growth.random.random() < 0.7 or last == 1 else [last - 1, last + 1]
    shapes = [("float32", (*value.shape[:-1], size)) for size in parts]
    if growth.opset >= 13:
        first, second = growth.node("Split", [joined, growth.ints(*parts)], *shapes, axis=-1)
    else:
        first, second = growth.node("Split", [joined], *shapes, axis=-1, split=parts)
    if growth.random.random() < 0.7:
        growth.dropped.add(second.name)
    if growth.random.random() < 0.5:
        growth.node("Tanh", [first], ("float32", first.shape))
