"""Nine fusions in every spelling of exporters and people: graphs that combine their choices.

A family is the product of its choices: how to divide, how to square, in which order to add. Choices that all families share
(opset, storage of constants, transparent nodes in between) alternate from spelling to spelling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle, product

from tests.patterns.spellings_activation import bias_gelu, gelu, hard_swish, swish, tanh_gelu
from tests.patterns.spellings_normalization import layer_normalization, rms_normalization, skip_layer_normalization
from tests.patterns.spellings_text import Text, Variants

OPSETS = (9, 11, 12, 13, 14, 17, 18, 20, 21, 23)
STORAGES = ("initializer", "one element", "Constant")
BETWEEN = ("", "", "Identity", "Dropout")


@dataclass(frozen=True)
class Spelling:
    """A graph in which `pattern` must be found exactly once. name: the choices made."""

    family: str
    pattern: str
    name: str
    model: str
    opset: int


def fused_matmul() -> Variants:
    """A matrix product with transposed and scaled operands."""

    def write(t: Text, transposed: str, scale: str) -> str:
        a = t.call("Transpose", "z", perm=[0, 2, 1]) if "a" in transposed else "x"
        b = t.call("Transpose", "m", perm=[0, 2, 1]) if "b" in transposed else "k"
        match scale:
            case "s (a @ b)":
                return t.call("Mul", 0.125, t.call("MatMul", a, b))
            case "(a @ b) / s":
                return t.call("Div", t.call("MatMul", a, b), 8.0)
            case "(s a) @ b":
                return t.call("MatMul", t.call("Mul", a, 0.125), b)
            case "a @ (b / s)":
                return t.call("MatMul", a, t.call("Div", b, 8.0))
            case "(s a) @ (s b)":
                return t.call("MatMul", t.call("Mul", 0.5, a), t.call("Mul", b, 0.25))
            case _:
                return t.call("MatMul", a, b)

    for transposed, scale in product(
        ("", "a", "b", "ab"), ("s (a @ b)", "(a @ b) / s", "(s a) @ b", "a @ (b / s)", "(s a) @ (s b)", "")
    ):
        if transposed or scale:
            yield (
                "fused-matmul",
                f"transposed {transposed or 'none'}, {scale or 'no scale'}",
                lambda t, w=transposed, s=scale: write(t, w, s),
            )


FAMILIES: Mapping[str, tuple[Callable[[], Variants], int, str]] = {
    "GELU": (gelu, 9, "float[2, 3, 8] x"),
    "tanh GELU": (tanh_gelu, 9, "float[2, 3, 8] x"),
    "QuickGELU and SiLU": (swish, 9, "float[2, 3, 8] x"),
    "LayerNormalization": (layer_normalization, 9, "float[2, 3, 8] x"),
    "RMSNorm": (rms_normalization, 9, "float[2, 3, 8] x"),
    "SkipLayerNormalization": (skip_layer_normalization, 17, "float[2, 3, 8] x, float[2, 3, 8] z"),
    "BiasGelu": (bias_gelu, 20, "float[2, 3, 8] x"),
    "HardSwish": (hard_swish, 9, "float[2, 3, 8] x"),
    "FusedMatMul": (fused_matmul, 9, "float[2, 3, 4] x, float[2, 4, 3] z, float[2, 4, 8] k, float[2, 8, 4] m"),
}
"""Family → its spellings, the first opset that has its operators, and the inputs of its graphs."""


def spellings() -> Iterator[Spelling]:
    """Every spelling of every family."""
    for family, (variants, first, inputs) in FAMILIES.items():
        opsets = cycle([o for o in OPSETS if o >= first])
        storages, between = cycle(STORAGES), cycle(BETWEEN)
        for pattern, name, write in variants():
            text = Text(next(opsets), next(storages), next(between))
            surface = f"opset {text.opset}, {text.storage}{', ' if text.between else ''}{text.between}"
            yield Spelling(family, pattern, f"{name}, {surface}", text.model(write(text), inputs), text.opset)
