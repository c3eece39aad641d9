"""Laws of making a model static: it computes the same at those shapes, keeps its interface and has no shape arithmetic."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_subgraph import UsageError
from onnx_subgraph.files.models import load, save
from onnx_subgraph.model.specialize import fix_dimensions, specialize

SAMPLES = Path(__file__).parents[2] / "sample_models"
ARITHMETIC = {"Shape", "Size", "Range", "ConstantOfShape"}


def model(text: str) -> ir.Model:
    return ir.from_proto(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}'))


def run(source: ir.Model | Path, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    data = str(source) if isinstance(source, Path) else ir.to_proto(source).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(data, options).run(None, feeds)


@pytest.mark.parametrize("name", ["bert_torchscript", "bert_dynamo", "gpt2_torchscript", "t5_torchscript", "clip_text_dynamo"])
@pytest.mark.parametrize(("batch", "length"), [(1, 1), (3, 7)])
def test_a_real_export_computes_the_same_without_shape_arithmetic(name: str, batch: int, length: int, tmp_path: Path) -> None:
    path = SAMPLES / f"{name}.onnx"
    static = load(path)
    inputs = [str(value.name) for value in static.graph.inputs]
    outputs = [str(value.name) for value in static.graph.outputs]
    specialize(static, dict.fromkeys(inputs, (batch, length)))
    save(static, tmp_path / "static.onnx", None)
    feeds = {name: np.ones((batch, length), np.int64) for name in inputs}
    for ours, theirs in zip(run(tmp_path / "static.onnx", feeds), run(path, feeds), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    written = onnx.load(tmp_path / "static.onnx")
    assert [value.name for value in written.graph.input] == inputs
    assert [value.name for value in written.graph.output] == outputs
    assert not ARITHMETIC & {node.op_type for node in written.graph.node}
    onnx.checker.check_model(written)


@settings(max_examples=25)
@given(batch=st.integers(1, 9), length=st.integers(1, 9))
def test_every_size_gives_what_the_dynamic_model_gives(batch: int, length: int) -> None:
    text = """g (float[b, s, 4] x) => (float[n, 2] y, int64[1] size) {
        shape = Shape (x) zero = Constant <value_ints: ints = [0]> () b = Gather (shape, zero)
        minus = Constant <value_ints: ints = [-1]> () two = Constant <value_ints: ints = [2]> ()
        target = Concat <axis = 0> (minus, two) y = Reshape (x, target) size = Mul (b, two) }"""
    free, static = model(text), model(text)
    specialize(static, {"x": (batch, length, 4)})
    feeds = {"x": np.arange(batch * length * 4, dtype=np.float32).reshape(batch, length, 4)}
    assert all(map(np.array_equal, run(static, feeds), run(free, feeds)))
    assert {node.op_type for node in static.graph} <= {"Constant", "Reshape"}


def test_dimensions_of_one_name_get_one_size() -> None:
    static = model("g (float[b, s] x, float[b, past] p, float[b, t] m) => (float[b, q] y) { y = Concat <axis = 1> (x, p, m) }")
    static.graph.inputs[2].shape = ir.Shape(["b", "past + s"])
    fix_dimensions(static, {"x": (2, 3), "p": (2, 4)})
    assert [str(value.shape) for value in (*static.graph.inputs, *static.graph.outputs)] == ["[2,3]", "[2,4]", "[2,7]", "[2,q]"]


def test_dimensions_without_a_given_size_stay_dynamic() -> None:
    static = model("g (float[b, s] x, float[c, s] p) => (float[b, s] y) { y = Identity (x) }")
    specialize(static, {"x": (2, 3)})
    assert str(static.graph.inputs[1].shape) == "[c,3]"


def test_captures_of_a_body_are_folded_too() -> None:
    text = """g (float[b, 4] x, bool c) => (float[r, 4] y) {
        shape = Shape (x)
        y = If (c) <then_branch = t () => (float[r, 4] a) { a = Expand (x, shape) },
                    else_branch = e () => (float[r, 4] d) { d = Reshape (x, shape) }> }"""
    free, static = model(text), model(text)
    specialize(static, {"x": (3, 4)})
    feeds = {"x": np.ones((3, 4), np.float32), "c": np.array(False)}
    assert np.array_equal(run(static, feeds)[0], run(free, feeds)[0])
    assert "Shape" not in {node.op_type for node in static.graph.all_nodes()}


def test_a_constant_output_keeps_its_name() -> None:
    static = model("g (float[b, 4] x) => (int64[2] y) { y = Shape (x) }")
    specialize(static, {"x": (3, 4)})
    assert [value.name for value in static.graph.outputs] == ["y"]
    assert run(static, {"x": np.zeros((3, 4), np.float32)})[0].tolist() == [3, 4]


def test_an_overridable_initializer_is_not_constant() -> None:
    static = model("g (float[b] x, float[1] w) => (float[b] y) <float[1] w = {2}> { v = Add (w, w) y = Mul (x, v) }")
    specialize(static, {"x": (2,)})
    assert run(static, {"x": np.ones(2, np.float32), "w": np.array([5], np.float32)})[0].tolist() == [10, 10]


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ({"z": (1,)}, "no input 'z'"),
        ({"x": (1, 2, 3)}, "declared"),
        ({"x": (2, 5)}, "declared"),
        ({"x": (2, 4), "p": (3, 2)}, "'x' makes the dimension b 2, and 'p' makes it 3"),
    ],
)
def test_a_shape_that_does_not_fit_is_refused(shapes: dict[str, tuple[int, ...]], said: str) -> None:
    static = model("g (float[b, 4] x, float[b, s] p) => (float[b, 4] y) { y = Identity (x) }")
    with pytest.raises(UsageError, match=said):
        specialize(static, shapes)


LOOP = """g (float[b, 4] x, int64 most) => (float[b, 4] last, float[steps, rows, 4] every) {
  last, every = Loop (most, "", x) <
    body = body (int64 i, bool on, float[b, 4] state) => (bool more, float[b, 4] next, float[b, 4] row) <float[b, 4] inner> {
      more = Identity (on)  inner = Neg (state)  next = Tanh (inner)  row = Relu (next) }>
}"""


@pytest.mark.parametrize("steps", [0, 2])
def test_a_loop_of_no_steps_has_the_stack_of_the_original(steps: int, tmp_path: Path) -> None:
    """onnxruntime builds the stack of no arrays from what the body declares, where a free size is 0."""
    static = model(LOOP)
    specialize(static, {"x": (3, 4)})
    save(static, tmp_path / "static.onnx", None)
    feeds = {"x": np.ones((3, 4), np.float32), "most": np.array(steps)}
    for found, expected in zip(run(tmp_path / "static.onnx", feeds), run(model(LOOP), feeds), strict=True):
        np.testing.assert_array_equal(found, expected, strict=True)
