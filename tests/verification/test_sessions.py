"""Sessions: a run that does not end is terminated, and messages of onnxruntime say what is wrong."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

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
