"""Near misses name nodes of the user's file, say why a Gemm is not a @ b + c, and leave out nodes that were fused."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import onnx_ir as ir
import pytest

from onnx_subgraph import Options, explaining
from onnx_subgraph.files.models import load
from onnx_subgraph.language.library import load_patterns
from onnx_subgraph.matching.find import find
from onnx_subgraph.matching.match import NearMiss
from tests.matching.graphs import model, pattern

LINEAR = pattern("y = Relu(x @ w + b)", "y = Gemm(x, w, b)", example='{x: "float32[2, 8]", w: "float32[8, 4]", b: "float32[4]"}')


def names(graph: ir.Model) -> set[str]:
    """Every name in the file."""
    found = {v.name for v in (*graph.graph.inputs, *graph.graph.initializers.values())}
    for node in graph.graph:
        found |= {node.name, *(v.name for v in (*node.inputs, *node.outputs) if v is not None)}
    return {name for name in found if name}


@cache
def bert() -> tuple[set[str], tuple[NearMiss, ...]]:
    """The names in the file of a fully fused BERT, and its near misses."""
    path = Path(__file__).parents[2] / "sample_models" / "bert_torchscript.onnx"
    result = explaining.explain(path, load_patterns(), Options(dry_run=True, verify=False), lambda _: None)
    assert "embed-layer-normalization" in {r.pattern for r in result.rewrites}
    return names(load(path)), result.near_misses


def test_near_misses_name_nodes_of_the_file() -> None:
    known, misses = bert()
    assert misses
    for miss in misses:
        assert {miss.anchor, miss.node} <= known, miss


def test_a_fused_node_is_no_near_miss_of_another_pattern() -> None:
    """The sums before the other LayerNormalizations are fused, so they are not near misses for sums of three Gathers."""
    _, misses = bert()
    assert not [m for m in misses if m.pattern == "embed-layer-normalization" and m.found.startswith("Sum(")]


@pytest.mark.parametrize(
    ("attributes", "said", "change"),
    [
        ("transB = 1", "transB=1", "leave transB=1 out of the Gemm and store its weight transposed"),
        ("alpha = 0.5", "alpha=0.5", "leave alpha=0.5 out of the Gemm, so that it is a @ b + c"),
        ("alpha = 0.5, transB = 1", "alpha=0.5, transB=1", "and store its weight transposed, so that it is a @ b + c"),
    ],
)
def test_a_gemm_with_other_attributes_has_a_reason(attributes: str, said: str, change: str) -> None:
    graph = model(f"g = Gemm<{attributes}>(x, w, b) y = Relu(g)", inputs="float[2, 8] x, float[8, 8] w, float[8] b")
    (miss,) = find(graph, [LINEAR], thorough=True, asked=True).near_misses
    assert said in miss.found
    assert change in miss.change


def test_a_plain_gemm_matches() -> None:
    graph = model("g = Gemm<transB = 0>(x, w, b) y = Relu(g)", inputs="float[2, 8] x, float[8, 8] w, float[8] b")
    assert len(find(graph, [LINEAR]).matches) == 1


LOOKED_THROUGH = {
    "Reshape": ("y = Reshape(x, [2, -1]) * 3", "s = Constant<value_ints = [2, -1]>() r = Reshape(x, s)"),
    "Dropout": ("y = Dropout(x) * 3", "r = Dropout(x)"),
}


@pytest.mark.parametrize("operator", LOOKED_THROUGH)
def test_an_operator_that_changes_nothing_is_not_expected_and_found_at_once(operator: str) -> None:
    formula, nodes = LOOKED_THROUGH[operator]
    graph = model(f"{nodes} k = Constant<value_float = 3.0>() y = Mul(r, k)", inputs="float[2, 8] x")
    wanted = pattern(formula, "y = Abs(x)", example='{x: "float32[2, 8]"}')
    (miss,) = find(graph, [wanted], thorough=True, asked=True).near_misses
    assert miss.expected == operator
    assert miss.found == f"{operator}, which changes nothing here, so that the search looks through it"


def test_a_name_that_must_be_a_constant_is_named_where_none_is_found() -> None:
    wanted = pattern("y = Tanh(x) * g", "y = Tanh(x)", example='{x: "float32[2, 8]", g: 3}', where="g.value == 3")
    graph = model("t = Tanh(x) y = Mul(t, g)", inputs="float[2, 8] x, float[8] g")
    (miss,) = find(graph, [wanted], thorough=True, asked=True).near_misses
    assert (miss.expected, miss.found) == ("a product `Tanh(x) * g` with a constant g", "t * g")


@pytest.mark.parametrize(("op", "sign"), [("Mul", "*"), ("Div", "/"), ("Add", "+"), ("Sub", "-")])
@pytest.mark.parametrize("operands", ["x, c", "c, x"])
def test_the_number_that_a_near_miss_asks_for_makes_it_match(op: str, sign: str, operands: str) -> None:
    """A divisor is not the factor that it stands for, nor is what is taken away an addend."""
    formula = operands.replace("c", "1.5").replace(",", f" {sign}")
    probe = pattern(f"y = Tanh({formula})", "y = Relu(x)", example='{x: "float32[2, 8] in [1, 2]"}')
    text = f"t = {op}({operands}) y = Tanh(t)"
    (miss,) = find(model(text, constants="float c = {1.75}"), [probe], thorough=True, asked=True).near_misses
    said = re.fullmatch(r"put the constant (\S+) in the place of 1\.75", miss.change)
    assert said, miss.change
    assert find(model(text, constants=f"float c = {{{said[1]}}}"), [probe]).matches
