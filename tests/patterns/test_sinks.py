"""Attention with sinks: each head has one more logit, which takes a part of the weights and gives no value."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from onnx_subgraph.language.library import Library, load_patterns
from onnx_subgraph.options import Options
from onnx_subgraph.pipeline import fuse
from onnx_subgraph.verification.verify import verify

MODEL = """<ir_version: 8, opset_import: ["" : 18]>
g (float[b, 4, s, {size}] q, float[b, 2, {keys}, {size}] key, float[b, 2, {keys}, {size}] value, float[b, 1, s, {keys}] mask)
  => (float[b, 4, s, {size}] y)
<int64[1] minus = {{-1}}, int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}},
 int64[1] far = {{9223372036854775807}}, int64[5] twice = {{1, 1, 2, 1, 1}},
 int64[4] four = {{0, 4, -1, {size}}}, float half = {{0.5}},
 float[1, 4, 1, 1] sink = {{-1, 0, 1, 2}}, float[1, 4, 1] level = {{-1, 0, 1, 2}}> {{
  k1 = Unsqueeze(key, two) k2 = Tile(k1, twice) k3 = Reshape(k2, four) k = Transpose <perm = [0, 1, 3, 2]> (k3)
  v1 = Unsqueeze(value, two) v2 = Tile(v1, twice) v = Reshape(v2, four)
  product = MatMul(q, k) scaled = Mul(product, half) scores = Add(scaled, mask)
  {sunk} }}"""
COLUMN = """rows = Shape <start = 0, end = 3> (q) places = Concat <axis = 0> (rows, one) column = Expand(sink, places)
  logits = Concat <axis = -1> ({logits})"""
DROPPED = "kept = Slice(p, {start}, {end}, minus) y = MatMul(kept, v)"
SINKS = {
    "gpt-oss": f"""{COLUMN.format(logits="scores, column")} most = ReduceMax <keepdims = 1> (logits, minus)
  less = Sub(logits, most) p = Softmax <axis = -1> (less) {DROPPED.format(start="zero", end="minus")}""",
    "Flint": f"""{COLUMN.format(logits="scores, column")} p = Softmax <axis = -1> (logits)
  {DROPPED.format(start="zero", end="minus")}""",
    "Granite": """sum = ReduceLogSumExp <keepdims = 0> (scores, minus) over = Sub(sum, level) share = Sigmoid(over)
  p = Softmax <axis = -1> (scores) all = MatMul(p, v) factor = Unsqueeze(share, minus) y = Mul(all, factor)""",
}


@pytest.fixture(scope="module")
def library() -> Library:
    return load_patterns()


def saved(folder: Path, sunk: str, keys: str = "s", size: int = 8) -> Path:
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(MODEL.format(sunk=sunk, keys=keys, size=size)), path)
    return path


@pytest.mark.parametrize(
    ("keys", "size", "operator"),
    [
        ("s", 8, "com.microsoft.GroupQueryAttention"),
        ("t", 8, "Attention"),  # keys of past tokens
        ("s", 4, "Attention"),  # a size that the kernel of groups does not take
    ],
)
@pytest.mark.parametrize("name", SINKS)
def test_attention_with_sinks_becomes_one_operator(
    name: str, keys: str, size: int, operator: str, library: Library, tmp_path: Path
) -> None:
    result = fuse(saved(tmp_path, SINKS[name], keys, size), None, library, Options(dry_run=True))
    assert result.operators_after.get(operator) == 1 and "Softmax" not in result.operators_after, result.near_misses
    assert (result.verdict.verdict, result.verdict.strength) == ("equivalent", "kernel")


@pytest.mark.parametrize("target", ["onnxruntime", "standard", "native"])
@pytest.mark.parametrize("name", SINKS)
def test_scores_may_be_masked_and_capped_in_any_way(name: str, target: str, library: Library, tmp_path: Path) -> None:
    """By Where, under the bound c · tanh(scores / c), as in a formula without a sink."""
    path = saved(tmp_path, SINKS[name])
    masked = """slow = Div(scaled, cap) bent = Tanh(slow) capped = Mul(bent, cap)
  hidden = Cast <to = 9> (mask) scores = Where(hidden, low, capped)"""
    text = MODEL.format(sunk=SINKS[name], keys="s", size=8).replace("scores = Add(scaled, mask)", masked)
    text = text.replace("float half = {0.5}", "float half = {0.5}, float cap = {8}, float low = {-3.4028234663852886e38}")
    onnx.save(onnx.parser.parse_model(text), path)
    result = fuse(path, None, library, Options(dry_run=True, target=target))
    assert [one.pattern for one in result.rewrites] == ["multi-head-attention"], result.near_misses
    assert (result.verdict.verdict, result.verdict.strength) == ("equivalent", "kernel")


@pytest.mark.parametrize("keys", ["s", "t"])
@pytest.mark.parametrize("name", SINKS)
def test_the_sink_takes_all_weight_of_a_row_that_is_masked(name: str, keys: str, library: Library, tmp_path: Path) -> None:
    """Without a sink, such a row is the mean of the values. With one it is zero."""
    model, fused = saved(tmp_path, SINKS[name], keys), tmp_path / "fused.onnx"
    fuse(model, fused, library, Options())
    draw = np.random.default_rng(0)
    mask = np.zeros((2, 1, 5, 5), np.float32)
    mask[:, :, :2] = np.finfo(np.float32).min
    sizes = {"q": (2, 4, 5, 8), "key": (2, 2, 5, 8), "value": (2, 2, 5, 8)}
    np.savez(tmp_path / "feeds.npz", mask=mask, **{n: draw.standard_normal(s).astype(np.float32) for n, s in sizes.items()})
    verdict = verify(model, fused, inputs=tmp_path / "feeds.npz")
    assert (verdict.verdict, verdict.strength) == ("equivalent", "kernel"), verdict.worst


@pytest.mark.parametrize(
    ("logits", "start", "end"),
    [
        ("scores, column", "one", "far"),  # the first score is dropped, and the sink is a weight
        ("column, scores", "zero", "minus"),  # the last score is dropped
    ],
)
def test_a_column_that_stays_is_no_sink(logits: str, start: str, end: str, library: Library, tmp_path: Path) -> None:
    sunk = f"""{COLUMN.format(logits=logits)} p = Softmax <axis = -1> (logits) {DROPPED.format(start=start, end=end)}"""
    result = fuse(saved(tmp_path, sunk), None, library, Options(dry_run=True))
    assert result.operators_after.get("Softmax") == 1 and not result.undone


@pytest.mark.parametrize(
    ("name", "given", "instead"),
    [
        ("gpt-oss", "float[1, 4, 1, 1] sink = {-1, 0, 1, 2}", "float[1, 1, 1, 1] sink = {1}"),
        ("Flint", "float[1, 4, 1, 1] sink = {-1, 0, 1, 2}", "float[1, 1, 1, 1] sink = {1}"),
        ("Granite", "float[1, 4, 1] level = {-1, 0, 1, 2}", "float[1, 1, 5] level = {1, 2, 3, 4, 5}"),
    ],
)
def test_a_sink_that_is_not_one_number_of_each_head_is_left(
    name: str, given: str, instead: str, library: Library, tmp_path: Path
) -> None:
    path = saved(tmp_path, SINKS[name])
    onnx.save(
        onnx.parser.parse_model(MODEL.format(sunk=SINKS[name], keys="5", size=8).replace(" s,", " 5,").replace(given, instead)),
        path,
    )
    result = fuse(path, None, library, Options(dry_run=True))
    assert result.operators_after.get("Softmax") == 1 and not result.undone
