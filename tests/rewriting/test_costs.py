"""Laws of costs: what was measured to be slower is not fused, and unmeasured patterns are fused as before."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import onnx_ir as ir
import pytest

from onnx_subgraph import Options, fuse
from onnx_subgraph.language.library import load_patterns
from onnx_subgraph.language.term import Apply, walk
from onnx_subgraph.rewriting import costs
from onnx_subgraph.rewriting.costs import NONE, Costs, Measurement, Signature
from tests.rewriting.stage import CPU, pattern, rewritten

GELU = "com.microsoft.Gelu"
SAMPLES = Path(__file__).parents[2] / "sample_models"


def measurement(
    ratio: float,
    *operands: tuple[int, ...] | None,
    operator: str = GELU,
    dtype: str = "float",
    pattern: str = "gelu",
    least: float | None = None,
    apart: float | None = None,
    **attributes: int | str,
) -> Measurement:
    signature, other = Signature(operator, dtype, operands, attributes), ratio if apart is None else apart
    return Measurement(CPU, pattern, signature, ratio, other, max(ratio, other) if least is None else least)


def costs_of(measurements: Iterable[Measurement], *, refuses: bool = True) -> Costs:
    found: dict[str, list[Measurement]] = {}
    for one in measurements:
        found.setdefault(one.signature.operator, []).append(one)
    return Costs(found, refuses=refuses)


def node(
    *shapes: list[int | str | None] | None, operator: str = "Gelu", domain: str = "com.microsoft", **attributes: int | str
) -> ir.Node:
    """A node with float operands of these shapes."""
    values = [
        None if s is None else ir.Value(name=f"v{i}", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(s))
        for i, s in enumerate(shapes)
    ]
    return ir.node(operator, values, attributes, domain=domain)


def ratio(table: Costs, *nodes: ir.Node, provider: str = CPU, pattern: str = "gelu") -> float | None:
    cost = table.of(provider, pattern, nodes)
    return None if cost is None else round(cost.ratio, 6)


def test_a_string_that_is_the_default_is_like_none() -> None:
    table = costs_of([measurement(1.5, (1, 8, 16, 16), (8, 8, 3, 3), operator="com.microsoft.FusedConv", activation="Relu")])
    shapes: list[list[int | str | None]] = [[1, 8, 16, 16], [8, 8, 3, 3]]
    for pads, known in (("NOTSET", 1.5), ("SAME_UPPER", None)):
        written = node(*shapes, operator="FusedConv", activation="Relu", auto_pad=pads)
        assert ratio(table, written) == known


@pytest.mark.parametrize(("omitted", "known"), [(1, 1.5), (2, None)])
def test_a_node_without_two_of_the_operands_was_not_measured(omitted: int, known: float | None) -> None:
    """An Attention with a past key and value says nothing about one without them."""
    table = costs_of([measurement(1.5, *[(1, 4, 16, 8)] * 5, operator="Attention", pattern="attention-cache")])
    shapes: list[list[int | str | None]] = [[1, 4, 16, 8]] * (5 - omitted)
    assert ratio(table, node(*shapes, operator="Attention", domain=""), pattern="attention") == known


def test_the_nearest_size_decides() -> None:
    table = costs_of([measurement(0.5, (1, 16, 768)), measurement(2.0, (1, 512, 768))])
    assert ratio(table, node([1, 20, 768])) == 0.5
    assert ratio(table, node([1, 400, 768])) == 2.0
    assert ratio(table, node([400, 768])) == 2.0, "ranks are compared from the right"


def test_for_unknown_sizes_all_measurements_count_equally() -> None:
    table = costs_of([measurement(0.5, (1, 16, 768)), measurement(8.0, (1, 512, 768)), measurement(100.0, (1, 16, 64))])
    assert ratio(table, node(["batch", "seq", 768])) == 2.0
    assert ratio(table, node([None, None, 700])) == 2.0


def test_an_unmeasured_operator_has_no_cost() -> None:
    table = costs_of([measurement(2.0, (1, 16, 768))])
    assert ratio(table, node([1, 16, 768]), provider="CUDAExecutionProvider") is None
    assert ratio(table, node([1, 16, 768], operator="FastGelu")) is None
    assert ratio(costs_of([measurement(2.0, (1, 16), dtype="float16")]), node([1, 16])) is None
    assert ratio(table) is None


def test_an_operator_of_onnxruntime_is_found_for_any_pattern_that_emits_it() -> None:
    assert ratio(costs_of([measurement(2.0, (1, 16))]), node([1, 16]), pattern="somebody-elses") == 2.0
    standard = costs_of([measurement(2.0, (1, 16), operator="Sum", pattern="sum")])
    assert ratio(standard, node([1, 16], operator="Sum", domain=""), pattern="sum") == 2.0
    assert ratio(standard, node([1, 16], operator="Sum", domain=""), pattern="somebody-elses") is None


def test_operands_and_flags_count_more_than_sizes() -> None:
    with_bias, without = measurement(2.0, (1, 16), (16,)), measurement(0.5, (1, 512))
    assert ratio(costs_of([with_bias, without]), node([1, 512], [16])) == 2.0
    flagged = costs_of([measurement(2.0, (16, 16), transA=1), measurement(0.5, (512, 512), transA=0)])
    assert ratio(flagged, node([512, 512], transA=1)) == 2.0


def test_a_measurement_of_another_activation_does_not_count() -> None:
    table = costs_of([measurement(2.0, (1, 16), activation="Tanh")])
    assert ratio(table, node([1, 16], activation="Tanh")) == 2.0
    assert ratio(table, node([1, 16], activation="Relu")) is None


def test_the_last_operator_of_onnxruntime_represents_a_replacement() -> None:
    table = costs_of([measurement(2.0, (1, 16))])
    assert (
        ratio(table, node([1, 16], operator="Cast", domain=""), node([1, 16]), node([1, 16], operator="Cast", domain="")) == 2.0
    )


FUSE = pattern("y = Relu(x) + x", example='{x: "float32[2, 8]"}', id_="fuse", onnxruntime="y = com.microsoft.Gelu(x)")
RESPELL = pattern("y = Add(Relu(x), x)", example='{x: "float32[2, 8]"}', id_="respell", onnxruntime="y = Sum(Relu(x), x)")
MODEL = '<ir_version: 8, opset_import: ["": 17]> g (float[N, 8] x) => (float[N, 8] y) { r = Relu(x) y = Add(r, x) }'


@pytest.mark.parametrize(("measured", "operators"), [(0.5, [GELU]), (1.0, [GELU]), (1.5, ["Relu", "Add"])])
def test_a_slower_fusion_is_skipped(measured: float, operators: list[str]) -> None:
    stage = rewritten(MODEL, FUSE, costs=costs_of([measurement(measured, (4, 8))]))
    assert stage.operators == operators
    if operators != [GELU]:
        assert stage.reason == f"slower than the unfused graph on {CPU}: it takes 1.50 times as long, for example at 4×8"


def test_a_round_of_equal_speed_is_a_doubt() -> None:
    """Of two equally fast graphs, one is always measured to be slower."""
    noisy = costs_of([measurement(1.13, (4, 8), least=0.97), measurement(1.08, (8, 8), least=1.01)])
    assert rewritten(MODEL, FUSE, costs=noisy).operators == [GELU]
    sure = costs_of([measurement(1.13, (4, 8), least=1.1), measurement(1.08, (8, 8), least=1.06)])
    assert rewritten(MODEL, FUSE, costs=sure).operators == ["Relu", "Add"]


def test_a_replacement_faster_at_one_size_only_is_not_faster() -> None:
    """If sizes are unknown and no node is saved, the gain at one size has to outweigh the loss at others."""
    mixed = costs_of([measurement(r, (n, 8), (n, 8), operator="Sum", pattern="respell") for n, r in ((1, 0.93), (64, 1.08))])
    assert rewritten(MODEL, RESPELL, costs=mixed).operators == ["Relu", "Add"]


def test_without_a_table_everything_is_fused() -> None:
    assert rewritten(MODEL, FUSE).operators == [GELU]
    assert rewritten(MODEL, FUSE, costs=NONE).operators == [GELU]


def test_a_replacement_that_saves_no_node_has_to_be_faster() -> None:
    faster = costs_of([measurement(0.5, (4, 8), (4, 8), operator="Sum", pattern="respell")])
    assert rewritten(MODEL, RESPELL, costs=faster).operators == ["Relu", "Sum"]
    assert rewritten(MODEL, RESPELL, costs=NONE).operators == ["Relu", "Add"]


def test_a_replacement_by_other_operators_that_saves_no_node_is_made_at_any_cost_only() -> None:
    other = pattern("y = Relu(x) + x", example='{x: "float32[2, 8]"}', id_="other", onnxruntime="y = Sum(Sigmoid(x), x)")
    assert rewritten(MODEL, other, costs=costs_of([measurement(0.5, (4, 8))])).operators == ["Relu", "Add"]
    assert rewritten(MODEL, other, costs=NONE).operators == ["Sigmoid", "Sum"]


def test_all_fusions_are_proposed_only_where_that_would_make_this_one() -> None:
    slower = costs_of([measurement(1.5, (4, 8)), measurement(1.5, (4, 8), (4, 8), operator="Sum", pattern="respell")])
    assert [skip.change for skip in rewritten(MODEL, FUSE, costs=slower).skips] == ["ask for it all the same: --prefer fusion"]
    for table in (slower, costs_of([measurement(0.5, (4, 8))]), NONE):
        (skip,) = rewritten(MODEL, RESPELL, costs=table).skips
        assert skip.change == ""
    assert skip.reason == "it saves no node", "measurements were not asked"


EITHER = pattern(
    "y = Relu(x) + x",
    example='{x: "float32[2, 8]"}',
    id_="either",
    onnxruntime="y = com.microsoft.Gelu(x)",
    standard="y = Sigmoid(x)",
)


@pytest.mark.parametrize(("gelu", "operators"), [(1.5, ["Sigmoid"]), (1.2, [GELU])])
def test_costs_that_do_not_refuse_still_choose(gelu: float, operators: list[str]) -> None:
    """`--prefer fusion` makes every fusion, and of the ways to make one that with the least time."""
    measured = [measurement(gelu, (4, 8)), measurement(1.3, (4, 8), operator="Sigmoid", pattern="either")]
    assert rewritten(MODEL, EITHER, costs=costs_of(measured)).operators == ["Relu", "Add"]
    assert rewritten(MODEL, EITHER, costs=costs_of(measured, refuses=False)).operators == operators
    assert rewritten(MODEL, EITHER, costs=costs_of(measured[:1], refuses=False)).operators == [GELU], "the other is not measured"


def test_no_fewer_nodes_are_fused_if_fusion_is_preferred() -> None:
    """A Llama had more nodes with `--prefer fusion` than by default, because MultiHeadAttention came before Attention."""
    found = [
        fuse(SAMPLES / "llama_dynamo.onnx", None, load_patterns(), Options(prefer=prefer, verify=False, dry_run=True))
        for prefer in ("speed", "fusion")
    ]
    assert found[1].nodes_after <= found[0].nodes_after and not found[1].operators_after["com.microsoft.MultiHeadAttention"]


PACK = pattern(
    "q = x @ a\nk = x @ b\nv = x @ c",
    extra="""where: [a.is_constant and b.is_constant and c.is_constant, a.rank == 2 and b.rank == 2 and c.rank == 2]
let: "widths = [a.shape[1], b.shape[1], c.shape[1]]\"""",
    example="{x: 'float32[2, 8]', a: 'float32[8, 4] constant', b: 'float32[8, 4] constant', c: 'float32[8, 4] constant'}",
    id_="pack",
    onnxruntime="q, k, v = Split(x @ Concat(a, b, c, axis=1), split=widths, axis=-1)",
)
PROJECTED = """<ir_version: 8, opset_import: ["": 17]> g (float[N, 2] x) => (float[N, 2] p, float[N, 2] q, float[N, 2] r)
    <float[2, 2] a = {1, 2, 3, 4}, float[2, 2] b = {4, 3, 2, 1}, float[2, 2] c = {1, 3, 2, 4}> {
    p = MatMul(x, a) q = MatMul(x, b) r = MatMul(x, c) }"""


@pytest.mark.parametrize(("measured", "operators"), [(0.9, ["MatMul", "Split"]), (1.0, ["MatMul"] * 3)])
def test_a_replacement_that_adds_a_copy_has_to_be_measured_faster(measured: float, operators: list[str]) -> None:
    table = costs_of([measurement(measured, (4, 6), (3,), operator="Split", pattern="pack")])
    stage = rewritten(PROJECTED, PACK, costs=table)
    assert stage.operators == operators
    if "Split" not in operators:
        assert stage.reason == f"it adds a copy, and no measurement shows it to be faster on {CPU}"
    assert rewritten(PROJECTED, PACK, costs=NONE).operators == ["MatMul", "Split"]


def test_a_replacement_has_to_be_faster_than_the_unfused_graph_too() -> None:
    """It has to be faster than the unfused graph, alone and in its surroundings, where onnxruntime may fuse it."""
    mixed = costs_of([measurement(0.9, (4, 8), (4, 8), operator="Sum", pattern="respell", apart=1.05, least=0.99)])
    assert rewritten(MODEL, RESPELL, costs=mixed).operators == ["Relu", "Add"]


def test_another_pattern_may_use_a_skipped_site() -> None:
    table = costs_of([measurement(2.0, (4, 8)), measurement(0.5, (4, 8), (4, 8), operator="Sum", pattern="respell")])
    assert rewritten(MODEL, FUSE, RESPELL, costs=table).operators == ["Relu", "Sum"]


def test_the_table_is_sorted() -> None:
    rows = json.loads(costs.TABLE.read_text(encoding="utf-8"))["measurements"]
    for row in rows:
        for least, middle, most in (row["ratio"], row["apart"]):
            assert 0 < least <= middle <= most, row
        assert row["operands"] and row["threads"] >= 1


def test_every_fused_operator_was_measured() -> None:
    """An unmeasured operator could make a model slower without notice."""
    measured = {m.signature.operator for group in costs.measured()._measurements.values() for m in group}
    emitted = {
        str(operator)
        for p in load_patterns().patterns
        for block in p.replace.values()
        for line in block
        for term in walk(line.term)
        if isinstance(term, Apply)
        for operator in term.operators
        if operator.domain
    }
    assert emitted <= measured
    assert "com.microsoft.SkipLayerNormalization" in emitted


STEP = """<ir_version: 8, opset_import: ["": 17]> g (float[B, S, 384] x, float[B, 6, T, 64] k, float[B, 6, T, 64] v,
    float[B, 6, S, T] bias) => (float[B, S, 384] y) <int64[4] heads = {0, 0, 6, 64}, int64[3] joined = {0, 0, 384}> {
    h = Reshape(x, heads) q = Transpose <perm = [0, 2, 1, 3]> (h) t = Transpose <perm = [0, 1, 3, 2]> (k) s = MatMul(q, t)
    w = Add(s, bias) p = Softmax <axis = -1> (w) o = MatMul(p, v) u = Transpose <perm = [0, 2, 1, 3]> (o)
    y = Reshape(u, joined) }"""


def test_what_copies_more_than_a_slower_replacement_is_slower_too() -> None:
    """Keys and values of a cache lie by heads. MultiHeadAttention takes them so; transposed, it would take still longer.

    That MultiHeadAttention is fast on projections, which are transposed anyway, says nothing here.
    """
    attention, operator = load_patterns().get("multi-head-attention"), "com.microsoft.MultiHeadAttention"

    def table(by_heads: float) -> Costs:
        query, bias, in_heads = (1, 8, 384), (1, 6, 8, 8), (1, 6, 8, 64)
        flat = measurement(0.9, query, query, query, None, None, bias, operator=operator, pattern=attention.id)
        heads = measurement(by_heads, query, in_heads, in_heads, None, None, bias, operator=operator, pattern=attention.id)
        return costs_of([flat, heads])

    kept = rewritten(STEP, attention, costs=table(1.2))
    assert "Softmax" in kept.operators
    assert kept.reason.startswith(f"slower than the unfused graph on {CPU}: it takes 1.20 times as long")
    fused = rewritten(STEP, attention, costs=table(0.9))
    assert fused.operators == [operator]


def test_skip_layer_normalization_is_slower_on_the_cpu() -> None:
    """The original reason for the table, measured with onnxruntime 1.31."""
    shape: list[int | str | None] = ["batch", "seq", 768]
    site = node(shape, shape, [768], [768], operator="SkipLayerNormalization")
    cost = costs.measured().of(CPU, "skip-layer-normalization", [site])
    assert cost is not None and cost.is_slower


@pytest.mark.parametrize(("axis", "known"), [(-1, 0.5), (3, 0.5), (-3, 2.0), (1, 2.0)])
def test_an_axis_that_is_not_the_last_is_another_kind(axis: int, known: float) -> None:
    rows = measurement(0.5, (1, 4096, 64), operator="Norm", axis=-1)
    channels = measurement(2.0, (1, 64, 64, 64), operator="Norm", axis=-3)
    site = node([1, 64, 64, 64], operator="Norm", domain="", axis=axis)
    assert ratio(costs_of([rows, channels]), site) == known


def test_norms_over_channels_are_slower_on_the_cpu() -> None:
    """As in decoders of videos; measured with onnxruntime 1.32."""
    sites = {axis: node([1, 64, 32, 32], operator="LpNormalization", domain="", axis=axis, p=2) for axis in (-3, -1)}
    found = {axis: costs.measured().of(CPU, "lp-normalization", [site]) for axis, site in sites.items()}
    assert {axis: cost is not None and cost.is_slower for axis, cost in found.items()} == {-3: True, -1: False}


def test_equivalent_matches_are_skipped_once() -> None:
    """Three products of one input match in six orders. They are skipped once, with one reason."""
    weights = ", ".join(f"float[2, 2] {name} = {{1, 2, 3, {n}}}" for n, name in enumerate("abc"))
    model = f"""<ir_version: 8, opset_import: ["": 17]> g (float[N, 2] x) => (float[N, 2] q, float[N, 2] k, float[N, 2] v)
        <{weights}> {{ q = MatMul(x, a) k = MatMul(x, b) v = MatMul(x, c) }}"""
    slower = costs_of([measurement(2.0, (4, 6), (3,), operator="Split", pattern="packed-projections", axis=-1)])
    stage = rewritten(model, load_patterns().get("packed-projections"), costs=slower)
    assert len(stage.matches) > 1
    assert stage.reason.startswith("slower than the unfused graph")


def test_the_most_favourable_round_is_read_from_the_table() -> None:
    rows = json.loads(costs.TABLE.read_text(encoding="utf-8"))["measurements"]
    found = sorted(m.least for group in costs.measured()._measurements.values() for m in group)
    assert found == sorted(max(row["ratio"][0], row["apart"][0]) for row in rows)
