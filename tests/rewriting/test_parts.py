"""A match inside another match of its pattern is used where the larger one can't be replaced."""

from __future__ import annotations

from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.matching.find import find
from onnx_subgraph.rewriting.rounds import Rewriter
from tests.rewriting.stage import LOADABILITY, pattern, read

LARGER = """<ir_version: 8, opset_import: ["" : 18]>
m (float[2] x, float[3, 2] s) => (float[3, 2] y) { r = Relu (x) y = Mul (r, s) }"""


def scaled() -> Pattern:
    """Its replacement has the shape of `x`, so it can't replace a product with a larger operand."""
    example = '{x: "float32[2]", s: "float32[2]"}'
    return pattern("y = Relu(x) * s?", example=example, extra="where: [s is None or s.rank > 0]", standard="y = Abs(x)")


def test_a_refused_match_leaves_the_smaller_one_to_be_fused() -> None:
    fused = Rewriter((scaled(),), "standard", [LOADABILITY])(read(LARGER))
    assert [(rewrite.pattern, rewrite.op) for rewrite in fused.rewrites] == [("fused", "Abs")]
    assert [node.op_type for node in fused.model.graph] == ["Abs", "Mul"]


def test_a_part_of_a_match_is_not_counted() -> None:
    """The larger match represents both."""
    found = find(read(LARGER), [scaled()])
    assert [len(match.nodes) for match in found.matches] == [2]
    assert [(len(match.nodes), match.part) for match in found.parts] == [(1, True)]
