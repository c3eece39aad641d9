"""Masks that hide what is behind the diagonal are recognised however they are computed."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.model.triangle import causal, triangle

ONES = "n = Shape <start = 1, end = 2> (x)  size = Concat <axis = 0> (n, n)  ones = Expand (one, size)"
POSITIONS = "l = Shape <start = 1, end = 2> (x)  n = Squeeze (l)  i = Range (from, n, by)  r = Unsqueeze (i, last)"


def mask(nodes: str) -> tuple[Constants, ir.Value]:
    """The last result of these nodes, which may read `x` of shape [b, s, 4], and some numbers."""
    model = ir.from_onnx_text(f"""
        <ir_version: 8, opset_import: ["" : 18]>
        g (float[b, s, 4] x) => (mask)
        <float one = {{1}}, float zero = {{0}}, float low = {{-1e30}}, float small = {{-5}}, int64 from = {{0}}, int64 by = {{1}},
         int64 next = {{1}}, int64 two = {{2}}, int64[1] at_0 = {{0}}, int64[1] last = {{1}},
         int64[2] firsts = {{0, 0}}, int64[2] seconds = {{1, 0}}, int64[2] both = {{0, 1}},
         float[3, 3] stored = {{0, -1e30, -1e30, 0, 0, -1e30, 0, 0, 0}}> {{ {nodes} }}
    """)
    infer_shapes(model)
    return Constants(model), model.graph.outputs[0]


@pytest.mark.parametrize(
    "nodes",
    [
        f"{ONES} t = Trilu <upper = 0> (ones)  h = Equal (t, zero)  mask = Where (h, low, zero)",
        f"{ONES} t = Trilu (ones, next)  mask = Mul (t, low)",
        f"{ONES} f = Mul (ones, low)  mask = Trilu (f, next)",
        f"{ONES} t = Trilu <upper = 0> (ones)  mask = Cast <to = 9> (t)",
        f"{ONES} t = Trilu (ones, next)  h = Cast <to = 9> (t)  mask = Not (h)",
        f"{POSITIONS} mask = LessOrEqual (i, r)",
        f"{POSITIONS} mask = GreaterOrEqual (r, i)",
        f"{POSITIONS} h = Greater (i, r)  mask = Where (h, low, zero)",
        f"{POSITIONS} h = Less (r, i)  mask = Where (h, low, zero)",
        "n = Shape <start = 1, end = 2> (x)  ends = Concat <axis = 0> (n, n)  mask = Slice (stored, firsts, ends, both)",
        "n = Shape <start = 1, end = 2> (x)  u = Slice (stored, at_0, n, last)  mask = Unsqueeze (u, at_0)",
    ],
)
def test_a_causal_mask_is_recognised(nodes: str) -> None:
    assert causal(*mask(nodes)) is True


@pytest.mark.parametrize(
    "nodes",
    [
        f"{ONES} t = Trilu <upper = 0> (ones)  h = Equal (t, zero)  mask = Where (h, small, zero)",  # hides little
        f"{ONES} t = Trilu <upper = 0> (ones, next)  h = Equal (t, zero)  mask = Where (h, low, zero)",  # one more is seen
        f"{ONES} t = Trilu (ones)  mask = Mul (t, low)",  # the diagonal is hidden
        f"{ONES} t = Trilu (ones, next)  mask = Cast <to = 9> (t)",  # the other side is seen
        f"{POSITIONS} mask = Less (i, r)",
        f"{POSITIONS} mask = LessOrEqual (r, i)",
        f"{POSITIONS} k = Add (i, next)  mask = LessOrEqual (k, r)",
        f"{POSITIONS} k = Mul (i, two)  mask = LessOrEqual (k, r)",
        "n = Shape <start = 1, end = 2> (x)  ends = Concat <axis = 0> (n, n)  mask = Slice (stored, seconds, ends, both)",
        f"{ONES} t = Trilu (ones, next)  w = Mul (t, low)  mask = Transpose <perm = [1, 0]> (w)",
    ],
)
def test_another_mask_is_not_taken_for_a_causal_one(nodes: str) -> None:
    assert causal(*mask(nodes)) is not True


def test_one_row_that_is_repeated_is_no_triangle() -> None:
    """The rows of the result are equal: the first number, and the other one behind it."""
    constants, value = mask(f"{ONES} w = Trilu (ones, next)  row = Slice (w, at_0, last, at_0)  mask = Expand (row, size)")
    assert triangle(constants, value) is None
