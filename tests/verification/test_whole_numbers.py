"""Whole numbers are exact in every form of a graph, so noise does not move them."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest

from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.verification.noise import dependent, nodes_of
from onnx_subgraph.verification.verify import verify
from onnx_subgraph.verification.whole_numbers import whole_numbers
from tests.verification.models import write

TEXT = """<ir_version: 8, opset_import: ["" : 18]> g (float[2, 8] x, int64[2, 8] i, float16[2, 8] h) => ({results})
<float two = {{2}}, float half = {{0.5}}, float huge = {{1e30}}, int64[1] last = {{1}}> {{ {nodes} }}"""


@pytest.mark.parametrize(
    ("nodes", "whole"),
    [
        ("r = Round (x)  y = Mul (r, two)", True),
        ("f = Floor (x)  c = Ceil (x)  y = Sub (c, f)", True),
        ("p = Greater (x, half)  v = Cast <to = 1> (p)  y = ReduceSum (v, last)", True),
        ("v = Cast <to = 1> (i)  y = Add (v, two)", True),
        ("s = Sign (x)  t = Transpose (s)  y = MatMul (s, t)", True),
        ("p = Greater (x, half)  r = Round (x)  w = Where (p, r, two)  n = Neg (w)  y = Add (n, two)", True),
        ("r = Round (x)  y = Mul (r, half)", False),
        ("r = Round (x)  y = Add (r, x)", False),
        ("r = Round (x)  y = Mul (r, huge)", False),
        ("p = Greater (x, half)  r = Round (x)  y = Where (p, r, x)", False),
        ("y = Mul (x, two)", False),
        ("e = Exp (x)  y = Mul (e, two)", False),
        ("v = Cast <to = 1> (h)  y = Add (v, two)", False),
        ("r = Round (x)  y = Div (r, two)", False),
        ("r = Round (h)  y = Add (r, r)", False),
    ],
)
def test_what_is_whole_is_not_moved(nodes: str, whole: bool) -> None:
    model = ir.from_onnx_text(TEXT.format(results="y", nodes=nodes))
    infer_shapes(model)
    (y,) = model.graph.outputs
    assert (y in whole_numbers(nodes_of(model))) is whole
    assert (y in dependent(model)) is not whole or y.dtype not in (ir.DataType.FLOAT, ir.DataType.FLOAT16)


@pytest.mark.parametrize(
    ("one", "other", "verdict"),
    [
        ("d = Mul (r, two)  y = Floor (d)", "d = Mul (r, two)  s = Sub (d, little)  y = Floor (s)", "different"),
        ("y = GreaterOrEqual (r, one)", "y = Greater (r, one)", "different"),
        ("d = Mul (r, two)  y = Floor (d)", "d = Add (r, r)  y = Floor (d)", "equivalent"),
        ("d = Mul (x, third)  y = Floor (d)", "d = Div (x, three)  y = Floor (d)", "equivalent"),
    ],
    ids=["a floor below", "a bound that counts", "another form", "numbers that are not whole"],
)
def test_a_choice_by_whole_numbers_must_be_the_same(one: str, other: str, verdict: str, tmp_path: Path) -> None:
    kind = "bool" if "Greater" in one else "float"
    head = f"""<ir_version: 8, opset_import: ["" : 18]> g (float[64] x) => ({kind}[64] y) <float two = {{2}}, float one = {{1}},
        float little = {{0.001}}, float third = {{0.33333334}}, float three = {{3}}> {{ r = Round (x)  """
    first, second = (write(tmp_path / f"{name}.onnx", f"{head} {nodes} }}") for name, nodes in (("one", one), ("other", other)))
    assert verify(first, second).verdict == verdict
