"""Sessions: a run that does not end is terminated."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from onnx_subgraph.verification import sessions
from onnx_subgraph.verification.sessions import Failure, open_session, run

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
