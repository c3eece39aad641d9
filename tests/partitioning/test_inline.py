"""inline() keeps what people wrote on nodes and values: doc strings and metadata."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
import pytest

from onnx_subgraph.matching.origin import REPLACES
from onnx_subgraph.partitioning.inline import inline
from onnx_subgraph.partitioning.kept import KEPT
from onnx_subgraph.partitioning.options import PartitionOptions
from onnx_subgraph.partitioning.partition import partition
from onnx_subgraph.partitioning.worth import RegionLimits
from onnx_subgraph.regions.ground import PATTERN
from tests.partitioning.models import LAYERS, SAMPLES

CALLS = """
<ir_version: 10, opset_import: ["" : 18, "mine" : 1]>
calls (float[n] x) => (float[n] y, float[n] w)
{ [before] a = Sin (x)  [call] y, b = mine.Both (a)  [after] w = Neg (b) }
<opset_import: ["" : 18], domain: "mine"> Both (p) => (q, r) { [one] t = Abs (p)  [two] q = Exp (t)  [three] r = Cos (t) }
"""


def noted(thing: Any, doc_string: str, **metadata: str) -> None:
    thing.doc_string = doc_string
    for key, value in metadata.items():
        entry = thing.metadata_props.add()
        entry.key, entry.value = key, value


def notes(thing: Any) -> tuple[str, dict[str, str]]:
    return thing.doc_string, {entry.key: entry.value for entry in thing.metadata_props}


def calls(folder: Path) -> Path:
    """A model whose nodes and values have notes, but one node of the function."""
    proto = onnx.parser.parse_model(CALLS)
    for node in (*proto.graph.node, *proto.functions[0].node[1:]):
        noted(node, f"words of {node.name}", who=node.name)
    noted(proto.graph.node[1], "words of call", layer="7")
    inner = proto.graph.value_info.add()
    inner.CopyFrom(onnx.helper.make_tensor_value_info("b", 1, ["n"]))
    noted(inner, "words of b", value="b")
    noted(proto.graph.output[0], "words of y", value="y")
    onnx.save(proto, folder / "calls.onnx")
    return folder / "calls.onnx"


def test_nodes_and_values_of_a_call_get_what_the_call_had(tmp_path: Path) -> None:
    inline(calls(tmp_path), target := tmp_path / "inlined.onnx")
    proto = onnx.load(target)
    assert {node.name: notes(node) for node in proto.graph.node} == {
        "before": ("words of before", {"who": "before"}),
        "one": ("words of call", {"who": "call", "layer": "7"}),
        "two": ("words of two", {"who": "two", "layer": "7"}),
        "three": ("words of three", {"who": "three", "layer": "7"}),
        "after": ("words of after", {"who": "after"}),
    }
    assert notes(proto.graph.output[0]) == ("words of y", {"value": "y"})
    (inner,) = (value for value in proto.graph.value_info if value.name == "b")
    assert notes(inner) == ("words of b", {"value": "b"}) and inner.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    ort.InferenceSession(target)


@pytest.mark.parametrize(
    "damage", [None, "no JSON", "7", '[["one"]]', '[["", {}]]', '[["", 3], ["", 3], ["", 3], ["", 3]]', "[3, 4, 5, 6]"]
)
def test_nodes_of_an_engine_get_back_what_they_had(tmp_path: Path, damage: str | None) -> None:
    """If somebody changed the record, they get back their names."""
    inline(calls(tmp_path), source := tmp_path / "source.onnx")
    parted, back = tmp_path / "parted.onnx", tmp_path / "back.onnx"
    limits = RegionLimits(min_nodes=1, max_crossing=9, deny=("Neg",))
    assert len(partition(source, parted, PartitionOptions("onnxruntime", limits)).engines) == 1
    if damage is not None:
        proto = onnx.load(parted)
        (entry,) = (entry for node in proto.graph.node for entry in node.metadata_props if entry.key == KEPT)
        entry.value = damage
        onnx.save(proto, parted)
    inline(parted, back)
    mine, theirs = onnx.load(back), onnx.load(source)
    assert {node.name for node in mine.graph.node} == {node.name for node in theirs.graph.node}
    if damage is None:
        assert {node.name: notes(node) for node in mine.graph.node} == {node.name: notes(node) for node in theirs.graph.node}
        assert notes(mine.graph.output[0]) == ("words of y", {"value": "y"})


@pytest.fixture
def parted(tmp_path: Path) -> Path:
    """`LAYERS` with an engine for each layer. The definition of both begins with the Constant of their factor."""
    source, target = tmp_path / "layers.onnx", tmp_path / "parted.onnx"
    onnx.save(onnx.parser.parse_model(LAYERS), source)
    limits = RegionLimits(min_nodes=1, max_crossing=9, deny=("Softmax",))
    assert len(partition(source, target, PartitionOptions("onnxruntime", limits)).engines) == 2
    return target


def test_a_constant_of_a_definition_takes_no_node_its_name(parted: Path, tmp_path: Path) -> None:
    inline(parted, target := tmp_path / "back.onnx")
    back = {node.name: node.op_type for node in onnx.load(target).graph.node if node.op_type != "Constant"}
    assert back == {node.name: node.op_type for node in onnx.parser.parse_model(LAYERS).graph.node}


def test_a_node_gets_back_its_name_only_if_no_other_node_has_it_now(parted: Path, tmp_path: Path) -> None:
    proto = onnx.load(parted)
    (between,) = (node for node in proto.graph.node if node.op_type == "Softmax")
    between.name = "layer_1_Mul"
    onnx.save(proto, parted)
    inline(parted, target := tmp_path / "back.onnx")
    names: dict[str, list[str]] = {}
    for node in onnx.load(target).graph.node:
        names.setdefault(node.op_type, []).append(node.name)
    assert names["Softmax"] == ["layer_1_Mul"]
    assert {"layer_0_Mul", "layer_0_Scale", "layer_1_Scale"} < set(names["Mul"]) and len(set(names["Mul"])) == 4
    assert "layer_1_Mul" not in names["Mul"]


def test_calls_in_bodies_are_inlined_and_counted(tmp_path: Path) -> None:
    text = """
    <ir_version: 10, opset_import: ["" : 18, "mine" : 1]>
    branches (float[n] x, bool flag) => (float[n] y)
    {
      a = mine.Twice (x)
      y = If (flag) <
        then_branch = one () => (float[n] p) { p = mine.Twice (a) },
        else_branch = other () => (float[n] q) { q = Neg (a) }>
    }
    <opset_import: ["" : 18], domain: "mine"> Twice (p) => (q) { q = Add (p, p) }
    """
    onnx.save(onnx.parser.parse_model(text), source := tmp_path / "source.onnx")
    result = inline(source, target := tmp_path / "inlined.onnx")
    assert result.calls == 2
    assert not onnx.load(target).functions
    ort.InferenceSession(target)


def test_an_exporters_metadata_survives_engines(tmp_path: Path) -> None:
    source, parted, back = SAMPLES / "gpt2_dynamo.onnx", tmp_path / "parted.onnx", tmp_path / "back.onnx"
    limits = RegionLimits(min_nodes=1, max_crossing=9, deny=("Softmax",))
    assert partition(source, parted, PartitionOptions("onnxruntime", limits, verify=False)).engines
    inline(parted, back)
    before, after = ({node.name: notes(node) for node in onnx.load(path).graph.node} for path in (source, back))
    assert any(metadata for _, metadata in before.values())
    assert {name: note for name, note in before.items() if note[1]}.items() <= after.items()
    assert not any("onnx_subgraph" in key for _, metadata in after.values() for key in metadata)


def test_a_model_with_our_mark_of_a_call_is_inlined(tmp_path: Path) -> None:
    proto = onnx.load(path := calls(tmp_path))
    noted(proto.graph.node[-1], "", **{"onnx_subgraph.call": "7"})
    onnx.save(proto, path)
    inline(path, target := tmp_path / "inlined.onnx")
    assert not onnx.load(target).functions


NESTED = """
<ir_version: 10, opset_import: ["" : 18, "mine" : 1]>
nested (float[n] x) => (float[n] y) { y = mine.Outer (x) }
<opset_import: ["" : 18, "mine" : 1], domain: "mine"> Outer (p) => (q) { q = mine.Inner (p) }
<opset_import: ["" : 18], domain: "mine"> Inner (p) => (q) { q = Abs (p) }
"""


def test_what_calls_record_of_themselves_is_not_handed_on(tmp_path: Path) -> None:
    """Also not by a call inside a function; what others wrote there is."""
    proto = onnx.parser.parse_model(NESTED)
    for node in (proto.graph.node[0], proto.functions[0].node[0]):
        noted(node, "", **{PATTERN: "gelu", REPLACES: '["a"]', "layer": "7"})
    onnx.save(proto, source := tmp_path / "source.onnx")
    inline(source, target := tmp_path / "inlined.onnx")
    (node,) = onnx.load(target).graph.node
    assert (node.op_type, notes(node)[1]) == ("Abs", {"layer": "7"})
