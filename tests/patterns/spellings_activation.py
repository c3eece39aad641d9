"""The activations in every spelling: GELU and its approximations, QuickGELU, SiLU, a bias before them, HardSwish."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import product

from tests.patterns.spellings_text import CUBES, HALVES, Text, Variants, halves

ROOT = math.sqrt(2)
OUTER = math.sqrt(2 / math.pi)


def gelu() -> Variants:
    """x · Φ(x) with Erf."""
    arguments: Mapping[str, Callable[[Text], str]] = {
        "x / 1.4142": lambda t: t.call("Div", "x", ROOT),
        "x * 0.7071": lambda t: t.call("Mul", "x", 1 / ROOT),
        "0.7071 * x": lambda t: t.call("Mul", 0.70710678, "x"),
        "x / Sqrt(2)": lambda t: t.call("Div", "x", t.call("Sqrt", 2.0)),
    }
    sums: Mapping[str, Callable[[Text, str], str]] = {
        "e + 1": lambda t, e: t.call("Add", e, 1.0),
        "1 + e": lambda t, e: t.call("Add", 1.0, e),
        "e - -1": lambda t, e: t.call("Sub", e, -1.0),
    }
    for a, s, h in product(arguments, sums, HALVES):
        yield (
            "gelu",
            f"Erf({a}), {s}, {h}",
            lambda t, a=a, s=s, h=h: halves(t, "x", sums[s](t, t.call("Erf", arguments[a](t))), h),
        )
    for a in arguments:
        yield (
            "gelu",
            f"Erf({a}), x (0.5 + 0.5 e)",
            lambda t, a=a: t.call("Mul", "x", t.call("Add", 0.5, t.call("Mul", t.call("Erf", arguments[a](t)), 0.5))),
        )


def tanh_gelu() -> Variants:
    """GELU's approximation with Tanh."""
    cubic = 0.044715

    def inner(t: Text, cube: str, how: str) -> str:
        match how:
            case "k (x + c x³)":
                return t.call("Mul", OUTER, t.call("Add", "x", t.call("Mul", cubic, CUBES[cube](t, "x"))))
            case "(c x³ + x) k":
                return t.call("Mul", t.call("Add", t.call("Mul", CUBES[cube](t, "x"), cubic), "x"), OUTER)
            case "k x + k c x³":
                return t.call("Add", t.call("Mul", "x", OUTER), t.call("Mul", CUBES[cube](t, "x"), OUTER * cubic))
            case "(k x) (1 + c x²)":
                square = t.call("Mul", cubic, t.call("Mul", "x", "x"))
                return t.call("Mul", t.call("Mul", OUTER, "x"), t.call("Add", 1.0, square))
            case _:
                square = t.call("Mul", t.call("Mul", cubic, "x"), "x")
                return t.call("Mul", "x", t.call("Mul", t.call("Add", square, 1.0), OUTER))

    hows = ("k (x + c x³)", "(c x³ + x) k", "k x + k c x³", "(k x) (1 + c x²)", "x ((c x x + 1) k)")
    for cube, how, h in product(CUBES, hows, HALVES[::2]):
        if ("x²" in how or "x x" in how) and cube != "Pow(x, 3)":
            continue
        yield (
            "fast-gelu",
            f"{how}, {cube}, {h}",
            lambda t, c=cube, i=how, h=h: halves(t, "x", t.call("Add", 1.0, t.call("Tanh", inner(t, c, i))), h),
        )
    for how in hows:
        yield (
            "fast-gelu",
            f"x Sigmoid(2 {how})",
            lambda t, i=how: t.call("Mul", "x", t.call("Sigmoid", t.call("Mul", 2.0, inner(t, "Pow(x, 3)", i)))),
        )


def swish() -> Variants:
    """QuickGELU and SiLU."""
    scaled: Mapping[str, Callable[[Text], str]] = {
        "x * a": lambda t: t.call("Mul", "x", 1.702),
        "a * x": lambda t: t.call("Mul", 1.702, "x"),
        "x / (1/a)": lambda t: t.call("Div", "x", 1 / 1.702),
    }
    for how, scale in scaled.items():
        yield "quick-gelu", f"x Sigmoid({how})", lambda t, f=scale: t.call("Mul", "x", t.call("Sigmoid", f(t)))
        yield "quick-gelu", f"Sigmoid({how}) x", lambda t, f=scale: t.call("Mul", t.call("Sigmoid", f(t)), "x")
        yield (
            "quick-gelu",
            f"x / (1 + Exp(-({how})))",
            lambda t, f=scale: t.call("Div", "x", t.call("Add", 1.0, t.call("Exp", t.call("Neg", f(t))))),
        )
    yield "silu", "x Sigmoid(x)", lambda t: t.call("Mul", "x", t.call("Sigmoid", "x"))
    yield "silu", "Sigmoid(x) x", lambda t: t.call("Mul", t.call("Sigmoid", "x"), "x")
    yield "silu", "x / (1 + Exp(-x))", lambda t: t.call("Div", "x", t.call("Add", 1.0, t.call("Exp", t.call("Neg", "x"))))
    yield (
        "silu",
        "x / (Exp(x * -1) + 1)",
        lambda t: t.call("Div", "x", t.call("Add", t.call("Exp", t.call("Mul", "x", -1.0)), 1.0)),
    )
    yield (
        "silu",
        "x Reciprocal(1 + Exp(-x))",
        lambda t: t.call("Mul", "x", t.call("Reciprocal", t.call("Add", 1.0, t.call("Exp", t.call("Neg", "x"))))),
    )


def bias_gelu() -> Variants:
    """A bias, then GELU as one operator, as after the first round of fusing or in an export at opset 20."""
    for swapped, operator in product((False, True), ("Gelu", "com.microsoft.Gelu", "Gelu, tanh", "com.microsoft.FastGelu")):

        def write(t: Text, swapped: bool = swapped, operator: str = operator) -> str:
            bias = t.vector(8, -0.5)
            total = t.call("Add", bias, "x") if swapped else t.call("Add", "x", bias)
            if operator == "Gelu, tanh":
                return t.call("Gelu", total, approximate="tanh")
            return t.call(operator, total)

        yield "bias-gelu", f"{operator}({'b + x' if swapped else 'x + b'})", write


def hard_swish() -> Variants:
    """x · ReLU6(x + 3) / 6."""
    gates: Mapping[str, Callable[[Text], str]] = {
        "Clip": lambda t: t.clip(t.call("Add", "x", 3.0), 0.0, 6.0),
        "Min(Max)": lambda t: t.call("Min", t.call("Max", t.call("Add", 3.0, "x"), 0.0), 6.0),
        "Max(Min)": lambda t: t.call("Max", 0.0, t.call("Min", 6.0, t.call("Add", "x", 3.0))),
        "Min(Relu)": lambda t: t.call("Min", t.call("Relu", t.call("Add", "x", 3.0)), 6.0),
    }
    products: Mapping[str, Callable[[Text, str], str]] = {
        "x (g / 6)": lambda t, g: t.call("Mul", "x", t.call("Div", g, 6.0)),
        "(x g) / 6": lambda t, g: t.call("Div", t.call("Mul", "x", g), 6.0),
        "(g x) * 0.1667": lambda t, g: t.call("Mul", t.call("Mul", g, "x"), 1 / 6),
        "(x / 6) g": lambda t, g: t.call("Mul", t.call("Div", "x", 6.0), g),
        "(g * 0.1667) x": lambda t, g: t.call("Mul", t.call("Mul", g, 1 / 6), "x"),
    }
    for gate, how in product(gates, products):
        yield "hard-swish", f"{gate}, {how}", lambda t, g=gate, h=how: products[h](t, gates[g](t))
    yield "hard-swish", "x HardSigmoid(x)", lambda t: t.call("Mul", "x", t.call("HardSigmoid", "x", alpha=1 / 6, beta=0.5))
    yield "hard-swish", "HardSigmoid(x) x", lambda t: t.call("Mul", t.call("HardSigmoid", "x", alpha=1 / 6), "x")
    yield (
        "hard-swish",
        "x Clip(x / 6 + 0.5)",
        lambda t: t.call("Mul", "x", t.clip(t.call("Add", t.call("Div", "x", 6.0), 0.5), 0.0, 1.0)),
    )
