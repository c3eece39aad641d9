"""The matcher treats equal subexpressions as one value, but never two values that may differ, such as random numbers."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from onnx_subgraph.language.library import load_patterns
from onnx_subgraph.matching.view import View
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.rewriting.loadability import Loadability
from onnx_subgraph.rewriting.rounds import Rewriter
from tests.matching.graphs import matches, model, pattern

PATTERNS = [p for p in load_patterns().patterns if p.is_formula]
TWICE = pattern("y = Max(Exp(a), Exp(a))", "y = Exp(a)", example='{a: "float32[2, 8]"}')
CONSTANTS = "float k = {2}, float same = {2}, float other = {3}, int64[1] last = {-1}, int64[1] second = {1}, float[8] ones = "
CONSTANTS += "{1, 1, 1, 1, 1, 1, 1, 1}, float[8] units = {1, 1, 1, 1, 1, 1, 1, 1}"
CONSTANTS += ", int64 whole = {1}, float four = {4}, float[1] lone = {2}"
BRANCHES = "If(c) <then_branch = t () => (float[8] u) { u = Identity(ones) }, "
BRANCHES += "else_branch = f () => (float[8] v) { v = Exp(ones) }>"


def are_same(first: str, second: str, *, inputs: str = "float[N, 8] x, float[N, 8] b", opset: int = 18) -> bool:
    """Whether the matcher treats two values as the same. The values are texts of nodes."""
    graph = model(f"square = Mul(k, k) p = {first} q = {second} y = Sub(p, q)", inputs=inputs, constants=CONSTANTS, opset=opset)
    view = View(graph.graph, Constants(graph), dict(graph.opset_imports), graph.graph)
    p, q = graph.graph.node(-1).inputs
    assert isinstance(p, ir.Value)
    assert isinstance(q, ir.Value)
    return view.same(p, q)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Exp(x)", "Exp(x)"),
        ("Mul(x, b)", "Mul(b, x)"),
        ("Mul(x, k)", "Mul(same, x)"),
        ("Add(x, ones)", "Add(x, units)"),
        ("ReduceMean(x, last)", "ReduceMean(x, second)"),
        ("ReduceMean(x, last)", "ReduceMean<keepdims = 1>(x, last)"),
        ("ReduceMean(x, last)", "ReduceMean<noop_with_empty_axes = 1>(x, last)"),
        ("Softmax(x)", "Softmax<axis = 1>(x)"),
        ("Transpose(x)", "Transpose(x)"),
        ("Clip(x, k)", "Clip(x, same, )"),
        ("Gelu(x)", 'Gelu<approximate = "none">(x)'),
        ("Sum(x, b)", "Add(b, x)"),
        ("CastLike(x, whole)", "Cast<to = 7>(x)"),
        ("CastLike(x, whole)", "CastLike(x, last)"),
        ("Mul(x, four)", "Mul(x, square)"),
        ("Mul(x, k)", "Mul(x, lone)"),
    ],
)
def test_spellings_of_one_computation_are_the_same(first: str, second: str) -> None:
    assert are_same(first, second, opset=20 if "Gelu" in first else 18)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Exp(x)", "Exp(b)"),
        ("Sub(x, b)", "Sub(b, x)"),
        ("Mul(x, k)", "Mul(x, other)"),
        ("ReduceMean(x, last)", "ReduceMean<keepdims = 0>(x, last)"),
        ("ReduceMean<keepdims = 0>(x)", "ReduceMean<keepdims = 0, noop_with_empty_axes = 1>(x)"),
        ("ReduceMean(x, last)", "ReduceMax(x, last)"),
        ("RandomNormalLike<seed = 1.0>(x)", "RandomNormalLike<seed = 1.0>(x)"),
        ("RandomUniformLike(x)", "RandomUniformLike(x)"),
        ("Bernoulli(x)", "Bernoulli(x)"),
        ("Multinomial(x)", "Multinomial(x)"),
        ("my.own.Exp(x)", "my.own.Exp(x)"),
        (BRANCHES, BRANCHES),
    ],
)
def test_computations_that_may_differ_are_not_the_same(first: str, second: str) -> None:
    text = f"square = Mul(k, k) p = {first} q = {second} y = Sub(p, q)"
    source = (
        '<ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1, "my.own" : 1]>\n'
        f"g (float[N, 8] x, float[N, 8] b, bool c) => (y) <{CONSTANTS}> {{ {text} }}"
    )
    graph = ir.from_onnx_text(source)
    infer_shapes(graph)
    view = View(graph.graph, Constants(graph), dict(graph.opset_imports), graph.graph)
    p, q = graph.graph.node(-1).inputs
    assert isinstance(p, ir.Value)
    assert isinstance(q, ir.Value)
    assert not view.same(p, q)


def test_dropout_in_training_is_not_the_same_and_in_inference_is() -> None:
    text = "p = Dropout(x, ratio, {mode}) q = Dropout(x, ratio, {mode}) e = Exp(p) f = Exp(q) y = Max(e, f)"
    constants = "float ratio = {0.5}, bool yes = {1}, bool no = {0}"
    assert matches(TWICE, model(text.format(mode="no"), constants=constants)) == 1
    assert matches(TWICE, model(text.format(mode="yes"), constants=constants)) == 0


def test_an_axis_from_the_front_of_a_value_of_unknown_rank_is_not_the_last() -> None:
    assert are_same("ReduceMean(x, last)", "ReduceMean(x, last)", inputs="float[] x")
    assert not are_same("ReduceMean(x, last)", "ReduceMean(x, second)", inputs="float[] x")


def test_a_split_in_two_is_not_a_split_in_three() -> None:
    text = "a, b = Split(x, two) p, q, r = Split(x, three) y = Sub(a, p)"
    graph = model(text, inputs="float[6, 8] x", constants="int64[2] two = {2, 4}, int64[3] three = {2, 2, 2}")
    view = View(graph.graph, Constants(graph), dict(graph.opset_imports), graph.graph)
    a, p = graph.graph.node(-1).inputs
    assert a is not None
    assert p is not None
    assert not view.same(a, p)


NORM = """m = ReduceMean(x, {first}) n = ReduceMean(x, {second}) d = Sub(x, m) e = Sub(x, n) s = Mul(d, e)
v = ReduceMean(s, {first}) a = Add(v, eps) r = Sqrt(a) z = Div(d, r) w = Mul(z, scale) y = Add(w, bias)"""


@pytest.mark.parametrize(("first", "second"), [("last", "third"), ("third", "last"), ("last", "last")])
def test_two_computations_of_a_mean_make_one_layer_normalization(first: str, second: str) -> None:
    norm = next(p for p in PATTERNS if p.id == "layer-normalization")
    constants = "int64[1] last = {-1}, int64[1] third = {2}, float eps = {1e-5}, "
    constants += "float[4] scale = {1, 2, 3, 4}, float[4] bias = {1, 2, 3, 4}"
    text = NORM.format(first=first, second=second)
    assert matches(norm, model(text, inputs="float[N, 3, 4] x", outputs="float[N, 3, 4] y", constants=constants)) == 1


def spelled(pattern_id: str) -> onnx.ModelProto:
    """The first model of a pattern's file, in which two nodes read each result."""
    case = next(p for p in PATTERNS if p.id == pattern_id).fuses[0]
    proto = onnx.parser.parse_model(case.model)
    for output in list(proto.graph.output):
        for reader in ("Ceil", "Floor"):
            result = f"{output.name}_{reader}"
            proto.graph.node.append(onnx.helper.make_node(reader, [output.name], [result], name=result))
            proto.graph.output.add().CopyFrom(output)
            proto.graph.output[-1].name = result
        proto.graph.output.remove(output)
    return proto


def doubled(proto: onnx.ModelProto, position: int, moved: int | None) -> onnx.ModelProto | None:
    """The model with a duplicate of one node. One use of its results, number `moved`, reads the duplicate."""
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    nodes = list(made.graph.node)
    twin = onnx.NodeProto()
    twin.CopyFrom(nodes[position])
    twin.name = f"{twin.name}_twin"
    names = {name: f"{name}_twin" for name in twin.output if name}
    twin.output[:] = [names.get(name, "") for name in twin.output]
    uses = [(node, index) for node in nodes for index, name in enumerate(node.input) if name in names]
    if moved is not None:
        if moved >= len(uses):
            return None
        node, index = uses[moved]
        node.input[index] = names[node.input[index]]
    nodes.insert(position + 1, twin)
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    return made


def fused(proto: onnx.ModelProto) -> list[str]:
    graph = ir.from_proto(proto)
    infer_shapes(graph)
    return sorted(r.pattern for r in Rewriter(PATTERNS, "onnxruntime", [Loadability("CPUExecutionProvider")])(graph).rewrites)


LAWFUL = ("fast-gelu", "gelu", "layer-normalization", "rms-normalization", "silu", "hard-swish", "slice-slice", "bias-gelu")


@pytest.mark.parametrize("pattern_id", LAWFUL)
def test_duplicating_a_node_does_not_change_what_is_found(pattern_id: str) -> None:
    """Law: a duplicate of a node, with no reader or with one reader of the original, does not change the fusions."""
    proto = spelled(pattern_id)
    expected = fused(proto)
    assert expected
    for position, node in enumerate(proto.graph.node):
        for moved in (None, 0, 1):
            made = doubled(proto, position, moved) if node.op_type not in ("Ceil", "Floor") else None
            if made is not None:
                assert fused(made) == expected, (node.op_type, node.output[0], moved)
