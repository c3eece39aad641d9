"""Laws of matching: changes of the graph that never change the result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_subgraph.files.models import load
from onnx_subgraph.language.library import load_patterns
from onnx_subgraph.matching.find import find
from onnx_subgraph.model.shapes import infer_shapes
from tests.matching.graphs import found, matches, model, pattern

SAMPLES = sorted((Path(__file__).resolve().parents[2] / "sample_models").glob("*.onnx"))
PATTERNS = [p for p in load_patterns().patterns if p.grow is None]

SUM = pattern(
    "y = Tanh(a * Exp(b) * Relu(c))",
    "y = Tanh(Sum(a, b, c))",
    example='{a: "float32[2, 8]", b: "float32[2, 8]", c: "float32[2, 8]"}',
)
GELU = pattern("y = 0.5 * x * (1 + Erf(x / sqrt(2)))", "y = com.microsoft.Gelu(x)", example='{x: "float32[2, 8]"}')
INPUTS = "float[N, 8] a, float[N, 8] b, float[N, 8] c"
SCALED = '{a: "float32[2, 8]", b: "float32[8, 4]", scale: 0.5}'
CONSTANTS = "float half = {0.5}, float one = {1}, float root = {1.4142135}"


@st.composite
def products(draw: Any, leaves: list[str]) -> tuple[str, str]:
    """The text of a product of all leaves, in random order and grouping, and the name of its result."""
    pending, text = draw(st.permutations(leaves)), ""
    for number in range(len(leaves) - 1):
        first = pending.pop(draw(st.integers(0, len(pending) - 1)))
        second = pending.pop(draw(st.integers(0, len(pending) - 1)))
        if draw(st.booleans()):
            text += f"i{number} = Identity({first}) "
            first = f"i{number}"
        text += f"p{number} = Mul({first}, {second}) "
        pending.append(f"p{number}")
    return text, pending[0]


@given(products(["a", "e", "r"]))
def test_regrouping_a_chain_never_changes_the_bindings(product: tuple[str, str]) -> None:
    text, result = product
    graph = model(f"e = Exp(b) r = Relu(c) {text} y = Tanh({result})", inputs=INPUTS, outputs="float[N, 8] y")
    (match,) = found(SUM, graph).matches
    assert [match.bindings[name] for name in "abc"] == list(graph.graph.inputs)


@given(products(["half", "x", "s"]), st.sampled_from(["s", "e", "d", "final"]))
def test_an_inner_value_that_is_read_elsewhere_is_never_lost(product: tuple[str, str], read: str) -> None:
    text, result = product
    body = f"d = Div(x, root) e = Erf(d) s = Add(one, e) {text} y = Neg({result}) z = Relu({read if read != 'final' else result})"
    graph = model(body, outputs="float[N, 8] y, float[N, 8] z", constants=CONSTANTS)
    assert matches(GELU, graph) == (1 if read == "final" else 0)


@given(products(["half", "x", "s"]))
def test_matching_changes_nothing(product: tuple[str, str]) -> None:
    text, result = product
    graph = model(
        f"d = Div(x, root) e = Erf(d) s = Add(one, e) {text} y = Neg({result})", outputs="float[N, 8] y", constants=CONSTANTS
    )
    before = ir.to_proto(graph).SerializeToString(deterministic=True)
    first = [[n.name for n in m.nodes] for m in found(GELU, graph).matches]
    second = [[n.name for n in m.nodes] for m in found(GELU, graph).matches]
    assert first == second
    assert ir.to_proto(graph).SerializeToString(deterministic=True) == before


@given(products(["half", "x", "s", "x"]))
def test_a_product_with_an_extra_factor_does_not_match(product: tuple[str, str]) -> None:
    text, result = product
    graph = model(
        f"d = Div(x, root) e = Erf(d) s = Add(one, e) {text} y = Neg({result})", outputs="float[N, 8] y", constants=CONSTANTS
    )
    for match in found(GELU, graph).matches:  # the GELU inside the product matches, but not its product with x
        assert match.roots["y"].name != result


def test_a_deep_chain_does_not_recurse() -> None:
    text = "v0 = Exp(x) " + " ".join(f"v{i + 1} = Mul(v{i}, x)" for i in range(3000)) + " y = Neg(v3000)"
    assert matches(GELU, model(text, outputs="float[N, 8] y")) == 0


def test_a_shape_that_is_removed_with_the_match_does_not_prevent_it() -> None:
    probe = pattern("y = Exp(Expand(Relu(x), _))", "y = Exp(x)", example='{x: "float32[2, 8]"}')
    text = "r = Relu(x) s = Shape(r) t = Add(s, s) e = Expand(r, t) y = Exp(e)"
    assert matches(probe, model(text, outputs="float[M, K] y")) == 1
    assert matches(probe, model(text + " z = Neg(t)", outputs="float[M, K] y, int64[2] z")) == 1  # shapes are the rewriter's
    live = text + " z = Neg(r)"
    assert matches(probe, model(live, outputs="float[M, K] y, float[N, 8] z")) == 0


def test_a_match_inside_a_body_and_a_use_from_a_body() -> None:
    gelu = "d = Div(x, root) e = Erf(d) s = Add(one, e) h = Mul(half, x) y = Mul(h, s)"
    inside = model(
        f"r = If(c) <then_branch = t () => (float[N, 8] y) {{ {gelu} }}, "
        "else_branch = f () => (float[N, 8] w) { w = Relu(x) }>",
        inputs="float[N, 8] x, bool c",
        outputs="float[N, 8] r",
        constants=CONSTANTS,
    )
    assert matches(GELU, inside) == 1
    captured = model(
        f"{gelu} r = If(c) <then_branch = t () => (float[N, 8] v) {{ v = Relu(s) }}, else_branch = f () => (float[N, 8] w) "
        "{ w = Relu(x) }>",
        inputs="float[N, 8] x, bool c",
        outputs="float[N, 8] y, float[N, 8] r",
        constants=CONSTANTS,
    )
    assert matches(GELU, captured) == 0


def test_an_optional_result_that_the_node_does_not_have_is_absent() -> None:
    probe = pattern(
        "y, mean = LayerNormalization(Relu(x), s, epsilon=eps)",
        "y, mean = LayerNormalization(x, s, epsilon=eps)",
        example='{x: "float32[2, 8]", s: "float32[8]", eps: 1e-5}',
    )
    inputs = "float[N, 8] x, float[8] s"
    (match,) = found(probe, model("r = Relu(x) y = LayerNormalization(r, s)", inputs=inputs)).matches
    assert set(match.roots) == {"y"}
    (match,) = found(
        probe, model("r = Relu(x) y, m = LayerNormalization(r, s) z = Neg(m)", inputs=inputs, outputs="y, z")
    ).matches
    assert set(match.roots) == {"y", "mean"}


def test_a_part_that_a_split_does_not_have_is_no_absent_result() -> None:
    probe = pattern("a, b = Split(Relu(x), axis=0)", "a, b = Split(x, axis=0, num_outputs=2)", example='{x: "float32[4, 8]"}')
    assert matches(probe, model("r = Relu(x) y = Split<axis = 0, num_outputs = 1>(r)")) == 0


def test_a_deep_chain_of_matrix_products_does_not_recurse() -> None:
    probe = pattern("y = scale * (a @ b)", "y = com.microsoft.FusedMatMul(a, b, alpha=scale)", example=SCALED)
    text = "v0 = Mul(x, half) " + " ".join(f"v{i + 1} = MatMul(v{i}, w)" for i in range(2000)) + " y = Neg(v2000)"
    graph = model(text, inputs="float[N, 8] x, float[8, 8] w", outputs="float[N, 8] y", constants="float half = {0.5}")
    assert matches(probe, graph) == 1


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_without_parts_the_matches_cover_the_same_nodes(path: Path) -> None:
    sample = load(path)
    infer_shapes(sample)
    every, outer = (find(sample, PATTERNS, parts=parts) for parts in (True, False))
    assert not outer.parts
    for probe in PATTERNS:
        covered = [{n for m in found.matches if m.pattern is probe for n in m.nodes} for found in (every, outer)]
        assert covered[0] == covered[1], probe.id


def test_with_parts_the_smaller_match_is_found_too() -> None:
    scaled = pattern(
        "y = Exp(x) * scale? + bias?",
        "y = Sum(x, scale, bias)",
        example='{x: "float32[2, 8]", scale: "float32[8]", bias: "float32[8]"}',
    )
    graph = model("e = Exp(x) p = Mul(e, s) y = Add(p, b)", inputs="float[N, 8] x, float[8] s, float[8] b")
    with_parts, without = (find(graph, [scaled], parts=parts) for parts in (True, False))
    assert [[len(m.nodes) for m in of] for of in (with_parts.matches, with_parts.parts)] == [[3], [2, 1]]
    assert [[len(m.nodes) for m in of] for of in (without.matches, without.parts)] == [[3], []]
