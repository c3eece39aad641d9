"""The backend `static`: a region with fixed sizes inside a model whose other sizes are dynamic."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from onnx_subgraph import EngineSession
from onnx_subgraph.backends.static import Static
from onnx_subgraph.backends.subgraph import Subgraph
from onnx_subgraph.cli import main
from onnx_subgraph.errors import UsageError
from tests.engine.backends import region

# A detector: boxes and scores depend on the size of the picture; the number of boxes kept is known only at run time.
DETECTOR = """
<ir_version: 8, opset_import: ["" : 17]>
detector (float[1, 4, height, width] x) => (int64[left, 3] kept)
<int64[4] order = {0, 2, 3, 1}, int64[1] minus = {-1}, int64[1] one = {1}, int64[1] four = {4},
 int64[1] most = {10}, float[1] overlap = {0.5}>
{
  [backbone__Relu] a = Relu (x)
  [backbone__Abs] absolute = Abs (a)
  [backbone__Shape] shape = Shape <start: int = 2, end: int = 4> (x)
  [backbone__ReduceProd] cells = ReduceProd <keepdims: int = 1> (shape)
  [backbone__Concat] target = Concat <axis: int = 0> (one, four, cells)
  [backbone__Reshape] flat = Reshape (absolute, target)
  [backbone__Transpose] boxes = Transpose <perm: ints = [0, 2, 1]> (flat)
  [head__ReduceSum] summed = ReduceSum <keepdims: int = 1> (boxes, minus)
  [head__Transpose] scores = Transpose <perm: ints = [0, 2, 1]> (summed)
  [head__NonMaxSuppression] kept = NonMaxSuppression (boxes, scores, most, overlap)
}
"""


def picture(height: int, width: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(height).standard_normal((1, 4, height, width)).astype(np.float32)}


def test_a_marked_backbone_is_static_inside_a_dynamic_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each size of the picture gets a session of its own, which computes no shapes."""
    source, marked, parted = (tmp_path / name for name in ("detector.onnx", "marked.onnx", "parted.onnx"))
    model = onnx.parser.parse_model(DETECTOR)
    for node in model.graph.node:  # the names that TorchScript's exporter writes
        node.name = "/" + node.name.replace("__", "/")
    onnx.save(model, source)
    assert main(["specialize", str(source), "--scope", "backbone", "-o", str(marked)]) == 0
    allowed = ["--allow", "onnx_subgraph.Backbone", "--max-crossing", "9"]
    assert main(["partition", str(marked), "--backend", "static", *allowed, "-o", str(parted)]) == 0
    operators: list[set[str]] = []
    real = Subgraph.detached
    monkeypatch.setattr(
        Subgraph, "detached", lambda self: operators.append({node.op_type for node in self.model.graph}) or real(self)
    )
    plain, session = ort.InferenceSession(source), EngineSession(parted)
    operators.clear()  # the operators between the engines
    for height, width in ((4, 5), (6, 3), (4, 5)):
        expected = plain.run(None, picture(height, width))
        np.testing.assert_array_equal(session.run(None, picture(height, width))[0], expected[0])
    assert session.fallbacks == 0 and session.engines[0].usage.misses == len(operators) == 2
    assert all("Relu" in found and not {"Shape", "Concat", "ReduceProd"} & found for found in operators)


def test_sizes_that_do_not_fit_the_region_are_refused() -> None:
    with pytest.raises(UsageError, match="does not fit"):
        Static().compile(region(), (("float32", (2, 5)),))
