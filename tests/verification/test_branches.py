"""A model of two branches, as a decoder with and without a cache: both run, and their fusions are checked on fitting sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnx_subgraph import FuseResult, Options, fuse, load_patterns
from onnx_subgraph.files.models import load
from onnx_subgraph.inputs.feeds import draw_feeds
from onnx_subgraph.verification.bounds import Bound
from onnx_subgraph.verification.showing import is_too_wide
from tests.verification.models import write

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
CACHED = (
    HEAD
    + """ g (float[n, 8] x, bool[1] cached) => (float[n, 8] y) {
  y = If (cached) <
    then_branch = t () => (float[n, 8] u) { [act] s = Sigmoid (x)  u = Mul (x, s) },
    else_branch = e () => (float[n, 8] v) {
      [turn] a = Transpose <perm = [1, 0]> (x)  [back] b = Transpose <perm = [1, 0]> (a)
      [other] s2 = Sigmoid (b)  m = Mul (b, s2)  v = Neg (m) }>
}"""
)
BIASED = (
    HEAD
    + """ g (float[b, s, 64] x, float[b, 4, t, 16] past_k, float[b, 4, t, 16] past_v, float[b, s, t] mask, bool[1] cached)
  => (float[b, 4, s, 16] y, float[b, 1, ?, t] z) <int64[1] second = {1}, int64[1] third = {2}, int64[1] end = {1000},
     int64[4] heads = {0, 0, 4, 16}> {
  y, z = If (cached) <
    then_branch = c () => (float[b, 4, s, 16] u, float[b, 1, ?, t] added) {
      h = Reshape (x, heads)  q = Transpose <perm = [0, 2, 1, 3]> (h)
      each = Unsqueeze (mask, second)  bias = Tanh (each)
      length = Shape <start = 2, end = 3> (q)  start = Neg (length)  last = Slice (bias, start, end, third)
      turned = Transpose <perm = [0, 1, 3, 2]> (past_k)  scores = MatMul (q, turned)  added = Add (last, each)
      masked = Add (scores, added)  p = Softmax <axis = -1> (masked)  u = MatMul (p, past_v) },
    else_branch = e () => (float[b, 4, s, 16] w, float[b, 1, ?, t] other) {
      other = Unsqueeze (mask, second)  o = Reshape (x, heads)  r = Transpose <perm = [0, 2, 1, 3]> (o)  w = Neg (r) }>
}"""
)


def fused(tmp_path: Path, text: str) -> FuseResult:
    return fuse(write(tmp_path / "m.onnx", text), None, load_patterns(), Options(prefer="fusion", opset="keep", dry_run=True))


@pytest.mark.parametrize("declared", ["bool[1] go", "bool go"])
def test_a_switch_is_on_and_off(tmp_path: Path, declared: str) -> None:
    model = load(write(tmp_path / "m.onnx", f"{HEAD} g (float[n] x, {declared}) => (float[n] y) {{ y = Where (go, x, x) }}"))
    assert [bool(np.all(draw_feeds(model, {"n": 3}, seed)["go"])) for seed in range(4)] == [True, False, True, False]


def test_the_fusions_of_both_branches_run_also_one_that_leaves_no_node(tmp_path: Path) -> None:
    result = fused(tmp_path, CACHED)
    assert sorted(rewrite.op for rewrite in result.rewrites) == ["", "com.microsoft.QuickGelu", "com.microsoft.QuickGelu"]
    coverage = result.verdict.coverage
    assert coverage is not None and (coverage.kernel, coverage.alone) == (3, 0)


def test_attention_whose_bias_has_a_length_that_is_not_known_is_kept(tmp_path: Path) -> None:
    """The sum of bias and mask is as long as the longer one. Drawn with a length of 1, it would fit no operator for attention."""
    result = fused(tmp_path, BIASED)
    assert result.undone == () and [rewrite.pattern for rewrite in result.rewrites] == ["multi-head-attention"]


@pytest.mark.parametrize(("limit", "kept"), [("-1e6", 1), ("1e6", 0)], ids=["taken", "not taken"])
def test_a_fusion_that_only_the_outputs_can_show_is_kept_where_its_branch_ran(tmp_path: Path, limit: str, kept: int) -> None:
    """The operator reads x, which the replaced nodes do not. Drawn values would contradict each other."""
    result = fused(
        tmp_path,
        f"""{HEAD} g (float[b, s, 64] x, float[b, 4, s, 16] k, float[b, 4, s, 16] v) => (float[b, 4, s, 16] y)
        <int64[4] heads = {{0, 0, 4, 16}}, float limit = {{{limit}}}> {{
          h = Reshape (x, heads)  q = Transpose <perm = [0, 2, 1, 3]> (h)  most = ReduceMax <keepdims = 0> (x)
          c = Greater (most, limit)
          y = If (c) <
            then_branch = t () => (float[b, 4, s, 16] u) {{ turned = Transpose <perm = [0, 1, 3, 2]> (k)
              d = MatMul (q, turned)  p = Softmax <axis = -1> (d)  u = MatMul (p, v) }},
            else_branch = e () => (float[b, 4, s, 16] w) {{ w = Neg (q) }}>
        }}""",
    )
    attention = [rewrite for rewrite in result.rewrites if rewrite.pattern == "multi-head-attention"]
    assert len(attention) == kept and len(result.undone) == 1 - kept
    coverage = result.verdict.coverage
    assert not kept or (coverage is not None and (coverage.kernel, coverage.alone, coverage.outputs) == (1, 0, 1))


def test_an_output_that_is_empty_in_one_branch_is_compared_in_the_other(tmp_path: Path) -> None:
    """A merged decoder gives the keys of the encoder only where they were not given to it."""
    text = f"""{HEAD} g (float[n, 8] x, bool[1] cached) => (float[n, 8] y, float[m, 8] keys) <int64[1] zero = {{0}}> {{
      s = Sigmoid (x)  y = Mul (x, s)
      keys = If (cached) <
        then_branch = t () => (float[a, 8] none) {{ none = Slice (x, zero, zero, zero) }},
        else_branch = e () => (float[b, 8] all) {{ all = Erf (x) }}>
    }}"""
    result = fused(tmp_path, text)
    assert result.verdict.verdict == "equivalent"
    assert {(run.output, run.bound > 0) for run in result.verdict.runs} == {("y", True), ("keys", True), ("keys", False)}
    assert not any(showing.blind for showing in result.verdict.showings)


def test_nothing_spoils_an_output_that_is_empty() -> None:
    """Otherwise it would be compared without onnxruntime's optimisation only."""
    empty = np.zeros((0, 8))
    assert not is_too_wide(empty.astype(np.float32), Bound(empty)) and not is_too_wide(
        empty.astype(np.int64), Bound(np.array(1.0))
    )


def test_outputs_of_one_number_are_measured_by_its_size() -> None:
    """They have no spread. The sign does not matter."""
    for sign in (1, -1):
        array = np.full(8, 5.0 * sign, np.float32)
        assert is_too_wide(array, Bound(np.asarray(0.0), aggregate=0.6))
        assert not is_too_wide(array, Bound(np.asarray(0.0), aggregate=0.4))
