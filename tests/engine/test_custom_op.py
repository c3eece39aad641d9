"""Engines as custom operators: onnxruntime's own session calls the backend and keeps no other copy of the region."""

from __future__ import annotations

import os
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnx_subgraph.engine import custom_op
from onnx_subgraph.engine.custom_op import register_engines
from onnx_subgraph.engine.session import EngineSession
from onnx_subgraph.engine.settings import EngineSettings
from onnx_subgraph.errors import OnnxSubgraphWarning, UsageError
from onnx_subgraph.files.models import save
from onnx_subgraph.inherited import PROTOBUF
from tests.engine.backends import Scripted, fails
from tests.partitioning.models import LAYERS, Without, parted, run, x

ort = pytest.importorskip("onnxruntime")
NEEDED = pytest.mark.skipif(find_spec("onnxruntime_extensions") is None, reason="the extra custom-op is not installed")

HALF = """
<ir_version: 10, opset_import: ["" : 17]>
half (float16[batch, 4] x) => (float16[batch, 4] y) { a = Abs (x) b = Sqrt (a) c = Softmax (b) d = Neg (c) y = Sigmoid (d) }
"""


@pytest.fixture
def partitioned(tmp_path: Path) -> Path:
    path = tmp_path / "partitioned.onnx"
    save(parted(LAYERS, "Softmax").model, path, None)
    return path


def session(path: Path, backend: Any) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    content = register_engines(path, options, backends={"scripted": backend})
    nodes = onnx.load_from_string(content).graph.node
    assert [node.op_type[:7] for node in nodes] == ["Engine_", "Softmax", "Engine_"]
    assert all(len(node.input) == 1 for node in nodes), "weights are no inputs"
    return ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])


@NEEDED
def test_the_backend_is_called(partitioned: Path) -> None:
    backend = Without("Softmax")
    made = session(partitioned, backend)
    for batch in (3, 1, 3):
        np.testing.assert_allclose(made.run(None, x(batch))[0], run(LAYERS, x(batch))[0], rtol=1e-6)
    assert len(backend.compiled) == 4  # two engines, two batches


@NEEDED
def test_processes_that_are_started_later_have_the_same_protobuf(partitioned: Path) -> None:
    """The library chooses the slow one for them, which refuses names that are not UTF-8."""
    session(partitioned, Without("Softmax"))
    assert PROTOBUF not in os.environ


@NEEDED
def test_the_protobuf_that_the_user_named_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROTOBUF, "upb")
    custom_op._extensions()
    assert os.environ[PROTOBUF] == "upb"


@NEEDED
def test_a_failing_backend_falls_back_without_an_error(partitioned: Path) -> None:
    made = session(partitioned, Scripted(compiling=fails(RuntimeError("no"))))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OnnxSubgraphWarning)
        np.testing.assert_allclose(made.run(None, x())[0], run(LAYERS, x())[0], rtol=1e-6)


@NEEDED
def test_a_type_that_the_library_does_not_support_is_refused_before_registration(tmp_path: Path) -> None:
    """Registering it would end the process."""
    path = tmp_path / "half.onnx"
    save(parted(HALF, "Softmax").model, path, None)
    options = ort.SessionOptions()
    with pytest.raises(UsageError, match=r"region .*: .* is float16, which onnxruntime-extensions does not take"):
        register_engines(path, options, backends={"scripted": Without("Softmax")})
    given = {"x": x()["x"].astype(np.float16)}
    made = EngineSession(path, backends={"scripted": Without("Softmax")}, settings=EngineSettings(strict=True))
    for mine, own in zip(made.run(None, given), run(path, given), strict=True):
        np.testing.assert_allclose(mine.astype(np.float32), own.astype(np.float32), rtol=5e-3)


@NEEDED
def test_nothing_of_the_regions_is_left_in_the_model(partitioned: Path) -> None:
    """Neither a definition, which would hold the region again, nor an attribute."""
    model = onnx.load_from_string(register_engines(partitioned, ort.SessionOptions(), backends={"scripted": Without("Softmax")}))
    assert not model.functions
    assert [node.name for node in model.graph.node if node.op_type != "Softmax"] == [
        node.name for node in onnx.load(partitioned).graph.node if node.op_type == "Engine"
    ]


@NEEDED
def test_weights_that_others_read_stay_in_the_model(tmp_path: Path) -> None:
    """Those of an engine that a node between engines reads, too, and those that the model gives."""
    path = tmp_path / "partitioned.onnx"
    text = LAYERS.replace("Softmax (c)", "Sub (c, w0)").replace("=> (float[batch, 4] y)", "=> (float[batch, 4] y, float[4] w1)")
    save(parted(text, "Sub").model, path, None)
    options = ort.SessionOptions()
    made = ort.InferenceSession(register_engines(path, options, backends={"scripted": Without("Sub")}), options)
    for mine, own in zip(made.run(None, x()), run(text, x()), strict=True):
        np.testing.assert_allclose(mine, own, rtol=1e-6)


@NEEDED
def test_weights_in_a_data_file_are_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that is relative means the folder at the time of the call."""
    text = LAYERS.replace("Softmax (c)", "Sub (c, w2)").replace("float half", "float[4] w2 = {5.0, 6.0, 7.0, 8.0}, float half")
    model = onnx.ModelProto.FromString(ir.to_proto(parted(text, "Sub").model).SerializeToString())
    for tensor in model.graph.initializer:
        tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor), tensor.name))
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    assert "w2" in {
        tensor.name
        for tensor in onnx.load(tmp_path / "m.onnx", load_external_data=False).graph.initializer
        if tensor.external_data
    }
    monkeypatch.chdir(tmp_path)
    options = ort.SessionOptions()
    content = register_engines("m.onnx", options, backends={"scripted": Without("Sub")})
    monkeypatch.chdir(tmp_path.parent)
    np.testing.assert_allclose(ort.InferenceSession(content, options).run(None, x())[0], run(text, x())[0], rtol=1e-6)


@NEEDED
def test_strict_settings_are_refused(partitioned: Path) -> None:
    """An exception in a kernel would end the process."""
    with pytest.raises(UsageError, match=r"(?s)strict settings .* would end the process.*hint: .* EngineSession"):
        register_engines(partitioned, ort.SessionOptions(), settings=EngineSettings(strict=True))


@NEEDED
def test_the_settings_apply(partitioned: Path) -> None:
    """Each run is compared with onnxruntime's, and a wrong result is not given."""
    backend = Without("Softmax")
    backend.answering = lambda outputs: [outputs[0] + 1]
    options = ort.SessionOptions()
    content = register_engines(partitioned, options, backends={"scripted": backend}, settings=EngineSettings(check=1.0))
    with pytest.warns(OnnxSubgraphWarning, match="from onnxruntime's; 1.0e-03 is allowed"):
        found = ort.InferenceSession(content, options).run(None, x())[0]
    np.testing.assert_allclose(found, run(LAYERS, x())[0], rtol=1e-6)


@NEEDED
@pytest.mark.parametrize(
    "dtype", ["float", "double", "bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))]
)
def test_every_type_that_the_library_takes_is_passed_on(dtype: str, tmp_path: Path) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
      g ({dtype}[n] x) => ({dtype}[n] y, {dtype}[m] z) {{ y = Identity (x)  z = Concat <axis = 0> (x, y) }}"""
    save(parted(text).model, path := tmp_path / "m.onnx", None)
    options = ort.SessionOptions()
    made = ort.InferenceSession(register_engines(path, options, backends={"scripted": Without()}), options)
    given = {"x": np.array([0, 1, 100]).astype("float32" if dtype == "float" else dtype)}
    for mine, own in zip(made.run(None, given), run(text, given), strict=True):
        assert mine.dtype == own.dtype
        np.testing.assert_array_equal(mine, own)


@NEEDED
def test_a_result_of_a_type_that_the_library_does_not_support_is_refused(tmp_path: Path) -> None:
    text = LAYERS.replace("=> (float[batch, 4] y)", "=> (float16[batch, 4] h)").replace(
        "Relu (f)", "Relu (f)  h = Cast <to = 10> (y)"
    )
    save(parted(text, "Softmax").model, path := tmp_path / "m.onnx", None)
    with pytest.raises(UsageError, match="y0 is float16, which onnxruntime-extensions does not take"):
        register_engines(path, ort.SessionOptions(), backends={"scripted": Without("Softmax")})


def test_without_the_library_the_message_says_what_to_install(partitioned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "onnxruntime_extensions", None)
    with pytest.raises(UsageError, match=r"(?s)need onnxruntime-extensions.*pip install 'onnx-subgraph\[custom-op\]'"):
        register_engines(partitioned, ort.SessionOptions())
