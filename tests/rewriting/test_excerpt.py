"""The excerpt of a rewrite for a drawing: what it removed and added, limited to what can be drawn."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from onnx_subgraph.matching.find import find
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.rewriting.apply import apply
from onnx_subgraph.rewriting.excerpt import MOST_NODES, Edge, excerpt
from onnx_subgraph.rewriting.rewrite import Rewrite
from tests.rewriting.stage import LOADABILITY, pattern, read

SCALED_TANH = pattern("y = k * Tanh(x) + b", example='{x: "float32[2]", k: "float32[1]", b: "float32[2]"}')
MODEL = """<ir_version: 8, opset_import: ["": 17]>
g (float[N, 2] x, float[2] b) => (float[N, 2] y, float[N, 2] z) <float k = {1.7159}> {
    t = Tanh(x)
    u = Mul(k, t)
    y = Add(u, b)
    z = Neg(y)
}"""


def rewrites(model: ir.Model, *, excerpts: bool = True) -> tuple[Rewrite, ...]:
    constants = Constants(model)
    matches = find(model, [SCALED_TANH], constants=constants).matches
    return apply(model, matches, target="function", loadability=[LOADABILITY], constants=constants, excerpts=excerpts)[0]


def test_what_was_removed_and_what_was_added() -> None:
    (rewrite,) = rewrites(read(MODEL))
    before, after = rewrite.before, rewrite.after
    assert before is not None and after is not None
    assert [step.op_type for step in before.steps] == ["Tanh", "Mul", "Add"]
    assert [step.op_type for step in after.steps] == ["Fused"]
    assert [after.edges[i].name for i in after.results] == ["y"]
    assert [before.edges[i].name for i in before.reads] == ["x", "b"]
    assert after.steps[0].fused and not any(step.fused for step in before.steps)


def test_values_have_their_types_and_small_constants_their_elements() -> None:
    (rewrite,) = rewrites(read(MODEL))
    assert rewrite.before is not None
    edges = {edge.name: edge for edge in rewrite.before.edges}
    assert edges["x"] == Edge("x", "float32", ("N", 2))
    assert edges["k"] == Edge("k", "float32", (), constant=True, literal="1.7159")
    assert not edges["b"].constant, "an input of the graph is none"


def test_excerpts_are_made_only_on_request() -> None:
    (rewrite,) = rewrites(read(MODEL), excerpts=False)
    assert rewrite.before is None and rewrite.after is None


@pytest.mark.parametrize("count", [MOST_NODES, MOST_NODES + 1])
def test_for_a_large_part_only_the_operators_are_counted(count: int) -> None:
    lines = "\n".join(f"v{i} = Neg(v{i - 1})" for i in range(1, count + 1))
    model = read(f'<ir_version: 8, opset_import: ["": 17]> g (float[2] v0) => (float[2] v{count}) {{ {lines} }}')
    part = excerpt(model.graph, lambda value: value.const_value, lambda node: False)
    assert len(part.steps) == (count if count <= MOST_NODES else 0)
    assert part.operators == {"Neg": count} and part.size == count


def test_an_absent_operand_is_absent() -> None:
    model = read(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[N] x, float high) => (float[N] y) { y = Clip(x, , high) }"""
    )
    part = excerpt(model.graph, lambda value: value.const_value, lambda node: False)
    assert [part.edges[i].name if i is not None else None for i in part.steps[0].inputs] == ["x", None, "high"]


def test_a_type_is_called_by_its_name() -> None:
    model = read('<ir_version: 8, opset_import: ["": 17]> g (float[N] x) => (float16[N] y) { y = Cast <to = 10> (x) }')
    part = excerpt(model.graph, lambda value: value.const_value, lambda node: False)
    assert part.steps[0].attributes == (("to", "float16"),)
