"""Check which sizes an operator accepts: a Reshape needs matching element counts, an Add operands that broadcast.

The symbolic shapes of the operands are evaluated at the chosen sizes of the symbolic dimensions. The result is a `Fit`: whether
the operator accepts the sizes, and how likely they are to be the intended ones.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cache

import onnx_ir as ir

from onnx_subgraph.inputs.expressions import computed
from onnx_subgraph.inputs.ranges import constant
from onnx_subgraph.inputs.sizes import resolve
from onnx_subgraph.model.shapes import SHAPE_DATA

Extent = tuple[int, ...]
"""The sizes of an array, as numbers."""
Dims = tuple[int | str, ...]
"""The same, as numbers and expressions of symbolic dimensions."""


def dims(value: ir.Value | None) -> Dims | None:
    """The symbolic shape of a value; None where its rank or a dimension is unknown."""
    if value is None or value.shape is None:
        return None
    return _known(value.shape)


def dimension(value: ir.Value | None, axis: int) -> Dims | None:
    """One dimension of a value, also where the others are unknown."""
    return None if value is None or value.shape is None or axis >= len(value.shape) else _known((value.shape[axis],))


def elements(value: ir.Value | None) -> Dims | None:
    """The elements of a small integer tensor, such as a shape; None where unknown."""
    array = constant(value)
    if array is not None:
        return tuple(int(element) for element in array.reshape(-1)) if array.dtype.kind == "i" else None
    data = None if value is None else value.meta.get(SHAPE_DATA)
    return None if data is None else _known(data)


def _known(found: Iterable[int | ir.SymbolicDim]) -> Dims | None:
    names = [dim if isinstance(dim, int) else dim.value for dim in found]
    return tuple(name for name in names if name is not None) if None not in names else None


def extent(found: Dims | None, sizes: Mapping[str, int]) -> Extent | None:
    """Dimensions as numbers; None where one can't be computed from `sizes`."""
    result = []
    for dim in found if found is not None else (None,):
        number = dim if isinstance(dim, int) or dim is None else evaluated(dim, sizes)
        if number is None:
            return None
        result.append(number)
    return tuple(result)


def evaluated(expression: str, sizes: Mapping[str, int]) -> int | None:
    """The value of an expression of dimensions; None where it is not an integer, or can't be computed."""
    if expression in sizes:
        return sizes[expression]
    tree = _tree(expression)
    number = None if tree is None else _value(tree, sizes)
    return int(number) if number is not None and number == int(number) else None


def symbols_of(found: Dims) -> frozenset[str]:
    """The names in dimensions."""
    trees = [(dim, _tree(dim)) for dim in found if isinstance(dim, str)]
    inside = (node.id for _, tree in trees if tree is not None for node in ast.walk(tree) if isinstance(node, ast.Name))
    return frozenset(inside) | {dim for dim, _ in trees}


@cache
def _tree(expression: str) -> ast.expr | None:
    try:
        return ast.parse(expression, mode="eval").body
    except (SyntaxError, ValueError):
        return None


_FUNCTIONS: Mapping[str, Callable[..., Fraction | int]] = {
    "floor": math.floor,
    "ceiling": math.ceil,
    "Max": max,
    "Min": min,
    "Mod": lambda a, b: a % b,
}


def _value(tree: ast.expr, sizes: Mapping[str, int]) -> Fraction | int | None:
    match tree:
        case ast.Constant(value=int() as number):
            return number
        case ast.Name(id=name):
            return sizes[name] if name in sizes else resolve(sizes, name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = _value(operand, sizes)
            return None if value is None else -value
        case ast.Call(func=ast.Name(id=name), args=arguments) if name in _FUNCTIONS:
            values = [_value(argument, sizes) for argument in arguments]
            return None if None in values else _FUNCTIONS[name](*values)
        case ast.BinOp(left=left, op=operator, right=right):
            a, b = _value(left, sizes), _value(right, sizes)
            return None if a is None or b is None else computed(a, operator, b)
    return None


BROADCASTING = frozenset(
    (
        *("Add", "Sub", "Mul", "Div", "Pow", "Mod", "Max", "Min", "Sum", "Mean", "PRelu", "Where", "And", "Or", "Xor"),
        *("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"),
    )
)
"""Operators whose operands broadcast."""
Fit = int | None
"""None where an operator refuses the sizes; else the number of equal dimensions that need not be equal. More is likelier."""


def reshape(shape: Extent, requested: Extent) -> Fit:
    """Whether `shape` can be reshaped to `requested`, where -1 is the remaining size and 0 keeps the size."""
    wanted = [shape[axis] if size == 0 and axis < len(shape) else size for axis, size in enumerate(requested)]
    known = math.prod(size for size in wanted if size != -1)
    total = math.prod(shape)
    if total != known if -1 not in wanted else not known or total % known:
        return None
    return _common(shape, wanted) + _common(shape[::-1], wanted[::-1])


def broadcast(*shapes: Extent) -> Fit:
    """Whether arrays of these shapes broadcast to one. Sizes of 1 are equal to any, so two of them are no sign of a fit."""
    equal = 0
    for axis in range(1, max(map(len, shapes)) + 1):
        sizes = [shape[-axis] for shape in shapes if len(shape) >= axis]
        if len(set(sizes) - {1}) > 1:
            return None
        equal += len(sizes) > 1 and len(set(sizes)) == 1 and sizes[0] > 1
    return equal


def concatenate(axis: int, *shapes: Extent) -> Fit:
    """Whether arrays of these shapes can be concatenated."""
    if len(set(map(len, shapes))) > 1 or not -len(shapes[0]) <= axis < len(shapes[0]):
        return None
    axis %= len(shapes[0])
    return 0 if len({shape[:axis] + shape[axis + 1 :] for shape in shapes}) == 1 else None


def multiply(a: Extent, b: Extent) -> Fit:
    """Whether MatMul accepts these operands."""
    left, right = a if len(a) > 1 else (1, *a), b if len(b) > 1 else (*b, 1)
    return broadcast(left[:-2], right[:-2]) if left[-1] == right[-2] else None


def convolve(x: Extent, w: Extent, group: int, dilations: Sequence[int], pads: Sequence[int] | None) -> Fit:
    """Whether Conv accepts these operands. pads: before and after each axis; none: nothing, None: as much as is needed."""
    return slide(x, w[2:], dilations, pads) if len(x) == len(w) and x[1] == w[1] * group else None


def slide(x: Extent, window: Sequence[int], dilations: Sequence[int], pads: Sequence[int] | None) -> Fit:
    """Whether a window has a place on the axes behind batch and channels. pads: as for `convolve`."""
    axes = len(window)
    if len(x) != axes + 2:
        return None
    reach = [(size - 1) * step + 1 for size, step in zip(window, dilations or [1] * axes, strict=True)]
    padding = [0] * axes if not pads else [pads[axis] + pads[axis + axes] for axis in range(axes)]
    return 0 if pads is None or all(s + p >= r for s, p, r in zip(x[2:], padding, reach, strict=True)) else None


def recur(x: Extent, w: Extent, *batches: Extent) -> Fit:
    """Whether RNN, GRU and LSTM accept sequences and weights with these features, and the batches of sequences and states."""
    return 0 if x == w and len(set(batches)) <= 1 else None


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """The number of equal leading sizes."""
    return next((index for index, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
