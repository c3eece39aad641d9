"""carried_functions(): the functions that onnx reads from a model, whatever else the file has; none of an invalid file."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_subgraph.files.carried import carried_functions

SAMPLES = sorted((Path(__file__).resolve().parents[2] / "sample_models").glob("*.onnx"))
TEXT = """<ir_version: 10, opset_import: ["" : 20, "a.b" : 1, "c" : 1], producer_name: "x", model_version: 300>
g (float[N, 2] x) => (float[N, 2] y) <float[2, 2] w = {1, 2, 3, 4}> { h = a.b.F (x) t = c.G (h) y = MatMul (t, w) }
<domain: "a.b", opset_import: ["" : 20]> F (x) => (y) { y = Abs (x) }
<domain: "c", opset_import: ["" : 20]> G (x) => (y) { y = Neg (x) }"""


def test_domain_and_name_are_read(tmp_path: Path) -> None:
    content = onnx.parser.parse_model(TEXT).SerializeToString()
    assert carried_functions(content) == {("a.b", "F"), ("c", "G")}
    (tmp_path / "m.onnx").write_bytes(content)
    assert carried_functions(tmp_path / "m.onnx") == {("a.b", "F"), ("c", "G")}


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_has_the_functions_that_onnx_reads(path: Path) -> None:
    proto = onnx.load(path, load_external_data=False)
    assert carried_functions(path) == {(function.domain, function.name) for function in proto.functions}


@pytest.mark.parametrize("length", [b"\xff" * 9 + b"\x01", b"\xff" * 4 + b"\x7f"], ids=["2**64 - 1", "2**35 - 1"])
@pytest.mark.parametrize("field", [25, 7], ids=["wanted", "passed over"])
def test_a_field_that_claims_a_huge_size_is_not_read(length: bytes, field: int) -> None:
    tag = bytes([field << 3 & 0x7F | 2 | 0x80, field >> 4]) if field > 15 else bytes([field << 3 | 2])
    assert carried_functions(tag + length + b"xyz") == frozenset()


@given(st.binary(max_size=60), st.integers(0, 400))
def test_an_invalid_model_is_no_error(noise: bytes, cut: int) -> None:
    carried_functions(noise)
    carried_functions(onnx.parser.parse_model(TEXT).SerializeToString()[:cut] + noise)
