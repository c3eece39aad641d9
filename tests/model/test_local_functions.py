"""Types and shapes inside model-local functions: only what all calls agree on."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from onnx_subgraph.model.shapes import infer_shapes

HEADER = '<ir_version: 8, opset_import: ["": 17, "local": 1]>'
FUNCTION = '<domain: "local", opset_import: ["": 17]> act (x) => (y) { t = Tanh(x) y = Mul(x, t) }'


def _inferred(text: str) -> dict[str, ir.Value]:
    model = ir.from_onnx_text(f"{HEADER}\n{text}\n{FUNCTION}")
    infer_shapes(model)
    return {n.op_type: n.outputs[0] for f in model.functions.values() for n in f.all_nodes()}


@pytest.mark.parametrize(
    ("second", "dtype", "shape"),
    [
        ("float[2, 8]", ir.DataType.FLOAT, [2, 8]),
        ("float[5, 8]", ir.DataType.FLOAT, [None, 8]),
        ("float[8]", ir.DataType.FLOAT, None),
        ("double[2, 8]", None, None),
    ],
)
def test_a_body_has_what_all_calls_agree_on(second: str, dtype: ir.DataType | None, shape: list[int | None] | None) -> None:
    value = _inferred(
        f"agraph (float[2, 8] a, {second} b) => (float[2, 8] y, {second} z) {{ y = local.act(a) z = local.act(b) }}"
    )
    tanh = value["Tanh"]
    assert tanh.dtype == dtype
    if dtype is not None and shape is not None:
        assert tanh.shape is not None and len(tanh.shape) == len(shape)
        assert all(want is None or have == want for have, want in zip(tanh.shape, shape, strict=True))
        assert all(want is not None or not isinstance(have, int) for have, want in zip(tanh.shape, shape, strict=True))


def test_a_function_that_is_called_by_a_function() -> None:
    text = """agraph (float[2, 8] a) => (float[2, 8] y) { y = local.twice(a) }
    <domain: "local", opset_import: ["": 17, "local": 1]> twice (x) => (y) { t = local.act(x) y = local.act(t) }"""
    assert _inferred(text)["Tanh"].shape == ir.Shape([2, 8])


def test_an_uncalled_function_has_unknown_types() -> None:
    assert _inferred("agraph (float[2] a) => (float[2] y) { y = Neg(a) }")["Tanh"].dtype is None
