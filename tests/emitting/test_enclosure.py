"""Regions become functions: the content of a definition, what is shared, what is refused, and what a selector may change."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_subgraph.language.reading import parse_pattern
from onnx_subgraph.regions.region import Region
from onnx_subgraph.regions.selector import NewNode, Review, region_pattern
from tests.rewriting.stage import Stage, rewritten

FILE = "patterns/test/sample.yaml"
HEAD = '<ir_version: 10, opset_import: ["" : 20]>'
ELEMENTWISE = """
id: sample
summary: Elementwise operators
grow:
  select: node.is_elementwise
  input: producer.is_elementwise
  output: consumer.is_elementwise
  keep: region.size >= 2
replace: {function: Elementwise}
"""
X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


def regions(text: str, pattern: str = ELEMENTWISE) -> Stage:
    return rewritten(f"{HEAD} {text}", parse_pattern(pattern, FILE), target="function")


def definitions(stage: Stage) -> dict[str, str]:
    """Name → the operators, for each definition in the model."""
    return {f.name: " ".join(n.op_type for n in f.node) for f in stage.after.functions}


CHAIN = """
    g (float[2,4] x) => (float[2,4] y, float[2,4] z) <float half = {0.5}, float[4] w = {1, 2, 3, 4}> {
        a = Mul (x, half)
        b = Add (a, w)
        y = Softmax (b)
        z = Exp (a)
    }"""


def test_a_region_becomes_one_node_and_the_model_computes_the_same() -> None:
    stage = regions(CHAIN)
    assert stage.operators == ["onnx_subgraph.Elementwise", "Softmax"]
    assert definitions(stage) == {"Elementwise": "Constant Mul Add Exp"}
    assert [i.name for i in stage.model.graph.node(0).inputs if i] == ["x", "w"]
    onnx.checker.check_model(stage.after, full_check=True)
    stage.agrees({"x": X})


def test_the_node_records_what_it_replaced() -> None:
    (rewrite,) = regions(CHAIN).rewrites
    assert (rewrite.pattern, rewrite.op, rewrite.body, len(rewrite.replaces)) == ("sample", "onnx_subgraph.Elementwise", True, 3)


def test_the_results_keep_their_types_and_shapes() -> None:
    (node, _) = regions(CHAIN).model.graph
    assert [(o.name, o.dtype, o.shape) for o in node.outputs] == [
        (name, ir.DataType.FLOAT, ir.Shape([2, 4])) for name in ("b", "z")
    ]


TWO_LAYERS = """
    g (float[2,4] x) => (float[2,4] y) <float[4,4] w, float[4] b1, float[4] b2> {
        m1 = MatMul (x, w)   a1 = Add (m1, b1)   r1 = Relu (a1)
        m2 = MatMul (r1, w)  a2 = Add (m2, b2)   r2 = Relu (a2)
        y = MatMul (r2, w)
    }"""


def with_initializers(text: str) -> str:
    return text.replace("float[4,4] w", f"float[4,4] w = {{{', '.join(['0.5'] * 16)}}}").replace(
        "float[4] b1, float[4] b2", "float[4] b1 = {1, 2, 3, 4}, float[4] b2 = {4, 3, 2, 1}"
    )


def test_equal_regions_share_one_definition() -> None:
    stage = regions(with_initializers(TWO_LAYERS))
    assert definitions(stage) == {"Elementwise": "Add Relu"}
    assert stage.operators.count("onnx_subgraph.Elementwise") == 2
    stage.agrees({"x": X})


def test_equal_regions_share_one_definition_for_any_order_of_their_nodes() -> None:
    """Two branches are added. The second time, the branches are written in the other order."""
    stage = regions("""
        g (float[2,4] x) => (float[2,4] y) {
            a = Relu (x)   b = Tanh (x)   c = Add (a, b)
            s = Softmax (c)
            e = Tanh (s)   d = Relu (s)   f = Add (d, e)
            y = Softmax (f)
        }""")
    assert definitions(stage) == {"Elementwise": "Relu Tanh Add"}
    stage.agrees({"x": X})


def test_different_regions_get_numbered_names() -> None:
    stage = regions("""
        g (float[2,4] x) => (float[2,4] y) {
            a = Relu (x)  b = Tanh (a)  s = Softmax (b)  c = Exp (s)  y = Neg (c)
        }""")
    assert definitions(stage) == {"Elementwise": "Relu Tanh", "Elementwise_2": "Exp Neg"}


def test_a_number_is_part_of_the_definition_and_a_weight_is_an_input() -> None:
    stage = regions(CHAIN.replace("float[4] w = {1, 2, 3, 4}", "float[1] w = {3}"))
    assert definitions(stage) == {"Elementwise": "Constant Constant Mul Add Exp"}
    assert not stage.model.graph.initializers


def test_an_overridable_constant_is_an_input() -> None:
    stage = regions(CHAIN.replace("(float[2,4] x)", "(float[2,4] x, float half)"))
    assert definitions(stage) == {"Elementwise": "Mul Add Exp"}
    stage.agrees({"x": X, "half": np.array(2, np.float32)})


def test_a_region_is_moved_to_a_place_that_suits_all_readers() -> None:
    """A reader of the first result comes before the last node of the region, which itself reads a later value."""
    stage = regions("""
        g (float[2,4] x, float[2,4] u) => (float[2,4] y, float[2,4] z) {
            a = Relu (x)
            y = Softmax (a)
            v = Softmax (u)
            z = Add (a, v)
        }""")
    assert stage.operators == ["Softmax", "onnx_subgraph.Elementwise", "Softmax"]
    stage.agrees({"x": X, "u": X})


def test_regions_in_bodies_and_around_them() -> None:
    stage = regions("""
        g (float[2,4] x, bool c) => (float[2,4] y) {
            a = Relu (x)  t = Tanh (a)
            i = If (c) <
                then_branch = then () => (float[2,4] p) { q = Add (a, t)  p = Relu (q) },
                else_branch = other () => (float[2,4] r) { s = Tanh (x)  r = Neg (s) }
            >
            j = Neg (i)  y = Add (t, j)
        }""")
    assert stage.operators == ["onnx_subgraph.Elementwise", "If", "onnx_subgraph.Elementwise_2"]
    assert sorted(definitions(stage).values()) == ["Add Relu", "Neg Add", "Relu Tanh", "Tanh Neg"]
    stage.agrees({"x": X, "c": np.array(True)})
    stage.agrees({"x": X, "c": np.array(False)})


def test_a_definition_with_an_if_takes_the_captures_of_its_bodies_as_inputs() -> None:
    stage = regions(
        """
        g (float[2,4] x, bool c) => (float[2,4] y) {
            a = Relu (x)
            i = If (c) <
                then_branch = then () => (float[2,4] p) { q = Add (a, x)  p = Relu (q) },
                else_branch = other () => (float[2,4] r) { r = Tanh (x) }
            >
            y = Neg (i)
        }""",
        ELEMENTWISE.replace("select: node.is_elementwise", 'select: node.operator == "If"'),
    )
    assert definitions(stage) == {"Elementwise": "Relu If Neg"}
    onnx.checker.check_model(stage.after, full_check=True)
    stage.agrees({"x": X, "c": np.array(True)})
    stage.agrees({"x": X, "c": np.array(False)})


def test_an_unread_result_is_not_an_output() -> None:
    stage = regions("g (float[2,4] x) => (float[2,4] y) { a = Relu (x)  unread = Tanh (a)  y = Exp (a) }")
    (node,) = stage.model.graph
    assert [o.name for o in node.outputs] == ["y"]
    stage.agrees({"x": X})


def test_fusing_regions_twice_changes_nothing() -> None:
    stage = regions(CHAIN)
    again = rewritten(stage.after, parse_pattern(ELEMENTWISE, FILE), target="function")
    assert not again.matches


def test_a_replaced_region_is_not_in_a_later_region_of_its_pattern() -> None:
    everything = ELEMENTWISE.replace("is_elementwise", "domain != 'other'").replace("  keep: region.size >= 2\n", "")
    first = regions(CHAIN, everything)
    assert len(first.rewrites) == 1
    again = rewritten(first.after, parse_pattern(everything, FILE), target="function")
    assert "onnx_subgraph.Elementwise" in again.operators
    assert all(n.domain != "onnx_subgraph" for match in again.matches for n in match.nodes)


def test_regions_need_target_function() -> None:
    stage = rewritten(f"{HEAD} {CHAIN}", parse_pattern(ELEMENTWISE, FILE))
    assert stage.reason == "a region becomes a function: use the target function"


def test_a_region_that_reads_an_attribute_of_its_function_is_refused() -> None:
    stage = rewritten(
        """<ir_version: 10, opset_import: ["" : 20, "my" : 1]>
        g (float[2,4] x) => (float[2,4] y) { y = my.Act <slope = 0.5> (x) }
        <domain: "my", opset_import: ["" : 20]>
        Act <slope> (x) => (y) { a = LeakyRelu <alpha: float = @slope> (x)  y = Neg (a) }""",
        parse_pattern(ELEMENTWISE, FILE),
        target="function",
    )
    assert stage.reason == "LeakyRelu has an attribute of the function that it is in"


class ConvBN:
    """Convolution, then batch normalization: the example of MXNet's tutorial on its subgraph API."""

    def select(self, node: ir.Node) -> bool:
        return node.op_type == "Conv"

    def select_input(self, node: ir.Node, producer: ir.Node) -> bool:
        return False

    def select_output(self, node: ir.Node, consumer: ir.Node) -> bool:
        return node.op_type == "Conv" and consumer.op_type == "BatchNormalization"

    def filter(self, region: Region) -> bool:
        return len(region.nodes) == 2 and len(region.outputs) == 1


CONV = """
    g (float[1,1,2,4] x) => (float[1,1,2,4] y)
    <float[1,1,1,1] w = {2}, float[1] s = {3}, float[1] b = {1}, float[1] m = {0.5}, float[1] v = {4}> {
        c = Conv (x, w)
        n = BatchNormalization (c, s, b, m, v)
        y = Relu (n)
    }"""
IMAGE = X.reshape(1, 1, 2, 4)


def chosen(selector: object, text: str = CONV, target: str = "function") -> Stage:
    return rewritten(f"{HEAD} {text}", region_pattern("conv-bn", selector, operator="ConvBN"), target=target)  # type: ignore[arg-type]


def test_a_selector_in_python_chooses_regions() -> None:
    stage = chosen(ConvBN)
    assert stage.operators == ["onnx_subgraph.ConvBN", "Relu"]
    stage.agrees({"x": IMAGE})


def test_a_region_that_a_selector_rejects_is_left() -> None:
    stage = chosen(ConvBN, CONV.replace("=> (float[1,1,2,4] y)", "=> (float[1,1,2,4] y, float[1,1,2,4] c)"))
    assert not stage.matches


class Reviewed(ConvBN):
    """The same, with a review of the finished region."""

    def __init__(self, review: Review) -> None:
        self.given = review
        self.seen: list[str] = []

    def review(self, region: Region, definition: ir.Function) -> Review:
        self.seen += [f"{n.op_type}" for n in definition]
        assert [n.op_type for n in region.nodes] == ["Conv", "BatchNormalization"]
        return self.given


def test_a_review_refuses_with_a_reason() -> None:
    selector = Reviewed(Review(refusal="batch normalization is not trained"))
    assert chosen(selector).reason == "batch normalization is not trained"
    assert selector.seen == ["Constant"] * 5 + ["Conv", "BatchNormalization"]


def test_a_review_annotates_the_node() -> None:
    stage = chosen(Reviewed(Review(attributes={"tile": 4, "layout": "nchw"}, metadata={"my.note": "seen"})))
    node = stage.model.graph.node(0)
    assert {name: a.value for name, a in node.attributes.items()} == {"tile": 4, "layout": "nchw"}
    assert node.metadata_props["my.note"] == "seen"
    onnx.checker.check_model(stage.after, full_check=True)
    stage.agrees({"x": IMAGE})


def test_an_attribute_that_onnx_does_not_have_is_the_selectors_mistake() -> None:
    stage = chosen(Reviewed(Review(attributes={"tile": 2**70})))
    assert stage.reason == f"the selector Reviewed fails: ValueError: the attribute 'tile' can't be {2**70} in ONNX"


class Folded(ConvBN):
    """The same, with a convolution that replaces both."""

    factor = 1.5

    def build(self, region: Region) -> NewNode:
        conv, _ = region.nodes
        weight = np.full((1, 1, 1, 1), 2 * self.factor, np.float32)
        return NewNode("Conv", [conv.inputs[0], weight, np.array([1 - 0.5 * 1.5], np.float32)], attributes={"group": 1})


@pytest.mark.parametrize("target", ["onnxruntime", "standard", "function"])
def test_a_selector_builds_the_node(target: str) -> None:
    stage = chosen(Folded, target=target)
    assert stage.operators == ["Conv", "Relu"]
    stage.agrees({"x": IMAGE})


class Misshapen(ConvBN):
    """A selector that builds a node with another result."""

    def build(self, region: Region) -> NewNode:
        return NewNode("Shape", [region.nodes[0].inputs[0]])


def test_a_node_from_a_selector_is_checked_against_the_region() -> None:
    assert chosen(Misshapen, target="onnxruntime").reason == "the result n would be int64, and is float"


class Broken(ConvBN):
    """A selector that raises while it builds a node."""

    def build(self, region: Region) -> NewNode:
        raise ZeroDivisionError("no tiles")


class Numbers(ConvBN):
    """A selector whose notes on a node are not strings."""

    def review(self, region: Region, definition: ir.Function) -> Review:
        return Review(metadata={"filters": 8})  # type: ignore[dict-item]


def test_a_selector_that_fails_to_build_is_a_skip_with_a_place() -> None:
    line = Broken.build.__code__.co_firstlineno + 1
    assert chosen(Broken).reason.endswith(f"ZeroDivisionError: no tiles at {__file__}:{line}")


def test_notes_of_a_review_that_are_not_strings_are_a_skip() -> None:
    (skip,) = chosen(Numbers).skips
    assert "the selector Numbers fails: TypeError: the metadata of a review are texts, and 'filters' is 8" in skip.reason
    assert skip.bug is None


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_all_regions_of_a_graph_are_replaced_and_its_order_stays_valid(data: st.DataObject) -> None:
    """Law: for any graph, every region gets a valid place among the readers of the others."""
    size = data.draw(st.integers(2, 24))
    lines = []
    for index in range(size):
        read = [data.draw(st.integers(-1, index - 1)) for _ in range(2)]
        operator = data.draw(st.sampled_from(["Add", "Add", "MatMul"]))
        lines.append(f"v{index} = {operator} ({', '.join('x' if r < 0 else f'v{r}' for r in read)})")
    ends = [f"v{i}" for i in range(size) if not any(f"v{i}," in line or f"v{i})" in line for line in lines)]
    stage = regions(f"g (float[2,2] x) => ({', '.join(f'float[2,2] {end}' for end in ends)}) {{ {' '.join(lines)} }}")
    assert len(stage.rewrites) == len(stage.matches)
    onnx.checker.check_model(stage.after)
