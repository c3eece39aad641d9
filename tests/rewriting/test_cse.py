"""Common-subexpression elimination for the package's nodes and for standard nodes that only they read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import onnx_ir as ir
import pytest

from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.rewriting.cse import eliminate_common
from onnx_subgraph.rewriting.outline import Outline

TEXT = """<ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1]>
g (bool[N, 4] m, float[N, 4] x) => (float[N, 4] y{also})
<float zero = {{0}}, float nought = {{0}}, float low = {{{low}}}, float deep = {{-9}}>
{{ a = {first} b = {second} p = Relu(a) q = Relu(b) y = Max(p, q) }}"""


def shared(first: str, second: str, *, low: float = -9, also: str = "", fused: Collection[str] = ()) -> Counter[str]:
    """The remaining operators of two computations, each read by a Relu of the package, which is named `p` or `q`."""
    model = ir.from_onnx_text(TEXT.format(first=first, second=second, low=low, also=also))
    infer_shapes(model)
    for node in model.graph:
        if node.op_type == "Relu":
            node.name = node.outputs[0].name
            node.metadata_props["ours"] = "yes"
    eliminate_common(Outline(model), Constants(model), "ours", fused=fused)
    return Counter(node.op_type for node in model.graph)


def test_equal_computations_with_separate_constants_are_merged() -> None:
    assert shared("Where(m, zero, low)", "Where(m, nought, deep)") == {"Where": 1, "Relu": 1, "Max": 1}


def test_a_graph_output_stays_and_its_readers_are_merged() -> None:
    left = shared("Where(m, zero, low)", "Where(m, nought, deep)", also=", float[N, 4] b")
    assert left == {"Where": 2, "Relu": 1, "Max": 1}


def test_what_only_fused_nodes_read_is_merged_and_they_are_not() -> None:
    left = shared("Where(m, zero, low)", "Where(m, nought, deep)", fused={"p", "q"})
    assert left == {"Where": 1, "Relu": 2, "Max": 1}


def test_a_fused_node_that_computes_an_output_is_a_reader_like_any_other() -> None:
    left = shared("Where(m, zero, low)", "Where(m, nought, deep)", fused={"p", "q"}, also=", float[N, 4] p, float[N, 4] q")
    assert left == {"Where": 1, "Relu": 2, "Max": 1}


def test_equal_results_of_the_graph_stay() -> None:
    left = shared("Where(m, zero, low)", "Where(m, nought, deep)", also=", float[N, 4] p, float[N, 4] q")
    assert left == {"Where": 1, "Relu": 2, "Max": 1}


def test_nothing_is_merged_into_a_node_that_a_merge_removed() -> None:
    # The second Expand is equal to the first one, and takes its Shape with it. The third one has an equal Shape, which stays.
    model = ir.from_onnx_text("""<ir_version: 8, opset_import: ["" : 18]>
g (float[2] x) => (float[2] y, float[2] z) <int64[1] two = {2}, float low = {-9}> {
  k = Constant <value = float[2] {0, 0}> () a = Expand(low, two) p = Relu(a) s = Shape(k) b = Expand(low, s) q = Relu(b)
  y = Max(p, q) u = Shape(k) c = Expand(x, u) z = Relu(c) }""")
    infer_shapes(model)
    for node in model.graph:
        if node.op_type == "Relu":
            node.metadata_props["ours"] = "yes"
    eliminate_common(Outline(model), Constants(model), "ours", fused=())
    made = {value for node in model.graph for value in node.outputs}
    read = {value for node in model.graph for value in node.inputs if value is not None and value.producer() is not None}
    assert read <= made


def test_what_only_a_merged_node_read_is_removed() -> None:
    # Both Expands read the same constant, but only the second one from a computation. Without its reader that is dead.
    computed = "k = Constant <value = float[2] {0, 0}> () s = Shape(k)"
    model = ir.from_onnx_text(f"""<ir_version: 8, opset_import: ["" : 18]>
g (float[2] x) => (float[2] y) <int64[1] two = {{2}}, float low = {{-9}}>
{{ a = Expand(low, two) p = Relu(a) {computed} b = Expand(low, s) q = Relu(b) y = Max(p, q) }}""")
    infer_shapes(model)
    for node in model.graph:
        if node.op_type == "Relu":
            node.metadata_props["ours"] = "yes"
    eliminate_common(Outline(model), Constants(model), "ours", fused=())
    assert [node.op_type for node in model.graph] == ["Expand", "Relu", "Max"]


@pytest.mark.parametrize(
    ("first", "second", "low", "also"),
    [
        ("Where(m, zero, low)", "Where(m, nought, deep)", -8, ""),  # another constant
        ("Abs(x)", "Neg(x)", -9, ""),  # another operator
        ("RandomNormalLike(x)", "RandomNormalLike(x)", -9, ""),  # random numbers
        (
            "com.microsoft.Gelu(x)",
            "com.microsoft.Gelu(x)",
            -9,
            "",
        ),  # an operator of an unknown domain may depend on more than its inputs
    ],
)
def test_computations_that_may_differ_are_not_merged(first: str, second: str, low: float, also: str) -> None:
    left = shared(first, second, low=low, also=also)
    assert (left["Relu"], left.total()) == (2, 5)
