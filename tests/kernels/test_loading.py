"""Every way of the package to open a model that was written for the library of kernels loads the library."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_subgraph import InferenceSession, OnnxSubgraphWarning, Options, SessionSettings, fuse, kernels, load_patterns, verify
from onnx_subgraph.engine.session import EngineSession
from onnx_subgraph.errors import KernelError
from onnx_subgraph.kernels.marked import KERNELS, is_marked

LAYER = """<ir_version: 8, opset_import: ["": 17]>
g (float[N, 8] x) => (float[N, 6] y) <float[8, 6] w = {WEIGHTS}> { m = MatMul(x, w) y = Tanh(m) }""".replace(
    "WEIGHTS", ", ".join(f"{(k * 7 % 13 - 6) / 8}" for k in range(48))
)
X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8)
PROGRAM = "import sys, numpy, onnxruntime; s = onnxruntime.InferenceSession(sys.argv[1]); print(s.run(None, {'x': X})[0][0, 0])"


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    onnx.save(onnx.parser.parse_model(LAYER), tmp_path / "layer.onnx")
    return tmp_path / "layer.onnx"


@pytest.fixture
def native(library: Path, layer: Path) -> Path:
    """The layer for our kernels, with a negated definition: the sign of the result shows which one ran."""
    fused = layer.with_name("native.onnx")
    fuse(layer, fused, load_patterns(), Options(target="native"))
    model = onnx.load(fused)
    assert [node.op_type for node in model.graph.node] == ["Linear"]
    function = model.functions[0]
    result = function.output[0]
    for node in function.node:
        node.output[:] = [f"{name}_" if name == result else name for name in node.output]
    function.node.append(onnx.helper.make_node("Neg", [f"{result}_"], [result]))
    onnx.save(model, fused)
    return fused


def truth(layer: Path) -> np.ndarray:
    found: np.ndarray = onnxruntime.InferenceSession(layer).run(None, {"x": X})[0]
    return found


def is_by_kernels(found: np.ndarray, layer: Path) -> bool:
    """Whether this is the kernel's result, and not the definition's."""
    same, negated = (np.abs(found - sign * truth(layer)).max() < 1e-5 for sign in (1, -1))
    assert same != negated
    return bool(same)


def test_only_a_model_for_the_kernels_is_marked(library: Path, layer: Path, native: Path) -> None:
    function = layer.with_name("function.onnx")
    fuse(layer, function, load_patterns(), Options(target="function"))
    assert is_marked(native) and is_marked(native.read_bytes())
    assert not is_marked(layer) and not is_marked(function)
    assert {p.key: p.value for p in onnx.load(native).metadata_props}[KERNELS] == "Linear"


@given(st.binary(max_size=40))
@settings(max_examples=200, deadline=None)
def test_a_file_that_is_no_model_is_not_marked(content: bytes) -> None:
    assert not is_marked(content)


@given(st.dictionaries(st.text(max_size=300), st.text(max_size=300), max_size=3), st.booleans())
@settings(max_examples=50, deadline=None)
def test_the_mark_is_found_at_the_place_that_protobuf_gives(metadata: dict[str, str], marked: bool) -> None:
    model = onnx.parser.parse_model(LAYER)
    onnx.helper.set_model_props(model, metadata | ({KERNELS: "Linear"} if marked else {}))
    assert is_marked(model.SerializeToString()) == marked


def test_a_session_loads_the_library_for_a_fused_model(layer: Path, native: Path) -> None:
    plain = SessionSettings(cache=None)
    for options in (None, onnxruntime.SessionOptions()):
        (found,) = InferenceSession(native, options, settings=plain).run(None, {"x": X})
        assert is_by_kernels(found, layer)
    assert not is_by_kernels(onnxruntime.InferenceSession(native).run(None, {"x": X})[0], layer)


def test_a_program_that_loads_the_library_itself_is_not_disturbed(layer: Path, native: Path, tmp_path: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    options.register_custom_ops_library(str(kernels.copy(tmp_path)))
    found = InferenceSession(native, options, settings=SessionSettings(cache=None)).run(None, {"x": X})
    assert is_by_kernels(found[0], layer) and options.optimized_model_filepath.endswith("optimised.onnx")


def test_without_a_compiler_a_session_warns_and_runs_the_definition(
    layer: Path, native: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> Any:
        raise KernelError("there is no C compiler")

    monkeypatch.setattr(kernels, "describe", missing)
    with pytest.warns(OnnxSubgraphWarning, match="by its definitions, without our kernels: there is no C compiler"):
        session = InferenceSession(native, settings=SessionSettings(cache=None))
    assert not is_by_kernels(session.run(None, {"x": X})[0], layer)
    assert not is_by_kernels(EngineSession(native).run(None, {"x": X})[0], layer)


def test_a_library_that_onnxruntime_does_not_load_breaks_no_program(
    layer: Path, native: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "junk.so").write_bytes(b"junk")
    broken = replace(kernels.describe(), path=tmp_path / "junk.so")
    monkeypatch.setattr(kernels, "describe", lambda: broken)
    with pytest.warns(OnnxSubgraphWarning, match=r"without our kernels: .*junk\.so: onnxruntime does not load it"):
        session = InferenceSession(native, settings=SessionSettings(cache=None))
    assert not is_by_kernels(session.run(None, {"x": X})[0], layer)


@pytest.mark.parametrize("isa", [None, "none"])
def test_verify_says_that_it_has_no_kernels(isa: str | None, layer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fuse(layer, good := layer.with_name("good.onnx"), load_patterns(), Options(target="native"))
    if isa is not None:
        monkeypatch.setenv("ONNX_SUBGRAPH_ISA", isa)
    verdict = verify(layer, good)
    assert verdict.verdict == "equivalent"
    assert ("without our kernels: ONNX_SUBGRAPH_ISA is 'none'" in verdict.reason) is (isa is not None)


def test_an_engine_session_loads_the_library(layer: Path, native: Path) -> None:
    assert is_by_kernels(EngineSession(native).run(None, {"x": X})[0], layer)


def test_a_program_under_run_loads_the_library(layer: Path, native: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("X", f"numpy.array({X.tolist()}, numpy.float32)"))
    command = [sys.executable, "-m", "onnx_subgraph", "run", str(program), str(native)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(ran.stdout) == pytest.approx(truth(layer)[0, 0], rel=1e-4)


def test_verify_runs_a_model_with_and_without_the_kernels(layer: Path, native: Path) -> None:
    """With the wrong definition the models differ, although the kernel is right. With the right one they are equivalent."""
    verdict = verify(layer, native)
    runs = {run.provider: run.equal for run in verdict.runs}
    by_kernels = {equal for name, equal in runs.items() if name.startswith("the kernels")}
    assert verdict.verdict == "different" and by_kernels == {True} and runs["CPUExecutionProvider"] is False
    fuse(layer, good := layer.with_name("good.onnx"), load_patterns(), Options(target="native"))
    verdict = verify(layer, good)
    assert (verdict.verdict, verdict.strength) == ("equivalent", "kernel")
