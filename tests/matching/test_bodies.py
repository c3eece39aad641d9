"""A written-out definition is raised: the standard's function body of an operator is found as that operator.

onnx itself writes out the call: its function body becomes a function of the model, which onnx's inliner inlines.
"""

from __future__ import annotations

from typing import Any

import onnx
import onnx.inliner
import onnx.parser
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from onnx_subgraph.language.library import load_patterns
from onnx_subgraph.matching.find import find
from onnx_subgraph.matching.match import Match
from onnx_subgraph.model.shapes import infer_shapes

BODIES = load_patterns().get("function-body")
ATTENTION = "float[2, 3, 4, 8] q, float[2, 3, 6, 8] k, float[2, 3, 6, 8] v"
PAST = "float[2, 3, 5, 8] pk, float[2, 3, 5, 8] pv"
SCORES = "float[2, 3, 4, 11]"


def parsed(inputs: str, call: str, outputs: str, opset: int, constants: str = "") -> onnx.ModelProto:
    declared = f" <{constants}>" if constants else ""
    text = f'<ir_version: 8, opset_import: ["" : {opset}]>\ng ({inputs}) => ({outputs}){declared} {{ {call} }}'
    return onnx.parser.parse_model(text)


def written_out(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its one node replaced by the node's function body, as onnx's inliner does it."""
    node, opset = proto.graph.node[0], proto.opset_import[0].version
    schema: Any = onnx.defs.get_schema(node.op_type, opset, "")
    types = {v.name: v.type for v in proto.graph.input} | {
        t.name: helper.make_tensor_type_proto(t.data_type, list(t.dims)) for t in proto.graph.initializer
    }
    if schema.has_context_dependent_function:
        given = [types.get(name, onnx.TypeProto()).SerializeToString() for name in node.input]
        data = schema.get_context_dependent_function(node.SerializeToString(), given)
    else:
        data = schema.function_body.SerializeToString()
    body = onnx.FunctionProto.FromString(data)
    del body.output[len(node.output) :]
    body.domain, body.name = "local", node.op_type
    body.opset_import[0].version = opset
    node.domain = "local"
    defaults = [a.default_value for a in schema.attributes.values() if a.default_value.name]
    node.attribute.extend(a for a in defaults if a.name not in {given.name for given in node.attribute})
    proto.functions.append(body)
    proto.opset_import.append(helper.make_opsetid("local", 1))
    return onnx.inliner.inline_local_functions(proto)


def found(proto: onnx.ModelProto) -> list[Match]:
    """The matches that are not part of a larger one."""
    model = ir.from_proto(proto)
    infer_shapes(model)
    matches = find(model, [BODIES]).matches
    return [m for m in matches if not any(set(m.nodes) < set(other.nodes) for other in matches)]


def said(match: Match) -> str:
    """The node that replaces a match, as text."""
    line = match.pattern.replace["standard"].assignments[0]
    names = [getattr(match.bindings.get(str(a)), "name", "") or "" for a in line.term.arguments]  # type: ignore[union-attr]
    given = {n: a.value for n, a in sorted(match.rest["attributes"].items())}
    results = [str(match.roots[name].name) for name in line.names if name in match.roots]
    head = f"{line.term.operators[0]}({', '.join(names)})"  # type: ignore[union-attr]
    return f"{', '.join(results)} = {head}{' ' + str(given) if given else ''}"


@pytest.mark.parametrize(
    ("inputs", "call", "outputs", "opset", "expected"),
    [
        ("float[2, 5] x", "y = Softmax<axis = 0>(x)", "float[2, 5] y", 13, "y = Softmax(x) {'axis': 0}"),
        ("float[N, 5] x", "y = LogSoftmax(x)", "float[N, 5] y", 18, "y = LogSoftmax(x)"),
        ("float16[N, 5] x", 'y = Gelu<approximate = "tanh">(x)', "float16[N, 5] y", 20, "y = Gelu(x) {'approximate': 'tanh'}"),
        ("float[N] x", "y = Selu<alpha = 2.0, gamma = 3.0>(x)", "float[N] y", 22, "y = Selu(x) {'alpha': 2.0, 'gamma': 3.0}"),
        ("float[2, 5] x, float[5] s", "y = PRelu(x, s)", "float[2, 5] y", 16, "y = PRelu(x, s)"),
        ("float[2, 5] x, float h", "y = Clip(x, , h)", "float[2, 5] y", 13, "y = Clip(x, , h)"),
        ("int8[5] a, int8[5] b", "y = GreaterOrEqual(a, b)", "bool[5] y", 16, "y = GreaterOrEqual(a, b)"),
        ("int32 n", "y = HannWindow<periodic = 0>(n)", "float[M] y", 17, "y = HannWindow(n) {'periodic': 0}"),
        ("float[2, 5] x, int64[1] a", "y = ReduceL2(x, a)", "float[M, K] y", 18, "y = ReduceL2(x, a)"),
        (
            "float[3, 4] x, float[3, 4] w, float[3, 4] b",
            "y, m, d = LayerNormalization<axis = 0, epsilon = 0.5>(x, w, b)",
            "float[3, 4] y, float[1, 1] m, float[1, 1] d",
            17,
            "y, m, d = LayerNormalization(x, w, b) {'axis': 0, 'epsilon': 0.5}",
        ),
        (
            "float[B, S, 8] x, float[8] w",
            "y = RMSNormalization(x, w)",
            "float[B, S, 8] y",
            23,
            "y = RMSNormalization(x, w)",
        ),
        (
            "float[2, 4, 3, 8] x, float[50, 2] c, float[50, 2] s, int64[2, 3] p",
            "y = RotaryEmbedding<interleaved = 1, rotary_embedding_dim = 4>(x, c, s, p)",
            "float[2, 4, 3, 8] y",
            23,
            "y = RotaryEmbedding(x, c, s, p) {'interleaved': 1, 'rotary_embedding_dim': 4}",
        ),
        (
            "float[2, 4, 72] q, float[2, 6, 24] k, float[2, 6, 24] v, bool[4, 6] m",
            "y = Attention<is_causal = 1, q_num_heads = 9, kv_num_heads = 3, softcap = 3.0>(q, k, v, m)",
            "float[2, 4, 72] y",
            23,
            "y = Attention(q, k, v, m) {'is_causal': 1, 'kv_num_heads': 3, 'q_num_heads': 9, 'softcap': 3.0}",
        ),
        (
            f"{ATTENTION}, {SCORES} m, {PAST}",
            "y, nk, nv, s = Attention<scale = 0.25, qk_matmul_output_mode = 2>(q, k, v, m, pk, pv)",
            f"float[2, 3, 4, 8] y, float[2, 3, 11, 8] nk, float[2, 3, 11, 8] nv, {SCORES} s",
            23,
            "y, nk, nv, s = Attention(q, k, v, m, pk, pv) {'qk_matmul_output_mode': 2, 'scale': 0.25}",
        ),
    ],
)
def test_a_written_out_call_is_found_as_that_call(inputs: str, call: str, outputs: str, opset: int, expected: str) -> None:
    assert [said(m) for m in found(written_out(parsed(inputs, call, outputs, opset)))] == [expected]


@given(alpha=st.floats(0.015625, 4, width=16).filter(lambda x: x != 1))
def test_a_number_that_is_an_attribute_is_read_from_the_graph(alpha: float) -> None:
    proto = written_out(parsed("float[2, 5] x", f"y = Elu<alpha = {alpha}>(x)", "float[2, 5] y", 22))
    assert [said(m) for m in found(proto)] == [f"y = Elu(x) {{'alpha': {alpha}}}"]


@pytest.mark.parametrize(
    ("inputs", "call", "outputs", "opset"),
    [
        ("float[2, 5] x, float[3, 2, 5] s", "y = PRelu(x, s)", "float[3, 2, 5] y", 16),
        ("float[2, 5] x, float[5] h", "y = Clip(x, , h)", "float[2, 5] y", 13),
        ("float[2, 5] x, float[1] w", "y = RMSNormalization(x, w)", "float[2, 5] y", 23),
    ],
)
def test_operands_that_the_operator_does_not_accept_are_left(inputs: str, call: str, outputs: str, opset: int) -> None:
    """The body also computes operands that the standard does not allow for the operator."""
    assert found(written_out(parsed(inputs, call, outputs, opset))) == []


def test_a_type_that_the_operator_does_not_have_is_left() -> None:
    """ThresholdedRelu takes floats alone."""
    nodes = "l = Less (q, x) y = Where (l, x, z)"
    assert found(parsed("int64[N] x", nodes, "int64[N] y", 18, "int64 q = {1}, int64 z = {0}")) == []
    floats = parsed("float[N] x", nodes, "float[N] y", 18, "float q = {2}, float z = {0}")
    assert [said(m) for m in found(floats)] == ["y = ThresholdedRelu(x) {'alpha': 2.0}"]


def test_a_number_that_is_cast_has_the_type_of_the_attribute() -> None:
    nodes = "q = Cast <to = 1> (k) l = Less (q, x) y = Where (l, x, z)"
    cast = parsed("float[N] x", nodes, "float[N] y", 18, "int64 k = {2}, float z = {0}")
    assert [said(m) for m in found(cast)] == ["y = ThresholdedRelu(x) {'alpha': 2.0}"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Exp", "Exp2"),
        ("y = Div (e, t)", "y = Div (t, e)"),
        ("keepdims = 1> (e, a)", "keepdims = 0> (e, a)"),
        ("= ReduceSum", "= ReduceMean"),
        ("Sub (x, m)", "Sub (m, x)"),
    ],
)
def test_another_computation_is_not_found(first: str, second: str) -> None:
    nodes = "m = ReduceMax <keepdims = 1> (x, a) b = Sub (x, m) e = Exp (b) t = ReduceSum <keepdims = 1> (e, a) y = Div (e, t)"
    assert len(found(parsed("float[5, 5] x", nodes, "float[5, 5] y", 18, "int64[1] a = {-1}"))) == 1
    changed = nodes.replace(first, second).replace("Exp2 (b)", "Tanh (b)")
    assert found(parsed("float[5, 5] x", changed, "float[5, 5] y", 18, "int64[1] a = {-1}")) == []


def test_folded_constants_are_the_same_body() -> None:
    """Exporters fold constants: the square root of two is stored, and so is one in the type of the input."""
    nodes = "s = Div (x, r) e = Erf (s) p = Add (e, one) h = Mul (x, half) y = Mul (p, h)"
    constants = "float r = {1.41421354}, float[1] one = {1}, float half = {0.5}"
    assert [said(m) for m in found(parsed("float[2, 5] x", nodes, "float[2, 5] y", 20, constants))] == ["y = Gelu(x)"]


def test_an_unused_result_is_not_a_result() -> None:
    proto = parsed("float[3, 4] x, float[4] w", "y, m, d = LayerNormalization(x, w)", "float[3, 4] y", 17)
    (match,) = found(written_out(proto))
    assert list(match.roots) == ["y0"]
