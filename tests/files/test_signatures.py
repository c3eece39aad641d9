"""A standard operator whose operands, attributes or body don't fit is refused in one sentence, as onnxruntime refuses it."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnxruntime
import pytest

from onnx_subgraph.errors import ModelError
from onnx_subgraph.files.models import load

HEAD = '<ir_version: 8, opset_import: ["" : 17]> g (float[2, 4] x, bool c, int64 n) => (y) '
MISFITS = {
    "y = Mul (x)": "has 1 operand, and Mul (version 14) takes 2",
    "y = Relu (x, x)": "has 2 operands, and Relu (version 14) takes 1",
    "y = Concat <axis = 0> ()": "has 0 operands, and Concat (version 13) takes at least 1",
    "y = Clip (x, x, x, x)": "has 4 operands, and Clip (version 13) takes 1 to 3",
    "y, z = Relu (x)": "has 2 results, and Relu (version 14) has 1",
    'y = Mul (x, "")': "leaves out the operand B, which Mul (version 14) requires",
    'y = Max ("", x)': "leaves out the operand data_0, which Max (version 13) requires",
    "y = Cast (x)": "lacks the attribute 'to', which Cast (version 13) requires",
    "y = Softmax <axis = 1.0> (x)": "has FLOAT for the attribute 'axis', and Softmax (version 13) takes INT",
    "y = If (c)": "lacks the attribute 'else_branch', which If (version 16) requires",
    """y = If (c) <then_branch = t () => (float[2, 4] a) { a = Relu (x) },
        else_branch = e () => (float[2, 4] b, float[2, 4] d) { b = Exp (x) d = Exp (x) }>""": (
        "needs 1 result of its else_branch, and the graph there has 2"
    ),
    "y = Loop (n, c, x) <body = b (int64 i, bool k) => (bool k, float[2, 4] z) { z = Exp (x) }>": (
        "gives its body 3 values, and the graph there takes 2"
    ),
    "y = Loop (n, c, x) <body = b (int64 i, bool k, float[2, 4] s) => (bool k) { z = Exp (x) }>": (
        "needs 2 results of its body, and the graph there has 1"
    ),
}


def saved(lines: str, path: Path) -> Path:
    onnx.save(onnx.parser.parse_model(HEAD + "{ " + lines + " }"), path)
    return path


@pytest.mark.parametrize(("lines", "said"), MISFITS.items(), ids=[said[:40] for said in MISFITS.values()])
def test_misfits_are_named_as_onnxruntime_refuses_them(lines: str, said: str, tmp_path: Path) -> None:
    model = saved(lines, tmp_path / "model.onnx")
    with pytest.raises(ModelError) as caught:
        load(model)
    assert said in str(caught.value)
    with pytest.raises(Exception, match=r".") as refused:
        onnxruntime.InferenceSession(model)
    assert "[ONNXRuntimeError]" in str(refused.value)


@pytest.mark.parametrize(
    "lines",
    [
        "y = Clip (x)",
        "a, b = Dropout (x) y = Add (a, x)",
        "y = Scan <num_scan_inputs = 1, body = s (float[4] r) => (float[4] q) { q = Exp (r) }> (x)",
        "y = Loop (n, c) <body = b (int64 i, bool k) => (bool k, float[2, 4] z) { z = Exp (x) }>",
        "y = Loop (n, c, x) <body = b (int64 i, bool k, float[2, 4] s) => (bool k, float[2, 4] t) { t = Exp (s) }>",
    ],
)
def test_what_onnxruntime_accepts_is_accepted(lines: str, tmp_path: Path) -> None:
    model = saved(lines, tmp_path / "model.onnx")
    onnxruntime.InferenceSession(model)
    load(model)


def test_operators_of_other_domains_are_not_judged(tmp_path: Path) -> None:
    imports = '<ir_version: 8, opset_import: ["" : 99, "com.microsoft" : 1]>'
    text = imports + " g (float[2] x) => (y) { a = com.microsoft.Gelu () y = Mul (x) }"
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    load(tmp_path / "model.onnx")


def test_the_own_function_of_a_model_is_not_the_standard_operator(tmp_path: Path) -> None:
    text = """<ir_version: 9, opset_import: ["" : 17, "mine" : 1]> g (float[2] x) => (y) { y = mine.Mul (x) }
        <domain: "mine", opset_import: ["" : 17]> Mul (a) => (b) { b = Cast <to: int = @to> (a) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    load(tmp_path / "model.onnx")
