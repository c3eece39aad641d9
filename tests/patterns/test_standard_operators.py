"""Operators of the standard that exporters write by themselves from opset 23 on: Attention, RMSNormalization, RotaryEmbedding.

For our library they become its operators, as their spellings do. A provider with a kernel keeps them, and nothing is said.
"""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser
import pytest

from onnx_subgraph.language.library import Library, load_patterns
from onnx_subgraph.options import Options
from onnx_subgraph.pipeline import fuse
from onnx_subgraph.proving import prove
from onnx_subgraph.result import FuseResult

HEAD = '<ir_version: 10, opset_import: ["" : 23]> g '
APART = "float[b, 4, s, 8] q, float[b, {groups}, {keys}, 8] k, float[b, {groups}, {keys}, 8] v"
ALONE = {
    "plain": (f"{APART}", "y = Attention (q, k, v)"),
    "scaled and capped": (APART, "y = Attention <scale = 0.3, softcap = 5.0> (q, k, v)"),
    "a mask of numbers": (f"{APART}, float[b, 1, s, {{keys}}] mask", "y = Attention (q, k, v, mask)"),
    "a mask of truths": (f"{APART}, bool[b, 1, s, {{keys}}] mask", "y = Attention (q, k, v, mask)"),
    "causal": (APART, "y = Attention <is_causal = 1> (q, k, v)"),
    "causal, with a mask": (f"{APART}, float[s, {{keys}}] mask", "y = Attention <is_causal = 1> (q, k, v, mask)"),
    "heads side by side": (
        "float[b, s, 32] q, float[b, {keys}, {groups}0] k, float[b, {keys}, {groups}0] v",
        "y = Attention <q_num_heads = 4, kv_num_heads = {groups}> (q, k, v)",
    ),
}
BLOCK = f"""{HEAD} (float[b, s, 32] x, float[b, s, 32] z, float[b, 1, s, s] mask) => (float[b, s, 32] y)
  <float[32] w = {{1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8}},
   int64[4] heads = {{0, 0, 4, 8}}, int64[3] joined = {{0, 0, 32}}> {{
  n = RMSNormalization <axis = -1, epsilon = 1e-6> (x, w)
  q0 = Reshape (n, heads) q = Transpose <perm = [0, 2, 1, 3]> (q0)
  k0 = Reshape (x, heads) k = Transpose <perm = [0, 2, 1, 3]> (k0)
  v0 = Reshape (z, heads) v = Transpose <perm = [0, 2, 1, 3]> (v0)
  a = Attention (q, k, v, mask) t = Transpose <perm = [0, 2, 1, 3]> (a) y = Reshape (t, joined) }}"""
DECODER = f"""{HEAD} (float[b, s, 32] x, float[b, s, 16] z, float[b, s, 4] c, float[b, s, 4] i, bool[b, 1, s, s] mask) => (y)
  <float[8] w = {{1, 2, 3, 4, 5, 6, 7, 8}}, int64[4] four = {{0, 0, 4, 8}}, int64[4] two = {{0, 0, 2, 8}}, int64[1] axis = {{2}},
   int64[5] times = {{1, 1, 2, 1, 1}}, int64[4] all = {{0, 4, -1, 8}}, int64[3] joined = {{0, 0, 32}}> {{
  q0 = Reshape (x, four) q1 = Transpose <perm = [0, 2, 1, 3]> (q0) q2 = RMSNormalization <axis = -1> (q1, w)
  q = RotaryEmbedding <num_heads = 4> (q2, c, i)
  k0 = Reshape (z, two) k1 = Transpose <perm = [0, 2, 1, 3]> (k0) k2 = RMSNormalization <axis = -1> (k1, w)
  k3 = RotaryEmbedding <num_heads = 2> (k2, c, i) k4 = Unsqueeze (k3, axis) k5 = Expand (k4, times) k = Reshape (k5, all)
  v0 = Reshape (z, two) v1 = Transpose <perm = [0, 2, 1, 3]> (v0) v2 = Unsqueeze (v1, axis) v3 = Expand (v2, times)
  v = Reshape (v3, all) a = Attention (q, k, v, mask) t = Transpose <perm = [0, 2, 1, 3]> (a) y = Reshape (t, joined) }}"""
"""As torch exports Qwen 3 at opset 23: heads are normalized and turned, and each key and value is repeated for two heads."""
PARTIAL = DECODER.replace(
    "q = RotaryEmbedding <num_heads = 4> (q2, c, i)",
    "q3 = Slice (q2, zero, four_, last) q4 = RotaryEmbedding <num_heads = 4> (q3, c, i) q5 = Slice (q2, four_, end, last)"
    " q = Concat <axis = -1> (q4, q5)",
).replace(
    "k3 = RotaryEmbedding <num_heads = 2> (k2, c, i)",
    "ka, kb = Split <axis = -1, num_outputs = 2> (k2) kc = RotaryEmbedding <num_heads = 2> (ka, c, i)"
    " k3 = Concat <axis = -1> (kc, kb)",
)
PARTIAL = (
    PARTIAL.replace("s, 4] c", "s, 2] c")
    .replace("s, 4] i", "s, 2] i")
    .replace(
        "<float[8] w",
        "<int64[1] zero = {0}, int64[1] four_ = {4}, int64[1] end = {9223372036854775807}, int64[1] last = {-1}, float[8] w",
    )
)
"""As torch exports Phi and GLM at opset 23: only the first half of each head is turned."""
STEP = (
    DECODER.replace(
        "bool[b, 1, s, s] mask) => (y)", "bool[b, 1, s, t] mask, PAST) => (y, float[b, 2, t, 8] k, float[b, 2, t, 8] v)"
    )
    .replace("PAST", "float[b, 2, p, 8] past_k, float[b, 2, p, 8] past_v")
    .replace("k4 = Unsqueeze (k3,", "k = Concat <axis = 2> (past_k, k3) k4 = Unsqueeze (k,")
    .replace("k = Reshape (k5, all)", "ks = Reshape (k5, all)")
    .replace("v2 = Unsqueeze (v1,", "v = Concat <axis = 2> (past_v, v1) v2 = Unsqueeze (v,")
    .replace("v = Reshape (v3, all) a = Attention (q, k, v, mask)", "vs = Reshape (v3, all) a = Attention (q, ks, vs, mask)")
)
"""The same as a step with past keys and values, which are outputs together with the new ones."""
ROTARY = (
    f"{HEAD} (float[b, 4, s, 8] x, float[b, s, 4] c, float[b, s, 4] i) => (float[b, 4, s, 8] y) "
    "{ y = RotaryEmbedding <interleaved = INTERLEAVED> (x, c, i) }"
)


@pytest.fixture(scope="module")
def library() -> Library:
    return load_patterns()


def fused(text: str, folder: Path, library: Library, **options: object) -> FuseResult:
    onnx.save(onnx.parser.parse_model(text), folder / "model.onnx")
    return fuse(folder / "model.onnx", None, library, Options(dry_run=True, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize(("groups", "keys"), [(4, "s"), (2, "t")], ids=["self", "shared heads, other keys"])
@pytest.mark.parametrize(("inputs", "call"), ALONE.values(), ids=ALONE)
def test_attention_becomes_the_operator_of_our_library(
    inputs: str, call: str, groups: int, keys: str, library: Library, tmp_path: Path
) -> None:
    inputs = inputs.replace("{groups}0", str(8 * groups)).replace("{groups}", str(groups)).replace("{keys}", keys)
    text = f"{HEAD} ({inputs}) => (y) {{ {call.replace('{groups}', str(groups))} }}"
    result = fused(text, tmp_path, library, target="native")
    assert [one.pattern for one in result.rewrites] == ["attention-operator"] and not result.undone
    assert result.verdict.verdict == "equivalent", result.verdict.reason
    assert result.rewrites[0].assumes == {"nonempty", "visible"}


@pytest.mark.parametrize(
    "text", [f"{HEAD} (float[b, 4, s, 8] q) => (y) {{ y = Attention (q, q, q) }}", ROTARY.replace("INTERLEAVED", "1")]
)
def test_an_operator_with_a_kernel_is_left_without_a_word(text: str, library: Library, tmp_path: Path) -> None:
    result = fused(text, tmp_path, library)
    assert not result.rewrites and not result.skipped


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding_becomes_the_operator_of_our_library(interleaved: int, library: Library, tmp_path: Path) -> None:
    result = fused(ROTARY.replace("INTERLEAVED", str(interleaved)), tmp_path, library, target="native")
    assert [one.op for one in result.rewrites] == ["onnx_subgraph.Rotary"] and result.verdict.verdict == "equivalent"


def test_heads_are_not_moved_for_the_kernel(library: Library, tmp_path: Path) -> None:
    """torch's second exporter, at opset 23: the kernel takes the heads side by side."""
    result = fused(BLOCK, tmp_path, library)
    assert result.operators_after == {"RMSNormalization": 1, "Attention": 1}
    assert (result.verdict.verdict, result.verdict.strength) == ("equivalent", "kernel")


@pytest.mark.parametrize("norm", ["RMSNormalization", "SimplifiedLayerNormalization", "LayerNormalization"])
def test_heads_are_neither_moved_nor_repeated_behind_norms_and_rotary_embeddings(
    norm: str, library: Library, tmp_path: Path
) -> None:
    result = fused(DECODER.replace("RMSNormalization", norm), tmp_path, library)
    assert [one.pattern for one in result.rewrites] == ["attention-shared-heads", "attention-heads"], result.near_misses
    assert not {"Transpose", "Expand"} & set(result.operators_after)
    assert (result.verdict.verdict, result.verdict.strength) == ("equivalent", "kernel")


def test_the_heads_of_a_result_for_gemm_are_not_moved(library: Library, tmp_path: Path) -> None:
    """As in GPT-2, where batch and length become one axis behind attention."""
    result = fused(
        STEP.replace("joined = {0, 0, 32}", "joined = {-1, 32}").replace("int64[3] joined", "int64[2] joined"), tmp_path, library
    )
    assert result.rewrites[-1].pattern == "attention-heads-cache" and "Transpose" not in result.operators_after
    assert (result.verdict.verdict, result.verdict.strength) == ("equivalent", "kernel")


def test_the_corner_of_a_causal_mask_depends_on_the_cache(library: Library, tmp_path: Path) -> None:
    """Without past keys the first query sees the first key only; with them it sees all past ones."""
    result = fused(STEP.replace("= Attention (", "= Attention <is_causal = 1> ("), tmp_path, library)
    assert [one.pattern for one in result.rewrites] == ["attention-shared-heads"] and result.verdict.verdict == "equivalent"


def test_a_step_appends_to_the_cache_inside_the_operator(library: Library, tmp_path: Path) -> None:
    result = fused(STEP, tmp_path, library)
    found = [one.pattern for one in result.rewrites]
    assert found == ["attention-shared-heads", "attention-cache", "attention-heads-cache"], result.near_misses
    assert not {"Transpose", "Expand", "Concat"} & set(result.operators_after)
    assert (result.verdict.verdict, result.verdict.strength) == ("equivalent", "kernel")


def test_the_sizes_of_a_split_are_written_in_a_function(library: Library) -> None:
    assert prove(library.get("rotary-embedding-partial"), pairs=False).targets["function"]


def test_a_part_of_each_head_is_turned_in_place(library: Library, tmp_path: Path) -> None:
    result = fused(PARTIAL, tmp_path, library)
    found = sorted(one.pattern for one in result.rewrites)
    assert found == ["attention-heads", "attention-shared-heads", *["rotary-embedding-partial"] * 2], result.near_misses
    assert not {"Transpose", "Expand", "Slice", "Split", "Concat"} & set(result.operators_after)
    assert (result.verdict.verdict, result.verdict.strength) == ("equivalent", "kernel")


def test_a_block_at_opset_23_has_all_operators_of_our_library(library: Library, tmp_path: Path) -> None:
    result = fused(BLOCK, tmp_path, library, target="native")
    ops = {one.op for one in result.rewrites}
    assert {"onnx_subgraph.RMSNorm", "onnx_subgraph.Attention"} <= ops
    assert result.verdict.verdict == "equivalent"


def test_heads_behind_the_length_become_those_of_the_kernel_by_a_reshape(library: Library, tmp_path: Path) -> None:
    """The other layout of the operands is a new value, whose type must be known for the definition."""
    text = f"{HEAD} (float[b, s, 4, 8] x) => (y) {{ q = Transpose <perm = [0, 2, 1, 3]> (x) y = Attention (q, q, q) }}"
    result = fused(text, tmp_path, library, target="native")
    assert [one.pattern for one in result.rewrites] == ["attention-operator"] and result.verdict.verdict == "equivalent"


def test_a_provider_without_a_kernel_gets_the_operator_of_onnxruntime(library: Library, tmp_path: Path) -> None:
    """It would compute the definition, node by node."""
    result = fused(BLOCK, tmp_path, library, assumed=("DmlExecutionProvider",), verify=False)
    assert "RMSNormalization" not in result.operators_after and result.operators_after["SimplifiedLayerNormalization"] == 1


@pytest.mark.parametrize("alpha", ["", "<alpha = 1.702>"])
def test_swish_without_a_kernel_becomes_the_operator_of_onnxruntime(alpha: str, library: Library, tmp_path: Path) -> None:
    text = f"{HEAD.replace('23', '24')} (float[b, 8] x) => (y) {{ y = Swish {alpha} (x) }}"
    result = fused(text, tmp_path, library)
    assert [(one.pattern, one.op) for one in result.rewrites] == [("swish-operator", "com.microsoft.QuickGelu")]
    assert result.verdict.verdict == "equivalent"


def test_attention_without_a_kernel_becomes_the_operator_of_onnxruntime(library: Library, tmp_path: Path) -> None:
    """onnxruntime 1.32 has kernels for Attention up to opset 24; at 25 it runs the definition, some 60 nodes."""
    result = fused(BLOCK.replace('"" : 23', '"" : 25'), tmp_path, library)
    assert result.operators_after["com.microsoft.MultiHeadAttention"] == 1 and "Attention" not in result.operators_after
    assert (result.verdict.verdict, result.verdict.strength) == ("equivalent", "kernel")
