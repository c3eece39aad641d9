"""The operators of random graphs, one function for each kind. Each adds valid nodes, or none if no value fits.

Operands are kept in a range where operators are well-conditioned (a divisor is at least one), so that the judge sees errors of
rewriting and not rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from tests.soundness import bounds, einsums, masks
from tests.soundness.growth import Growth, Value

Grow = Callable[[Growth], object]

FLOATS = ("float32", "float16", "float64")
UNARY = ("Relu", "Tanh", "Sigmoid", "Abs", "Neg", "Identity", "Softplus", "Softsign", "Erf", "LeakyRelu", "HardSigmoid", "Elu")
EDGE_AXES = 13
"""The opset at which the axes of ReduceSum, Squeeze and Unsqueeze became an input; 18 for the other reductions."""


def same(value: Value) -> tuple[str, tuple[int, ...]]:
    return value.dtype, value.shape


def unary(growth: Growth, value: Value | None = None) -> Value | None:
    """An elementwise function of one value."""
    value = value or growth.pick_float()
    if value is None:
        return None
    choices = [*UNARY, *(("HardSwish",) if growth.opset >= 14 else ()), *(("Mish",) if growth.opset >= 18 else ())]
    operator = growth.random.choice(choices)
    if value.dtype == "float64" and operator in ("Erf", "HardSwish", "Mish"):  # no kernel
        operator = "Tanh"
    attributes = {"alpha": growth.random.choice([0.1, 0.01, 0.2])} if operator == "LeakyRelu" else {}
    return growth.node(operator, [value], same(value), **attributes)[0]


def positive(growth: Growth, value: Value) -> Value:
    """1 + |value|."""
    (size,) = growth.node("Abs", [value], same(value))
    return growth.node("Add", [size, growth.weight(np.ones((), value.dtype))], same(value))[0]


def other(growth: Growth, value: Value) -> Value:
    """A second operand for `value`: a value of its shape, or a constant that broadcasts to it."""
    beside = growth.pick(lambda v: v.dtype == value.dtype and v.shape == value.shape)
    if beside is not None and growth.random.random() < 0.4:
        return beside
    shape = growth.random.choice([(), value.shape[-1:] and (1,), value.shape, value.shape[-1:], (1,) * value.rank])
    if growth.random.random() < 0.3 and not shape:
        number = growth.random.choice([0.5, 1.0, 2.0, 3.0, 6.0, 1.702, 0.044715, 1.4142135, -1.0])
        return growth.weight(np.asarray(number, value.dtype))
    return growth.weight(growth.numbers(shape, value.dtype))


def binary(growth: Growth, value: Value | None = None) -> Value | None:
    """A sum, product, quotient, power or bound."""
    value = value or growth.pick_float()
    if value is None:
        return None
    operator = growth.random.choice(["Add", "Sub", "Mul", "Mul", "Div", "Max", "Min", "Pow"])
    if operator == "Pow":
        exponent = growth.random.choice([2.0, 3.0, 0.5, -0.5])
        return growth.node("Pow", [positive(growth, value), growth.weight(np.asarray(exponent, value.dtype))], same(value))[0]
    right = other(growth, value)
    if operator == "Div":
        right = positive(growth, right)
    pair = [value, right] if operator == "Div" or growth.random.random() < 0.5 else [right, value]
    return growth.node(operator, pair, same(value))[0]


def integers(growth: Growth) -> None:
    value = growth.pick(lambda v: v.dtype in ("int32", "int64") and v.rank > 0)
    if value is None:
        return
    operator = growth.random.choice(["Add", "Sub", "Mul", *(("Max", "Min") if growth.opset >= 12 else ())])
    beside = growth.weight(growth.numbers(growth.random.choice([(), value.shape]), value.dtype))
    growth.node(operator, [value, beside], same(value))


def cast(growth: Growth) -> None:
    """A Cast between types, also from floats to integers, which must not be looked through."""
    value = growth.pick(lambda v: v.rank > 0)
    if value is None:
        return
    to = growth.random.choice(["float32", "float32", "float16", "float64", "int32", "int64"])
    number = {"float32": 1, "float16": 10, "float64": 11, "int32": 6, "int64": 7}[to]
    (made,) = growth.node("Cast", [value], (to, value.shape), to=number)
    if value.is_float and growth.random.random() < 0.5:
        number = {"float32": 1, "float16": 10, "float64": 11}[value.dtype]
        growth.node("Cast", [made], same(value), to=number)


def where(growth: Growth) -> None:
    value = growth.pick_float(1)
    if value is None:
        return
    right = other(growth, value)
    (mask,) = growth.node(growth.random.choice(["Greater", "Less"]), [value, right], ("bool", value.shape))
    if growth.random.random() < 0.3:
        (mask,) = growth.node("Not", [mask], ("bool", value.shape))
    growth.node("Where", [mask, value, other(growth, value)], same(value))


def reduction(growth: Growth) -> None:
    value = growth.pick_float(1)
    if value is None:
        return
    operator = growth.random.choice(["ReduceMean", "ReduceSum", "ReduceMax", "ReduceL2", "ReduceSumSquare", "ReduceMin"])
    axes = sorted(growth.random.sample(range(value.rank), growth.random.randint(1, min(2, value.rank))))
    keep = growth.random.random() < 0.7
    shape = [1 if i in axes else d for i, d in enumerate(value.shape) if keep or i not in axes]
    said = [a - value.rank for a in axes] if growth.random.random() < 0.5 else axes
    reduce(growth, operator, value, said, shape, keep)


def reduce(growth: Growth, operator: str, value: Value, axes: list[int], shape: list[int], keep: bool) -> Value:
    """A reduction, with its axes as an attribute or input by opset."""
    as_input = growth.opset >= (EDGE_AXES if operator == "ReduceSum" else 18)
    operands = [value, growth.ints(*axes)] if as_input else [value]
    return growth.node(operator, operands, (value.dtype, shape), keepdims=None if keep else 0, axes=None if as_input else axes)[0]


def centred(growth: Growth) -> None:
    """A value minus its mean: the beginning of many normalizations."""
    value = growth.pick_float(2)
    if value is None:
        return
    mean = reduce(growth, "ReduceMean", value, [-1], [*value.shape[:-1], 1], True)
    growth.node("Sub", [value, mean], same(value))


def matmul(growth: Growth) -> None:
    value = growth.pick_float(2)
    if value is None:
        return
    width = growth.random.choice([3, 4, 8])
    if growth.random.random() < 0.3:
        order = [*range(value.rank - 2), value.rank - 1, value.rank - 2]
        (turned,) = growth.node("Transpose", [value], (value.dtype, [value.shape[i] for i in order]), perm=order)
        _product(growth, value, turned, value.shape[-2])
        return
    weight = growth.weight(growth.numbers((value.shape[-1], width), value.dtype) / np.asarray(2, value.dtype))
    product = _product(growth, value, weight, width)
    if growth.random.random() < 0.5:
        growth.node("Add", [product, growth.weight(growth.numbers((width,), value.dtype))], same(product))


def _product(growth: Growth, left: Value, right: Value, width: int) -> Value:
    """The product of two values as a MatMul or an Einsum."""
    result = (left.dtype, [*left.shape[:-1], width])
    if growth.opset < einsums.FIRST_OPSET or left.dtype == "float16" or growth.random.random() < 0.6:
        return growth.node("MatMul", [left, right], result)[0]
    return growth.node("Einsum", [left, right], result, equation=einsums.equation(growth.random, left.shape, right.shape))[0]


def gemm(growth: Growth) -> None:
    value = growth.pick(lambda v: v.is_float and v.rank == 2)
    if value is None:
        return
    turn_a, turn_b = growth.random.random() < 0.3, growth.random.random() < 0.5
    rows, depth = value.shape[::-1] if turn_a else value.shape
    width = growth.random.choice([3, 4])
    weight = growth.weight(growth.numbers((width, depth) if turn_b else (depth, width), value.dtype))
    bias = growth.weight(growth.numbers(growth.random.choice([(), (width,), (1, width), (rows, width)]), value.dtype))
    attributes = {"alpha": growth.random.choice([None, 0.5]), "beta": growth.random.choice([None, 2.0])}
    growth.node(
        "Gemm",
        [value, weight, bias] if growth.random.random() < 0.7 else [value, weight],
        (value.dtype, (rows, width)),
        transA=int(turn_a) or None,
        transB=int(turn_b) or None,
        **attributes,
    )


def convolution(growth: Growth) -> None:
    value = growth.pick(lambda v: v.dtype in ("float32", "float16") and v.rank == 4 and min(v.shape[2:]) >= 3)
    if value is None:
        return
    batch, channels, *size = value.shape
    group = growth.random.choice([1, channels])
    width = channels * growth.random.choice([1, 2])
    kernel, pad = growth.random.choice([(1, 0), (3, 1), (3, 0)])
    weight = growth.weight(growth.numbers((width, channels // group, kernel, kernel), value.dtype) / np.asarray(2, value.dtype))
    operands = [value, weight]
    if growth.random.random() < 0.5:
        operands.append(growth.weight(growth.numbers((width,), value.dtype)))
    shape = [batch, width, *(d + 2 * pad - kernel + 1 for d in size)]
    growth.node("Conv", operands, (value.dtype, shape), group=group if group > 1 else None, pads=[pad] * 4 if pad else None)


def normalization(growth: Growth) -> None:
    value = growth.pick(lambda v: v.is_float and v.dtype != "float64" and v.rank >= 3)
    if value is None:
        return
    channels = value.shape[1]
    weights = [growth.weight(growth.numbers((channels,), value.dtype)) for _ in range(3)]
    kind = growth.random.choice(["batch", "instance", "layer"])
    if kind == "batch" and growth.opset < 15:
        kind = "instance"
    if kind == "batch":
        variance = growth.weight(abs(growth.numbers((channels,), value.dtype)) + np.asarray(0.5, value.dtype))
        growth.node("BatchNormalization", [value, *weights, variance], same(value), epsilon=growth.random.choice([None, 1e-3]))
    elif kind == "instance":
        growth.node("InstanceNormalization", [value, *weights[:2]], same(value))
    elif growth.opset >= 17:
        axis = growth.random.choice([-1, value.rank - 1, 1])
        scale = growth.weight(growth.numbers(value.shape[axis:], value.dtype))
        bias = growth.weight(growth.numbers(value.shape[axis:], value.dtype))
        growth.node("LayerNormalization", [value, scale, bias][: growth.random.choice([2, 3])], same(value), axis=axis)


def softmax(growth: Growth) -> None:
    value = growth.pick_float(2)
    if value is not None:
        axis = growth.random.choice([None, -1, 1, value.rank - 1])
        growth.node(growth.random.choice(["Softmax", "Softmax", "LogSoftmax"]), [value], same(value), axis=axis)


def transpose(growth: Growth) -> None:
    value = growth.pick(lambda v: v.rank >= 2)
    if value is not None:
        order = growth.random.sample(range(value.rank), value.rank)
        growth.node("Transpose", [value], (value.dtype, [value.shape[i] for i in order]), perm=order)


def reshape(growth: Growth) -> None:
    """A Reshape to a matrix, to another split of the last axes, or to the same shape. The first axis may be dynamic."""
    value = growth.pick(lambda v: v.rank >= 2 and v.dtype != "bool")
    if value is None:
        return
    first, rest = value.shape[0], list(value.shape[1:])
    shape = growth.random.choice([[first, prod(rest)], [first, *reversed(rest)], [first, 1, *rest], [first, *rest]])
    said = [growth.random.choice([0, -1, first]), *shape[1:]]
    growth.node("Reshape", [value, growth.ints(*said)], (value.dtype, shape))


def squeeze(growth: Growth) -> None:
    value = growth.pick(lambda v: 1 in v.shape and v.dtype != "bool") if growth.random.random() < 0.5 else None
    operator = "Squeeze" if value is not None else "Unsqueeze"
    value = value or growth.pick(lambda v: v.rank < 4 and v.dtype != "bool")
    if value is None:
        return
    axis = value.shape.index(1) if operator == "Squeeze" else growth.random.randint(0, value.rank)
    shape = list(value.shape)
    shape[axis : axis + (operator == "Squeeze")] = [] if operator == "Squeeze" else [1]
    if growth.opset >= EDGE_AXES:
        growth.node(operator, [value, growth.ints(axis)], (value.dtype, shape))
    else:
        growth.node(operator, [value], (value.dtype, shape), axes=[axis])


def pieces(growth: Growth) -> None:
    """A value cut along an axis by Slice or Split, sometimes joined again."""
    value = growth.pick(lambda v: v.rank >= 2 and v.shape[-1] % 2 == 0 and v.dtype != "bool")
    if value is None:
        return
    half = value.shape[-1] // 2
    shape = [*value.shape[:-1], half]
    if growth.random.random() < 0.5:
        parts = [
            growth.node("Slice", [value, growth.ints(a), growth.ints(b), growth.ints(-1)], (value.dtype, shape))[0]
            for a, b in ((0, half), (half, growth.random.choice([2 * half, 2**31 - 1])))
        ]
    elif growth.opset >= EDGE_AXES:
        parts = growth.node("Split", [value, growth.ints(half, half)], (value.dtype, shape), (value.dtype, shape), axis=-1)
    else:
        parts = growth.node("Split", [value], (value.dtype, shape), (value.dtype, shape), axis=-1, split=[half, half])
    if growth.random.random() < 0.5:
        order = parts if growth.random.random() < 0.5 else parts[::-1]
        growth.node("Concat", order, same(value), axis=growth.random.choice([-1, value.rank - 1]))


def listed(growth: Growth) -> None:
    """The halves of a value in a sequence, sometimes one more, and what is read of them."""
    value = growth.pick(lambda v: v.rank >= 2 and v.shape[-1] % 2 == 0 and v.dtype != "bool")
    if value is None:
        return
    half = value.shape[-1] // 2
    part = (value.dtype, [*value.shape[:-1], half])
    sizes = growth.weight(np.array(growth.random.choice([half, [half, half]]), np.int64), "n")
    (parts,) = growth.node("SplitToSequence", [value, sizes], part, axis=growth.random.choice([-1, value.rank - 1]))
    growth.hidden.add(parts.name)

    def read() -> Value:
        return growth.node(
            "SequenceAt", [parts, growth.weight(np.array(growth.random.choice([-2, -1, 0, 1]), np.int64), "n")], part
        )[0]

    if growth.random.random() < 0.5:
        (changed,) = growth.node("Neg", [read()], part)
        place = growth.weight(np.array(growth.random.choice([-2, 0, 2]), np.int64), "n")
        (parts,) = growth.node("SequenceInsert", [parts, changed, growth.random.choice([place, None])], part)
        growth.hidden.add(parts.name)
        growth.node("ConcatFromSequence", [parts], (value.dtype, [*value.shape[:-1], 3 * half]), axis=-1)
    elif growth.random.random() < 0.3:
        growth.node("ConcatFromSequence", [parts], (value.dtype, [2, *part[1]]), axis=0, new_axis=1)
    read()


def gather(growth: Growth) -> None:
    value = growth.pick(lambda v: v.rank >= 2 and v.dtype != "bool")
    if value is None:
        return
    axis = growth.random.randrange(value.rank)
    last = value.shape[axis] - 1
    index = growth.random.choice([np.array(last), np.array([0, last]), np.array([[last], [0]])]).astype(np.int64)
    shape = [*value.shape[:axis], *index.shape, *value.shape[axis + 1 :]]
    growth.node("Gather", [value, growth.weight(index, "n")], (value.dtype, shape), axis=axis)


def row(growth: Growth) -> None:
    """A product and operators behind it that nothing else reads, and one row of the result."""
    before = len(growth.here.values)
    matmul(growth)
    for _ in range(growth.random.randrange(4)):
        growth.random.choice([unary, binary, normalization, softmax, transpose, reshape, centred, reduction, where])(growth)
    made = growth.here.values[before:]
    if not made or not made[-1].is_float or made[-1].rank < 2:
        return
    value = made[-1]
    axis = growth.random.randrange(value.rank)
    first = growth.random.choice([0, value.shape[axis] - 1, *([-1] if growth.opset >= 11 else [])])
    growth.hidden.update(one.name for one in made)
    if growth.random.random() < 0.4:
        end = first + 1 or 2**31 - 1
        shape = [1 if at == axis else size for at, size in enumerate(value.shape)]
        growth.node("Slice", [value, growth.ints(first), growth.ints(end), growth.ints(axis)], (value.dtype, shape))
        return
    index = growth.random.choice([np.array(first), np.array([first])]).astype(np.int64)
    shape = [*value.shape[:axis], *index.shape, *value.shape[axis + 1 :]]
    growth.node("Gather", [value, growth.weight(index, "n")], (value.dtype, shape), axis=axis)


def enlarge(growth: Growth) -> None:
    """A 1 × 1 convolution of an image that is enlarged, sometimes beside another one."""
    image = growth.pick(lambda v: v.dtype == "float32" and v.rank == 4 and prod(v.shape) < 256)
    if image is None or growth.opset < 11:
        return
    size = [*image.shape[:2], 2 * image.shape[2], 2 * image.shape[3]]
    how = {
        "mode": growth.random.choice(["linear", "nearest"]),
        "coordinate_transformation_mode": growth.random.choice([None, "asymmetric", "align_corners"]),
    }
    scales = growth.weight(np.array([1, 1, 2, 2], np.float32))
    (large,) = growth.node("Resize", [image, growth.weight(np.zeros(0, np.float32)), scales], (image.dtype, size), **how)
    parts = [large]
    if growth.random.random() < 0.7:
        parts.insert(growth.random.randrange(2), growth.weight(growth.numbers(size, "float32")))
        (large,) = growth.node("Concat", parts, (image.dtype, [size[0], 2 * size[1], *size[2:]]), axis=1)
    results = growth.random.choice([1, 2, 3])
    weight = growth.weight(growth.numbers((results, large.shape[1], 1, 1), "float32"))
    growth.node("Conv", [large, weight], (image.dtype, [size[0], results, *size[2:]]))


def widen(growth: Growth) -> None:
    """Expand, Tile or Pad."""
    value = growth.pick(lambda v: 1 <= v.rank <= 4 and v.is_float and prod(v.shape) < 512)
    if value is None:
        return
    operator = growth.random.choice(["Expand", "Tile", "Pad"])
    *outer, last = value.shape
    if operator == "Expand":
        growth.node("Expand", [value, growth.ints(2, *value.shape)], (value.dtype, (2, *value.shape)))
    elif operator == "Tile":
        growth.node("Tile", [value, growth.ints(*[1] * len(outer), 2)], (value.dtype, (*outer, 2 * last)))
    else:
        pads = [*[0] * len(outer), 1]
        growth.node("Pad", [value, growth.ints(*pads, *pads)], (value.dtype, (*outer, last + 2)))


def pool(growth: Growth) -> None:
    value = growth.pick(lambda v: v.dtype == "float32" and v.rank == 4 and min(v.shape[2:]) >= 2)
    if value is None:
        return
    if growth.random.random() < 0.5:
        growth.node("GlobalAveragePool", [value], (value.dtype, (*value.shape[:2], 1, 1)))
    else:
        shape = [*value.shape[:2], *(d // 2 for d in value.shape[2:])]
        operator = growth.random.choice(["MaxPool", "AveragePool"])
        growth.node(operator, [value], (value.dtype, shape), kernel_shape=[2, 2], strides=[2, 2])


def dropout(growth: Growth) -> None:
    value = growth.pick_float(1)
    if value is None:
        return
    if growth.opset >= 12:
        growth.node("Dropout", [value, growth.weight(np.asarray(0.5, np.float32))], same(value))
    else:
        growth.node("Dropout", [value], same(value), ratio=0.5)


def clip(growth: Growth) -> None:
    value = growth.pick_float()
    if value is not None:
        low, high = growth.random.choice([(0.0, 6.0), (-1.0, 1.0), (0.0, 1.0), (-3.0, 3.0)])
        growth.node("Clip", [value, *(growth.weight(np.asarray(b, value.dtype)) for b in (low, high))], same(value))


def steps(growth: Growth, value: Value) -> Value:
    """One to three elementwise nodes upon `value`, of its shape."""
    for _ in range(growth.random.randint(1, 3)):
        value = (unary if growth.random.random() < 0.5 else binary)(growth, value) or value
    return value


def branch(growth: Growth) -> None:
    """An If whose bodies read an outer value."""
    value = growth.pick_float(1)
    if value is None:
        return
    condition = growth.input(np.array(growth.random.random() < 0.5), stem="condition")
    bodies = [growth.body(lambda: [steps(growth, value)]) for _ in range(2)]
    growth.node("If", [condition], same(value), then_branch=bodies[0], else_branch=bodies[1])


def loop(growth: Growth) -> None:
    """A Loop of two rounds that carries one value."""
    value = growth.pick_float(1)
    if value is None:
        return
    turn = Value(growth.fresh("round"), "int64", ())
    going = Value(growth.fresh("going"), "bool", ())
    carried = Value(growth.fresh("carried"), value.dtype, value.shape)

    def grow() -> list[Value]:
        (on,) = growth.node("Identity", [going], ("bool", ()))
        return [on, steps(growth, carried)]

    body = growth.body(grow, [turn, going, carried])
    growth.node("Loop", [growth.weight(np.array(2, np.int64)), growth.weight(np.array(True)), value], same(value), body=body)


OPERATORS: tuple[tuple[Grow, int], ...] = (
    (unary, 6), (binary, 8), (integers, 1), (cast, 2), (where, 2), (reduction, 2), (centred, 1), (matmul, 2), (gemm, 2),
    (convolution, 2), (normalization, 2), (softmax, 2), (transpose, 2), (reshape, 2), (squeeze, 1), (pieces, 2), (gather, 1),
    (listed, 2), (widen, 1), (pool, 1), (dropout, 1), (clip, 1), (branch, 1), (loop, 1),
    (masks.bounded, 3), (masks.taken, 2), (masks.doubled, 2), (row, 3), (enlarge, 2), (bounds.cut, 2),
)  # fmt: skip
"""What a graph is grown from, and how often."""


def grow(growth: Growth) -> None:
    """One step: some operator."""
    kinds, weights = zip(*OPERATORS, strict=True)
    growth.random.choice([kind for kind, weight in zip(kinds, weights, strict=True) for _ in range(weight)])(growth)
