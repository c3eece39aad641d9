"""Equivalents of the operators that onnxruntime's tests expect, and those that this project does not offer yet.

An equivalent computes the same in one kernel. It is a standard operator, or one that covers more of the graph. Where a transpose
or a scale is folded into a constant, the operator that onnxruntime fuses can also disappear.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import onnx

QUANTIZED = "quantized, not in this release"

LATER: Mapping[str, str] = {
    "com.microsoft.DynamicQuantizeMatMul": QUANTIZED,
    "com.microsoft.MatMulIntegerToFloat": QUANTIZED,
}
"""Operators of the catalogue's groups that are not offered yet."""

_GELU = ("Gelu", "com.microsoft.Gelu", "com.microsoft.BiasGelu", "onnx_subgraph.Gelu", "onnx_subgraph.BiasGelu")
_ATTENTION = ("com.microsoft.Attention", "com.microsoft.MultiHeadAttention", "com.microsoft.GroupQueryAttention", "Attention")

EQUIVALENT: Mapping[str, tuple[str, ...]] = {
    "Gelu": _GELU,
    "com.microsoft.Gelu": _GELU,
    "com.microsoft.FastGelu": ("com.microsoft.FastGelu", "Gelu"),
    "com.microsoft.QuickGelu": ("com.microsoft.QuickGelu", "Swish"),
    "LayerNormalization": ("LayerNormalization", "com.microsoft.SkipLayerNormalization", "com.microsoft.EmbedLayerNormalization"),
    "com.microsoft.SkipLayerNormalization": ("com.microsoft.SkipLayerNormalization", "com.microsoft.EmbedLayerNormalization"),
    "SimplifiedLayerNormalization": (
        "SimplifiedLayerNormalization", "RMSNormalization", "com.microsoft.SkipSimplifiedLayerNormalization",
    ),
    "com.microsoft.FusedMatMul": ("com.microsoft.FusedMatMul", "Gemm", "com.microsoft.FusedGemm"),
    "Gemm": ("Gemm", "com.microsoft.FusedGemm"),
    "com.microsoft.Attention": _ATTENTION,
    "com.microsoft.MultiHeadAttention": _ATTENTION,
    "com.microsoft.RotaryEmbedding": ("com.microsoft.RotaryEmbedding", "RotaryEmbedding"),
    "LpNormalization": ("LpNormalization", "SimplifiedLayerNormalization", "RMSNormalization"),
}  # fmt: skip
"""Expected operator → operators that may replace it. An operator without a row may only be itself."""


ONE_ROW = "Gemm takes matrices: with two Reshapes it takes as long as MatMul and Add, or up to 10 % longer (measured)"
NO_PLACES = "its positions are NonZero of zeros, so it does not run"
FLOATING = "its Slices and shapes are floats, so it does not run"
NO_SUM = "its Softmax is over the queries, and it adds a product of another shape, so it does not run"
UNBOUNDED = "the scores are multiplied by its mask, an input that may hold any numbers"
NO_AXIS = "a Reshape copies an axis that its input does not have, so it does not run"
TWO_MASKS = "a Where with -10000 beside an added mask: the result of rows that both hide depends on the scores of each"
NO_TABLE = "its positions are not a table: it adds a constant with its own batch, which counts as a skip"

REASONS: Mapping[str, str] = {
    "cc_fixture/attention_past_no_unidir": TWO_MASKS,
    "cc_fixture/attention_past_unidir": TWO_MASKS,
    "cc_fixture/embed_layer_norm_format2": NO_PLACES,
    "cc_fixture/embed_layer_norm_format4": NO_PLACES,
    "cc_fixture/embed_layer_norm_format5": NO_TABLE,
    "cc_fixture/embed_layer_norm_format5_opset13": NO_TABLE,
    "cc_fixture/gpt2_past_mask_one_layer": TWO_MASKS,
    "cc_fixture/isinf_reducesum": "it tests for more than one infinity, IsAllFinite for none; IsAllFinite also has no kernel",
    "cc_fixture/layer_norm": (
        "its dimensions are named None, which is no name, so it is unknown whether the scale has as many elements as a row"
    ),
    "cc_fixture/matmul_add_3Input__model_1d": ONE_ROW,
    "cc_fixture/skip_layer_norm_no_beta_with_cast": (
        "float16 in and float32 out: SkipLayerNormalization has one dtype, and casts would round the sum differently"
    ),
    "cc_inline/MatMulAddFusion_NeedReshape_3D__0_op18": ONE_ROW,
    **{f"py_attention_fusion/test_gpt2_attention_fusion__{i}": TWO_MASKS for i in (0, 2)},
    **{f"py_attention_fusion/test_gpt2_attention_no_past_fusion__{i}": NO_AXIS for i in range(4)},
    "py_attention_fusion/test_megatron_gpt2_attention_fusion__0": UNBOUNDED,
    **{
        f"py_rotary_embedding_fusion/test_hf_decoder_{kind}__{i}": FLOATING
        for kind in ("model", "merged_model", "with_past_model")
        for i in (0, 1)
    },
    "py_rotary_mha_fusion/test_llama2_msft_model__0": FLOATING,
    "py_small_conformer/ct_mha_small": NO_SUM,
}
"""Case → why a positive is not found and should not be, checked by hand."""


COMPUTED = "the tables of RotaryEmbedding need not be constant; they are computed while the model runs"

SOUND: Mapping[str, str] = {
    "cc_fixture/gh_issue_24341": "FusedMatMul takes doubles, and may read one value twice; upstream's pass failed there",
    "py_attention_fusion/test_qwen3_rotary_embedding_fusion_negative_dynamic_inv_freq__0": COMPUTED,
    "py_qwen3_mha/rope_dynamic_inv_freq": COMPUTED,
}
"""Case → why a fusion that is wrong upstream is right here, checked by hand. The outputs are compared all the same."""


def missing(expected: Mapping[str, int], have: Counter[str], had: Counter[str], written: onnx.ModelProto) -> dict[str, int]:
    """The expected operators of which `have` holds too few, and how many are missing.

    have, had: operators of the written and of the original model. If two expected operators share an equivalent, its count
    goes first to the one with fewer equivalents.
    """
    left = Counter(have)
    lacking: dict[str, int] = {}
    for operator in sorted(expected, key=lambda op: len(EQUIVALENT.get(op, (op,)))):
        wanted = expected[operator]
        for candidate in EQUIVALENT.get(operator, (operator,)):
            taken = min(wanted, left[candidate])
            left[candidate] -= taken
            wanted -= taken
        if wanted and not (operator == "com.microsoft.FusedMatMul" and _vanished(have, had, written)):
            lacking[operator] = wanted
    return lacking


def alternatives(operators: Iterable[str]) -> set[str]:
    """The operators that may stand for any of `operators`."""
    return {name for operator in operators for name in EQUIVALENT.get(operator, (operator,))}


def _vanished(have: Counter[str], had: Counter[str], written: onnx.ModelProto) -> bool:
    """Whether the transposes and scales around MatMul were folded into constants."""
    around = ("Transpose", "Mul", "Div", "Cast")
    return sum(have.values()) < sum(had.values()) and not any(n.op_type in around for n in written.graph.node)
