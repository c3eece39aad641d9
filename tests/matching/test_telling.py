"""Near misses speak of the nodes in the user's file, say what keeps a Gemm from being a @ b + c, and leave out what is fused."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import onnx_ir as ir
import pytest

from onnx_subgraph import Options, explaining
from onnx_subgraph.language.library import load_patterns
from onnx_subgraph.matching.find import find
from onnx_subgraph.matching.match import NearMiss
from onnx_subgraph.model.files import load
from tests.matching.graphs import model, pattern

LINEAR = pattern("y = Relu(x @ w + b)", "y = Gemm(x, w, b)", example='{x: "float32[2, 8]", w: "float32[8, 4]", b: "float32[4]"}')


def names(graph: ir.Model) -> set[str]:
    """Every name that the file has."""
    found = {v.name for v in (*graph.graph.inputs, *graph.graph.initializers.values())}
    for node in graph.graph:
        found |= {node.name, *(v.name for v in (*node.inputs, *node.outputs) if v is not None)}
    return {name for name in found if name}


@cache
def bert() -> tuple[set[str], tuple[NearMiss, ...]]:
    """The names in the file of a BERT of which every part is fused, and what is told of it."""
    path = Path(__file__).parents[2] / "sample_models" / "bert_torchscript.onnx"
    result = explaining.explain(path, load_patterns(), Options(dry_run=True, verify=False), lambda _: None)
    assert "embed-layer-normalization" in {r.pattern for r in result.rewrites}
    return names(load(path)), result.near_misses


def test_places_are_in_the_file() -> None:
    known, misses = bert()
    assert misses
    for miss in misses:
        assert {miss.anchor, miss.node} <= known, miss


def test_what_is_fused_is_not_told_to_be_something_else() -> None:
    """The sums before the other LayerNormalizations are fused as well, and not told to be sums of three Gathers."""
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
def test_a_gemm_that_is_no_plain_one_says_why(attributes: str, said: str, change: str) -> None:
    graph = model(f"g = Gemm<{attributes}>(x, w, b) y = Relu(g)", inputs="float[2, 8] x, float[8, 8] w, float[8] b")
    (miss,) = find(graph, [LINEAR], thorough=True, asked=True).near_misses
    assert said in miss.found
    assert change in miss.change


def test_a_plain_gemm_has_nothing_to_say() -> None:
    graph = model("g = Gemm<transB = 0>(x, w, b) y = Relu(g)", inputs="float[2, 8] x, float[8, 8] w, float[8] b")
    assert len(find(graph, [LINEAR]).matches) == 1
