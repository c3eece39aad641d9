"""The normalizations in every spelling: LayerNormalization, RMSNorm, and the sum before them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import cycle, product

from tests.patterns.spellings_text import INVERSE, ROOTED, SQUARES, Text, Variants


def layer_normalization() -> Variants:
    """(x - mean) / sqrt(var + ε) · scale + bias."""

    def write(t: Text, axis: int, square: str, root: str, ending: str) -> str:
        mean = t.reduce("ReduceMean", "x", axis)
        d = "" if "E[x²]" in square and "g" in ending else t.call("Sub", "x", mean)
        if "E[x²]" in square:
            mean_square = t.reduce("ReduceMean", SQUARES["a * a"](t, "x"), axis)
            var = t.call("Sub", mean_square, t.call("Mul", mean, mean))
        else:
            again = t.call("Sub", "x", t.reduce("ReduceMean", "x", axis)) if "twice" in ending else d
            var = t.reduce("ReduceMean", SQUARES[square](t, again), axis)
        v = t.call("Add", var, 1e-5) if axis < 0 else t.call("Add", 1e-5, var)
        scale, bias = t.vector(8, 0.5), t.vector(8, -0.25)
        match ending:
            case "b + s n":
                return t.call("Add", bias, t.call("Mul", scale, ROOTED[root](t, d, v)))
            case "n s":
                return t.call("Mul", ROOTED[root](t, d, v), scale)
            case "d (r s) + b":
                r = t.call("Mul", INVERSE["Reciprocal(Sqrt(v))"](t, v), scale)
                return t.call("Add", t.call("Mul", d, r), bias)
            case "x g + (b - mean g)":
                g = t.call("Mul", INVERSE["Pow(v, -0.5)"](t, v), scale)
                return t.call("Add", t.call("Mul", "x", g), t.call("Sub", bias, t.call("Mul", mean, g)))
            case _:
                return t.call("Add", t.call("Mul", ROOTED[root](t, d, v), scale), bias)

    axes = cycle((-1, 2))
    for square, root, ending in product(
        (*SQUARES, "E[x²] - mean²"), ROOTED, ("n s + b", "b + s n", "n s", "n s + b, mean twice")
    ):
        axis = next(axes)
        yield (
            "layer-normalization",
            f"{square}, {root}, {ending}, axis {axis}",
            lambda t, a=axis, s=square, r=root, e=ending: write(t, a, s, r, e),
        )
    for square, ending in product((*SQUARES, "E[x²] - mean²"), ("d (r s) + b", "x g + (b - mean g)")):
        yield (
            "layer-normalization",
            f"{square}, {ending}",
            lambda t, s=square, e=ending: write(t, -1, s, "a / Sqrt(v)", e),
        )


def rms_normalization() -> Variants:
    """x / sqrt(mean(x²) + ε) · scale."""
    means: Mapping[str, Callable[[Text, str, int], str]] = {
        "ReduceMean": lambda t, square, axis: t.reduce("ReduceMean", SQUARES[square](t, "x"), axis),
        "ReduceSum / 8": lambda t, square, axis: t.call("Div", t.reduce("ReduceSum", SQUARES[square](t, "x"), axis), 8.0),
        "ReduceSum * 0.125": lambda t, square, axis: t.call("Mul", 0.125, t.reduce("ReduceSum", SQUARES[square](t, "x"), axis)),
        "ReduceSumSquare / 8": lambda t, square, axis: t.call("Div", t.reduce("ReduceSumSquare", "x", axis), 8.0),
    }

    def write(t: Text, mean: str, square: str, root: str, ending: str, axis: int) -> str:
        v = t.call("Add", means[mean](t, square, axis), 1e-6)
        scale = t.vector(8, 0.5)
        match ending:
            case "w n":
                return t.call("Mul", scale, ROOTED[root](t, "x", v))
            case "x (r w)":
                return t.call("Mul", "x", t.call("Mul", INVERSE["1 / Sqrt(v)"](t, v), scale))
            case "n (1 + w)":
                return t.call("Mul", ROOTED[root](t, "x", v), t.call("Add", 1.0, scale))
            case _:
                return t.call("Mul", ROOTED[root](t, "x", v), scale)

    axes = cycle((-1, 2, -1))
    for mean, square, root, ending in product(means, SQUARES, ROOTED, ("n w", "w n", "x (r w)", "n (1 + w)")):
        if mean != "ReduceMean" and (root, ending) not in (("a / Sqrt(v)", "n w"), ("a * Reciprocal(Sqrt(v))", "w n")):
            continue
        axis = next(axes)
        yield (
            "rms-normalization",
            f"{mean}, {square}, {root}, {ending}, axis {axis}",
            lambda t, m=mean, s=square, r=root, e=ending, a=axis: write(t, m, s, r, e, a),
        )


def skip_layer_normalization() -> Variants:
    """The sum of two values, and of a bias, then LayerNormalization."""

    def total(t: Text, how: str) -> str:
        bias = t.vector(8, -0.5) if "b" in how else ""
        match how:
            case "x + z":
                return t.call("Add", "x", "z")
            case "z + x":
                return t.call("Add", "z", "x")
            case "(x + b) + z":
                return t.call("Add", t.call("Add", "x", bias), "z")
            case "z + (b + x)":
                return t.call("Add", "z", t.call("Add", bias, "x"))
            case _:
                return t.call("Add", t.call("Add", "x", "z"), bias)

    def write(t: Text, how: str, ending: str) -> str:
        inputs = [total(t, how), t.vector(8, 0.5), *([t.vector(8, 0.25)] if "shift" in ending else [])]
        return t.call("LayerNormalization", *inputs, axis=2 if "axis 2" in ending else -1, epsilon=1e-5)

    for how, ending in product(
        ("x + z", "z + x", "(x + b) + z", "z + (b + x)", "(x + z) + b"), ("shift", "no", "shift, axis 2", "no, axis 2")
    ):
        yield "skip-layer-normalization", f"{how}, {ending}", lambda t, h=how, e=ending: write(t, h, e)
