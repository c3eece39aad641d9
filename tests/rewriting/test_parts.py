"""A match inside another one of its pattern takes the place of that one where it can't be replaced."""

from __future__ import annotations

from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.matching.find import find
from onnx_subgraph.rewriting.rounds import Rewriter
from tests.rewriting.stage import LOADABILITY, pattern, read

LARGER = """<ir_version: 8, opset_import: ["" : 18]>
m (float[2] x, float[3, 2] s) => (float[3, 2] y) { r = Relu (x) y = Mul (r, s) }"""


def scaled() -> Pattern:
    """Its replacement has the shape of `x`, so that it stands for no product with something larger."""
    example = '{x: "float32[2]", s: "float32[2]"}'
    return pattern("y = Relu(x) * s?", example=example, extra="where: [s is None or s.rank > 0]", standard="y = Abs(x)")


def test_a_match_that_is_refused_leaves_its_part() -> None:
    fused = Rewriter((scaled(),), "standard", [LOADABILITY])(read(LARGER))
    assert [(rewrite.pattern, rewrite.op) for rewrite in fused.rewrites] == [("fused", "Abs")]
    assert [node.op_type for node in fused.model.graph] == ["Abs", "Mul"]


def test_a_part_is_no_match_of_its_own() -> None:
    """It is counted nowhere: the larger match speaks for both."""
    found = find(read(LARGER), [scaled()])
    assert [len(match.nodes) for match in found.matches] == [2]
    assert [(len(match.nodes), match.part) for match in found.parts] == [(1, True)]
