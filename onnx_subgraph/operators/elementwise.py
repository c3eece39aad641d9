"""Which operators are elementwise: each element of the result depends on one element of each operand, after broadcasting.

And which ones only rearrange. ONNX's schemas do not record either, so the lists are kept here.
"""

from __future__ import annotations

_STANDARD = """
Abs Add BitShift Ceil Clip Div Exp Floor Log Max Mean Min Mod Mul Neg Pow Reciprocal Round Sign Sqrt Sub Sum
Acos Acosh Asin Asinh Atan Atanh Cos Cosh Erf Sin Sinh Tan Tanh
Celu Elu Gelu HardSigmoid HardSwish LeakyRelu Mish PRelu Relu Selu Shrink Sigmoid Softplus Softsign Swish ThresholdedRelu
And BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Equal Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual Not Or Where Xor
Cast CastLike Identity
"""
ELEMENTWISE = {"": frozenset(_STANDARD.split()), "com.microsoft": frozenset({"Gelu", "QuickGelu"})}
"""Domain → its elementwise operators."""
REGROUPING = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})
"""Operators that keep the elements of their operand in their order, and give them other axes."""
REARRANGING = REGROUPING | {"Transpose"}
"""Operators that only rearrange the elements of their operand."""


def is_elementwise(name: str, domain: str = "") -> bool:
    """Whether the operator is elementwise: each element of the result depends on one element of each operand."""
    return name in ELEMENTWISE.get(domain, ())
