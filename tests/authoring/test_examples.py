"""The example of a pattern that is written is small, and what belongs together in the model still does."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

import pytest

from tests.authoring.test_new_pattern import authored
from tests.mining.models import saved

# What a model reads and has, its nodes, and the example. Sizes of other names may be equal or not.
EQUAL = {
    "a matrix and a vector": ("float[m, k] a, float[p] b", "e = Sin(a) g = MatMul(e, b) y = Cos(g)", "[2, 5], [5]"),
    "a vector and a matrix": ("float[k] a, float[p, n] b", "e = Sin(a) g = MatMul(e, b) y = Cos(g)", "[5], [5, 2]"),
    "matrices": ("float[m, k] a, float[p, n] b", "e = Sin(a) g = MatMul(e, b) y = Cos(g)", "[2, 7], [7, 3]"),
    "Gemm": ("float[m, k] a, float[p, n] b, float[q] c", "e = Sin(a) g = Gemm(e, b, c) y = Cos(g)", "[2, 7], [7, 3], [3]"),
    "Gemm, transposed": (
        "float[k, m] a, float[n, p] b, float[q] c",
        "e = Sin(a) g = Gemm<transA = 1, transB = 1>(e, b, c) y = Cos(g)",
        "[7, 2], [3, 7], [3]",
    ),
    "Concat": ("float[m, k] a, float[p, n] b", "e = Sin(a) f = Erf(b) g = Concat<axis = 1>(e, f) y = Cos(g)", "[7, 5], [7, 2]"),
    "an axis twice as long": (
        "float[1, 1, n] a, float[1, 1, m] b",
        "w = Constant<value = float[1, 1, 2] {1, 1}>() c = ConvTranspose<strides = [2]>(a, w) e = Sin(c) y = Mul(e, b)",
        "[1, 1, 4], [1, 1, 4]",
    ),
    "elements": ("float[m, k] a, float[p, n] b", "e = Sin(a) g = Max(e, b) y = Cos(g)", "[2, 3], [2, 3]"),
}
SMALL = {
    "no axis becomes 1": ("float[32, 4] a", "e = Sin(a) y = Cos(e)", "[2, 4]"),
    "a product of axes": (
        "float[2, 96] a",
        "e = Sin(a) r = Reshape(e, split) t = Transpose<perm = [0, 2, 1]>(r) y = Cos(t)",
        "[2, 24], 8",
    ),
    "a product that can't be smaller": (
        "float[2, 256] a",
        "e = Sin(a) r = Reshape(e, square) t = Transpose<perm = [0, 2, 1]>(r) y = Cos(t)",
        "[2, 256], 16",
    ),
    "parts": ("float[2, 64] a", "e = Sin(a) f, g = Split<num_outputs = 2, axis = 1>(e) u = Cos(f) y = Mul(u, g)", "[2, 4]"),
    "parts that can't be smaller": (
        "float[2, 8] a, float[2, 4] b",
        "e = Sin(a) f, g = Split<num_outputs = 2, axis = 1>(e) u = Mul(f, b) v = Cos(g) y = Add(u, v)",
        "[2, 8], [2, 4]",
    ),
    "unequal parts": (
        "float[2, 64] a",
        "e = Sin(a) f, g = Split<axis = 1>(e, parts) u = Cos(f) v = Erf(g) y = Concat<axis = 1>(u, v)",
        "[2, 64]",
    ),
    "an axis that is reflected": (
        "float[m, n] a, float[q, r] b",
        'e = Sin(a) f = Mul(e, b) y = Pad<mode: string = "reflect">(f, pads)',
        "[2, 11], [2, 11]",
    ),
    "a constant": ("float[2, 3] a", "e = Sin(a) u = Mul(e, three) y = Cos(u)", "[2, 3], [3] constant"),
}
TYPES = {
    "one type of floats is any": ("float16[2, 3] a, float16[2, 3] b", "e = Sin(a) g = Mul(e, b) y = Cos(g)", "[2, 3], [2, 3]"),
    "two types of floats": (
        "double[2, 3] a, float[2, 3] b",
        "e = Sin(a) c = Cast<to = 1>(e) g = Mul(c, b) y = Cos(g)",
        "float64[2, 3], [2, 3]",
    ),
}
EXAMPLES = EQUAL | SMALL | TYPES


@pytest.mark.parametrize(("inputs", "nodes", "example"), EXAMPLES.values(), ids=EXAMPLES)
def test_an_example_fits_the_formula(inputs: str, nodes: str, example: str, tmp_path: Path) -> None:
    """So the models that are made of it run."""
    text = f"""<ir_version: 8, opset_import: ["" : 18]> m ({inputs}) => (y)
      <int64[3] split = {{2, 12, 8}}, int64[3] square = {{2, 16, 16}}, int64[2] parts = {{24, 40}}, float[3] three = {{1, 2, 3}},
       int64[4] pads = {{0, 9, 0, 10}}>
      {{ {nodes} }}"""
    made = authored(saved(tmp_path / "m.onnx", text))
    lines = takewhile(lambda line: line.startswith("  "), made.text.partition("\nexample:\n")[2].splitlines())
    assert ", ".join(line.partition(": ")[2].removeprefix("float32") for line in lines) == example
    assert made.holds and made.proof.targets["function"] > 4
