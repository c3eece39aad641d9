"""Attention in every spelling: masks, scales, precisions, layouts, packings and caches, as exporters and people write them.

Each spelling is a complete model with symbolic batch and lengths, two heads of four and one attention. Spellings share the same
few lines (`by_heads`, `scores`, `weighted`, `joined`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from tests.patterns.spellings_text import Text

QKV = "float[b, s, 8] query, float[b, t, 8] key, float[b, t, 8] value"
SELF = "float[b, s, 8] query, float[b, s, 8] key, float[b, s, 8] value"
HEADED = "float[b, 2, s, 4] query, float[b, 2, t, 4] key, float[b, 2, t, 4] value"
OUT, OUT_HEADED = "float[b, s, 8] y", "float[b, 2, s, 4] y"
MIN = -3.4028234663852886e38
ATTENTION = ("com.microsoft.MultiHeadAttention", "com.microsoft.GroupQueryAttention", "Attention")
ROTARY = ("com.microsoft.RotaryEmbedding", "RotaryEmbedding")


@dataclass(frozen=True)
class Spelling:
    """One model with one attention, which must become one of `operators`. name: the choices made."""

    family: str
    name: str
    model: str
    operators: tuple[str, ...]


Variants = Iterator[tuple[str, str, str, Callable[[Text], str]]]
"""The spellings of a family: the choices made, the inputs and the output of the graph, and what writes it."""


def by_heads(t: Text, x: str, *, transposed: bool = False, heads: int = 2, size: int = 4) -> str:
    """b s (h d) -> b h s d, or b h d s."""
    apart = t.call("Reshape", x, t.integers(0, 0, heads, size))
    return t.call("Transpose", apart, perm=[0, 2, 3, 1] if transposed else [0, 2, 1, 3])


def joined(t: Text, x: str, width: int = 8) -> str:
    """b h s d -> b s (h d)."""
    return t.call("Reshape", t.call("Transpose", x, perm=[0, 2, 1, 3]), t.integers(0, 0, width))


def swapped(t: Text, x: str) -> str:
    """The last two of four axes exchanged."""
    return t.call("Transpose", x, perm=[0, 1, 3, 2])


def weighted(t: Text, scores: str, value: str, *, guard: bool = False) -> str:
    """Softmax(scores) @ value. A guard against NaN turns fully masked rows (all -inf) into zeros."""
    p = t.call("Softmax", scores, axis=-1)
    return t.call("MatMul", t.call("Where", t.call("IsNaN", p), 0.0, p) if guard else p, value)


def plain(t: Text, mask: Callable[[Text, str], str] = lambda t, s: s, *, guard: bool = False) -> str:
    """The attention of projections, with the scores masked by `mask`."""
    q, k, v = by_heads(t, "query"), by_heads(t, "key", transposed=True), by_heads(t, "value")
    return joined(t, weighted(t, mask(t, t.call("Div", t.call("MatMul", q, k), 2.0)), v, guard=guard))


def headed(t: Text, mask: Callable[[Text, str], str] = lambda t, s: s) -> str:
    """The attention of operands that are split by heads."""
    return weighted(t, mask(t, t.call("Mul", t.call("MatMul", "query", swapped(t, "key")), 0.5)), "value")


def infinity(t: Text) -> str:
    """-inf, which the text form has no literal for."""
    return t.call("Div", -1.0, 0.0)


def additive() -> Variants:
    """Additive masks: of any rank, for one or all heads, from padding, from booleans."""
    shapes = ("b, 1, s, t", "1, 1, s, t", "b, 2, s, t", "1, 2, s, t", "b, 1, 1, t", "2, s, t", "1, s, t", "s, t", "1, t", "t")
    for shape, order in product(shapes, ("s + m", "m + s")):
        yield (
            f"[{shape}], {order}",
            f"{QKV}, float[{shape}] mask",
            OUT,
            lambda t, o=order: plain(t, lambda t, s: t.call("Add", *((s, "mask") if o == "s + m" else ("mask", s)))),
        )

    def less_the_largest(t: Text, s: str) -> str:
        masked = t.call("Add", s, "mask")
        return t.call("Sub", masked, t.call("ReduceMax", masked, axes=[-1], keepdims=1))

    yield "less the largest of each row", f"{QKV}, float[b, 1, s, t] mask", OUT, lambda t: plain(t, less_the_largest)

    def padding(t: Text, how: str) -> str:
        tokens = t.call("Unsqueeze", "tokens", t.integers(1, 2))
        kept = t.call("Cast", tokens, to=1)
        match how:
            case "(1 - m) * -10000":
                return t.call("Mul", t.call("Sub", 1.0, kept), -10000.0)
            case "(1 - m) * min":
                return t.call("Mul", t.call("Sub", 1.0, kept), MIN)
            case "(m - 1) * 1e9":
                return t.call("Mul", t.call("Sub", kept, 1.0), 1e9)
            case "Where(m, 0, min)":
                return t.call("Where", t.call("Cast", tokens, to=9), 0.0, MIN)
            case "Where(1 - m, min, 1 - m)":
                dropped = t.call("Sub", 1.0, kept)
                return t.call("Where", t.call("Cast", dropped, to=9), MIN, dropped)
            case "log(m)":
                return t.call("Log", t.call("Clip", kept, t.number(1e-9), ""))
            case _:
                return t.call("Mul", t.call("Cast", t.call("Not", t.call("Cast", tokens, to=9)), to=1), -1e9)

    for how in (
        *("(1 - m) * -10000", "(1 - m) * min", "(m - 1) * 1e9", "Where(m, 0, min)", "Where(1 - m, min, 1 - m)"),
        *("log(m)", "Not(m) * -1e9"),
    ):
        yield (
            f"padding, {how}",
            f"{QKV}, int64[b, t] tokens",
            OUT,
            lambda t, h=how: plain(t, lambda t, s: t.call("Add", s, padding(t, h))),
        )

    def sum_of_two(t: Text, s: str, how: str) -> str:
        if how == "(s + m) + n":
            return t.call("Add", t.call("Add", s, "mask"), "bias")
        return t.call("Add", s, t.call("Add", "mask", "bias"))

    for how in ("(s + m) + n", "s + (m + n)"):
        yield (
            f"two masks, {how}",
            f"{QKV}, float[b, 1, 1, t] mask, float[1, 2, s, t] bias",
            OUT,
            lambda t, h=how: plain(t, lambda t, s: sum_of_two(t, s, h)),
        )
    yield (
        "a mask that is subtracted",
        f"{QKV}, float[b, 1, s, t] mask",
        OUT,
        lambda t: plain(t, lambda t, s: t.call("Sub", s, t.call("Mul", "mask", 10000.0))),
    )


def boolean() -> Variants:
    """Scores kept or dropped by a condition: both polarities, each lowest number, each rank."""
    lows: Mapping[str, Callable[[Text], str]] = {
        "-1e4": lambda t: t.number(-1e4),
        "-1e9": lambda t: t.number(-1e9),
        "min": lambda t: t.number(MIN),
        "-inf": infinity,
    }

    def where(t: Text, s: str, low: str, polarity: str, condition: str) -> str:
        number = lows[low](t)
        if polarity == "keep":
            return t.call("Where", condition, s, number)
        if polarity == "not keep":
            return t.call("Where", t.call("Not", condition), number, s)
        return t.call("Where", condition, number, s)

    for form, low, polarity in product(("projections", "heads"), lows, ("keep", "drop", "not keep")):
        yield (
            f"{form}, {polarity}, {low}",
            f"{QKV if form == 'projections' else HEADED}, bool[b, 1, s, t] mask",
            OUT if form == "projections" else OUT_HEADED,
            lambda t, f=form, n=low, p=polarity: (plain if f == "projections" else headed)(
                t, lambda t, s: where(t, s, n, p, "mask")
            ),
        )
    for shape, polarity in product(("b, 1, 1, t", "1, 1, s, t", "b, 2, s, t", "2, s, t", "1, s, t", "s, t"), ("keep", "drop")):
        yield (
            f"[{shape}], {polarity}",
            f"{QKV}, bool[{shape}] mask",
            OUT,
            lambda t, p=polarity: plain(t, lambda t, s: where(t, s, "min", p, "mask")),
        )
    for shape, polarity in product(("b, t", "b, 1, s, t"), ("keep", "drop")):
        yield (
            f"integers [{shape}], {polarity}",
            f"{QKV}, int64[{shape}] tokens",
            OUT,
            lambda t, p=polarity, short=shape == "b, t": plain(
                t,
                lambda t, s: where(
                    t,
                    s,
                    "-1e9",
                    p,
                    t.call("Equal", t.call("Unsqueeze", "tokens", t.integers(1, 2)) if short else "tokens", t.integers(1)),
                ),
            ),
        )
    yield (
        "kept, and a bias",
        f"{QKV}, float[1, 2, s, t] bias, bool[b, 1, s, t] mask",
        OUT,
        lambda t: plain(t, lambda t, s: where(t, t.call("Add", s, "bias"), "min", "keep", "mask")),
    )
    yield (
        "dropped, and a bias",
        f"{QKV}, float[1, 2, s, t] bias, bool[b, 1, s, t] mask",
        OUT,
        lambda t: plain(t, lambda t, s: where(t, t.call("Add", s, "bias"), "min", "drop", "mask")),
    )
    yield (
        "kept, then a bias",
        f"{QKV}, float[b, 1, 1, t] bias, bool[1, 1, s, t] mask",
        OUT,
        lambda t: plain(t, lambda t, s: t.call("Add", where(t, s, "-1e9", "keep", "mask"), "bias")),
    )
    yield (
        "dropped, then a bias",
        f"{QKV}, float[b, 1, 1, t] bias, bool[1, 1, s, t] mask",
        OUT,
        lambda t: plain(t, lambda t, s: t.call("Add", where(t, s, "min", "drop", "mask"), "bias")),
    )


def length(t: Text, axis: int = 1) -> str:
    """The number of queries, as a scalar."""
    return t.call("Gather", t.call("Shape", "query"), t.call("Squeeze", t.integers(axis)), axis=0)


TRIANGLES = ("Trilu of ones", "Range ≥ Range", "Range ≤ Range", "Slice of a buffer", "CumSum")


def triangle(t: Text, how: str) -> str:
    """The condition [s, s] that a key does not come after its query."""
    n = length(t)
    square = t.call("Concat", t.call("Unsqueeze", n, t.integers(0)), t.call("Unsqueeze", n, t.integers(0)), axis=0)
    zero, one = (t.call("Squeeze", t.integers(i)) for i in (0, 1))
    places = t.call("Range", zero, n, one)
    rows, columns = t.call("Unsqueeze", places, t.integers(1)), t.call("Unsqueeze", places, t.integers(0))
    match how:
        case "Trilu of ones":
            ones = t.call("Expand", t.number(1.0), square)
            return t.call("Cast", t.call("Trilu", ones, upper=0), to=9)
        case "Range ≥ Range":
            return t.call("GreaterOrEqual", rows, columns)
        case "Range ≤ Range":
            return t.call("LessOrEqual", columns, rows)
        case "Slice of a buffer":
            elements = ", ".join("1" if i >= j else "0" for i in range(32) for j in range(32))
            t.constants.append(f"int32[32, 32] buffer = {{{elements}}}")
            ends = t.call("Unsqueeze", n, t.integers(0))
            first = t.call("Slice", t.call("Cast", "buffer", to=9), t.integers(0), ends, t.integers(0))
            return t.call("Slice", first, t.integers(0), ends, t.integers(1))
        case _:
            ones = t.call("Cast", t.call("Expand", t.number(1.0), square), to=7)
            return t.call("Less", t.call("Sub", columns, t.call("CumSum", ones, zero)), zero)


def causal() -> Variants:
    """Causal masks, for every way to make the triangle and to apply it."""

    def apply(t: Text, s: str, made: str, applied: str) -> str:
        condition = triangle(t, made)
        match applied:
            case "Where(k, s, min)":
                return t.call("Where", condition, s, MIN)
            case "Where(!k, -1e4, s)":
                return t.call("Where", t.call("Not", condition), -1e4, s)
            case "s + Where(k, 0, -inf)":
                return t.call("Add", s, t.call("Where", condition, 0.0, infinity(t)))
            case "s + Where(k, 0, -inf) [1 1 s s]":
                return t.call("Add", s, t.call("Unsqueeze", t.call("Where", condition, 0.0, infinity(t)), t.integers(0, 1)))
            case _:
                return t.call("Add", s, t.call("Mul", t.call("Sub", 1.0, t.call("Cast", condition, to=1)), -1e9))

    ways = (
        "Where(k, s, min)",
        "Where(!k, -1e4, s)",
        "s + Where(k, 0, -inf)",
        "s + Where(k, 0, -inf) [1 1 s s]",
        "s + (1 - k) * -1e9",
    )
    for made, applied in product(TRIANGLES, ways):
        yield f"{made}, {applied}", SELF, OUT, lambda t, m=made, a=applied: plain(t, lambda t, s: apply(t, s, m, a))

    def with_padding(t: Text, s: str, how: str) -> str:
        kept = t.call("Unsqueeze", t.call("Cast", "tokens", to=9), t.integers(1, 2))
        both = t.call("And", triangle(t, "Range ≥ Range"), kept)
        if how == "And":
            return t.call("Where", both, s, MIN)
        if how == "Where twice":
            return t.call("Where", kept, t.call("Where", triangle(t, "Trilu of ones"), s, -1e9), -1e9)
        return t.call("Add", t.call("Where", triangle(t, "Trilu of ones"), s, -1e9), t.call("Where", kept, 0.0, MIN))

    for how in ("And", "Where twice", "Where, then added"):
        yield (
            f"and padding, {how}",
            f"{SELF}, int64[b, s] tokens",
            OUT,
            lambda t, h=how: plain(t, lambda t, s: with_padding(t, s, h)),
        )


def scaled() -> Variants:
    """The scale: before, after, split, as a product, a quotient or a root."""

    def write(t: Text, how: str) -> str:
        q, k, v = by_heads(t, "query"), by_heads(t, "key", transposed=True), by_heads(t, "value")
        match how:
            case "s * c":
                s = t.call("Mul", t.call("MatMul", q, k), 0.5)
            case "c * s":
                s = t.call("Mul", 0.5, t.call("MatMul", q, k))
            case "s / Sqrt(d)":
                s = t.call("Div", t.call("MatMul", q, k), t.call("Sqrt", 4.0))
            case "q * c":
                s = t.call("MatMul", t.call("Mul", q, 0.5), k)
            case "q / c":
                s = t.call("MatMul", t.call("Div", q, 2.0), k)
            case "k * c":
                s = t.call("MatMul", q, t.call("Mul", k, 0.5))
            case "query * c":
                s = t.call("MatMul", by_heads(t, t.call("Mul", "query", 0.5)), k)
            case "q * c, k * c":
                s = t.call("MatMul", t.call("Mul", q, 0.70710678), t.call("Mul", k, 0.70710678))
            case "q * Sqrt(c), k * Sqrt(c)":
                s = t.call("MatMul", t.call("Mul", q, t.call("Sqrt", 0.5)), t.call("Mul", k, t.call("Sqrt", 0.5)))
            case "q / Sqrt(Sqrt(d)), k / Sqrt(Sqrt(d))":
                root = t.call("Sqrt", t.call("Sqrt", 4.0))
                s = t.call("MatMul", t.call("Div", q, root), t.call("Div", k, root))
            case "k scaled, then transposed":
                s = t.call("MatMul", q, swapped(t, t.call("Mul", by_heads(t, "key"), 0.5)))
            case "Sqrt(d) of Shape":
                size = t.call("Cast", t.call("Slice", t.call("Shape", q), t.integers(-1), t.integers(9)), to=1)
                s = t.call("MatMul", t.call("Div", q, t.call("Sqrt", size)), k)
            case "torch: Sqrt(1 / Sqrt(d of Shape)) on both":
                size = t.call("Cast", t.call("Slice", t.call("Shape", q), t.integers(-1), t.integers(9)), to=1)
                c = t.call("Sqrt", t.call("Div", 1.0, t.call("Sqrt", size)))
                s = t.call("MatMul", t.call("Mul", q, c), t.call("Mul", k, c))
            case _:
                s = t.call("MatMul", q, k)
        return joined(t, weighted(t, t.call("Add", s, "mask"), v))

    for how in (
        *("s * c", "c * s", "s / Sqrt(d)", "q * c", "q / c", "k * c", "query * c", "q * c, k * c"),
        *("q * Sqrt(c), k * Sqrt(c)", "q / Sqrt(Sqrt(d)), k / Sqrt(Sqrt(d))", "k scaled, then transposed"),
        *("Sqrt(d) of Shape", "torch: Sqrt(1 / Sqrt(d of Shape)) on both", "none"),
    ):
        yield how, f"{QKV}, float[b, 1, 1, t] mask", OUT, lambda t, h=how: write(t, h)


def precise() -> Variants:
    """Softmax in float32 in a float16 model, and guards against NaN."""
    narrow = "float16[b, s, 8] query, float16[b, t, 8] key, float16[b, t, 8] value"

    def half(t: Text, number: float) -> str:
        return t.call("Cast", t.number(number), to=10)

    def write(t: Text, how: str) -> str:
        q, k, v = by_heads(t, "query"), by_heads(t, "key", transposed=True), by_heads(t, "value")
        s = t.call("Mul", t.call("MatMul", q, k), half(t, 0.5))
        match how:
            case "mask in float16, Softmax in float32":
                p = t.call("Softmax", t.call("Cast", t.call("Add", s, "mask"), to=1), axis=-1)
                p = t.call("Cast", p, to=10)
            case "scores cast before the mask":
                s = t.call("Add", t.call("Cast", s, to=1), t.call("Cast", "mask", to=1))
                p = t.call("Cast", t.call("Softmax", s, axis=-1), to=10)
            case "product in float32":
                s = t.call("MatMul", t.call("Cast", q, to=1), t.call("Cast", k, to=1))
                s = t.call("Add", t.call("Mul", s, 0.5), t.call("Cast", "mask", to=1))
                p = t.call("Cast", t.call("Softmax", s, axis=-1), to=10)
            case _:
                p = t.call("Softmax", t.call("Add", s, "mask"), axis=-1)
        return joined(t, t.call("MatMul", p, v))

    for how in ("float16 throughout", "mask in float16, Softmax in float32", "scores cast before the mask", "product in float32"):
        yield how, f"{narrow}, float16[b, 1, s, t] mask", "float16[b, s, 8] y", lambda t, h=how: write(t, h)

    def conditional(t: Text, low: str, wide: bool) -> str:
        q, k, v = by_heads(t, "query"), by_heads(t, "key", transposed=True), by_heads(t, "value")
        s = t.call("Mul", t.call("MatMul", q, k), half(t, 0.5))
        number = t.call("Cast", infinity(t), to=10) if low == "-inf" else half(t, -65504.0)
        s = t.call("Where", "mask", s, number)
        p = t.call("Softmax", t.call("Cast", s, to=1) if wide else s, axis=-1)
        return joined(t, t.call("MatMul", t.call("Cast", p, to=10) if wide else p, v))

    for low, wide in product(("-inf", "float16 min"), (False, True)):
        yield (
            f"Where with {low}, Softmax in float{32 if wide else 16}",
            f"{narrow}, bool[b, 1, s, t] mask",
            "float16[b, s, 8] y",
            lambda t, n=low, w=wide: conditional(t, n, w),
        )

    def guarded(t: Text, how: str) -> str:
        q, k, v = by_heads(t, "query"), by_heads(t, "key", transposed=True), by_heads(t, "value")
        s = t.call("Mul", t.call("MatMul", q, k), 0.5)
        low = infinity(t)
        s = t.call("Where", "mask", s, low) if how == "Where" else t.call("Add", s, t.call("Where", "mask", 0.0, low))
        return joined(t, weighted(t, s, v, guard=True))

    for how in ("Where", "added"):
        yield f"guard against NaN, {how}", f"{QKV}, bool[b, 1, s, t] mask", OUT, lambda t, h=how: guarded(t, h)


def batched() -> Variants:
    """Heads and batch merged into one axis: products of rank 3."""

    def merged(t: Text, x: str, *, transposed: bool = False) -> str:
        four = by_heads(t, x)
        three = t.call("Reshape", four, t.integers(-1, 6, 4))
        return t.call("Transpose", three, perm=[0, 2, 1]) if transposed else three

    def apart(t: Text, x: str, last: int) -> str:
        return t.call("Reshape", x, t.integers(-1, 2, 6, last))

    def write(t: Text, mask: str) -> str:
        q, k, v = merged(t, "query"), merged(t, "key", transposed=True), merged(t, "value")
        s = t.call("MatMul", t.call("Mul", q, 0.5), k)
        four = {
            "added": lambda: t.call("Add", apart(t, s, 6), "mask"),
            "bounded": lambda: t.call("Max", t.call("Add", apart(t, s, 6), "mask"), MIN),
            "Where keeps": lambda: t.call("Where", t.call("Cast", "mask", to=9), apart(t, s, 6), MIN),
            "Where drops": lambda: t.call("Where", t.call("Cast", "mask", to=9), -1e9, apart(t, s, 6)),
        }
        if mask in four:
            s = t.call("Reshape", four[mask](), t.integers(-1, 6, 6))
        elif mask == "added to all":
            s = t.call("Add", s, t.call("Reshape", "mask", t.integers(-1, 6, 6)))
        return joined(t, apart(t, weighted(t, s, v), 4))

    inputs = "float[b, 6, 8] query, float[b, 6, 8] key, float[b, 6, 8] value"
    for mask, shape in (
        ("", ""),
        ("added", "b, 1, 6, 6"),
        ("bounded", "b, 1, 6, 6"),
        ("added to all", "b, 2, 6, 6"),
        ("Where keeps", "b, 1, 6, 6"),
        ("Where drops", "b, 1, 6, 6"),
    ):
        yield (
            mask or "no mask",
            f"{inputs}, float[{shape}] mask" if mask else inputs,
            "float[b, 6, 8] y",
            lambda t, m=mask: write(t, m),
        )


def packed() -> Variants:
    """Query, key and value from one projection, in every packing."""

    def attended(t: Text, q: str, k: str, v: str) -> str:
        """The attention of values that are split by heads."""
        return joined(t, weighted(t, t.call("Mul", t.call("MatMul", q, swapped(t, k)), 0.5), v))

    def parts(t: Text, x: str, axis: int, size: int, how: str) -> list[str]:
        if how == "Split":
            names = [f"{x}_{i}" for i in range(3)]
            t.lines.append(f"{', '.join(names)} = Split <axis = {axis}> ({x}, {t.integers(size, size, size)})")
            return names
        if how == "Slice":
            return [t.call("Slice", x, t.integers(i * size), t.integers((i + 1) * size), t.integers(axis)) for i in range(3)]
        return [t.call("Gather", x, t.call("Squeeze", t.integers(i)), axis=axis) for i in range(3)]

    def write(t: Text, layout: str, how: str) -> str:
        match layout:
            case "b s (3 h d)":
                return attended(t, *(by_heads(t, x) for x in parts(t, "packed", 2, 8, how)))
            case "b s 3 h d":
                five = t.call("Reshape", "packed", t.integers(0, 0, 3, 2, 4))
                found = parts(t, five, 2, 1, how)
                if how != "Gather":
                    found = [t.call("Squeeze", x, t.integers(2)) for x in found]
                return attended(t, *(t.call("Transpose", x, perm=[0, 2, 1, 3]) for x in found))
            case "3 b h s d":
                five = t.call("Reshape", "packed", t.integers(0, 0, 3, 2, 4))
                first = t.call("Transpose", five, perm=[2, 0, 3, 1, 4])
                found = parts(t, first, 0, 1, how)
                return attended(t, *(found if how == "Gather" else [t.call("Squeeze", x, t.integers(0)) for x in found]))
            case "b s h (3 d)":
                four = t.call("Reshape", "packed", t.integers(0, 0, 2, 12))
                found = parts(t, four, 3, 4, how)
                return attended(t, *(t.call("Transpose", x, perm=[0, 2, 1, 3]) for x in found))
            case _:
                five = t.call("Reshape", "packed", t.integers(0, 0, 2, 3, 4))
                found = parts(t, five, 3, 1, how)
                if how != "Gather":
                    found = [t.call("Squeeze", x, t.integers(3)) for x in found]
                return attended(t, *(t.call("Transpose", x, perm=[0, 2, 1, 3]) for x in found))

    for layout, how in product(
        ("b s (3 h d)", "b s 3 h d", "3 b h s d", "b s h (3 d)", "b s h 3 d"), ("Split", "Slice", "Gather")
    ):
        if how != "Gather" or layout not in ("b s (3 h d)", "b s h (3 d)"):
            yield f"{layout}, {how}", "float[b, s, 24] packed", OUT, lambda t, w=layout, h=how: write(t, w, h)


def cached() -> Variants:
    """Keys and values appended to past ones, from one input or two, and returned."""
    past = "float[b, 2, p, 4] past_key, float[b, 2, p, 4] past_value"

    def write(t: Text, how: str) -> str:
        q, k, v = by_heads(t, "query"), by_heads(t, "key"), by_heads(t, "value")
        if how == "stacked, Gather":
            past_key, past_value = (t.call("Gather", "past", t.call("Squeeze", t.integers(i)), axis=0) for i in (0, 1))
        elif how == "stacked, Split":
            t.lines.append(f"pk, pv = Split <axis = 0> (past, {t.integers(1, 1)})")
            past_key, past_value = (t.call("Squeeze", x, t.integers(0)) for x in ("pk", "pv"))
        else:
            past_key, past_value = "past_key", "past_value"
        if how == "keys transposed":
            k = t.call("Concat", swapped(t, past_key), swapped(t, k), axis=-1)
        else:
            k = swapped(t, t.call("Concat", past_key, k, axis=2))
        v = t.call("Concat", past_value, v, axis=-2)
        return joined(t, weighted(t, t.call("Add", t.call("Div", t.call("MatMul", q, k), 2.0), "mask"), v))

    for how in ("two inputs", "keys transposed", "stacked, Gather", "stacked, Split"):
        given = past if "stacked" not in how else "float[2, b, 2, p, 4] past"
        yield how, f"{SELF}, {given}, float[b, 1, s, n] mask", OUT, lambda t, h=how: write(t, h)


def grouped() -> Variants:
    """Fewer heads of keys and values than of queries, repeated in every way."""

    def repeated(t: Text, x: str, how: str) -> str:
        """b 2 t d -> b (2 2) t d."""
        match how:
            case "Expand":
                five = t.call("Unsqueeze", x, t.integers(2))
                return t.call("Reshape", t.call("Expand", five, t.integers(1, 1, 2, 1, 1)), t.integers(0, 4, -1, 4))
            case "Tile":
                five = t.call("Tile", t.call("Unsqueeze", x, t.integers(2)), t.integers(1, 1, 2, 1, 1))
                return t.call("Reshape", five, t.integers(0, 4, -1, 4))
            case "Gather":
                return t.call("Gather", x, t.integers(0, 0, 1, 1), axis=1)
            case _:
                five = t.call("Unsqueeze", x, t.integers(2))
                return t.call("Reshape", t.call("Concat", five, five, axis=2), t.integers(0, 4, -1, 4))

    def write(t: Text, how: str) -> str:
        q = by_heads(t, "query", heads=4)
        k, v = (repeated(t, by_heads(t, x), how) for x in ("key", "value"))
        return joined(t, weighted(t, t.call("Mul", t.call("MatMul", q, swapped(t, k)), 0.5), v), 16)

    for how in ("Expand", "Tile", "Gather", "Concat"):
        yield (
            how,
            "float[b, s, 16] query, float[b, t, 8] key, float[b, t, 8] value",
            "float[b, s, 16] y",
            lambda t, h=how: write(t, h),
        )


def normalised() -> Variants:
    """Queries and keys normalised by heads, with RMSNorm, LayerNormalization or to length one."""

    def normal(t: Text, x: str, how: str) -> str:
        match how:
            case "RMSNorm":
                mean = t.call("ReduceMean", t.call("Mul", x, x), axes=[-1])
                return t.call("Mul", t.call("Div", x, t.call("Sqrt", t.call("Add", mean, 1e-6))), t.vector(4, 0.5))
            case "LayerNormalization":
                return t.call("LayerNormalization", x, t.vector(4, 0.5), t.vector(4, 0.25), axis=-1)
            case _:
                return t.call("Div", x, t.call("ReduceL2", x, axes=[-1], keepdims=1))

    def write(t: Text, how: str) -> str:
        q, k, v = normal(t, by_heads(t, "query"), how), normal(t, by_heads(t, "key"), how), by_heads(t, "value")
        return joined(t, weighted(t, t.call("Mul", t.call("MatMul", q, swapped(t, k)), 0.5), v))

    for how in ("RMSNorm", "LayerNormalization", "length one"):
        yield how, QKV, OUT, lambda t, h=how: write(t, h)


def biased() -> Variants:
    """Relative position biases: looked up in a table, T5's buckets, Swin's windows, ALiBi's slopes."""

    def table(t: Text) -> str:
        """The bias [1, 2, s, s] from a table by clipped distance, as in T5 and MPNet."""
        zero, one = (t.call("Squeeze", t.integers(i)) for i in (0, 1))
        places = t.call("Range", zero, length(t), one)
        away = t.call("Sub", t.call("Unsqueeze", places, t.integers(0)), t.call("Unsqueeze", places, t.integers(1)))
        bucket = t.call("Min", t.call("Abs", away), t.integers(7))
        t.constants.append(f"float[8, 2] weight = {{{', '.join(repr(i / 7 - 1) for i in range(16))}}}")
        rows = t.call("Gather", "weight", bucket, axis=0)
        return t.call("Unsqueeze", t.call("Transpose", rows, perm=[2, 0, 1]), t.integers(0))

    yield (
        "T5 without a scale",
        SELF,
        OUT,
        lambda t: joined(
            t,
            weighted(
                t,
                t.call("Add", t.call("MatMul", by_heads(t, "query"), by_heads(t, "key", transposed=True)), table(t)),
                by_heads(t, "value"),
            ),
        ),
    )
    yield (
        "a table and a mask, summed before",
        f"{SELF}, float[b, 1, 1, s] mask",
        OUT,
        lambda t: plain(t, lambda t, s: t.call("Add", s, t.call("Add", table(t), "mask"))),
    )

    def slopes(t: Text, s: str) -> str:
        """ALiBi: minus the distance to the key, times a slope for each head."""
        zero, one = (t.call("Squeeze", t.integers(i)) for i in (0, 1))
        places = t.call("Cast", t.call("Range", zero, length(t), one), to=1)
        t.constants.append("float[2, 1, 1] slope = {0.5, 0.25}")
        return t.call("Add", s, t.call("Mul", "slope", places))

    yield "ALiBi", SELF, OUT, lambda t: plain(t, slopes)

    def window(t: Text, shifted: bool) -> str:
        """Swin: windows of four in the batch axis, a table by heads, and a mask by windows if they are shifted."""
        q, k, v = by_heads(t, "query"), by_heads(t, "key", transposed=True), by_heads(t, "value")
        s = t.call("MatMul", t.call("Mul", q, 0.5), k)
        values = ", ".join(repr((i % 7) / 7) for i in range(32))
        t.constants.append(f"float[1, 2, 4, 4] table = {{{values}}}")
        s = t.call("Add", s, "table")
        if shifted:
            masks = ", ".join("0" if i % 3 else "-100" for i in range(48))
            t.constants.append(f"float[1, 3, 1, 4, 4] windows = {{{masks}}}")
            five = t.call("Add", t.call("Reshape", s, t.integers(-1, 3, 2, 4, 4)), "windows")
            s = t.call("Reshape", five, t.integers(-1, 2, 4, 4))
        return joined(t, weighted(t, s, v))

    inputs = "float[b, 4, 8] query, float[b, 4, 8] key, float[b, 4, 8] value"
    yield "windows", inputs, "float[b, 4, 8] y", lambda t: window(t, False)
    yield "shifted windows", inputs.replace("[b", "[6"), "float[6, 4, 8] y", lambda t: window(t, True)


def capped() -> Variants:
    """Soft-capped scores: c tanh(s / c)."""

    def write(t: Text, s: str, how: str) -> str:
        inner = t.call("Mul", s, 1 / 30) if how == "products" else t.call("Div", s, 30.0)
        return t.call("Mul", 30.0, t.call("Tanh", inner))

    for how in ("quotient", "products"):
        yield how, QKV, OUT, lambda t, h=how: plain(t, lambda t, s: write(t, s, h))
    yield (
        "and a mask",
        f"{QKV}, float[b, 1, s, t] mask",
        OUT,
        lambda t: plain(t, lambda t, s: t.call("Add", write(t, s, "quotient"), "mask")),
    )
    yield (
        "and a condition",
        f"{QKV}, bool[b, 1, s, t] mask",
        OUT,
        lambda t: plain(t, lambda t, s: t.call("Where", "mask", write(t, s, "quotient"), MIN)),
    )
    yield (
        "by heads",
        f"{HEADED}, float[b, 1, s, t] mask",
        OUT_HEADED,
        lambda t: headed(t, lambda t, s: t.call("Add", write(t, s, "products"), "mask")),
    )


def arranged() -> Variants:
    """The same layout by every sequence of layout operators."""

    def heads(t: Text, x: str, how: str) -> str:
        match how:
            case "computed shapes":
                shape = t.call("Shape", x)
                sizes = [t.call("Gather", shape, t.call("Squeeze", t.integers(i)), axis=0) for i in (0, 1)]
                rows = [t.call("Unsqueeze", n, t.integers(0)) for n in sizes]
                four = t.call("Reshape", x, t.call("Concat", *rows, t.integers(2), t.integers(4), axis=0))
                return t.call("Transpose", four, perm=[0, 2, 1, 3])
            case "Unsqueeze and Squeeze":
                five = t.call("Unsqueeze", t.call("Reshape", x, t.integers(0, 0, 2, 4)), t.integers(0))
                return t.call("Squeeze", t.call("Transpose", five, perm=[0, 1, 3, 2, 4]), t.integers(0))
            case "two transposes":
                four = t.call("Reshape", x, t.integers(0, 0, 2, 4))
                return swapped(t, t.call("Transpose", four, perm=[0, 2, 3, 1]))
            case "sequence first":
                first = t.call("Transpose", x, perm=[1, 0, 2])
                four = t.call("Reshape", first, t.integers(0, 0, 2, 4))
                return t.call("Transpose", four, perm=[1, 2, 0, 3])
            case _:
                two = t.call("Reshape", x, t.integers(-1, 8))
                back = t.call("Reshape", two, t.call("Shape", x))
                return by_heads(t, back)

    def together(t: Text, x: str, how: str) -> str:
        turned = t.call("Transpose", x, perm=[0, 2, 1, 3])
        match how:
            case "computed shapes":
                shape = t.call("Shape", turned)
                sizes = [t.call("Gather", shape, t.call("Squeeze", t.integers(i)), axis=0) for i in (0, 1)]
                rows = [t.call("Unsqueeze", n, t.integers(0)) for n in sizes]
                return t.call("Reshape", turned, t.call("Concat", *rows, t.integers(8), axis=0))
            case "Flatten and back":
                return t.call("Reshape", t.call("Flatten", turned, axis=2), t.call("Shape", "query"))
            case _:
                return t.call("Reshape", turned, t.integers(0, 0, -1))

    def write(t: Text, how: str, mask: bool) -> str:
        q, k, v = (heads(t, x, how) for x in ("query", "key", "value"))
        s = t.call("Mul", t.call("MatMul", q, swapped(t, k)), 0.5)
        return together(t, weighted(t, t.call("Add", s, "mask") if mask else s, v), how)

    for how, mask in product(
        ("computed shapes", "Unsqueeze and Squeeze", "two transposes", "sequence first", "Flatten and back"), (False, True)
    ):
        yield (
            f"{how}{', masked' if mask else ''}",
            f"{QKV}, float[b, 1, s, t] mask" if mask else QKV,
            OUT,
            lambda t, h=how, m=mask: write(t, h, m),
        )

    def rank_three(t: Text) -> str:
        """Keys transposed in rank 3, as torch's dynamo exporter does."""
        q, v = by_heads(t, "query"), by_heads(t, "value")
        three = t.call("Transpose", t.call("Reshape", by_heads(t, "key"), t.integers(-1, 6, 4)), perm=[0, 2, 1])
        k = t.call("Reshape", three, t.integers(-1, 2, 4, 6))
        return joined(t, weighted(t, t.call("Mul", t.call("MatMul", q, k), 0.5), v))

    yield (
        "keys by way of rank 3",
        "float[b, 6, 8] query, float[b, 6, 8] key, float[b, 6, 8] value",
        "float[b, 6, 8] y",
        rank_three,
    )


def summed() -> Variants:
    """Products written as Einsum."""

    def write(t: Text, q: str, k: str, v: str, scores: str, result: str, order: str) -> str:
        pair = ((q, k), (k, q))[order == "k q"]
        left, right = scores.split(",")
        equation = f"{left},{right}" if order == "q k" else f"{right.split('->')[0]},{left}->{right.split('->')[1]}"
        s = t.call("Mul", t.call("Einsum", *pair, equation=equation), 0.5)
        return t.call("Einsum", t.call("Softmax", s, axis=2 if scores.endswith("h") else -1), v, equation=result)

    def by_four(t: Text, x: str) -> str:
        return t.call("Reshape", x, t.integers(0, 0, 2, 4))

    of_four = ("bshd,bthd->bhst bhst,bthd->bshd", "bqnc,bknc->bnqk bnqk,bknc->bqnc", "bshd,bthd->bsth bsth,bthd->bshd")
    for order, letters in product(("q k", "k q"), of_four):
        scores, result = letters.split()
        yield (
            f"b s h d, {scores}, {order}",
            QKV,
            OUT,
            lambda t, o=order, s=scores, r=result: t.call(
                "Reshape",
                write(t, by_four(t, "query"), by_four(t, "key"), by_four(t, "value"), s, r, o),
                t.integers(0, 0, 8),
            ),
        )

    def in_order(t: Text, scores: str, result: str, *, transposed: bool = False) -> str:
        return joined(
            t,
            write(
                t, by_heads(t, "query"), by_heads(t, "key", transposed=transposed), by_heads(t, "value"), scores, result, "q k"
            ),
        )

    for letters, transposed in (
        ("bhid,bhjd->bhij bhij,bhjd->bhid", False),
        ("bhid,bhdj->bhij bhij,bhjd->bhid", True),
        ("...id,...jd->...ij ...ij,...jd->...id", False),
    ):
        scores, result = letters.split()
        yield f"b h s d, {scores}", QKV, OUT, lambda t, s=scores, r=result, k=transposed: in_order(t, s, r, transposed=k)

    def as_one(t: Text) -> str:
        q, k, v = (t.call("Reshape", by_heads(t, x), t.integers(-1, 6, 4)) for x in ("query", "key", "value"))
        result = write(t, q, k, v, "bid,bjd->bij", "bij,bjd->bid", "q k")
        return joined(t, t.call("Reshape", result, t.integers(-1, 2, 6, 4)))

    fixed = ", ".join(f"float[b, 6, 8] {x}" for x in ("query", "key", "value"))
    yield "(b h) s d, as in latent diffusion", fixed, "float[b, 6, 8] y", as_one

    def channels_first(t: Text, order: str) -> str:
        q, k = (t.call("Reshape", t.call("Mul", x, 0.7071), t.integers(-1, 4, 6)) for x in ("query", "key"))
        v = t.call("Reshape", "value", t.integers(-1, 4, 6))
        p = t.call("Softmax", t.call("Einsum", q, k, equation="bct,bcs->bts"), axis=-1)
        pair, equation = ((p, v), "bts,bcs->bct") if order == "weights first" else ((v, p), "bcs,bts->bct")
        return t.call("Reshape", t.call("Einsum", *pair, equation=equation), t.integers(-1, 8, 6))

    turned = ", ".join(f"float[b, 8, 6] {x}" for x in ("query", "key", "value"))
    for order in ("weights first", "values first"):
        name = f"(b h) d s, as in guided diffusion, {order}"
        yield name, turned, "float[b, 8, 6] y", lambda t, o=order: channels_first(t, o)


def unheaded() -> Variants:
    """Attention without heads: non-local blocks, and the attention of autoencoders."""
    rows = "float[b, s, 8] query, float[b, t, 8] key, float[b, t, 4] value"

    def write(t: Text, key: str, mask: str = "") -> str:
        s = t.call("Mul", t.call("MatMul", "query", key), 0.35355338)
        return weighted(t, t.call("Add", s, mask) if mask else s, "value")

    def transposed(t: Text, x: str) -> str:
        return t.call("Transpose", x, perm=[0, 2, 1])

    yield "plain", rows, "float[b, s, 4] y", lambda t: write(t, transposed(t, "key"))
    for shape in ("b, s, t", "1, s, t", "b, 1, t", "s, t"):
        masked = f"{rows}, float[{shape}] mask"
        yield f"a mask [{shape}]", masked, "float[b, s, 4] y", lambda t: write(t, transposed(t, "key"), "mask")
    columns = "float[b, s, 8] query, float[b, 8, t] key, float[b, t, 4] value"
    yield "keys by columns", columns, "float[b, s, 4] y", lambda t: write(t, "key")

    def values_first(t: Text) -> str:
        p = t.call("Softmax", t.call("Mul", t.call("MatMul", "query", "key"), 0.35355338), axis=-1)
        return t.call("MatMul", "value", transposed(t, p))

    yield "values times weights", columns.replace("t, 4", "4, t"), "float[b, 4, s] y", values_first


def angles(t: Text) -> str:
    """The angles [1, s, 2] of positions from 0, for two frequencies."""
    zero, one = (t.call("Squeeze", t.integers(i)) for i in (0, 1))
    places = t.call("Cast", t.call("Range", zero, length(t), one), to=1)
    t.constants.append("float[1, 1, 2] frequencies = {1.0, 0.01}")
    return t.call("Mul", t.call("Unsqueeze", places, t.integers(0, 2)), "frequencies")


def halves(t: Text, x: str, how: str, size: int = 4) -> tuple[str, str]:
    if how == "Split":
        name = f"h{next(t.names)}"
        t.lines.append(f"{name}a, {name}b = Split <axis = -1> ({x}, {t.integers(size // 2, size // 2)})")
        return f"{name}a", f"{name}b"
    low = t.call("Slice", x, t.integers(0), t.integers(size // 2), t.integers(-1))
    return low, t.call("Slice", x, t.integers(size // 2), t.integers(2**63 - 1), t.integers(3))


def turned(t: Text, x: str, cos: str, sin: str, how: str) -> str:
    """x cos + (-x₂, x₁) sin."""
    low, high = halves(t, x, how)
    half = t.call("Concat", t.call("Neg", high), low, axis=-1)
    products = t.call("Mul", x, cos), t.call("Mul", half, sin)
    return t.call("Add", *products) if how == "Split" else t.call("Add", *reversed(products))


def waves(t: Text, freqs: str, axis: int = 1) -> tuple[str, str]:
    return t.call("Unsqueeze", t.call("Cos", freqs), t.integers(axis)), t.call(
        "Unsqueeze", t.call("Sin", freqs), t.integers(axis)
    )


def pair(t: Text, first: str, second: str, cos: str, sin: str) -> tuple[str, str]:
    return (
        t.call("Sub", t.call("Mul", first, cos), t.call("Mul", second, sin)),
        t.call("Add", t.call("Mul", second, cos), t.call("Mul", first, sin)),
    )


def rotated_by_rows() -> Variants:
    """Rotary embeddings with angles for each row and element, which are the same for all heads."""

    def of_rows(t: Text, how: str) -> str:
        """Angles [s, 4], as broadcast over batch and heads."""
        freqs = t.call("Squeeze", angles(t), t.integers(0))
        both = t.call("Concat", freqs, freqs, axis=-1)
        return joined(t, turned(t, by_heads(t, "query"), t.call("Cos", both), t.call("Sin", both), how))

    for how in ("Split", "Slice"):
        yield f"halves of rows of angles, {how}", "float[b, s, 8] query", OUT, lambda t, h=how: of_rows(t, h)

    def in_pairs(t: Text, how: str) -> str:
        """Neighbours as the last axis of [b, 2, s, 2, 2], and angles [s, 4] that are repeated, as in rotary-embedding-torch."""
        freqs = t.call("Unsqueeze", t.call("Squeeze", angles(t), t.integers(0)), t.integers(2))
        both = t.call("Reshape", t.call("Expand", freqs, t.integers(1, 1, 2)), t.integers(-1, 4))
        x = by_heads(t, "query")
        apart = t.call("Reshape", x, t.integers(0, 0, 0, 2, 2))
        if how == "Split":
            name = f"h{next(t.names)}"
            t.lines.append(f"{name}a, {name}b = Split <axis = -1> ({apart}, {t.integers(1, 1)})")
            parts = [t.call("Squeeze", f"{name}{part}", t.integers(-1)) for part in "ab"]
        else:
            slices = [t.call("Slice", apart, t.integers(n), t.integers(n + 1), t.integers(-1)) for n in range(2)]
            parts = [t.call("Squeeze", part, t.integers(-1)) for part in slices]
        stacked = [t.call("Unsqueeze", part, t.integers(-1)) for part in (t.call("Neg", parts[1]), parts[0])]
        half = t.call("Reshape", t.call("Concat", *stacked, axis=-1), t.integers(0, 0, 0, 4))
        return joined(t, t.call("Add", t.call("Mul", x, t.call("Cos", both)), t.call("Mul", half, t.call("Sin", both))))

    for how in ("Split", "Slice"):
        yield f"neighbours by pairs, {how}", "float[b, s, 8] query", OUT, lambda t, h=how: in_pairs(t, h)


def rotated() -> Variants:
    """Rotary embeddings: of halves and of neighbours, partial, from angles, from cosines and from tables."""

    def of_angles(t: Text, how: str) -> str:
        freqs = angles(t)
        return joined(t, turned(t, by_heads(t, "query"), *waves(t, t.call("Concat", freqs, freqs, axis=-1)), how))

    for how in ("Split", "Slice"):
        yield f"halves of angles, {how}", "float[b, s, 8] query", OUT, lambda t, h=how: of_angles(t, h)

    def of_table(t: Text, how: str) -> str:
        for name, values in (
            ("cosines", "1.0, 1.0, 1.0, 1.0, 0.5, 0.9, 0.5, 0.9"),
            ("sines", "0.0, 0.1, 0.0, 0.1, 0.8, 0.4, 0.8, 0.4"),
        ):
            t.constants.append(f"float[2, 4] {name} = {{{values}}}")
        cos, sin = (t.call("Unsqueeze", t.call("Gather", n, "position_ids"), t.integers(1)) for n in ("cosines", "sines"))
        return joined(t, turned(t, by_heads(t, "query"), cos, sin, how))

    for how in ("Split", "Slice"):
        yield f"halves of a table, {how}", "float[b, s, 8] query, int64[b, s] position_ids", OUT, lambda t, h=how: of_table(t, h)

    def partial(t: Text, how: str) -> str:
        x = by_heads(t, "query", size=6)
        first = t.call("Slice", x, t.integers(0), t.integers(4), t.integers(3))
        rest = t.call("Slice", x, t.integers(4), t.integers(6), t.integers(-1))
        freqs = angles(t)
        result = turned(t, first, *waves(t, t.call("Concat", freqs, freqs, axis=-1)), how)
        return joined(t, t.call("Concat", result, rest, axis=-1), 12)

    for how in ("Split", "Slice"):
        yield f"the first four of six, {how}", "float[b, s, 12] query", "float[b, s, 12] y", lambda t, h=how: partial(t, h)

    def apart(t: Text, how: str) -> str:
        x = by_heads(t, "query")
        return joined(t, t.call("Concat", *pair(t, *halves(t, x, how), *waves(t, angles(t))), axis=-1))

    for how in ("Split", "Slice"):
        yield f"halves apart, {how}", "float[b, s, 8] query", OUT, lambda t, h=how: apart(t, h)

    def given(t: Text) -> str:
        x = by_heads(t, "query")
        cos, sin = t.call("Unsqueeze", "cosines", t.integers(1)), t.call("Unsqueeze", "sines", t.integers(1))
        return joined(t, t.call("Concat", *pair(t, *halves(t, x, "Split"), cos, sin), axis=-1))

    yield "halves of cosines from outside", "float[b, s, 8] query, float[b, s, 2] cosines, float[b, s, 2] sines", OUT, given

    def neighbours(t: Text, how: str) -> str:
        x = by_heads(t, "query")
        even, odd = (
            t.call("Slice", x, t.integers(i), t.integers(2**63 - 1), t.integers(3 if how == "Flatten" else -1), t.integers(2))
            for i in (0, 1)
        )
        stacked = (
            t.call("Unsqueeze", r, t.integers(-1 if how == "Flatten" else 4)) for r in pair(t, even, odd, *waves(t, angles(t)))
        )
        five = t.call("Concat", *stacked, axis=-1)
        shape = t.call("Shape", x) if how == "Flatten" else t.integers(0, 2, -1, 4)
        return joined(t, t.call("Reshape", five, shape))

    for how in ("Flatten", "Reshape"):
        yield f"neighbours, {how}", "float[b, s, 8] query", OUT, lambda t, h=how: neighbours(t, h)

    def heads_behind(t: Text, how: str) -> str:
        """x cos + (-x₁, x₀) sin with the heads behind the length, and angles [1, s, 1, 4] in pairs, as in GPT-J and CodeGen."""
        x, freqs = t.call("Reshape", "query", t.integers(0, 0, 2, 4)), t.call("Unsqueeze", angles(t), t.integers(3))
        both = t.call("Reshape", t.call("Expand", freqs, t.integers(1, 1, 1, 2)), t.integers(1, -1, 1, 4))
        even, odd = (t.call("Slice", x, t.integers(i), t.integers(2**63 - 1), t.integers(3), t.integers(2)) for i in (0, 1))
        stacked = t.call("Concat", *(t.call("Unsqueeze", r, t.integers(-1)) for r in (t.call("Neg", odd), even)), axis=-1)
        half = t.call("Reshape", stacked, t.call("Shape", x) if how == "Flatten" else t.integers(0, -1, 2, 4))
        rotated = t.call("Add", t.call("Mul", x, t.call("Cos", both)), t.call("Mul", half, t.call("Sin", both)))
        return t.call("Reshape", rotated, t.integers(0, 0, 8))

    for how in ("Flatten", "Reshape"):
        yield f"neighbours with the heads behind, {how}", "float[b, s, 8] query", OUT, lambda t, h=how: heads_behind(t, h)

    def one_head(t: Text, how: str) -> str:
        """The only head of the keys, as in DeepSeek: the axis of heads is 1, and so is that of the cosines."""
        x = t.call("Reshape", "query", t.integers(0, 1, -1, 4))
        turned = t.call("Concat", *pair(t, *halves(t, x, how), *waves(t, angles(t))), axis=-1)
        return t.call("Reshape", turned, t.integers(0, -1, 4))

    for how in ("Split", "Slice"):
        yield f"halves of one head, {how}", "float[b, s, 4] query", "float[b, s, 4] y", lambda t, h=how: one_head(t, h)


def rotated_in_other_layouts() -> Variants:
    """Rotary embeddings with the heads behind the length, or with the length first."""

    def left_as_halves(t: Text, how: str) -> str:
        """Neighbours that are turned with the heads behind the length, and left as halves."""
        x = t.call("Reshape", "query", t.integers(0, 0, 2, 4))
        even, odd = (t.call("Slice", x, t.integers(i), t.integers(2**63 - 1), t.integers(-1), t.integers(2)) for i in (0, 1))
        rotated = t.call("Concat", *pair(t, even, odd, *waves(t, angles(t), 2)), axis=-1)
        whole = t.call("Concat", x, rotated, axis=-1) if how == "behind a part" else rotated
        return t.call("Reshape", whole, t.integers(0, 0, 16 if how == "behind a part" else 8))

    for how, width in (("alone", 8), ("behind a part", 16)):
        yield (
            f"neighbours left as halves with the heads behind, {how}",
            "float[b, s, 8] query",
            f"float[b, s, {width}] y",
            lambda t, h=how: left_as_halves(t, h),
        )

    def length_first(t: Text, how: str) -> str:
        """The length before the batch, as in torchaudio's Conformer, and angles [s, 1, 1, 2]."""
        x = t.call("Transpose", t.call("Reshape", "query", t.integers(0, 0, 2, 4)), perm=[1, 0, 2, 3])
        freqs = t.call("Reshape", angles(t), t.integers(-1, 1, 1, 2))
        if how == "apart":
            cos, sin = t.call("Cos", freqs), t.call("Sin", freqs)
            result = t.call("Concat", *pair(t, *halves(t, x, "Split"), cos, sin), axis=-1)
        else:
            both = t.call("Concat", freqs, freqs, axis=-1)
            result = turned(t, x, t.call("Cos", both), t.call("Sin", both), how)
        return t.call("Reshape", t.call("Transpose", result, perm=[1, 0, 2, 3]), t.integers(0, 0, 8))

    for how in ("Split", "Slice", "apart"):
        yield f"halves with the length first, {how}", "float[b, s, 8] query", OUT, lambda t, h=how: length_first(t, h)

    def halves_behind(t: Text, how: str) -> str:
        """The heads behind the length, as in Gemma 3n, and cosines [1, s, 1, 4] of both halves."""
        x, freqs = t.call("Reshape", "query", t.integers(0, 0, 2, 4)), angles(t)
        both = t.call("Unsqueeze", t.call("Concat", freqs, freqs, axis=-1), t.integers(2))
        return t.call("Reshape", turned(t, x, t.call("Cos", both), t.call("Sin", both), how), t.integers(0, 0, 8))

    for how in ("Split", "Slice"):
        yield f"halves with the heads behind, {how}", "float[b, s, 8] query", OUT, lambda t, h=how: halves_behind(t, h)


def attention_of_rotated() -> Variants:
    """Attention of rotated queries and keys."""

    def write(t: Text) -> str:
        freqs = angles(t)
        both = t.call("Concat", freqs, freqs, axis=-1)
        cos, sin = (t.call("Unsqueeze", t.call(w, both), t.integers(1)) for w in ("Cos", "Sin"))
        turned = []
        for x in (by_heads(t, "query"), by_heads(t, "key")):
            low = t.call("Slice", x, t.integers(0), t.integers(2), t.integers(3))
            high = t.call("Slice", x, t.integers(2), t.integers(4), t.integers(3))
            half = t.call("Concat", t.call("Neg", high), low, axis=-1)
            turned.append(t.call("Add", t.call("Mul", x, cos), t.call("Mul", half, sin)))
        s = t.call("Div", t.call("MatMul", turned[0], swapped(t, turned[1])), 2.0)
        return joined(t, weighted(t, t.call("Add", s, "mask"), by_heads(t, "value")))

    yield "halves", f"{SELF}, float[b, 1, s, s] mask", OUT, write


FAMILIES: Mapping[str, Callable[[], Variants]] = {
    "additive masks": additive,
    "boolean masks": boolean,
    "causal masks": causal,
    "scales": scaled,
    "precision": precise,
    "batch and heads as one": batched,
    "packed projections": packed,
    "past keys and values": cached,
    "repeated heads": grouped,
    "normalised queries and keys": normalised,
    "position biases": biased,
    "soft caps": capped,
    "layout": arranged,
    "Einsum": summed,
    "no heads": unheaded,
    "rotary embeddings": rotated,
    "rotary embeddings by rows": rotated_by_rows,
    "rotary embeddings in other layouts": rotated_in_other_layouts,
    "rotated queries and keys": attention_of_rotated,
}
"""Family → its spellings."""


def written(write: Callable[[Text], str], inputs: str, output: str, opset: int = 17) -> str:
    """The text of a model."""
    text = Text(opset)
    result = write(text)
    constants = f" <{', '.join(text.constants)}>" if text.constants else ""
    body = "\n  ".join((*text.lines, f"y = Identity({result})"))
    return f'<ir_version: 8, opset_import: ["" : {opset}]>\ng ({inputs}) => ({output}){constants} {{\n  {body}\n}}'


def spellings() -> Iterator[Spelling]:
    """Every spelling of every family."""
    for family, variants in FAMILIES.items():
        for name, inputs, output, write in variants():
            yield Spelling(family, name, written(write, inputs, output), ROTARY if family.startswith("rotary") else ATTENTION)
