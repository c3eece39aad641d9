"""A value that is reported to repeat along its last axis does: for each way to compute one, and similar ways that do not."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.repetition import doubled, paired
from onnx_subgraph.model.shapes import infer_shapes

HEADER = """
  <ir_version: 8, opset_import: ["" : 17]>
  g (float[2, 3, 4] a, float[2, 3, 4] b, int64[2, 3] places) => (float y)
  <float[2, 4] twice = {1, 2, 1, 2, 3, 4, 3, 4}, float[2, 4] neighbours = {1, 1, 2, 2, 3, 3, 4, 4},
   float[2, 3, 2] neighbours3 = {5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 1, 1}, float[2, 3, 1] single = {1, 2, 3, 4, 5, 6},
   float[2, 4] plain = {1, 2, 1, 3, 3, 4, 3, 4}, float half = {0.5},
   int64[1] first = {0}, int64[1] second = {1}, int64[1] third = {2},
   int64[1] last = {-1}, int64[1] end = {99}, int64[1] two = {2}, int64[4] pairs = {2, 3, 4, 2}, int64[3] flat = {2, 3, 8},
   int64[3] regrouped = {2, 6, 4}, int64[4] apart = {2, 1, 3, 8},
   int64[1] before = {-2}, int64[4] halves = {2, 3, 2, 4}, int64[1] row = {4}, int64[2] two_rows = {2, 4}, int64[1] four = {8},
   int64[3] thirds = {2, 3, 12}, int64[4] six = {2, 3, 2, 4}, int64[3] flat3 = {2, 3, 8},
   int64[4] tiles = {1, 1, 1, 2}, int64[3] doubles = {1, 1, 2}>
"""
JOINED = "d = Concat <axis = -1> (a, a)"
REPEATED = "u = Unsqueeze (a, last)  e = Expand (u, pairs)  p = Reshape (e, flat)"
CASES = {
    "a constant": ("y = Identity (twice)", True, False),
    "a constant of pairs": ("y = Identity (neighbours)", False, True),
    "another constant": ("y = Identity (plain)", False, False),
    "joined to itself": (f"{JOINED} y = Identity (d)", True, None),
    "joined to another": ("y = Concat <axis = -1> (a, b)", None, None),
    "joined along another axis": ("y = Concat <axis = 1> (a, a)", None, None),
    "cosines": (f"{JOINED} c = Cos (d) y = Mul (c, half)", True, None),
    "a sum of two": (f"{JOINED} e = Concat <axis = 2> (b, b) y = Add (d, e)", True, None),
    "a sum with what is not": (f"{JOINED} e = Concat <axis = 2> (a, b) y = Add (d, e)", None, None),
    "a softmax": (f"{JOINED} y = Softmax <axis = -1> (d)", None, None),
    "a table that is looked up": ("y = Gather <axis = 0> (twice, places)", True, None),
    "a table that is looked up by columns": ("y = Gather <axis = 1> (twice, places)", None, None),
    "an axis that is put in": (f"{JOINED} y = Unsqueeze (d, second)", True, None),
    "a reshape of other axes": (f"{JOINED} y = Reshape (d, apart)", True, None),
    "a reshape of the last axis": (f"{JOINED} y = Reshape (d, regrouped)", None, None),
    "a transpose of other axes": (f"{JOINED} y = Transpose <perm = [1, 0, 2]> (d)", True, None),
    "a transpose of the last axis": (f"{JOINED} y = Transpose <perm = [0, 2, 1]> (d)", None, None),
    "rows joined to themselves, which become columns": (
        "d = Concat <axis = 1> (a, a) y = Transpose <perm = [0, 2, 1]> (d)",
        True,
        None,
    ),
    "rows joined to others, which become columns": (
        "d = Concat <axis = 1> (a, b) y = Transpose <perm = [0, 2, 1]> (d)",
        None,
        None,
    ),
    "joined along an axis that becomes the first": ("d = Concat <axis = -3> (a, a) y = Transpose (d)", None, None),
    "joined along an axis that becomes another": (
        "d = Concat <axis = 1> (a, a) y = Transpose <perm = [2, 1, 0]> (d)",
        None,
        None,
    ),
    "a slice of other axes": (f"{JOINED} y = Slice (d, first, second, second)", True, None),
    "a slice of the last axis": (f"{JOINED} y = Slice (d, first, third, last)", None, None),
    "pairs by Expand": (f"{REPEATED} y = Sin (p)", None, True),
    "pairs by Concat": ("u = Unsqueeze (a, last) e = Concat <axis = -1> (u, u) y = Reshape (e, flat)", None, True),
    "pairs by Tile and Flatten": (
        "u = Unsqueeze (a, last) e = Tile (u, tiles) f = Flatten <axis = 2> (e) y = Reshape (f, flat)",
        None,
        True,
    ),
    "rows by Tile and Flatten": ("e = Tile (a, doubles) u = Unsqueeze (e, second) y = Flatten <axis = 3> (u)", None, None),
    "pairs joined to others": (f"{REPEATED} y = Concat <axis = -1> (p, neighbours3, p)", None, True),
    "pairs joined to what are not": (f"{REPEATED} y = Concat <axis = -1> (p, a)", None, None),
    "pairs joined along another axis": (f"{REPEATED} y = Concat <axis = 1> (p, p)", None, True),
    "pairs joined to what are not along another axis": (
        f"{REPEATED} d = Concat <axis = 2> (a, b) y = Concat <axis = 1> (p, d)",
        None,
        None,
    ),
    "halves joined along another axis": (f"{JOINED} e = Concat <axis = 2> (b, b) y = Concat <axis = -3> (d, e)", True, None),
    "pairs joined behind a single element": (f"{REPEATED} y = Concat <axis = -1> (single, p, single)", None, None),
    "halves joined to other halves": (f"{JOINED} e = Concat <axis = 2> (b, b) y = Concat <axis = -1> (d, e)", None, None),
    "halves by a stack, as in Keras": (
        "u = Unsqueeze (a, before) e = Concat <axis = 2> (u, u) p = Reshape (e, flat) y = Cos (p)",
        True,
        None,
    ),
    "halves by Expand": ("u = Unsqueeze (a, before) e = Expand (u, halves) y = Reshape (e, flat)", True, None),
    "halves by Expand of a row": (
        "r = Slice (twice, first, second, first) q = Reshape (r, row) e = Expand (q, two_rows) y = Reshape (e, four)",
        True,
        False,
    ),
    "halves by a stack of two values": (
        "u = Unsqueeze (a, before) v = Unsqueeze (b, before) e = Concat <axis = 2> (u, v) y = Reshape (e, flat)",
        None,
        None,
    ),
    "a stack that is no half": ("u = Unsqueeze (a, before) e = Concat <axis = 2> (u, u, u) y = Reshape (e, thirds)", None, None),
    "a stack of two rows": ("e = Concat <axis = 1> (a, a) u = Reshape (e, six) y = Reshape (u, flat3)", None, None),
    "pairs of two values": (
        "u = Unsqueeze (a, last) v = Unsqueeze (b, last) e = Concat <axis = 3> (u, v) y = Reshape (e, flat)",
        None,
        None,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_values_reported_to_repeat_do(case: tuple[str, bool | None, bool | None]) -> None:
    text, twice, in_pairs = case
    proto = onnx.parser.parse_model(f"{HEADER} {{ {text} }}")
    model = ir.from_proto(proto)
    infer_shapes(model)
    value, constants = model.graph.outputs[0], Constants(model)
    assert (doubled(constants, value), paired(constants, value)) == (twice, in_pairs)
    rng = np.random.default_rng(0)
    feeds = {name: rng.standard_normal((2, 3, 4)).astype(np.float32) for name in "ab"}
    feeds |= {"places": np.array([[0, 1, 1], [1, 0, 0]])}
    (result,) = ReferenceEvaluator(proto).run(None, feeds)
    result = np.asarray(result)
    half = result.shape[-1] // 2
    repeats = half > 0 and result.shape[-1] % 2 == 0
    assert not twice or (repeats and np.array_equal(result[..., :half], result[..., half:]))
    assert not in_pairs or (repeats and np.array_equal(result[..., ::2], result[..., 1::2]))
