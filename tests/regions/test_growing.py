"""Patterns of regions: the facts that their sentences can ask, their near misses, and selectors registered by name."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest

from onnx_subgraph.errors import UsageError
from onnx_subgraph.language.check import check
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.language.reading import parse_pattern
from onnx_subgraph.matching.find import Found, find
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.regions.ground import PATTERN
from onnx_subgraph.regions.region import Region
from onnx_subgraph.regions.selector import region_pattern

MODEL = """<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>
    g (float[1,4,8,8] x, int64[2] k) => (float[1,4,8,8] y, int64[2] m)
    <float[4,4,1,1] w, float[4] s, float[4] b, float[4] v, float two = {2}> {
        [conv] c = Conv <group = 1> (x, w)
        [norm] n = BatchNormalization (c, s, b, b, v)
        [relu] r = Relu (n)
        [gelu] e = com.microsoft.Gelu (r)
        [twice] t = Mul (e, two)
        [pool] p = GlobalAveragePool (t)
        [gate] y = Mul (t, p)
        [k2] l = Mul (k, k)
        [k3] m = Add (l, k)
    }"""


def pattern(**grow: str) -> Pattern:
    lines = "\n".join(f"  {question}: {sentence}" for question, sentence in grow.items())
    read = parse_pattern(f"id: sample\nsummary: s\ngrow:\n{lines}\n", "patterns/group/sample.yaml")
    check(read)
    return read


def searched(*patterns: Pattern, text: str = MODEL) -> Found:
    weights = text.replace("float[4,4,1,1] w", f"float[4,4,1,1] w = {{{', '.join(['1'] * 16)}}}")
    for name in "sbv":
        weights = weights.replace(f"float[4] {name}", f"float[4] {name} = {{1, 2, 3, 4}}")
    model = ir.from_onnx_text(weights)
    infer_shapes(model)
    return find(model, patterns)


def names(found: Found) -> list[str]:
    return [" ".join(n.name or "" for n in match.nodes) for match in found.matches]


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("node.operator == 'Conv'", ["conv"]),
        ("node.operator == 'com.microsoft.Gelu'", ["gelu"]),
        ("node.domain == 'com.microsoft'", ["gelu"]),
        ("node.is_elementwise", ["relu", "gelu", "twice", "gate", "k2", "k3"]),
        ("node.dtypes == ['int64']", ["k2", "k3"]),
        ("node.dtypes == [int64]", ["k2", "k3"]),
        ("node.inputs[0].dtype == int64", ["k2", "k3"]),
        ("len(node.inputs) > 2", ["norm"]),
        ("node.inputs[1].is_constant and node.inputs[1].rank == 4", ["conv"]),
        ("node.inputs[1].is_constant and node.inputs[1].value == 2", ["twice"]),
        ("node.outputs[0].shape[2] == 1", ["pool"]),
        ("node.attributes.group == 1", ["conv"]),
        ("node.attributes.epsilon < 1e-4", ["norm"]),  # left out: the schema's default
        ("node.attributes.kernel_shape == [1, 1]", []),  # left out, and the schema has no default
        ("node.inputs[9].rank == 1", []),
    ],
)
def test_facts_of_a_node(sentence: str, expected: list[str]) -> None:
    assert names(searched(pattern(select=sentence))) == expected


@pytest.mark.parametrize(
    ("sentence", "kept"),
    [
        ("region.size == 4", True),
        ("region.operators == ['BatchNormalization', 'Conv', 'Relu', 'com.microsoft.Gelu']", True),
        ("'Conv' in region.operators and region.dtypes == [float32]", True),
        ("len(region.inputs) == 5 and len(region.outputs) == 1", True),
        ("region.outputs[0].shape[1] == 4", True),
        ("region.inputs[0].rank != 4", False),
        ("region.size > 4", False),
    ],
)
def test_facts_of_a_region(sentence: str, kept: bool) -> None:
    """Conv, its normalization, Relu and Gelu: five inputs, because mean and bias are one value."""
    output = 'consumer.operator in ["BatchNormalization", "Relu", "com.microsoft.Gelu"]'
    found = searched(pattern(select='node.operator == "Conv"', output=output, keep=f'"{sentence}"'))
    assert bool(found.matches) is kept
    assert bool(found.near_misses) is not kept


def test_a_rejected_region_quotes_the_sentence_that_failed() -> None:
    keep = '"region.size >= 2 and len(region.outputs) == 2"'
    (miss, _) = searched(pattern(select="node.is_elementwise", output="consumer.is_elementwise", keep=keep)).near_misses
    assert miss.expected == "`len(region.outputs) == 2`"
    assert miss.span is not None
    assert miss.span.text[miss.span.column - 1 :][: miss.span.length] == "len(region.outputs) == 2"


def test_why_names_the_sentence_and_describes_the_region() -> None:
    grow = pattern(select="node.is_elementwise", output="consumer.is_elementwise", keep='"region.dtypes == [float32]"')
    (miss,) = searched(grow).near_misses
    assert (miss.node, miss.expected, miss.matched) == ("k2", "`region.dtypes == [float32]`", 2)
    assert miss.found == "a region of 2 nodes (Add, Mul) of int64"


def test_a_rejected_single_node_is_no_near_miss() -> None:
    assert not searched(pattern(select="node.is_elementwise", keep="region.size > 9")).near_misses


def test_an_unknown_fact_makes_a_sentence_false() -> None:
    text = '<ir_version: 8, opset_import: ["" : 17, "their" : 1]> g (float[2] x) => (y) { a = their.Op (x)  y = Relu (a) }'
    assert names(searched(pattern(select="node.outputs[0].rank == 1"), text=text)) == []
    assert names(searched(pattern(select="node.outputs[0].rank == 1 or node.is_elementwise"), text=text)) == [""]


@pytest.mark.parametrize("question", ["input", "output"])
def test_a_region_does_not_grow_into_a_node_that_replaces_one_of_the_pattern(question: str) -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]>
    g (float[4] x) => (float[4] y) { [first] a = Abs (x) [second] b = Neg (a) [third] y = Exp (b) }"""
    model = ir.from_onnx_text(text)
    infer_shapes(model)
    taken = model.graph[0 if question == "input" else 2]
    taken.metadata_props[PATTERN] = "sample"
    other = "producer" if question == "input" else "consumer"
    grown = pattern(select="node.operator == 'Neg'", **{question: f"{other}.is_elementwise"})
    assert names(find(model, [grown])) == ["second"]
    taken.metadata_props[PATTERN] = "another"
    assert names(find(model, [grown])) == ["first second" if question == "input" else "second third"]


SELECTOR = """
class Elementwise:
    def select(self, node): return node.op_type == "Relu"
    def select_input(self, node, producer): return producer.op_type == "BatchNormalization"
    def select_output(self, node, consumer): return consumer.op_type == "Gelu"
    def filter(self, region): return len(region.nodes) > 1

class Trims(Elementwise):
    def filter(self, region): return region.nodes[:2]

class Half:
    def select(self, node): return True

class Raises(Elementwise):
    def select_output(self, node, consumer): raise KeyError("tiles")

class Unmade:
    def __init__(self): raise RuntimeError("no device")
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package that registers selectors."""
    (tmp_path / "selectors_of_a_test.py").write_text(SELECTOR, encoding="utf-8")
    folder = tmp_path / "selectors_of_a_test-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: selectors-of-a-test\nVersion: 1.0\n", encoding="utf-8")
    registered = ("elementwise", "trims", "half", "raises", "unmade", "missing")
    lines = [f"{name} = selectors_of_a_test:{name.title()}" for name in registered]
    lines.append("broken = no_such_module:Selector")
    (folder / "entry_points.txt").write_text("\n".join(["[onnx_subgraph.selectors]", *lines, ""]), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("installed")
def test_a_selector_is_found_by_its_name() -> None:
    assert names(searched(pattern(selector="elementwise"))) == ["norm relu gelu"]
    assert names(searched(region_pattern("elementwise"))) == ["norm relu gelu"]


@pytest.mark.usefixtures("installed")
def test_keep_is_checked_after_the_filter_of_the_selector() -> None:
    (miss,) = searched(pattern(selector="elementwise", keep="region.size > 3")).near_misses
    assert miss.expected == "`region.size > 3`"
    assert names(searched(pattern(selector="trims", keep="region.size == 2"))) == ["norm relu"]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("half", "the selector half has no select_input and no select_output and no filter"),
        ("raises", "the selector Raises fails: KeyError: 'tiles' at "),
        ("unmade", "the selector unmade can't be made: RuntimeError: no device"),
        ("missing", "the selector missing can't be loaded: AttributeError"),
        ("broken", "the selector broken can't be loaded: ModuleNotFoundError: No module named 'no_such_module'"),
        ("other", "no selector other is installed"),
    ],
)
def test_an_invalid_selector_is_an_error(name: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        searched(region_pattern(name))
    assert raised.value.message.startswith(message)


class Refusing:
    """A selector that rejects every region."""

    def select(self, node: ir.Node) -> bool:
        return node.op_type == "Relu"

    def select_input(self, node: ir.Node, producer: ir.Node) -> bool:
        return producer.op_type == "BatchNormalization"

    def select_output(self, node: ir.Node, consumer: ir.Node) -> bool:
        return False

    def filter(self, region: Region) -> bool:
        return False


def test_a_region_that_a_selector_rejects_is_a_near_miss() -> None:
    (miss,) = searched(region_pattern("refusing", Refusing)).near_misses
    assert (miss.expected, miss.span) == ("a region that Refusing keeps", None)


def test_only_the_named_selector_is_imported(installed: None) -> None:
    import sys

    sys.modules.pop("selectors_of_a_test", None)
    pattern(selector="elementwise")  # reading a file imports no selector
    assert "selectors_of_a_test" not in sys.modules


class Nothing:
    """A selector that is never asked."""


@pytest.mark.parametrize("name", ["My Reg!", "", "a--b", "Conv"])
def test_a_name_that_is_no_id_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name!r} is no id of a pattern\nhint: "):
        region_pattern(name, Nothing)  # type: ignore[arg-type]


@pytest.mark.parametrize("operator", ["Gé lu", "com.microsoft.Gelu", "ai.onnx.ml.X", ".X", "com.mylib.", "my lib.X"])
def test_an_operator_that_can_not_be_the_users_is_refused(operator: str) -> None:
    """A pattern in a file can't have one either."""
    with pytest.raises(UsageError, match="can't be the operator of a region\nhint: "):
        region_pattern("conv-bn", Nothing, operator=operator)  # type: ignore[arg-type]
