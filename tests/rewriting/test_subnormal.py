"""Subnormal weights of products become zeros, and nothing else changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from onnx_subgraph import Options, fuse, load_patterns
from onnx_subgraph.rewriting import subnormal
from onnx_subgraph.rewriting.subnormal import Flushed, flush

TINY = 1e-40
DTYPES = {np.float32: "float", np.float64: "double"}


def model(body: str, weight: np.ndarray, inputs: str = "float[3, 2] x", outputs: str = "float[3, K] y") -> ir.Model:
    text = f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => ({outputs}) {{ {body} }}'
    made = onnx.parser.parse_model(text)
    made.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    return ir.from_proto(made)


def weight(m: ir.Model) -> np.ndarray:
    tensor = m.graph.initializers["w"].const_value
    assert tensor is not None
    return tensor.numpy()


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
def test_subnormal_numbers_become_zeros_and_all_others_stay(dtype: type, data: st.DataObject) -> None:
    kind = np.dtype(dtype)
    elements = st.floats(width=kind.itemsize * 8, allow_subnormal=True) | st.sampled_from(
        [0.0, -0.0, *(float(s * np.finfo(kind).tiny * f) for s in (1, -1) for f in (0.5, 1, 1.5))]
    )
    before = data.draw(arrays.arrays(kind, (2, 4), elements=elements))
    m = model("y = MatMul(x, w)", before, f"{DTYPES[dtype]}[3, 2] x", f"{DTYPES[dtype]}[3, K] y")
    found = flush(m)
    after = weight(m)
    subnormal = (np.abs(before) < np.finfo(kind).tiny) & (before != 0)
    assert found == ((Flushed("w", int(subnormal.sum()), 8),) if subnormal.any() else ())
    assert (after[subnormal] == 0).all() and after[~subnormal].tobytes() == before[~subnormal].tobytes()


@pytest.mark.parametrize(
    ("body", "flushed"),
    [
        ("y = MatMul(x, w)", True),
        ("t = Relu(x) y = Gemm(t, w)", True),
        ("a = MatMul(x, w) b = MatMul(x, w) y = Add(a, b)", True),
        ("y = Div(x, w)", False),
        ("y = Mul(x, w)", False),
        ("a = MatMul(x, w) b = Log(w) y = Add(a, b)", False),
        ("a = MatMul(x, w) b = Gather(w, i) y = Add(a, b)", False),
        ("y = my.domain.MatMul(x, w)", False),
    ],
)
def test_only_weights_of_products_are_changed(body: str, flushed: bool) -> None:
    assert bool(flush(model(body, np.full((2, 2), TINY, np.float32)))) is flushed


def test_a_weight_in_a_branch_is_changed_and_one_that_is_an_input_or_an_output_is_not() -> None:
    tiny = np.full((2, 2), TINY, np.float32)
    bodies = [f"{name} () => (float[3, K] r) {{ r = {operator}(x, w) }}" for name, operator in (("t", "MatMul"), ("e", "Gemm"))]
    branch = f"y = If(c) <then_branch = {bodies[0]}, else_branch = {bodies[1]}>"
    assert flush(model(branch, tiny, "bool c, float[3, 2] x"))
    assert not flush(model("y = MatMul(x, w)", tiny, "float[3, 2] x, float[2, 2] w"))
    assert not flush(model("y = MatMul(x, w)", tiny, outputs="float[3, K] y, float[2, 2] w"))


def test_subnormal_numbers_of_float16_are_kept() -> None:
    half = np.full((2, 2), 1e-6, np.float16)
    m = model("y = MatMul(x, w)", half, "float16[3, 2] x", "float16[3, K] y")
    assert not flush(m) and (weight(m) == half).all()


def test_external_data_is_not_read(tmp_path: Path) -> None:
    proto = ir.to_proto(model("y = MatMul(x, w)", np.full((2, 512), TINY, np.float32)))
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    assert not flush(ir.load(tmp_path / "m.onnx"))


def test_subnormal_weights_are_removed_after_folding_and_verified(tmp_path: Path) -> None:
    """A scale that is folded into a convolution's weights makes new subnormal numbers."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[1, 2, 5, 5] x) => (float[1, 2, 5, 5] y)
    <float[2] s = {1e-10, 1.0}, float[2] b = {0.0, 0.5}, float[2] m = {0.0, 0.0}, float[2] v = {1.0, 1.0}>
    { c = Conv(x, w) y = BatchNormalization(c, s, b, m, v) }"""
    proto = onnx.parser.parse_model(text)
    values = np.asarray([[1e-30, 2e-30], [1.0, 2.0]], np.float32).reshape(2, 2, 1, 1)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(values, "w"))
    onnx.save(proto, tmp_path / "m.onnx")
    result = fuse(tmp_path / "m.onnx", tmp_path / "out.onnx", load_patterns(), Options())
    assert result.verdict.verdict == "equivalent" and [one.count for one in result.flushed] == [2]
    stored = [onnx.numpy_helper.to_array(t) for t in onnx.load(tmp_path / "out.onnx").graph.initializer]
    assert not any(((np.abs(a) < 1.2e-38) & (a != 0)).any() for a in stored)


def test_a_weight_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models at several opsets share their weights, and the subnormal numbers of each are removed."""
    counted: list[int] = []
    monkeypatch.setattr(
        subnormal, "_subnormal", lambda array: counted.append(array.size) or int((array == np.float32(TINY)).sum())
    )
    first = model("y = MatMul(x, w)", np.full((2, 2), TINY, np.float32))
    second, counts = first.clone(), {}
    assert [[f.count for f in flush(m, counts)] for m in (first, second)] == [[4], [4]]
    assert counted == [4] and not weight(first).any() and not weight(second).any()
