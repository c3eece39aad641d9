"""Regions of ONNX graphs: their inputs, their outputs, and the questions by which they grow."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from onnx_subgraph.regions.region import Region, grow, grow_from

HEAD = '<ir_version: 10, opset_import: ["" : 20]>'
ELEMENTWISE = frozenset({"Add", "Mul", "Relu", "Tanh"})


def graph(text: str) -> ir.Graph:
    return ir.from_onnx_text(f"{HEAD} {text}").graph


def words(region: Region) -> str:
    """A region as `inputs → operators → outputs`."""
    inputs, outputs = (" ".join(v.name or "" for v in values) for values in (region.inputs, region.outputs))
    return f"{inputs} → {' '.join(n.op_type for n in region.nodes)} → {outputs}"


def elementwise(text: str) -> list[str]:
    return [words(r) for r in grow(graph(text), lambda node: node.op_type in ELEMENTWISE)]


def test_a_region_has_its_initializers_as_inputs_and_read_values_as_outputs() -> None:
    regions = elementwise("""
        g (float[2] x) => (float[2] y, float[2] z) <float[2] w = {1, 2}> {
            a = Add (x, w)
            b = Relu (a)
            y = Softmax (b)
            z = Tanh (b)
        }""")
    assert regions == ["x w → Add Relu Tanh → b z"]


def test_a_graph_output_inside_is_an_output() -> None:
    assert elementwise("g (float[2] x) => (float[2] a, float[2] y) { a = Relu (x)  y = Tanh (a) }") == ["x → Relu Tanh → a y"]


def test_no_path_leaves_a_region_and_returns() -> None:
    regions = elementwise("""
        g (float[2] x) => (float[2] y) { a = Relu (x)  b = Tanh (a)  s = Softmax (a)  y = Add (b, s) }""")
    assert regions == ["x → Relu Tanh → a b", "b s → Add → y"]


BODY = """
    g (float[2] x, bool c) => (float[2] y) {
        a = Relu (x)
        t = Tanh (a)
        i = If (c) <
            then_branch = then () => (float[2] p) { q = Add (a, a)  p = Relu (q) },
            else_branch = other () => (float[2] r) { r = Tanh (x) }
        >
        y = Add (t, i)
    }"""


def test_a_value_that_a_body_captures_is_an_output_of_the_region() -> None:
    """Only the body of the If reads `a`. So the If is between Relu and Add, and the region ends before it."""
    assert elementwise(BODY) == ["x → Relu Tanh → a t", "t i → Add → y"]


def test_each_body_has_its_own_regions() -> None:
    (then, other) = graph(BODY).subgraphs()
    assert [words(r) for r in grow(then, lambda node: True)] == ["a → Add Relu → p"]
    assert [words(r) for r in grow(other, lambda node: True)] == ["x → Tanh → r"]


def test_a_region_with_an_if_reads_what_its_bodies_capture() -> None:
    regions = grow(graph(BODY), lambda node: node.op_type in {"If", "Add"})
    assert [words(r) for r in regions] == ["c a x t → If Add → y"]


def test_a_region_of_all_nodes_has_the_inputs_and_outputs_of_the_graph() -> None:
    assert [words(r) for r in grow(graph(BODY), lambda node: True)] == ["x c → Relu Tanh If Add → y"]


class Branch:
    """A selector that starts at a Conv and follows the readers one after another, up to an Add."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def select(self, node: ir.Node) -> bool:
        self.asked.append(f"select {node.op_type}")
        return node.op_type == "Conv"

    def select_input(self, node: ir.Node, producer: ir.Node) -> bool:
        self.asked.append(f"{node.op_type} ← {producer.op_type}")
        return False

    def select_output(self, node: ir.Node, consumer: ir.Node) -> bool:
        self.asked.append(f"{node.op_type} → {consumer.op_type}")
        return consumer.op_type in {"Relu", "Add"} and node.op_type != "Add"


TWO_BRANCHES = """
    g (float[1,1,4,4] x, float[1,1,1,1] w) => (float[1,1,4,4] y) {
        p = Conv (x, w)
        q = Relu (p)
        r = Conv (x, w)
        s = Add (q, r)
        y = Tanh (s)
    }"""


def test_a_region_grows_by_its_questions_and_the_first_of_two_gets_a_node() -> None:
    questions = Branch()
    regions = grow_from(graph(TWO_BRANCHES), questions)
    assert [words(r) for r in regions] == ["x w r → Conv Relu Add → s", "x w → Conv → r"]
    assert questions.asked == [
        *("select Conv", "Conv → Relu", "Relu → Add", "Add ← Conv", "Add → Tanh"),
        *("select Conv", "select Tanh"),
    ]


class Everything(Branch):
    """The same, and it also takes the producers of an Add's inputs."""

    def select_input(self, node: ir.Node, producer: ir.Node) -> bool:
        return node.op_type == "Add"


def test_a_region_grows_along_an_incoming_edge() -> None:
    assert [words(r) for r in grow_from(graph(TWO_BRANCHES), Everything())] == ["x w → Conv Relu Conv Add → s"]


def test_a_part_without_a_start_node_is_left_out() -> None:
    """Conv → Relu and Add, with a Softmax between them: the Add is split off, and alone it is no region of this selector."""
    regions = grow_from(
        graph("""
            g (float[1,1,4,4] x, float[1,1,1,1] w) => (float[1,1,4,4] y) {
                p = Conv (x, w)  q = Relu (p)  s = Softmax (q)  y = Add (q, s)
            }"""),
        Branch(),
    )
    assert [words(r) for r in regions] == ["x w → Conv Relu → q"]


@pytest.mark.parametrize("text", [BODY, TWO_BRANCHES])
def test_growing_changes_nothing(text: str) -> None:
    model = graph(text)
    before = ir.to_proto(model).SerializeToString()
    grow(model, lambda node: True)
    assert ir.to_proto(model).SerializeToString() == before
