"""Laws of rewriting: what it changes, what it never changes, and the order of rewrites."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.rewriting.rewrite import Rewrite, Skip
from tests.rewriting.stage import applied, by_hand, pattern, read, rewritten, run

GELU = pattern(
    "y = 0.5 * x * (1 + Erf(x / sqrt(2)))",
    example='{x: "float32[2, 8]"}',
    id_="gelu",
    onnxruntime="y = com.microsoft.Gelu(x)",
    standard='y = Gelu(x, approximate="none")',
)
SCALARS = "float half = {0.5}, float r = {1.4142135}, float one = {1.0}"


def spelled(x: str, y: str, prefix: str = "") -> str:
    """The text of one Gelu from `x` to `y`."""
    p = prefix or f"{y}_"
    return f"""{p}a = Mul({x}, half)
      {p}b = Div({x}, r)
      {p}c = Erf({p}b)
      {p}d = Add({p}c, one)
      {y} = Mul({p}a, {p}d)"""


def plain(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model as the library writes it without changes."""
    return ir.to_proto(ir.from_proto(model))


def model_of(
    lines: str, *, inputs: str = "float[N, 4] x", outputs: str = "float[N, 4] y", scalars: str = SCALARS, opset: int = 17
) -> str:
    return f'<ir_version: 8, opset_import: ["": {opset}]> g ({inputs}) => ({outputs}) <{scalars}> {{ {lines} }}'


ONE = model_of(spelled("x", "y"))


def test_a_match_becomes_one_node_and_its_nodes_are_removed(draw: Callable[..., np.ndarray]) -> None:
    stage = rewritten(ONE, GELU)
    assert stage.operators == ["com.microsoft.Gelu"]
    assert not stage.model.graph.initializers
    assert stage.model.opset_imports["com.microsoft"] == 1
    stage.agrees({"x": draw(3, 4)})


def test_the_fused_node_records_what_it_replaced() -> None:
    stage = rewritten(ONE, GELU)
    (node,) = stage.model.graph
    assert node.metadata_props["onnx_subgraph.pattern"] == "gelu"
    assert json.loads(node.metadata_props["onnx_subgraph.replaces"]) == ["y_a", "y_b", "y_c", "y_d", "y"]
    assert stage.rewrites[0].replaces == ("y_a", "y_b", "y_c", "y_d", "y")


def test_a_second_fusion_keeps_the_record_of_the_first() -> None:
    outer = pattern("y = -com.microsoft.Gelu(x)", example='{x: "float32[2, 8]"}', id_="outer", onnxruntime="y = Abs(x)")
    stage = rewritten(model_of(spelled("x", "g") + "\n y = Neg(g)"), GELU, outer, rounds=2)
    assert stage.operators == ["Abs"]
    (node,) = stage.model.graph
    assert json.loads(node.metadata_props["onnx_subgraph.replaces"]) == ["g_a", "g_b", "g_c", "g_d", "g", "y"]


def test_inputs_and_outputs_keep_their_names_order_types_and_dimensions() -> None:
    text = model_of(
        spelled("x", "y") + "\n" + spelled("v", "w"), inputs="float[N, 4] x, float[M] v", outputs="float[M] w, float[N, 4] y"
    )
    stage = rewritten(text, GELU)
    assert len(stage.rewrites) == 2
    assert list(stage.after.graph.input) == list(stage.before.graph.input)
    assert list(stage.after.graph.output) == list(stage.before.graph.output)


UNARY = ("Relu", "Tanh", "Neg", "Exp", "Abs", "Sigmoid")


@given(st.lists(st.tuples(st.sampled_from(UNARY), st.integers(0, 9)), max_size=9))
def test_nodes_outside_the_match_are_unchanged(others: list[tuple[str, int]]) -> None:
    """All other nodes stay the same and in the same order, whatever surrounds the match."""
    lines, values = [], ["x", "y"]
    for number, (operator, source) in enumerate(others):
        lines.append(f"o{number} = {operator}({values[source % len(values)]})")
        values.append(f"o{number}")
    lines.insert(0, spelled("x", "y"))
    stage = rewritten(model_of("\n".join(lines), outputs=", ".join(f"float[N, 4] {v}" for v in values[1:])), GELU)
    assert len(stage.rewrites) == 1
    assert [str(n) for n in stage.after.graph.node if not n.domain] == [str(n) for n in plain(stage.before).graph.node][5:]


def test_the_same_model_gives_the_same_bytes() -> None:
    text = model_of("\n".join(spelled(f"y{i}" if i else "x", f"y{i + 1}") for i in range(4)) + "\n y = Neg(y4)")
    for target in ("onnxruntime", "function"):
        once, twice = (rewritten(text, GELU, target=target).after.SerializeToString(deterministic=True) for _ in range(2))
        assert once == twice


def test_no_match_means_an_equal_model() -> None:
    text = model_of("a = Relu(x)\n y = Neg(a)")
    stage = rewritten(text, GELU)
    assert stage.after.graph.node == plain(stage.before).graph.node
    assert stage.after.opset_import == stage.before.opset_import


def test_names_do_not_collide_with_any_name_of_the_model() -> None:
    lines = f"""Gelu = Relu(x)
      {spelled("Gelu", "h")}
      y = If(flag) <then_branch = t () => (float[N, 4] Gelu_2) {{ Gelu_2 = Neg(h) }},
                    else_branch = e () => (float[N, 4] Gelu_output_0) {{ Gelu_output_0 = Relu(h) }}>"""
    stage = rewritten(model_of(lines, inputs="float[N, 4] x, bool flag"), GELU)
    names = [n.name for n in stage.model.graph.all_nodes() if n.name]
    values = [o.name for n in stage.model.graph.all_nodes() for o in n.outputs]
    assert len(set(names)) == len(names) and len(set(values)) == len(values)
    fused = next(n for n in stage.model.graph if n.domain)
    assert fused.name not in values
    stage.agrees({"x": np.ones((2, 4), np.float32), "flag": np.array(True)})


@pytest.mark.parametrize(
    ("second", "name"), [("/layer.0/act/Tanh", "/layer.0/act/Mish"), ("/layer.0/b", "/layer.0/Mish"), ("node_1", "Mish")]
)
def test_a_fused_node_has_the_name_of_its_module(second: str, name: str) -> None:
    model = onnx.parser.parse_model(model_of("a = Softplus(x) b = Tanh(a) y = Mul(x, b)", opset=22))
    for node, label in zip(model.graph.node, ("/layer.0/act/Softplus", second, "/layer.0/act/Mul"), strict=True):
        node.name = label
    assert [n.name for n in rewritten(model, MISH, target="standard").model.graph] == [name]


def test_an_overridable_initializer_stays_an_input() -> None:
    text = model_of(spelled("x", "y"), inputs="float[N, 4] x, float half")
    stage = rewritten(text, GELU)
    assert not stage.rewrites and stage.operators == ["Mul", "Div", "Erf", "Add", "Mul"]
    bound = pattern("y = x * s", example='{x: "float32[2, 8]", s: "float32[]"}', onnxruntime="y = s * x")
    stage = rewritten(model_of("y = Mul(x, half)", inputs="float[N, 4] x, float half"), bound)
    assert [i.name for i in stage.model.graph.inputs] == ["x", "half"] and "half" in stage.model.graph.initializers


def test_a_match_in_a_nested_body_is_replaced_there(draw: Callable[..., np.ndarray]) -> None:
    lines = f"""y = If(flag) <then_branch = t () => (float[N, 4] p) {{ {spelled("x", "p")} }},
                    else_branch = e () => (float[N, 4] q) {{ h = Neg(x) {spelled("h", "q")} }}>"""
    stage = rewritten(model_of(lines, inputs="float[N, 4] x, bool flag"), GELU)
    assert len(stage.rewrites) == 2 and stage.operators == ["If"]
    assert not stage.model.graph.initializers, "the constants of the outer graph are not needed any more"
    for flag in (True, False):
        stage.agrees({"x": draw(3, 4), "flag": np.array(flag)})


FUNCTION = """<ir_version: 8, opset_import: ["": 17, "local": 1]>
g (float[N, 4] x) => (float[N, 4] z) {{ y = local.F(x) z = local.F(y) }}
<domain: "local", opset_import: ["": 17]>
F (x) => (y) {{
  half = Constant<value = float {{0.5}}>()
  r = Constant<value = float {{1.4142135}}>()
  one = Constant<value = float {{1.0}}>()
  {lines}
}}"""


def in_function(replaced: Pattern, target: str) -> tuple[ir.Model, tuple[Rewrite, ...], tuple[Skip, ...]]:
    """A model with a Gelu in its function, and the rewritten model."""
    model = read(FUNCTION.format(lines=spelled("x", "y")))
    (function,) = model.functions.values()
    for value in (*function.inputs, *(o for n in function for o in n.outputs)):
        value.type = ir.TensorType(ir.DataType.FLOAT)
    match = by_hand(model, replaced, "y_a y_b y_c y_d y", graph=function, x="x", y="y")
    return model, *applied(model, match, target=target)


@pytest.mark.parametrize("target", ["onnxruntime", "function"])
def test_a_match_in_a_function_is_replaced_there(target: str, draw: Callable[..., np.ndarray]) -> None:
    model, rewrites, skips = in_function(GELU, target)
    assert rewrites and not skips
    local = next(f for f in model.functions.values() if f.domain == "local")
    assert [n.op_type for n in local] == ["Gelu"]
    assert "com.microsoft" in local.opset_imports or "onnx_subgraph" in local.opset_imports
    feeds = {"x": draw(3, 4)}
    before = run(onnx.parser.parse_model(FUNCTION.format(lines=spelled("x", "y"))), feeds)
    np.testing.assert_allclose(before[0], run(ir.to_proto(model), feeds)[0], rtol=1e-4, atol=1e-5)


def test_a_function_gets_constant_nodes_for_new_constants() -> None:
    scaled = pattern("y = 0.5 * x * (1 + Erf(x / sqrt(2)))", example='{x: "float32[2, 8]"}', onnxruntime="y = 3.0 * Relu(x)")
    model, rewrites, _ = in_function(scaled, "onnxruntime")
    assert rewrites
    local = next(f for f in model.functions.values() if f.domain == "local")
    assert sorted(n.op_type for n in local) == ["Constant", "Mul", "Relu"]
    assert not model.graph.initializers and not local.graph.initializers


def test_larger_matches_go_first_and_the_others_are_skipped() -> None:
    small = pattern("y = Erf(x)", example='{x: "float32[2, 8]"}', id_="small", onnxruntime="y = Tanh(x)")
    for order in ((GELU, small), (small, GELU)):
        stage = rewritten(ONE, *order)
        assert [r.pattern for r in stage.rewrites] == ["gelu"]
        assert [(s.pattern, s.reason) for s in stage.skips] == [("small", "taken by gelu")]


def test_a_smaller_match_is_used_where_the_larger_one_is_refused() -> None:
    small = pattern("y = Erf(x)", example='{x: "float32[2, 8]"}', id_="small", onnxruntime="y = Tanh(x)")
    needs20 = pattern(
        "y = 0.5 * x * (1 + Erf(x / sqrt(2)))",
        example='{x: "float32[2, 8]"}',
        id_="g20",
        standard='y = Gelu(x, approximate="none")',
    )
    stage = rewritten(ONE, needs20, small)
    assert [r.pattern for r in stage.rewrites] == ["small"]
    assert [(s.pattern, s.opset) for s in stage.skips] == [("g20", 20)]


def test_matches_that_read_each_other_are_all_replaced_in_one_round(draw: Callable[..., np.ndarray]) -> None:
    text = model_of("\n".join(spelled(f"y{i}" if i else "x", f"y{i + 1}") for i in range(5)) + "\n y = Neg(y5)")
    stage = rewritten(text, GELU)
    assert stage.operators == ["com.microsoft.Gelu"] * 5 + ["Neg"]
    stage.agrees({"x": draw(3, 4)})


def test_an_operator_that_the_opset_lacks_is_skipped_with_the_required_opset() -> None:
    stage = rewritten(ONE, GELU, target="standard")
    (skip,) = stage.skips
    assert skip.opset == 20 and skip.reason == "Gelu needs opset 20, the model has 17"


def test_the_standard_replacement_is_used_where_onnxruntimes_does_not_load(draw: Callable[..., np.ndarray]) -> None:
    double = model_of(
        spelled("x", "y"), inputs="double[N, 4] x", outputs="double[N, 4] y", scalars=SCALARS.replace("float", "double"), opset=20
    )
    stage = rewritten(double, GELU)
    assert "does not load com.microsoft.Gelu" in stage.reason or stage.operators == ["Gelu"]


def test_a_result_of_another_shape_or_dtype_is_refused() -> None:
    wrong = pattern("y = Relu(x)", example='{x: "float32[2, 8]"}', onnxruntime="y = ReduceSum(x, keepdims=1)")
    assert "shape of the result y can't be shown to be the same" in rewritten(model_of("y = Relu(x)"), wrong).reason
    wrong = pattern("y = Relu(x)", example='{x: "float32[2, 8]"}', onnxruntime="y = Flatten(Transpose(x, perm=[1, 0]))")
    assert "shape of the result y" in rewritten(model_of("y = Relu(x)"), wrong).reason
    wrong = pattern("y = Relu(x)", example='{x: "float32[2, 8]"}', onnxruntime="y = Cast(x, to=11)")
    assert "would be double" in rewritten(model_of("y = Relu(x)"), wrong).reason


def test_a_result_that_is_an_input_or_a_constant_becomes_a_separate_output(draw: Callable[..., np.ndarray]) -> None:
    same = pattern("y = -(-x)", example='{x: "float32[2, 8]"}', onnxruntime="y = x")
    model = read(model_of("a = Neg(x)\n y = Neg(a)"))
    before = ir.to_proto(model)
    applied(model, by_hand(model, same, "a y", x="x", y="y"))
    assert [n.op_type for n in model.graph] == ["Identity"]
    feeds = {"x": draw(2, 4)}
    np.testing.assert_array_equal(run(before, feeds)[0], run(ir.to_proto(model), feeds)[0])
    model = read(model_of("a = Neg(x)\n b = Neg(a)\n y = Relu(b)"))
    applied(model, by_hand(model, same, "a b", x="x", y="b"))
    assert [n.op_type for n in model.graph] == ["Relu"]


PAIR = pattern(
    "a = Relu(x)\nb = Tanh(w)",
    example='{x: "float32[2, 8]", w: "float32[2, 8]"}',
    id_="pair",
    onnxruntime="a, b = Split(Concat(Relu(x), Tanh(w), axis=1), axis=1)",
)


def test_inputs_of_a_replacement_are_computed_before_its_results_are_read(draw: Callable[..., np.ndarray]) -> None:
    """A match need not be convex: a reader of one result may come before the nodes of another."""
    text = model_of(
        "a = Relu(x)\n u = Neg(a)\n h = Exp(x)\n w = Abs(h)\n b = Tanh(w)\n y = Add(u, b)",
        inputs="float[N, 4] x",
        outputs="float[N, 4] y",
    )
    model = read(text)
    before = ir.to_proto(model)
    rewrites, skips = applied(model, by_hand(model, PAIR, "a b", x="x", w="w", a="a", b="b"))
    assert rewrites and not skips
    feeds = {"x": draw(2, 4)}
    np.testing.assert_allclose(run(before, feeds)[0], run(ir.to_proto(model), feeds)[0], rtol=1e-6)


def test_a_replacement_that_would_make_a_cycle_is_refused() -> None:
    model = read(model_of("a = Relu(x)\n u = Neg(a)\n w = Abs(u)\n b = Tanh(w)\n y = Add(u, b)"))
    _, skips = applied(model, by_hand(model, PAIR, "a b", x="x", w="w", a="a", b="b"))
    assert "cycle" in skips[0].reason


def test_an_unread_optional_result_is_not_emitted(draw: Callable[..., np.ndarray]) -> None:
    skip_norm = pattern(
        "total = x + skip\ny = LayerNormalization(total, scale, bias, epsilon=eps)",
        example='{x: "float32[2, 3, 8]", skip: "float32[2, 3, 8]", scale: "float32[8]", bias: "float32[8]", eps: 1e-5}',
        id_="skip",
        onnxruntime="y, _, _, total = com.microsoft.SkipLayerNormalization(x, skip, scale, bias, epsilon=eps)",
    )
    text = model_of(
        "t = Add(x, s)\n y = LayerNormalization<epsilon = 0.001>(t, g, b)",
        inputs="float[N, 3, 4] x, float[N, 3, 4] s, float[4] g, float[4] b",
        outputs="float[N, 3, 4] y",
        scalars="",
    ).replace("<> ", "")
    stage = rewritten(text, skip_norm)
    (node,) = stage.model.graph
    assert [o.name for o in node.outputs] == ["y"]
    feeds = {"x": draw(2, 3, 4), "s": draw(2, 3, 4), "g": draw(4), "b": draw(4)}
    stage.agrees(feeds)
    stage = rewritten(text.replace("=> (float[N, 3, 4] y)", "=> (float[N, 3, 4] y, float[N, 3, 4] t)"), skip_norm)
    (node,) = stage.model.graph
    assert [o.name for o in node.outputs] == ["y", "", "", "t"]
    assert node.attributes["epsilon"].as_float() == pytest.approx(0.001)
    stage.agrees(feeds)


def test_a_replacement_that_fails_leaves_the_graph_unchanged() -> None:
    odd = pattern("y = Relu(x)", example='{x: "float32[2, 8]"}', onnxruntime="y = Conv(x, x, x, pads=[1, 2])")
    stage = rewritten(model_of("y = Relu(x)"), odd)
    assert stage.skips and stage.operators == ["Relu"]
    onnx.checker.check_model(stage.after)


MISH = pattern("y = x * Tanh(Softplus(x))", example='{x: "float32[2, 8]"}', id_="mish", standard="y = Mish(x)")


def test_another_targets_replacement_needs_a_kernel() -> None:
    """onnxruntime would only inline Mish's definition again."""
    mish = model_of("a = Softplus(x) b = Tanh(a) y = Mul(x, b)", opset=22)
    assert rewritten(mish, MISH).reason == "no kernel for Mish on CPUExecutionProvider; inlined it would not be faster"
    assert rewritten(mish, MISH, target="standard").operators == ["Mish"]
    assert rewritten(mish, MISH, target="function").operators == ["onnx_subgraph.Mish"]


def test_a_later_opset_that_would_not_help_is_not_requested() -> None:
    stage = rewritten(model_of("a = Softplus(x) b = Tanh(a) y = Mul(x, b)"), MISH)
    assert stage.reason == "no kernel for Mish on CPUExecutionProvider; inlined it would not be faster"
    assert stage.skips[0].opset is None


def test_an_operator_of_the_target_itself_may_be_inlined() -> None:
    chosen = pattern(
        "y = x * Tanh(Softplus(x))", example='{x: "float32[2, 8]"}', id_="mish", onnxruntime="y = Mish(x)", standard="y = Mish(x)"
    )
    assert rewritten(model_of("a = Softplus(x) b = Tanh(a) y = Mul(x, b)", opset=22), chosen).operators == ["Mish"]


def test_an_absent_value_rearranged_is_absent(draw: Callable[..., np.ndarray]) -> None:
    """`Reshape(b, …)` of an unbound b is an omitted input, as b would be."""
    shift = pattern(
        "d = Relu(x)\ny = LayerNormalization(d, s, b) | LayerNormalization(d, s)",
        example='{x: "float32[2, 4]", s: "float32[4]", b: "float32[4]"}',
        standard="y = LayerNormalization(Abs(Relu(x)), Abs(s), Cast(Reshape(b, [-1]), to=1))",
    )
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[N, 4] x, float[4] s) => (float[N, 4] y) { d = Relu(x) y = LayerNormalization(d, s) }"""
    stage = rewritten(text, shift, target="standard")
    assert stage.operators == ["Relu", "Abs", "Abs", "LayerNormalization"]
    assert len(stage.model.graph[-1].inputs) == 2
    stage.agrees({"x": draw(3, 4), "s": np.abs(draw(4))})


@pytest.mark.parametrize(
    ("inputs", "left"),
    [
        ("float[N, 4] x, float[N, 4] z", ["Max"]),
        ("float[1, 4] x, float[N, 4] z", ["Shape", "Expand", "Max"]),
        ("float16[N, 4] x, float[N, 4] z", ["Cast", "Max"]),
    ],
)
def test_layout_operators_without_effect_are_not_emitted(inputs: str, left: list[str], draw: Callable[..., np.ndarray]) -> None:
    if inputs.startswith("float16"):
        body = "a = Cast<to = 1>(x) y = Sum(a, z)"
        probe = pattern(
            "y = Sum(Cast(x, to=1), z)",
            example='{x: "float16[2, 4]", z: "float32[2, 4]"}',
            standard="y = Max(Expand(Cast(x, to=1), Shape(z)), z)",
        )
    else:
        body = "y = Sum(x, z)"
        probe = pattern(
            "y = Sum(x, z)",
            example='{x: "float32[2, 4]", z: "float32[2, 4]"}',
            standard="y = Max(Expand(Cast(x, to=1), Shape(z)), z)",
        )
    stage = rewritten(model_of(body, inputs=inputs), probe, target="standard")
    assert stage.operators == left


@pytest.mark.parametrize(("size", "assumed"), [("N", {"finite", "nonempty"}), ("3", {"finite"})])
def test_only_a_match_with_a_free_dimension_assumes_that_none_is_0(size: str, assumed: set[str]) -> None:
    """The batch of images may be 0."""
    formula, words = "y = 0.5 * x * (1 + Erf(x / sqrt(2)))", "assumes: [finite, nonempty, nonempty-images]"
    careful = pattern(formula, example='{x: "float32[2, 8]"}', extra=words, standard="y = Gelu(x)")
    stage = rewritten(ONE.replace("[N,", f"[{size},").replace('"": 17', '"": 20'), careful)
    assert [rewrite.assumes for rewrite in stage.rewrites] == [assumed]
