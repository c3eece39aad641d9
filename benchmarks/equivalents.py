"""Which operators stand for the ones that onnxruntime's tests expect, and which of those are not offered yet.

An equivalent computes the same in one kernel: a standard operator, or one that has swallowed more of the graph. What upstream
fuses in the graph may also vanish from it, where a transpose or a scale is folded into a constant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import onnx

ATTENTION = "attention, not in this release"
QUANTIZED = "quantized, not in this release"

LATER: Mapping[str, str] = {
    "com.microsoft.Attention": ATTENTION,
    "com.microsoft.MultiHeadAttention": ATTENTION,
    "com.microsoft.RotaryEmbedding": ATTENTION,
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
}  # fmt: skip
"""What each expected operator may be instead; an operator without a row is only itself."""


def missing(expected: Mapping[str, int], have: Counter[str], had: Counter[str], written: onnx.ModelProto) -> dict[str, int]:
    """The expected operators for which `have` holds too few, and how many are lacking.

    have, had: operators of the written and of the original model. Two expected operators that share an equivalent
    share its count, the more particular one (with fewer equivalents) first.
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
    """Whether the transposes and scales around MatMul are gone from the graph, folded into constants."""
    around = ("Transpose", "Mul", "Div", "Cast")
    return sum(have.values()) < sum(had.values()) and not any(n.op_type in around for n in written.graph.node)
