"""Marks: the nodes between two values, and the modules that exporters recorded."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

from onnx_subgraph import UsageError
from onnx_subgraph.files.models import load
from onnx_subgraph.regions.marks import between, modules, paths

SAMPLES = Path(__file__).parents[2] / "sample_models"


def graph(body: str) -> ir.Graph:
    header = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y)'
    return ir.from_proto(onnx.parser.parse_model(f"{header} {{ {body} }}")).graph


def names(region: object) -> list[str]:
    return [node.op_type for node in region.nodes]  # type: ignore[attr-defined]


LADDER = "a = Abs (x) b = Neg (a) c = Exp (a) d = Add (b, c) e = Sqrt (x) f = Mul (d, e) y = Relu (f)"


@pytest.mark.parametrize(
    ("first", "last", "found"),
    [
        (["a"], ["d"], ["Neg", "Exp", "Add"]),
        (["a"], ["f"], ["Neg", "Exp", "Add", "Mul"]),
        (["b"], ["f"], ["Add", "Mul"]),
        (["x"], ["y"], ["Abs", "Neg", "Exp", "Add", "Sqrt", "Mul", "Relu"]),
        (["b", "e"], ["f"], ["Add", "Mul"]),
        (["a"], ["b", "c"], ["Neg", "Exp"]),
    ],
)
def test_between_selects_what_depends_on_the_first_and_leads_to_the_last(
    first: list[str], last: list[str], found: list[str]
) -> None:
    assert names(between(graph(LADDER), first, last)) == found


@pytest.mark.parametrize(
    ("first", "last", "said"), [("aa", "y", "did you mean 'a'"), ("f", "a", "nothing lies between"), ("a", "e", "nothing lies")]
)
def test_a_mark_that_marks_nothing_is_said(first: str, last: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        between(graph(LADDER), [first], [last])


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_one_pattern_finds_the_layers_of_both_exporters(exporter: str) -> None:
    found = modules(load(SAMPLES / f"bert_{exporter}.onnx").graph, "encoder.layer.*")
    assert [path.rpartition("encoder")[2] for path in found] == [".layer.0", ".layer.1"]
    for region in found.values():
        assert {"MatMul", "Softmax"} & set(names(region)) and len(region.outputs) >= 1
    (one,) = modules(load(SAMPLES / f"bert_{exporter}.onnx").graph, "layer.1.attention.self").values()
    assert set(one.nodes).isdisjoint(found[next(iter(found))].nodes) and len(one.nodes) < len(list(found.values())[1].nodes)


def test_a_pattern_that_matches_no_module_lists_the_modules() -> None:
    with pytest.raises(UsageError, match="no module of the model fits 'decoder'") as error:
        modules(load(SAMPLES / "bert_dynamo.onnx").graph, "decoder")
    assert "embeddings" in str(error.value.hint)
    with pytest.raises(UsageError, match="recorded no modules"):
        modules(graph(LADDER), "anything")


def named(body: str, *scopes: str) -> ir.Graph:
    made = graph(body)
    for node, scope in zip(made, scopes, strict=True):
        node.name = f"/{scope}/{node.op_type}"
    return made


def test_nodes_inside_a_module_belong_to_it() -> None:
    (region,) = modules(named("a = Abs (x) b = Neg (a) y = Exp (b)", "m/one", "m", "m/one"), "one").values()
    assert names(region) == ["Abs", "Neg", "Exp"]


def test_overlapping_modules_are_refused() -> None:
    tangled = named("a = Abs (x) b = Neg (a) y = Exp (b)", "m/layer.0", "m/layer.1", "m/layer.0")
    with pytest.raises(UsageError, match=r"out of the module m\.layer\.0 through m\.layer\.1"):
        modules(tangled, "layer.*")


def test_a_star_matches_within_one_name() -> None:
    deep = named("a = Abs (x) b = Neg (a) y = Exp (b)", "m/layer.0/act", "m/layer.1", "m/layers")
    assert list(modules(deep, "layer.*")) == ["m.layer.0", "m.layer.1"]
    assert list(modules(deep, "layer.*.act")) == ["m.layer.0.act"]


def test_the_last_scope_that_dynamo_records_is_the_node_itself() -> None:
    node = next(iter(graph("y = Abs (x)")))
    node.metadata_props["pkg.torch.onnx.name_scopes"] = "['', 'layer', 'layer.act', 'abs_1']"
    assert paths(node) == ["layer", "layer.act"]


def test_metadata_that_is_not_a_list_names_no_module() -> None:
    node = next(iter(graph("y = Abs (x)")))
    for text in ("not a list", "__import__('os')", "{'a': 1}"):
        node.metadata_props["pkg.torch.onnx.name_scopes"] = text
        assert paths(node) == []
