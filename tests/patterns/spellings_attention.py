"""Attention in every spelling: masks, scales, precisions, layouts, packings and caches, as exporters and people write them.

Each spelling is a whole model of symbolic batch and lengths, two heads of four, and one attention; what varies is written over
the same few lines (`by_heads`, `scores`, `weighted`, `joined`).
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
MIN, INFINITE = -3.4028234663852886e38, float("-inf")


@dataclass(frozen=True)
class Spelling:
    """One model with one attention, which must become one of `operators`. name: the choices made."""

    family: str
    name: str
    model: str
    operators: tuple[str, ...] = ("com.microsoft.MultiHeadAttention", "Attention")


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


def weighted(t: Text, scores: str, value: str) -> str:
    """Softmax(scores) @ value."""
    return t.call("MatMul", t.call("Softmax", scores, axis=-1), value)


def plain(t: Text, mask: Callable[[Text, str], str] = lambda t, s: s) -> str:
    """The attention of projections, with `mask` written over its scores."""
    q, k, v = by_heads(t, "query"), by_heads(t, "key", transposed=True), by_heads(t, "value")
    return joined(t, weighted(t, mask(t, t.call("Div", t.call("MatMul", q, k), 2.0)), v))


def headed(t: Text, mask: Callable[[Text, str], str] = lambda t, s: s) -> str:
    """The attention of operands that stand by heads."""
    return weighted(t, mask(t, t.call("Mul", t.call("MatMul", "query", swapped(t, "key")), 0.5)), "value")


def infinity(t: Text) -> str:
    """-inf, which the text form has no literal for."""
    return t.call("Div", -1.0, 0.0)


def additive() -> Variants:
    """A mask that is added: of any rank, of one or all heads, from padding, from booleans."""
    shapes = ("b, 1, s, t", "1, 1, s, t", "b, 2, s, t", "1, 2, s, t", "b, 1, 1, t", "2, s, t", "1, s, t", "s, t", "1, t", "t")
    for shape, order in product(shapes, ("s + m", "m + s")):
        yield (
            f"[{shape}], {order}",
            f"{QKV}, float[{shape}] mask",
            OUT,
            lambda t, o=order: plain(t, lambda t, s: t.call("Add", *((s, "mask") if o == "s + m" else ("mask", s)))),
        )

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
    """Scores that are kept or dropped by a condition: both polarities, every low number, every rank."""
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
        lambda t: plain(t, lambda t, s: t.call("Add", where(t, s, "-1e4", "keep", "mask"), "bias")),
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
    """The condition [s, s] that a key is not after its query."""
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
    """Causal masks, however the triangle is made and however it is applied."""

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
    """Softmax in float32 inside float16, and guards against NaN."""
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
        p = t.call("Softmax", s, axis=-1)
        return joined(t, t.call("MatMul", t.call("Where", t.call("IsNaN", p), 0.0, p), v))

    for how in ("Where", "added"):
        yield f"guard against NaN, {how}", f"{QKV}, bool[b, 1, s, t] mask", OUT, lambda t, h=how: guarded(t, h)


FAMILIES: Mapping[str, Callable[[], Variants]] = {
    "additive masks": additive,
    "boolean masks": boolean,
    "causal masks": causal,
    "scales": scaled,
    "precision": precise,
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
            yield Spelling(family, name, written(write, inputs, output))
