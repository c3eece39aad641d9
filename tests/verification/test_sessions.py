"""Sessions: a run that does not end is terminated, and messages of onnxruntime say what is wrong."""

from __future__ import annotations

import sys

import numpy as np
import onnx
import pytest

from onnx_subgraph.backends import onnxruntime as onnxruntime_backend
from onnx_subgraph.backends.onnxruntime import OnnxRuntime
from onnx_subgraph.verification import sessions
from onnx_subgraph.verification.sessions import Failure, first_lines, open_session, run

ENDLESS = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N, 4] x) => (float[N, 4] y) <int64 most = {4611686018427387904}, bool true = {1}> {
  y = Loop (most, true, x) <body = b (int64 i, bool go, float[N, 4] v) => (bool on, float[N, 4] w) {
    on = Identity (go) w = Sigmoid (v)
  }>
}"""


def test_an_endless_run_is_terminated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "LONGEST_RUN", 0.2)
    session = open_session(onnx.parser.parse_model(ENDLESS).SerializeToString(), "CPUExecutionProvider", optimised=False)
    assert not isinstance(session, Failure)
    said = run(session, {"x": np.ones((2, 4), np.float32)})
    assert isinstance(said, Failure) and said.message == "it ran for 0.2 seconds and was ended"


@pytest.mark.parametrize(("provider", "options"), [("CUDAExecutionProvider", {"use_tf32": "0"}), ("CPUExecutionProvider", {})])
def test_products_are_not_rounded_to_fewer_bits(provider: str, options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With TF32 the same model differs from itself by a thousandth, and wrong fusions pass."""
    asked: list[object] = []

    class Session:
        def __init__(self, model: object, settings: object, providers: list[object]) -> None:
            asked.extend(providers)

        def get_providers(self) -> list[str]:
            return [provider]

        def get_inputs(self) -> list[object]:
            return []

        get_outputs = get_inputs

    monkeypatch.setattr(sessions, "plain_session_class", lambda: Session)
    open_session(b"", provider, optimised=True)
    assert asked == [(provider, options)]
    monkeypatch.setattr(onnxruntime_backend, "check_providers", lambda names: None)
    assert OnnxRuntime.configured(provider)._providers == [(provider, options)]


def test_the_libraries_of_cuda_are_looked_for_in_silence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[str] = []

    class Runtime:
        def get_available_providers(self) -> list[str]:
            return ["CUDAExecutionProvider", "CPUExecutionProvider"]

        def preload_dlls(self) -> None:
            calls.append("preload")
            sys.stdout.write("Failed to load libcudnn.so.9")

    sessions._find_cuda.cache_clear()
    monkeypatch.setattr(sessions, "onnxruntime", Runtime)
    sessions.check_providers(["CPUExecutionProvider"])
    assert not calls
    sessions.check_providers(["CUDAExecutionProvider", "CUDAExecutionProvider"])
    assert calls == ["preload"] and capsys.readouterr().out == ""
    sessions._find_cuda.cache_clear()


@pytest.mark.parametrize(
    "place",
    [
        "/onnxruntime_src/core/a.cc:235 onnxruntime::A::Locale::Locale(const std::string&)::<lambda()> ",
        "/onnxruntime_src/core/a.cc:75 T onnxruntime::get(const A&, std::function<int(int)>) const [with T = int] ",
        "tensorprotoutils.cc:619 ValidateExternalDataPathFromDir ",
        "",
    ],
)
def test_a_message_of_onnxruntime_has_no_place_in_its_source(place: str) -> None:
    error = RuntimeError(f"[ONNXRuntimeError] : 1 : FAIL : While loading: {place}The file 'a.cc' does not exist at x.h:12")
    assert first_lines(error) == "While loading: The file 'a.cc' does not exist at x.h:12"
