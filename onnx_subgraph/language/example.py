"""Read the `example` of a pattern: the types, shapes and ranges of its free values in the models that prove it.

`float32[2, 8]`, `float32[8] constant`, `int64[2] in [0, 10]`, or a literal value: `1e-5`, `[1, 2]`, `[[1, 0], [0, 1]]`, `tanh`.
Values with the same example can share a key: `scale, shift: float32[8]`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from onnx_subgraph.errors import PatternError
from onnx_subgraph.language import spelling
from onnx_subgraph.language.pattern import Example
from onnx_subgraph.language.source import Data, Fields, Items, Scalar
from onnx_subgraph.language.term import Static
from onnx_subgraph.language.vocabulary import DTYPES

USAGE = 'write `"float32[2, 8]"`, with `constant` or `in [-1, 1]` after it, or a number'

_TENSOR = re.compile(r"\s*(\w+)\s*\[([^\]]*)\](.*)", re.DOTALL)
_RANGE = re.compile(r"\bin\s*\[([^,\]]*),([^,\]]*)\]")
_MAX_ELEMENTS = 10_000_000
_MAX_FLOAT = 3e38
"""What float32 holds, and what can be drawn between it and its negative."""
_MAX_INTEGER = 2**63 - 1


def each_example(data: Fields) -> Fields:
    """Split keys with several names, so that each name has its own. Raises PatternError, with the place, for a repeated name."""
    found: dict[str, tuple[Scalar, Data]] = {}
    for key, value in data.entries:
        for name in key.text.split(","):
            if name.strip() in found:
                raise PatternError(f"`{name.strip()}` has an example already", span=key.span, hint="leave one of the two out")
            found[name.strip()] = Scalar(name.strip(), key.style, key.span), value
    return Fields(tuple(found.values()), data.span)


def read_example(name: str, data: Data) -> Example:
    """The example of `name`. Raises PatternError, with the place."""
    if isinstance(data, Items):
        value = _list(data)
        return Example(_dtype(next(_elements(value), 0)), _sizes(value), value=value)
    if not isinstance(data, Scalar):
        raise PatternError(f"the example of `{name}` is not a shape", span=data.span, hint=USAGE)
    if not data.text and not data.style:
        hint = f'{USAGE}; in braces, quote names that share an example, `"g, h": …`'
        raise PatternError(f"the example of `{name}` is empty", span=data.span, hint=hint)
    tensor = _TENSOR.fullmatch(data.text)
    if tensor is None:
        scalar = _literal(data)
        return Example(_dtype(scalar), (), value=scalar)
    dtype, dims, rest = tensor.groups()
    if dtype not in DTYPES:
        raise PatternError(f"`{dtype}` is not an element type", span=data.span, hint=spelling.hint(dtype, DTYPES, USAGE))
    shape = _shape(data, dims)
    low, high = None, None
    limits = _RANGE.search(rest)
    if limits is not None:
        low, high = (_number(data, text, dtype) for text in limits.groups())
        if low > high:
            raise PatternError("the range ends before it begins", span=data.span, hint=f"write `in [{high:g}, {low:g}]`")
        rest = rest[: limits.start()] + rest[limits.end() :]
    if rest.strip() not in ("", "constant"):
        raise PatternError(f"`{rest.strip()}` is not understood", span=data.span, hint=USAGE)
    return Example(dtype, shape, low, high, constant=rest.strip() == "constant")


def read_scalar(data: Scalar) -> bool | int | float | str:
    """Plain text as a bool or number if it is one, else as text. `1e-12` is a number here, although YAML 1.1 reads text."""
    if data.style:
        return data.text
    if data.text in ("true", "false"):
        return data.text == "true"
    for number in (int, float):
        try:
            return number(data.text)
        except ValueError:
            continue
    return data.text


def _list(data: Items) -> tuple[Static, ...]:
    """Numbers or strings, or rows of as many of them."""
    values: list[Static] = []
    for item in data.items:
        if not isinstance(item, Scalar | Items):
            raise PatternError("a list of an example holds numbers or strings", span=item.span, hint=USAGE)
        values.append(_literal(item) if isinstance(item, Scalar) else _list(item))
        if _sizes(values[-1]) != _sizes(values[0]):
            raise PatternError(
                "the rows of an example differ in length", span=item.span, hint="give each row equally many elements"
            )
    return tuple(values)


def _sizes(value: Static) -> tuple[int, ...]:
    return (len(value), *(_sizes(value[0]) if value else ())) if isinstance(value, tuple) else ()


def _elements(value: Static) -> Iterator[Static]:
    for item in value if isinstance(value, tuple) else ():
        yield from _elements(item) if isinstance(item, tuple) else (item,)


def _dtype(value: Static) -> str:
    match value:
        case bool():
            return "bool"
        case int():
            return "int64"
        case float():
            return "float32"
        case _:
            return "string"


def _shape(data: Scalar, dims: str) -> tuple[int, ...]:
    shape: list[int] = []
    size = 1
    for dim in dims.split(",") if dims.strip() else ():
        if not dim.strip().isdecimal() or len(dim) > 9:
            raise PatternError(f"`{dim.strip()}` is not a dimension", span=data.span, hint="dimensions are written as numbers")
        shape.append(int(dim))
        size *= max(1, int(dim))
        if size > _MAX_ELEMENTS:
            raise PatternError("the example is too large", span=data.span, hint="a few numbers in each axis are enough")
    return tuple(shape)


def _literal(data: Scalar) -> bool | int | float | str:
    """A value that is written out. Raises PatternError for a number that no element type holds."""
    value = read_scalar(data)
    if isinstance(value, int) and not -_MAX_INTEGER <= value <= _MAX_INTEGER:
        raise PatternError("the number is too large", span=data.span, hint="an integer has at most 64 bits")
    if isinstance(value, float) and math.isinf(value) and "inf" not in data.text.lower():
        raise PatternError("the number is too large", span=data.span, hint="write `inf` for infinity")
    return value


def _number(data: Scalar, text: str, dtype: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise PatternError(f"`{text.strip()}` is not a number", span=data.span, hint=USAGE) from None
    low, high = _limits(dtype)
    if not low <= number <= high:
        raise PatternError(
            f"`{text.strip()}` is no limit of a range of {dtype}", span=data.span, hint=f"give a number from {low:g} to {high:g}"
        )
    return number


def _limits(dtype: str) -> tuple[float, float]:
    """The numbers between which values of an element type are drawn."""
    digits = re.search(r"\d+", dtype)
    if digits is None or "int" not in dtype:
        return -_MAX_FLOAT, _MAX_FLOAT
    values = 2 ** int(digits.group())
    return (0, min(values - 1, _MAX_INTEGER)) if dtype.startswith("u") else (-values // 2, values // 2 - 1)
