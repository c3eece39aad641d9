"""Which regions become engines, how the model represents them, and the reasons for the others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnx_subgraph.backends.onnxruntime import OnnxRuntime
from onnx_subgraph.engine.operator import placed_engines
from onnx_subgraph.errors import UsageError
from onnx_subgraph.language.reading import parse_pattern
from onnx_subgraph.partitioning.choice import partition_model
from onnx_subgraph.partitioning.inline import inline_model
from onnx_subgraph.partitioning.worth import MEASURED, RegionLimits
from onnx_subgraph.regions.region import Region
from onnx_subgraph.regions.selector import region_pattern
from tests.partitioning.models import LAYERS, Without, engines_of, parsed, parted, run, x


def test_supported_nodes_become_one_engine() -> None:
    partition = parted(LAYERS)
    (engine,) = partition.model.graph
    assert (engine.domain, engine.op_type) == ("onnx_subgraph", "Engine")
    assert [value.name for value in engine.outputs] == ["y"]
    assert partition.engines[0].replaces[0] == "layer_0_Mul" and len(partition.engines[0].replaces) == 7


class Fails(Without):
    """A backend that raises when asked about one operator."""

    def supports(self, node: ir.Node) -> bool:
        return bool({"Add": True, "Mul": True}[node.op_type])


def test_a_backend_that_raises_is_named_with_the_node() -> None:
    model = parsed(LAYERS)
    line = Fails.supports.__code__.co_firstlineno + 1
    words = rf"backend scripted fails when it is asked whether it supports \w+ layer_0_\w+: KeyError: '\w+' at .*:{line}"
    with pytest.raises(UsageError, match=words):
        partition_model(model, Fails())


def test_the_bodies_of_a_node_in_an_engine_have_no_engines() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]> g (float[2, 8] x, bool c) => (float[2, 8] y) {
        a = Neg (x)
        b = If (c) <then_branch = t () => (float[2, 8] p) { q = Sin (a) p = Abs (q) },
                    else_branch = e () => (float[2, 8] r) { s = Cos (a) r = Abs (s) }>
        d = Exp (b)
        y = Exp (d)
    }"""
    (engine,) = partition_model(parsed(text), OnnxRuntime(), replace(MEASURED, bodies=True)).engines
    assert list(engine.operators.items()) == [("Exp", 2), ("Neg", 1), ("If", 1)], "the most frequent first"


def test_a_constant_in_a_function_need_not_be_supported() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20, "my" : 1]> g (float[2, 8] x) => (float[2, 8] y) { y = my.F (x) }
    <domain: "my", opset_import: ["" : 20]> F (a) => (d) { b = Constant <value_float = 2.0> () c = Mul (a, b) d = Exp (c) }"""
    (engine,) = partition_model(parsed(text), Without("Constant"), MEASURED).engines
    assert engine.operators == {"my.F": 1}


def test_equal_regions_share_a_definition_whatever_their_weights() -> None:
    model = parted(LAYERS, "Softmax").model
    first, second = engines_of(model)
    assert [value.name for value in first.inputs] == ["x", "w0"] and [v.name for v in second.inputs] == ["d", "w1"]
    assert first.overload == second.overload == first.attributes["engine_key"].value
    assert list(model.functions) == [first.op_identifier()]
    assert [list(e.attributes["interval"].value) for e in (first, second)] == [[0, 3], [4, 7]]
    assert all(e.attributes["backend"].value == "scripted" for e in (first, second))


def test_equal_regions_share_a_definition_whatever_names_the_sizes_of_their_results_have() -> None:
    model = parted(
        """
        <ir_version: 8, opset_import: ["" : 17]>
        places (float[n, 4] x) => (int64[2, few] p, int64[2, many] q)
        { a = Abs (x) p = NonZero (a) s = Softmax (x) b = Abs (s) q = NonZero (b) }
        """,
        "Softmax",
    ).model
    assert len(engines_of(model)) == 2 and len(model.functions) == 1


def test_the_parts_of_a_divided_unit_list_their_positions() -> None:
    model = parted(LAYERS.replace("Softmax (c)", "Softmax (x)").replace("Mul (d, w1)", "Add (c, d)"), "Softmax").model
    (engine,) = engines_of(model)
    assert list(engine.attributes["interval"].value) == [0, 3, 4, 7]


def test_the_partitioned_model_is_valid_and_runs_by_inlining() -> None:
    model = parted(LAYERS, "Softmax").model
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    np.testing.assert_array_equal(run(model, x())[0], run(LAYERS, x())[0])


@pytest.mark.parametrize(("given", "written"), [(8, 10), (11, 11)])
def test_a_partitioned_model_has_the_ir_version_that_engines_need_or_its_own(given: int, written: int) -> None:
    assert parted(LAYERS.replace("ir_version: 8", f"ir_version: {given}")).model.ir_version == written


def test_the_subgraph_is_a_complete_model_with_its_own_weights() -> None:
    first, second = placed_engines(parted(LAYERS, "Softmax").model)
    for placed, weight in ((first, [1, 2, 3, 4]), (second, [4, 3, 2, 1])):
        content = placed.subgraph.serialized()
        onnx.checker.check_model(onnx.load_from_string(content), full_check=True)
        assert len(placed.subgraph.inputs) == 1 and [v.name for v in placed.outputs]
        expected = np.maximum(x()["x"] * np.float32(weight) * np.float32(0.5), 0)
        np.testing.assert_array_equal(
            run(ir.from_proto(onnx.load_from_string(content)), {placed.subgraph.inputs[0]: x()["x"]})[0], expected
        )


def test_the_same_model_gives_the_same_bytes() -> None:
    one, other = (ir.to_proto(parted(LAYERS, "Softmax").model).SerializeToString(deterministic=True) for _ in range(2))
    assert one == other


BODIES = """
<ir_version: 8, opset_import: ["" : 17]>
bodies (float[batch, 4] x, bool flag) => (float[batch, 4] y)
<float[4] w = {1.0, 2.0, 3.0, 4.0}>
{
  a = Mul (x, w)
  b = Add (a, x)
  y = If (flag) <
    then_branch = then () => (float[batch, 4] t) { u = Mul (b, w)  t = Neg (u) },
    else_branch = other () => (float[batch, 4] o) { o = Identity (a) }
  >
}
"""


@pytest.mark.parametrize("without", [(), ("If",), ("Add",)], ids=["all", "without If", "without Add"])
@pytest.mark.parametrize("flag", [True, False])
def test_what_a_body_captures_flows_in_or_out(without: tuple[str, ...], flag: bool) -> None:
    feeds = {**x(), "flag": np.array(flag)}
    model = parted(BODIES, *without).model
    assert engines_of(model)
    np.testing.assert_array_equal(run(model, feeds)[0], run(BODIES, feeds)[0])
    inline_model(model)
    assert not engines_of(model) and not model.functions
    np.testing.assert_array_equal(run(model, feeds)[0], run(BODIES, feeds)[0])


@pytest.mark.parametrize(("least", "engines"), [(6, [6]), (7, [])])
def test_nodes_of_bodies_are_counted(least: int, engines: list[int]) -> None:
    """A model whose main graph is a single If is not small."""
    partition = parted(BODIES, limits=RegionLimits(min_nodes=least, max_crossing=9))
    assert [engine.cost.nodes for engine in partition.engines] == engines


def test_an_overridable_initializer_is_not_a_weight() -> None:
    text = LAYERS.replace("(float[batch, 4] x)", "(float[batch, 4] x, float[4] w0)")
    (placed,) = placed_engines(parted(text).model)
    assert [value.name for value in placed.inputs] == ["x", "w0"]


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (RegionLimits(min_nodes=4, max_crossing=9), "smaller than 4 nodes"),
        (RegionLimits(min_nodes=1, max_crossing=0.1), "of the bytes that it reads and writes cross its border, more than 10%"),
    ],
    ids=["size", "crossing"],
)
def test_a_region_that_does_not_gain_is_left_with_a_reason(limits: RegionLimits, reason: str) -> None:
    partition = parted(LAYERS, "Softmax", limits=limits)
    assert not partition.engines and [r.node for r in partition.refused] == ["layer_0_Mul", "layer_1_Mul"]
    assert all(reason in r.reason for r in partition.refused)
    assert ir.to_proto(partition.model) == ir.to_proto(parsed(LAYERS))


def test_a_region_that_nothing_reads_is_left() -> None:
    made = parted("""<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) {
      unread = Neg (x) y = Relu (x)
    }""")
    assert [engine.operators for engine in made.engines] == [{"Relu": 1}]
    assert [region.reason for region in made.refused] == ["nothing reads its results"]


@pytest.mark.parametrize("node", [True, False], ids=["node", "initializer"])
def test_a_constant_in_a_definition_stays_if_it_is_an_output_too(node: bool) -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    half (float[batch, 4] x) => (float[batch, 4] y, float h) <float h = {0.5}> { a = Mul (x, h) y = Relu (a) }
    """
    if node:
        text = text.replace("<float h = {0.5}> {", "{ h = Constant <value = float {0.5}> ()")
    model = parted(text).model
    assert len(engines_of(model)) == 1
    for mine, theirs in zip(run(model, x()), run(text, x()), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    ("limits", "reasons"),
    [
        (RegionLimits(1, 9, deny=("Relu",)), {"Relu": "is among those denied"}),
        (RegionLimits(1, 9, deny=("layer_1_*",)), {"Mul": "is among those denied", "Relu": "is among those denied"}),
        (RegionLimits(1, 9, allow=("Mul", "Softmax")), {"Relu": "is not among those allowed"}),
        (RegionLimits(1, 9), {}),
    ],
    ids=["deny an operator", "deny names", "allow operators", "neither"],
)
def test_operators_and_names_can_be_allowed_and_denied(limits: RegionLimits, reasons: dict[str, str]) -> None:
    partition = parted(LAYERS, limits=limits)
    assert {group.operator: group.reason for group in partition.unsupported} == reasons
    inside = {name for engine in partition.engines for name in engine.replaces}
    assert not inside & {name for group in partition.unsupported for name in group.nodes}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("(string[n] x) => (string[n] y) { y = Identity (x) }", "has a value of dtype string"),
        ("(bfloat16[n] x) => (bfloat16[n] y) { y = Identity (x) }", "has a value of dtype bfloat16"),
        ("(float[n] x) => (seq(float[n]) y) { y = SequenceConstruct (x) }", "has a value that is no tensor"),
        ("(float[n] x) => (float[n] y) { a = Unheard.Of (x)  y = Identity (a) }", "has a value whose dtype is not known"),
    ],
    ids=["string", "bfloat16", "sequence", "unknown"],
)
def test_values_that_are_not_arrays_are_in_no_region(text: str, why: str) -> None:
    partition = parted(f'<ir_version: 8, opset_import: ["" : 17, "Unheard" : 1]> g {text}')
    assert not partition.engines and why in {group.reason for group in partition.unsupported}


def test_a_node_that_draws_random_numbers_is_in_no_region() -> None:
    """Nothing could compare what an engine of it computes."""
    partition = parted("""<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) {
      a = Abs (x) noise = RandomNormalLike (a) b = Add (a, noise) y = Neg (b)
    }""")
    assert [group.operator for group in partition.unsupported] == ["RandomNormalLike"]
    assert "random results" in partition.unsupported[0].reason
    assert "RandomNormalLike" in {node.op_type for node in partition.model.graph}


def test_a_backend_may_compute_a_node_that_gives_one_of_the_results() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[2] y, float[2] z) {
      a, b = Split (x) y = Neg (a) z = Exp (b)
    }"""
    limits, results = RegionLimits(min_nodes=1, max_crossing=9), {"scripted": ("b", "z")}
    partition = partition_model(parsed(text), Without(), limits, results=results)
    assert [engine.operators for engine in partition.engines] == [{"Split": 1, "Exp": 1}]
    assert [(group.operator, group.reason) for group in partition.unsupported] == [("Neg", "is left to another backend")]


def test_a_function_call_is_in_a_region_if_its_body_may_be() -> None:
    text = """
    <ir_version: 9, opset_import: ["" : 17, "mine" : 1]>
    calls (float[batch, 4] x) => (float[batch, 4] y) { a = mine.Twice (x)  y = mine.Twice (a) }
    <opset_import: ["" : 17], domain: "mine"> Twice (v) => (w) { w = Add (v, v) }
    """
    partition = parted(text)
    (placed,) = placed_engines(partition.model)
    assert {node.op_type for node in placed.subgraph.model.graph} == {"Add"}
    np.testing.assert_array_equal(run(partition.model, x())[0], x()["x"] * 4)
    assert [u.operator for u in parted(text, "Add").unsupported] == ["mine.Twice"]


OWN_OPERATORS = """
<ir_version: 10, opset_import: ["" : 17, "com.microsoft" : 1]>
own (float[batch, 4] x) => (float[batch, 4] y) <float[4] w = {1, 2, 3, 4}> {
    a = Add (x, w)
    b = com.microsoft.QuickGelu (a)
    y = com.microsoft.Gelu (b)
}
"""


def test_operators_of_another_domain_are_in_a_definition_that_imports_it() -> None:
    partition = parted(OWN_OPERATORS)
    (placed,) = placed_engines(partition.model)
    assert {node.domain for node in placed.subgraph.model.graph} == {"", "com.microsoft"}
    (function,) = partition.model.functions.values()
    assert function.opset_imports == placed.subgraph.model.graph.opset_imports == {"": 17, "com.microsoft": 1}
    np.testing.assert_allclose(run(partition.model, x())[0], run(OWN_OPERATORS, x())[0], rtol=1e-6)


@pytest.mark.parametrize(
    "text",
    [
        OWN_OPERATORS.replace("com.microsoft.QuickGelu (a)", "SimplifiedLayerNormalization <axis = -1> (a, w)"),
        OWN_OPERATORS.replace(
            "b = com.microsoft.QuickGelu (a)",
            """c = Cast <to = 9> (w)  d = ReduceMax <keepdims = 0> (w)  e = Greater (d, d)
               b = If (e) <then_branch = t () => (float[batch, 4] p) { p = SimplifiedLayerNormalization <axis = -1> (a, w) },
                           else_branch = f () => (float[batch, 4] q) { q = Neg (a) }>""",
        ),
    ],
    ids=["in the graph", "in a body"],
)
def test_operators_that_crash_onnxruntime_in_a_function_are_in_no_region(text: str) -> None:
    """onnxruntime's own operators of the default domain end the process inside a function."""
    partition = parted(text)
    assert [group.reason for group in partition.unsupported] == [
        "the body of a function would hold SimplifiedLayerNormalization, which is no operator of the standard"
    ]
    assert engines_of(partition.model)
    np.testing.assert_allclose(run(partition.model, x())[0], run(text, x())[0], rtol=1e-6)


def test_operators_that_onnxruntime_does_not_load_in_a_function_are_in_no_region() -> None:
    """What `fuse` writes can be partitioned: EmbedLayerNormalization has the wrong type inside a function."""
    text = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
      g (int32[2, 3] ids) => (float[2, 3, 4] y) <float[5, 4] words = {1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0},
        float[3, 4] places = {1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2}, float[4] scale = {1, 2, 3, 4}, float[4] shift = {0, 0, 0, 1}> {
        e, m = com.microsoft.EmbedLayerNormalization (ids, "", words, places, "", scale, shift)
        a = Relu (e)  b = Neg (a)  c = Abs (b)  y = Sqrt (c) }"""
    partition = parted(text)
    assert [group.reason for group in partition.unsupported] == [
        "onnxruntime does not load EmbedLayerNormalization in the body of a function"
    ]
    assert engines_of(partition.model)


def test_partitioning_again_keeps_the_engines() -> None:
    once = parted(LAYERS, "Softmax").model
    before = ir.to_proto(once)
    again = partition_model(once, Without("Softmax"), RegionLimits(1, 9))
    assert not again.engines and {group.reason for group in again.unsupported if group.operator == "onnx_subgraph.Engine"} == {
        "is an engine already"
    }
    assert ir.to_proto(again.model) == before


GROWN = """
id: scaled
summary: A product and the scale behind it
grow:
  select: node.operator == "Mul" and node.inputs[1].rank == 1
  output: consumer.operator in ["Mul", "Relu"]
  keep: region.size == 3
"""


def test_the_regions_of_a_pattern_become_engines() -> None:
    """The limits on the size of regions do not apply: the pattern has its own."""
    pattern = parse_pattern(GROWN, "patterns/group/scaled.yaml")
    partition = partition_model(parsed(LAYERS), Without(), RegionLimits(min_nodes=9), pattern=pattern)
    assert [engine.replaces for engine in partition.engines] == [
        ("layer_0_Mul", "layer_0_Scale", "layer_0_Relu"),
        ("layer_1_Mul", "layer_1_Scale", "layer_1_Relu"),
    ]
    np.testing.assert_array_equal(run(partition.model, x())[0], run(LAYERS, x())[0])


def test_a_region_of_a_pattern_that_the_backend_does_not_fully_support_is_left() -> None:
    pattern = parse_pattern(GROWN, "patterns/group/scaled.yaml")
    partition = partition_model(parsed(LAYERS), Without("Relu"), pattern=pattern)
    assert not partition.engines
    assert [refused.reason.partition(":")[0] for refused in partition.refused] == ["layer_0_Relu in it", "layer_1_Relu in it"]


def test_the_regions_of_a_selector_become_engines() -> None:
    class Products:
        def select(self, node: ir.Node) -> bool:
            return node.op_type == "Softmax"

        def select_input(self, node: ir.Node, producer: ir.Node) -> bool:
            return producer.op_type == "Relu"

        def select_output(self, node: ir.Node, consumer: ir.Node) -> bool:
            return False

        def filter(self, region: Region) -> bool:
            return True

    partition = partition_model(parsed(LAYERS), Without(), pattern=region_pattern("products", Products))
    assert [engine.replaces for engine in partition.engines] == [("layer_0_Relu", "between")]
