"""A match that hands its result to a larger one is replaced first, so that both are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

from onnx_subgraph import Options, fuse, load_patterns
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.matching.match import Match
from onnx_subgraph.rewriting.outline import Outline
from onnx_subgraph.rewriting.sequence import in_sequence

LLAMA = """<ir_version: 10, opset_import: ["" : 18]>
g (float[2, 7, 32] x, float[1, 7, 1, 4] c, float[1, 7, 1, 4] s, float[1, 1, 7, 7] mask) => (float[2, 7, 32] y)
<float[32, 32] wq = {WIDE}, float[32, 16] wk = {NARROW}, float[32, 16] wv = {NARROW}, int64[5] pairsq = {2, 7, 4, 4, 2},
 int64[5] pairsk = {2, 7, 2, 4, 2}, int64[4] headsq = {2, 7, 4, 8}, int64[4] headsk = {2, 7, 2, 8}, int64[3] joined = {2, 7, 32},
 int64[5] each = {2, 7, 2, 2, 8}, int64[1] last = {-1}, int64[1] three = {3}, float scale = {0.35355338}> {
  PARTS
  kw = Unsqueeze(kr, three)  kx = Expand(kw, each)  kh = Reshape(kx, headsq)  kt = Transpose <perm = [0, 2, 3, 1]> (kh)
  v = MatMul(x, wv)  vh = Reshape(v, headsk)
  vu = Unsqueeze(vh, three)  ve = Expand(vu, each)  vr = Reshape(ve, headsq)  vt = Transpose <perm = [0, 2, 1, 3]> (vr)
  qt = Transpose <perm = [0, 2, 1, 3]> (qr)
  d = MatMul(qt, kt)  e = Mul(d, scale)  f = Add(e, mask)  p = Softmax <axis = -1> (f)  a = MatMul(p, vt)
  b = Transpose <perm = [0, 2, 1, 3]> (a)  y = Reshape(b, joined)
}"""
TURNED = """Q = MatMul(x, wQ)  Qp = Reshape(Q, pairsQ)  Qa, Qb = Split <axis = -1, num_outputs = 2> (Qp)
  Qe = Squeeze(Qa, last)  Qo = Squeeze(Qb, last)  Qec = Mul(Qe, c)  Qos = Mul(Qo, s)  Qm = Sub(Qec, Qos)
  Qes = Mul(Qe, s)  Qoc = Mul(Qo, c)  Qn = Add(Qes, Qoc)  Qu = Unsqueeze(Qm, last)  Qv = Unsqueeze(Qn, last)
  Qz = Concat <axis = -1> (Qu, Qv)  Qr = Reshape(Qz, headsQ)"""


@pytest.mark.parametrize("prefer", ["speed", "fusion"])
def test_an_attention_leaves_the_reshape_that_ends_a_rotary_embedding(tmp_path: Path, prefer: str) -> None:
    """Llama's own code turns neighbours, which ends in a reshape. The attention could read what is before it."""
    numbers = [f"{(7 * n) % 13 / 40 - 0.15:.3f}" for n in range(32 * 32)]
    text = LLAMA.replace("PARTS", "\n".join(TURNED.replace("Q", name) for name in "qk"))
    text = text.replace("WIDE", ", ".join(numbers)).replace("NARROW", ", ".join(numbers[:512]))
    onnx.save(onnx.parser.parse_model(text), path := tmp_path / "m.onnx")
    result = fuse(path, None, load_patterns(), Options(prefer=prefer, dry_run=True))
    found = [rewrite.pattern for rewrite in result.rewrites]
    assert found.count("rotary-embedding") == 2 and "multi-head-attention" in found
    assert result.verdict.verdict == "equivalent" and not result.undone


@pytest.mark.parametrize("file", ["mine.yaml", "built-in.yaml"])
def test_a_larger_match_of_the_users_pattern_comes_first(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A built-in pattern that hands its result on to it does not."""
    model = ir.from_onnx_text("""<ir_version: 10, opset_import: ["" : 18]>
    g (float[2, 6] x) => (float[3, 2, 2] y) <int64[3] heads = {2, 2, 3}> {
      e = Exp(x)  a = Abs(e)  r = Reshape(a, heads)  t = Transpose <perm = [2, 0, 1]> (r)  s = Sin(t)  y = Cos(s)
    }""")
    nodes = list(model.graph)
    built_in = load_patterns().get("gelu")
    large, small = replace(built_in, file=file, id="large"), replace(built_in, id="small")

    def match(pattern: Pattern, of: list[ir.Node]) -> Match:
        roots = {"y": of[-1].outputs[0]}
        return Match(pattern, model.graph, dict(roots), {}, roots, tuple(of), {})

    monkeypatch.setattr("onnx_subgraph.rewriting.sequence.is_built_in", lambda name: name != "mine.yaml")
    found = in_sequence([match(small, nodes[:3]), match(large, nodes[2:])], Outline(model))
    assert [one.pattern.id for one in found] == (["large", "small"] if file == "mine.yaml" else ["small", "large"])
