"""What models are rewritten for, and how far the kernels of a target may round."""

from __future__ import annotations

from onnx_subgraph.errors import UsageError
from onnx_subgraph.values import check_one_of

TARGETS = ("onnxruntime", "standard", "native", "function")
"""What a pattern can be fused for. Every formula and region supports `function` automatically.

A formula supports `native` if it raises to an operator that the library of kernels has.
"""
WRITTEN = ("onnxruntime", "standard")
"""The targets for which replacements are written, because their operators are defined elsewhere."""
FLOAT32 = "float32"
NUMERICS = (FLOAT32, "bf16x3", "bf16")
"""What a product may round its operands to: nothing, a sum of two bfloat16, or one bfloat16."""


def check_numerics(numerics: str, target: str) -> None:
    """Raises UsageError for a word that is none, and where the target has no kernels that can round this way."""
    check_one_of("target", target, TARGETS)
    check_one_of("numerics", numerics, NUMERICS)
    if numerics != FLOAT32 and target != "native":
        hint = "add --target native, or leave --numerics out"
        raise UsageError(f"{numerics} is for the kernels of the target native, not for {target}", hint=hint)
