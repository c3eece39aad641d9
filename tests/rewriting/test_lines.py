"""Which line of a pattern file matched which nodes: every matched node has a line, and no line has nodes that others matched."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from onnx_subgraph.language.library import load_patterns
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.language.reading import parse_pattern
from onnx_subgraph.matching.find import find
from onnx_subgraph.matching.match import Match
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.proving.instance import build
from onnx_subgraph.proving.spelling import LATEST, Spelling
from onnx_subgraph.rewriting.lines import matched_lines

PATTERNS = [pattern for pattern in load_patterns().patterns if pattern.is_formula and pattern.grow is None]
TWO_LINES = """
id: softsign-norm
summary: x / Σ softsign(x) + shift
match: |
  s = Softsign(x)
  total = ReduceSum(s, axes=[-1])
  same = total | Neg(total)
  y = s / same + shift?
example: {x: "float32[2, 8]", shift: "float32[8]"}
"""


def matches(model: ir.Model, pattern: Pattern) -> tuple[Match, ...]:
    infer_shapes(model)
    return find(model, [pattern]).matches


def named(match: Match) -> dict[str, list[str]]:
    """Line → the operators of its nodes."""
    nodes = [node for node in match.nodes if node.op_type != "Constant"]
    return {line.text: [nodes[i].op_type for i in line.steps] for line in matched_lines(match, match.nodes)}


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.id)
def test_every_matched_node_has_a_line(pattern: Pattern) -> None:
    found = matches(ir.from_proto(build(pattern, Spelling(opset=LATEST)).proto), pattern)
    assert found
    for match in found:
        steps = {step for line in matched_lines(match, match.nodes) for step in line.steps}
        assert steps == set(range(sum(node.op_type != "Constant" for node in match.nodes)))


def test_a_line_has_the_nodes_that_it_matched() -> None:
    """Another name for a value has no nodes, and is left out."""
    text = """<ir_version: 8, opset_import: ["" : 18]>
    net (float[n, 8] x, float[8] b) => (float[n, 8] y) <int64[1] axes = {-1}> {
      s = Softsign (x)  t = ReduceSum (s, axes)  i = Identity (s)  q = Div (i, t)  y = Add (b, q)
    }"""
    (match,) = matches(ir.from_onnx_text(text), parse_pattern(TWO_LINES, "softsign_norm.yaml"))
    assert named(match) == {
        "s = Softsign(x)": ["Softsign", "Identity"],
        "total = ReduceSum(s, axes=[-1])": ["ReduceSum"],
        "y = s / same + shift?": ["Div", "Add"],
    }


def test_a_shape_that_is_computed_beside_a_match_has_no_line() -> None:
    pattern = parse_pattern(
        'id: flat-exp\nsummary: none\nmatch: |\n  e = Exp(Neg(x))\n  y = rearrange(e, "a b c -> a (b c)")\n'
        'example: {x: "float32[2, 3, 8]"}\n',
        "flat_exp.yaml",
    )
    text = """<ir_version: 8, opset_import: ["" : 18]>
    net (float[n, m, 8] x) => (float[n, k] y) <int64[1] first = {0}, int64[1] rest = {-1}> {
      g = Neg (x)  e = Exp (g)  s = Shape (g)  p = Gather (s, first)  c = Concat <axis = 0> (p, rest)  y = Reshape (e, c)
    }"""
    (match,) = matches(ir.from_onnx_text(text), pattern)
    every = [node for node in match.graph if node.op_type != "Constant"]
    lines = {line.text.split(" ")[0]: [every[i].op_type for i in line.steps] for line in matched_lines(match, every)}
    assert lines == {"e": ["Neg", "Exp"], "y": ["Reshape"]}
