"""Assignments to slices that write every element are one Concat; others stay as they are."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.model.simplify import join_assignments
from tests.model.test_simplify import operators, run

HEADER = """
  <ir_version: 8, opset_import: ["" : OPSET]>
  g (float[B, 3, 4] a, float[B, 3, 4] b, float[B, 3, 8] old) => (float[R, S, T] y)
  <int64[4, 1] even = {0, 2, 4, 6}, int64[4, 1] odd = {1, 3, 5, 7}, int64[4, 1] front = {0, 1, 2, 3},
   int64[4, 1] back = {4, 5, 6, 7}, int64[4, 1] hole = {3, 5, 7, 7}, int64[4, 1] turned = {7, 5, 3, 1}>
"""
ROWS = """s = Transpose <perm = [2, 1, 0]> (a)  t = Transpose <perm = [2, 1, 0]> (b)  d = Transpose <perm = [2, 1, 0]> (old)"""


def assigned(first: str, second: str, then: str = "y = Transpose <perm = [2, 1, 0]> (w)", opset: int = 17) -> onnx.ModelProto:
    """`y = old; y[..., first] = a; y[..., second] = b`, as torch exports it."""
    body = f"{ROWS} v = ScatterND(d, {first}, s)  k = Identity(v)  w = ScatterND(k, {second}, t)  {then}"
    return onnx.parser.parse_model(f"{HEADER.replace('OPSET', str(opset))} {{ {body} }}")


def joined(model: onnx.ModelProto) -> onnx.ModelProto:
    written = ir.from_proto(model)
    infer_shapes(written)
    join_assignments(written)
    return ir.to_proto(written)


def feeds() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    shapes = {"a": (2, 3, 4), "b": (2, 3, 4), "old": (2, 3, 8)}
    return {name: draw.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize("then", ["[2, 1, 0]", "[1, 2, 0]", "[0, 1, 2]"])
@pytest.mark.parametrize("rows", [("even", "odd"), ("odd", "even"), ("front", "back"), ("back", "front")])
def test_assignments_that_write_all_are_a_concat(rows: tuple[str, str], then: str, opset: int) -> None:
    model = assigned(*rows, f"y = Transpose <perm = {then}> (w)", opset)
    written = joined(model)
    assert operators(written)["Concat"] == 1 and not operators(written)["ScatterND"]
    assert np.array_equal(run(written, feeds())[0], run(model, feeds())[0])


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(assigned("even", "even"), id="half of it is written twice"),
        pytest.param(assigned("even", "hole"), id="an element is missing"),
        pytest.param(assigned("even", "turned"), id="in another order"),
        pytest.param(assigned("front", "odd"), id="some elements are written twice"),
        pytest.param(assigned("even", "odd", "y = Neg(w)"), id="rows in turn that no Transpose reads"),
    ],
)
def test_other_assignments_stay(model: onnx.ModelProto) -> None:
    written = joined(model)
    assert operators(written)["ScatterND"] == 2
    assert np.array_equal(run(written, feeds())[0], run(model, feeds())[0])


def test_an_assignment_that_adds_stays() -> None:
    body = f'{ROWS} v = ScatterND(d, front, s) w = ScatterND <reduction = "add"> (v, back, t) y = Neg(w)'
    model = onnx.parser.parse_model(f"{HEADER.replace('OPSET', '18')} {{ {body} }}")
    assert operators(joined(model))["ScatterND"] == 2


def test_a_size_that_is_not_known_may_be_larger() -> None:
    text = f"{HEADER.replace('OPSET', '17').replace('float[B, 3, 8] old', 'float[B, 3, C] old')}"
    body = f"{ROWS} v = ScatterND(d, front, s) w = ScatterND(v, back, t) y = Neg(w)"
    assert operators(joined(onnx.parser.parse_model(f"{text} {{ {body} }}")))["ScatterND"] == 2
