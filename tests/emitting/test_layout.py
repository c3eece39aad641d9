"""Layout terms as nodes: onnxruntime computes what einops computes."""

from __future__ import annotations

from collections.abc import Callable

import einops
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_subgraph.emitting.attribute import lookup_in
from onnx_subgraph.emitting.emit import Emitter
from onnx_subgraph.emitting.fragment import Fragment
from onnx_subgraph.emitting.refused import Refused
from onnx_subgraph.language.syntax import parse_assignments
from onnx_subgraph.model.shapes import infer_shapes
from tests.rewriting.stage import run

SIZES = {"a": 2, "b": 3, "c": 4, "d": 5}


def emitted(text: str, shape: list[int | str], *, opset: int = 17, **names: int) -> tuple[onnx.ModelProto, list[str]]:
    """The model that computes the names in the last line of `text` from `x`, and its operators."""
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(shape))
    fragment = Fragment({"": opset}, lambda _: None)
    block = parse_assignments(text)
    results = block.assignments[-1].names
    bindings = {"x": x, **names}
    emitter = Emitter(fragment, bindings, {}, lookup_in(bindings, lambda _: None), lambda name: name in results)
    emitter.block(block)
    values = [emitter.value_of(name) for name in results]
    fragment.infer()
    inputs = list(fragment.read)
    inputs[0].name = "x"
    graph = ir.Graph(
        inputs,
        values,
        nodes=fragment.nodes,
        initializers=fragment.constants,
        opset_imports=dict(fragment.opset_imports),
        name="g",
    )
    return ir.to_proto(ir.Model(graph, ir_version=8)), [n.op_type for n in graph]


@given(st.permutations(sorted(SIZES)), st.data())
def test_a_rearrangement_equals_einops(order: list[str], data: st.DataObject) -> None:
    def grouped(axes: list[str]) -> str:
        cuts = [True, *data.draw(st.lists(st.booleans(), min_size=len(axes) - 1, max_size=len(axes) - 1))]
        groups: list[list[str]] = []
        for axis, starts in zip(axes, cuts, strict=True):
            groups.append([axis]) if starts else groups[-1].append(axis)
        return " ".join(g[0] if len(g) == 1 else f"({' '.join(g)})" for g in groups)

    recipe = f"{grouped(sorted(SIZES))} -> {grouped(order)}"
    left = recipe.split(" -> ", maxsplit=1)[0]
    source = einops.rearrange(np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5), f"a b c d -> {left}")
    model, _ = emitted(f'y = rearrange(x, "{recipe}")', list(source.shape), **SIZES)
    np.testing.assert_array_equal(run(model, {"x": source})[0], einops.rearrange(source, recipe, **SIZES))


def test_dynamic_sizes_are_copied_and_one_is_left_open(draw: Callable[..., np.ndarray]) -> None:
    model, operators = emitted('y = rearrange(x, "b s (h d) -> b h s d")', ["B", "S", 12], h=3)
    assert operators == ["Reshape", "Transpose"]
    for shape in ((2, 5, 12), (1, 1, 12)):
        x = draw(*shape)
        np.testing.assert_array_equal(run(model, {"x": x})[0], einops.rearrange(x, "b s (h d) -> b h s d", h=3))


@pytest.mark.parametrize("opset", [9, 14, 15])
def test_two_dynamic_sizes_in_one_reshape_are_read_from_the_source(opset: int, draw: Callable[..., np.ndarray]) -> None:
    model, operators = emitted('y = rearrange(x, "a b c d -> d (a b) c")', ["A", "B", "C", "D"], opset=opset)
    assert operators.count("Reshape") == 1
    onnx.checker.check_model(model)
    x = draw(2, 3, 4, 5)
    np.testing.assert_array_equal(run(model, {"x": x})[0], einops.rearrange(x, "a b c d -> d (a b) c"))


def test_invalid_sizes_are_refused() -> None:
    with pytest.raises(Refused, match="dynamic"):
        emitted('y = rearrange(x, "(a b) (c d) -> a b c d")', ["M", "N"])


def test_a_rearrangement_that_is_undone_gives_its_source(draw: Callable[..., np.ndarray]) -> None:
    """The shortest sequence is emitted: splitting and merging heads again adds no nodes."""
    text = """
    <ir_version: 8, opset_import: ["" : 18]>
    g (float[B, S, 12] query) => (float[B, S, 12] y) <int64[4] shape = {0, 0, 3, 4}> {
        apart = Reshape(query, shape)
        x = Transpose<perm=[0, 2, 1, 3]>(apart)
        y = Neg(query)
    }"""
    model = ir.from_onnx_text(text)
    infer_shapes(model)
    heads = next(v for node in model.graph for v in node.outputs if v.name == "x")
    fragment = Fragment({"": 18}, lambda _: None)
    Emitter(fragment, {"x": heads}, {}, lookup_in({}, lambda _: None), lambda name: name == "y").block(
        parse_assignments('y = rearrange(x, "b h s d -> b s (h d)")')
    )
    assert not fragment.nodes
    assert "query" in [value.name for value in fragment.read.values()]


@pytest.mark.parametrize(
    ("shape", "recipe", "operators"),
    [
        ("{0, 4, 8, -1}", "b h d s -> b h s d", ["Transpose"]),
        ("{-1, 8, 0}", "(b h) d s -> b h s d", ["Reshape", "Transpose"]),
        ("{0, 4, 8, -1}", "b h d s -> b s (h d)", ["Transpose"]),
    ],
    ids=["heads of the image", "heads in the batch", "channels last"],
)
def test_axes_that_move_together_are_joined_only_if_the_result_joins_them(shape: str, recipe: str, operators: list[str]) -> None:
    """A batch and its heads stay in front while the others change places. No Reshape has to join and split them for that."""
    rank = shape.count(",") + 1
    text = f"""
    <ir_version: 8, opset_import: ["" : 18]>
    g (float[B, 32, S] image) => (float[B, 32, S] y) <int64[{rank}] shape = {shape}> {{
        x = Reshape(image, shape)
        y = Neg(image)
    }}"""
    model = ir.from_onnx_text(text)
    infer_shapes(model)
    apart = next(v for node in model.graph for v in node.outputs if v.name == "x")
    fragment = Fragment({"": 18}, lambda _: None)
    bindings = {"x": apart, "h": 4}
    Emitter(fragment, bindings, {}, lookup_in(bindings, lambda _: None), lambda name: name == "y").block(
        parse_assignments(f'y = rearrange(x, "{recipe}", h=4)' if "(b h)" in recipe else f'y = rearrange(x, "{recipe}")')
    )
    assert [node.op_type for node in fragment.nodes if node.op_type != "Constant"] == operators


def test_a_no_op_adds_no_nodes() -> None:
    _, operators = emitted('z = rearrange(x, "a b -> a b")\ny = -z', ["A", 4])
    assert operators == ["Neg"]


def test_repeat_equals_einops(draw: Callable[..., np.ndarray]) -> None:
    recipe = "b g t d -> b (g r) t d"
    model, operators = emitted(f'y = repeat(x, "{recipe}", r=4)', ["B", 2, "T", 3])
    assert "Expand" in operators
    x = draw(1, 2, 5, 3)
    np.testing.assert_array_equal(run(model, {"x": x})[0], einops.repeat(x, recipe, r=4))


@pytest.mark.parametrize("opset", [11, 13, 18])
@pytest.mark.parametrize("how", ["parts=2", "sizes=[1, 3]"])
def test_split_is_emitted_for_every_opset(opset: int, how: str, draw: Callable[..., np.ndarray]) -> None:
    model, operators = emitted(f"lo, hi = split(x, axis=-1, {how})", [3, 4], opset=opset)
    assert operators == ["Split"]
    onnx.checker.check_model(model)
    x = draw(3, 4)
    for found, expected in zip(run(model, {"x": x}), np.split(x, [2 if "parts" in how else 1], axis=-1), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("opset", [9, 14, 15])
@pytest.mark.parametrize("ends", ["start=1, end=3", "end=2"])
def test_some_sizes_of_a_shape_are_emitted_for_every_opset(opset: int, ends: str, draw: Callable[..., np.ndarray]) -> None:
    model, operators = emitted(f"y = Shape(x, {ends})", ["A", 4, "C"], opset=opset)
    assert operators == (["Shape"] if opset == 15 else ["Shape", "Gather"])
    onnx.checker.check_model(model)
    found = run(model, {"x": draw(3, 4, 5)})[0]
    np.testing.assert_array_equal(found, [4, 5] if "start" in ends else [3, 4])


@pytest.mark.parametrize("opset", [14, 15])
def test_known_sizes_of_a_shape_are_a_constant(opset: int) -> None:
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["A", 4, 5]))
    fragment = Fragment({"": opset}, lambda _: None)
    emitter = Emitter(fragment, {"x": x}, {}, lookup_in({}, lambda _: None), lambda name: name == "y")
    emitter.block(parse_assignments("y = Expand(x, Concat([2], Shape(x, start=1, end=3), axis=0))"))
    fragment.provides["y"] = emitter.value_of("y")
    fragment.infer()
    fragment.fold()
    (node,) = fragment.nodes
    assert node.inputs[1] is not None and node.inputs[1].const_value is not None
    assert node.inputs[1].const_value.numpy().tolist() == [2, 4, 5]


@pytest.mark.parametrize(("opset", "inputs"), [(13, 1), (18, 2)])
def test_a_keyword_is_an_attribute_or_an_input_depending_on_the_opset(
    opset: int, inputs: int, draw: Callable[..., np.ndarray]
) -> None:
    model, _ = emitted("y = ReduceMean(x, axes=[-1], keepdims=0)", [3, 4], opset=opset)
    assert len(model.graph.node[0].input) == inputs
    x = draw(3, 4)
    np.testing.assert_allclose(run(model, {"x": x})[0], x.mean(-1), rtol=1e-5)
