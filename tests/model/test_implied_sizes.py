"""The first rows of a table are as many as the rows that they are multiplied with, or no run goes on."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from onnx_subgraph.model.shapes import SHAPE_DATA, infer_shapes

TABLE = """<ir_version: 10, opset_import: ["" : 18]> g (float[b, s, 4] x, float[ROWS, 4] table) => (float[b, s, 4] y, int64[1] m)
<int64[1] zero = {0}, int64[1] first = {FIRST}> {
  n = Shape <start = 1, end = 2> (x)  rows = Slice(table, zero, COUNT)  m = Shape <end = 1> (rows)  USE
}"""
PRODUCT = "y = Mul(x, rows)"


def inferred(rows: str = "64", count: str = "n", use: str = PRODUCT, first: str = "5") -> dict[str, ir.Value]:
    text = TABLE.replace("ROWS", rows).replace("COUNT", count).replace("USE", use).replace("FIRST", first)
    model = ir.from_onnx_text(text)
    infer_shapes(model)
    return {str(value.name): value for node in model.graph for value in node.outputs}


@pytest.mark.parametrize("use", [PRODUCT, "y = Add(rows, x)", "c = Greater(rows, x)  y = Where(c, x, x)"])
def test_the_first_rows_are_as_many_as_those_that_they_meet(use: str) -> None:
    values = inferred(use=use)
    assert str(values["rows"].shape) == "[s,4]"
    assert [str(item) for item in values["m"].meta[SHAPE_DATA]] == ["s"]


@pytest.mark.parametrize(
    ("rows", "count", "use"),
    [
        ("64", "n", "y = MatMul(x, table)"),  # they meet nothing
        ("1", "n", PRODUCT),  # one row meets any number
        ("r", "n", PRODUCT),  # the table may have one row
        ("64", "n", "t = Shape <start = 2> (x)  q = Concat <axis = 0> (first, t)  z = Expand(table, q)  y = Identity(x)"),
    ],
    ids=["no product", "a table of one row", "a table of any size", "another operator"],
)
def test_other_rows_may_be_fewer(rows: str, count: str, use: str) -> None:
    assert str(inferred(rows, count, use)["rows"].shape) != "[s,4]"


def test_what_happens_in_a_branch_says_nothing_of_other_runs() -> None:
    use = """first_x = ReduceMax <keepdims = 0> (x)  c = Cast <to = 9> (first_x)
    y = If (c) <then_branch = t () => (float[b, s, 4] p) { p = Mul(x, rows) },
                else_branch = e () => (float[b, s, 4] q) { q = Identity(x) }>"""
    assert str(inferred(use=use)["rows"].shape) == "[Min(64, s),4]"


def test_a_size_that_a_file_declares_is_spelled_as_inference_does() -> None:
    """torch writes a quotient in Python's spelling. It is compared with sizes that were inferred."""
    model = ir.from_onnx_text(
        """<ir_version: 10, opset_import: ["" : 18]> g (float[n] x, int64[1] end) => (float[m] y) <int64[1] zero = {0}>
        { y = Slice(x, zero, end) }"""
    )
    model.graph.outputs[0].shape = ir.Shape(["((n//20)) - 1"])
    infer_shapes(model)
    assert str(model.graph.outputs[0].shape) == "[floor(n/20) - 1]"
