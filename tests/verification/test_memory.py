"""Sessions that share a model's weights compute what a session of its file computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnx_subgraph.files.models import load
from onnx_subgraph.verification import memory
from onnx_subgraph.verification.memory import open_file, open_model
from onnx_subgraph.verification.sessions import Failure, Outputs, Session, open_session, run

SIZE = 512  # a weight of SIZE² elements is large enough to be shared
CPU = "CPUExecutionProvider"


def _file(path: Path, *, name: str = "w", overridable: bool = False) -> Path:
    weights = [
        numpy_helper.from_array(np.random.default_rng(i).random((SIZE, SIZE), np.float32), n) for i, n in enumerate((name, "v"))
    ]
    nodes = [helper.make_node("MatMul", ["x", name], ["y"]), helper.make_node("MatMul", ["y", "v"], ["z"])]
    inputs = ["x", *([name] if overridable else [])]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n" if n == "x" else SIZE, SIZE]) for n in inputs]
    graph = helper.make_graph(nodes, "g", values, [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def _ran(session: Session | Failure) -> Outputs:
    assert isinstance(session, Session), session
    outputs = run(session, {"x": np.ones((2, SIZE), np.float32)})
    assert not isinstance(outputs, Failure)
    return outputs


@pytest.mark.parametrize("overridable", [False, True])
@pytest.mark.parametrize("optimised", [False, True])
def test_a_session_with_shared_weights_computes_what_the_file_does(tmp_path: Path, overridable: bool, optimised: bool) -> None:
    """Bit for bit, also if a weight can be overridden by an input."""
    path = _file(tmp_path / "model.onnx", overridable=overridable)
    plain = _ran(open_session(path, CPU, optimised=optimised))
    shared = [open_file(path, CPU, optimised=optimised), open_model(load(path), tmp_path, CPU, optimised=optimised)]
    for session in shared:
        assert np.array_equal(_ran(session)["z"], plain["z"])
        assert isinstance(session, Session)
        assert session.held


def test_a_model_that_can_not_share_is_opened_normally(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small model has nothing to share. For a damaged model the error is onnxruntime's."""
    opened: list[object] = []
    monkeypatch.setattr(memory, "open_session", lambda model, *_, **__: opened.append(model) or Failure("as it is"))
    small, damaged = tmp_path / "small.onnx", tmp_path / "damaged.onnx"
    onnx.save(
        onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) {y = Neg(x)}'), small
    )
    damaged.write_bytes(_file(tmp_path / "model.onnx").read_bytes()[:-5])
    for path in (small, damaged, tmp_path / "missing.onnx"):
        assert open_file(path, CPU, optimised=False) == Failure("as it is")
    assert opened == [small, damaged, tmp_path / "missing.onnx"]
