"""Reference implementations of onnxruntime's operators, by the formulas in their documentation, in the dtype of their inputs.

They cover the operators in the formulas of patterns. `DEFINITIONS` are these, and the corrected operators of the standard.
tests/evaluator compares each with onnxruntime's kernel.
"""

from __future__ import annotations

from math import pi, sqrt
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from onnx_subgraph.evaluator.loop import Loop
from onnx_subgraph.evaluator.standard import STANDARD, erf
from onnx_subgraph.evaluator.windows import Conv, ConvTranspose, MaxPool, convolve, given

Array = np.ndarray[Any, np.dtype[Any]]


def _gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + erf(x / sqrt(2))))


def _tanh_gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))))


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def activate(x: Array, name: str, parameters: tuple[float, ...]) -> Array:
    """The activation of FusedConv and FusedGemm, by its operator's name and its parameters in order."""
    match name, parameters:
        case "", _:
            return x
        case "Relu", _:
            return np.asarray(np.maximum(x, 0))
        case "Sigmoid", _:
            return _sigmoid(x)
        case "Tanh", _:
            return np.asarray(np.tanh(x))
        case "LeakyRelu", (alpha, *_):
            return np.asarray(np.where(x < 0, alpha * x, x))
        case "Clip", (low, high):
            return np.asarray(np.clip(x, low, high))
        case "HardSigmoid", (alpha, beta):
            return np.asarray(np.clip(alpha * x + beta, 0, 1))
        case _:
            raise NotImplementedError(f"activation {name}{list(parameters)}")


class StandardGelu(OpRun):
    """The standard's Gelu: exact, or with tanh."""

    op_domain = ""

    def _run(self, x: Any, approximate: str | None = None) -> Any:
        return (_tanh_gelu(x) if approximate == "tanh" else _gelu(x),)


StandardGelu.__name__ = "Gelu"  # the evaluator finds an operator by its class name, which two classes share


class Gelu(OpRun):
    """x · Φ(x). The evaluator also passes attributes of the standard operator of this name; they are ignored."""

    op_domain = "com.microsoft"

    def _run(self, x: Any, **_: Any) -> Any:
        return (_gelu(x),)


class BiasGelu(OpRun):
    """GELU of x + bias."""

    op_domain = "com.microsoft"

    def _run(self, x: Any, bias: Any) -> Any:
        return (_gelu(x + bias),)


class FastGelu(OpRun):
    """GELU with tanh, of x + bias where there is one."""

    op_domain = "com.microsoft"

    def _run(self, x: Any, bias: Any = None) -> Any:
        return (_tanh_gelu(x if bias is None else x + bias),)


class QuickGelu(OpRun):
    """x · σ(αx); α is 1.702 where it is not given."""

    op_domain = "com.microsoft"

    def _run(self, x: Any, alpha: float | None = None) -> Any:
        return (x * _sigmoid((1.702 if alpha is None else alpha) * x),)


class SimplifiedLayerNormalization(OpRun):
    """x / sqrt(mean(x²) + ε) · scale, over the axes from `axis` on."""

    op_domain = ""

    def _run(self, x: Any, scale: Any, axis: Any = -1, epsilon: Any = None, stash_type: Any = 1) -> Any:
        axes = tuple(range((-1 if axis is None else axis) % x.ndim, x.ndim))
        return (x / np.sqrt(np.mean(x**2, axis=axes, keepdims=True) + (1e-5 if epsilon is None else epsilon)) * scale,)


class SkipLayerNormalization(OpRun):
    """LayerNormalization over the last axis of x + skip + bias. Further results: the mean, 1 / deviation and the sum."""

    op_domain = "com.microsoft"

    def _run(self, x: Any, skip: Any, gamma: Any, beta: Any = None, bias: Any = None, epsilon: float | None = None) -> Any:
        total = x + skip + (0 if bias is None else bias)
        mean = np.mean(total, axis=-1, keepdims=True)
        inverse = 1 / np.sqrt(np.var(total, axis=-1, keepdims=True) + (1e-12 if epsilon is None else epsilon))
        results = ((total - mean) * inverse * gamma + (0 if beta is None else beta), mean, inverse, total)
        return results[: len(self.onnx_node.output)]


class SkipSimplifiedLayerNormalization(OpRun):
    """RMSNorm over the last axis of x + skip + bias; the fourth result is the sum."""

    op_domain = "com.microsoft"

    def _run(self, x: Any, skip: Any, gamma: Any, bias: Any = None, epsilon: float | None = None) -> Any:
        total = x + skip + (0 if bias is None else bias)
        inverse = 1 / np.sqrt(np.mean(total**2, axis=-1, keepdims=True) + (1e-12 if epsilon is None else epsilon))
        results = (total * inverse * gamma, np.zeros_like(inverse), inverse, total)
        return results[: len(self.onnx_node.output)]


class FusedMatMul(OpRun):
    """alpha · A' @ B'; transA and transB swap the last two axes of an operand."""

    op_domain = "com.microsoft"

    def _run(self, a: Any, b: Any, alpha: Any = None, transA: Any = 0, transB: Any = 0, **others: Any) -> Any:  # noqa: N803
        if any(others.values()):
            raise NotImplementedError(f"FusedMatMul with {', '.join(others)}")
        left = np.swapaxes(a, -1, -2) if transA else a
        right = np.swapaxes(b, -1, -2) if transB else b
        return ((1.0 if alpha is None else alpha) * (left @ right),)


class MatMulIntegerToFloat(OpRun):
    """The product of dequantized operands, (q - zero) · scale, plus a bias."""

    op_domain = "com.microsoft"

    def _run(self, a: Any, b: Any, a_scale: Any, b_scale: Any, a_zero: Any = 0, b_zero: Any = 0, bias: Any = 0) -> Any:
        zeros = [0 if zero is None else np.asarray(zero, np.int64) for zero in (a_zero, b_zero)]
        product = (a.astype(np.int64) - zeros[0]) @ (b.astype(np.int64) - zeros[1])
        return (product * (a_scale * b_scale) + (0 if bias is None else bias),)


class MatMulNBits(OpRun):
    """The product with transposed weights that are packed into bytes, (q - zero) · scale for each block of a row, plus a bias.

    By the description of the operator in onnxruntime's ContribOperators.md: the first of several numbers in a byte has the lowest
    bits, the middle of the range is the default of the zero points, and those of type uint8 are packed row by row. Not covered:
    weights of 3, 5, 6 or 7 bits, and an order of the rows, with which onnxruntime's kernel takes no zero points.
    """

    op_domain = "com.microsoft"

    def _run(
        self,
        a: Any,
        b: Any,
        scales: Any,
        zero_points: Any = None,
        g_idx: Any = None,
        bias: Any = None,
        K: int = 0,  # noqa: N803
        N: int = 0,  # noqa: N803
        bits: int | None = None,
        **others: Any,
    ) -> Any:
        width = 4 if bits is None else bits
        if width not in (2, 4, 8) or g_idx is not None or others.get("weight_prepacked"):
            raise NotImplementedError(f"MatMulNBits of {width} bits, in another order or prepacked")
        blocks = scales.size // N
        zeros: Any = 2.0 ** (width - 1)
        if zero_points is not None:
            packed = zero_points.dtype == np.uint8
            zeros = (_unpack(zero_points.reshape(N, -1), width)[:, :blocks] if packed else zero_points).reshape(N, blocks, 1)
        steps = _unpack(b.reshape(N, blocks, -1), width)
        weights = ((steps - zeros) * scales.reshape(N, blocks, 1)).reshape(N, -1)[:, :K]
        return ((a @ weights.T + (0 if bias is None else bias)).astype(a.dtype),)


def _unpack(packed: Array, bits: int) -> Array:
    """The numbers of so many bits in each byte of the last axis, as floats."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    numbers = (packed[..., None] >> shifts) & np.uint8(2**bits - 1)
    return numbers.reshape(*packed.shape[:-1], -1).astype(np.float64)


class FusedGemm(OpRun):
    """An activation of alpha · A' @ B' + beta · C."""

    op_domain = "com.microsoft"

    def _run(
        self,
        a: Any,
        b: Any,
        c: Any = None,
        activation: str | None = None,
        activation_alpha: Any = None,
        activation_beta: Any = None,
        alpha: Any = None,
        beta: Any = None,
        transA: Any = 0,  # noqa: N803
        transB: Any = 0,  # noqa: N803
        **_: Any,
    ) -> Any:
        product = (1.0 if alpha is None else alpha) * ((a.T if transA else a) @ (b.T if transB else b))
        total = product if c is None else product + (1.0 if beta is None else beta) * c
        parameters = tuple(p for p in (activation_alpha, activation_beta) if p is not None)
        return (activate(total, activation or "", parameters),)


class FusedConv(OpRun):
    """An activation of a convolution plus an optional residual."""

    op_domain = "com.microsoft"

    def _run(
        self, x: Any, w: Any, b: Any = None, z: Any = None, activation: str = "", activation_params: Any = None, **attributes: Any
    ) -> Any:
        y = convolve(x, w, b, **given(attributes, "kernel_shape"))
        total = y if z is None else y + z
        return (activate(total, activation or "", tuple(activation_params or ())),)


class MultiHeadAttention(OpRun):
    """softmax(scale · Q Kᵀ + attention_bias) V in heads, for projections of rank 3.

    Each part of `bias` is added to its projection. If it is unidirectional, each row of scores sees the columns up to
    its own. Fewer queries than keys are not covered then: onnxruntime's kernel lets the last query see all keys.
    """

    op_domain = "com.microsoft"

    def _run(
        self,
        query: Any,
        key: Any = None,
        value: Any = None,
        bias: Any = None,
        key_padding_mask: Any = None,
        attention_bias: Any = None,
        *cache: Any,
        num_heads: int = 1,
        scale: float | None = None,
        unidirectional: int = 0,
        **_: Any,
    ) -> Any:
        plain = all(x is not None and x.ndim == 3 for x in (query, key, value))
        said = [x for x in (key_padding_mask, *cache) if x is not None]
        if not plain or said or len(self.onnx_node.output) > 1:
            raise NotImplementedError("MultiHeadAttention with packed operands, a padding mask or a cache")
        if unidirectional and query.shape[1] < key.shape[1]:
            raise NotImplementedError("unidirectional MultiHeadAttention of fewer queries than keys")
        parts = (0, 0, 0) if bias is None else np.split(bias, np.cumsum([query.shape[2], key.shape[2]]))
        q, k, v = (self._heads(x + part, num_heads) for x, part in zip((query, key, value), parts, strict=True))
        scores = q @ np.swapaxes(k, -1, -2) * (scale or 1 / sqrt(q.shape[-1]))
        scores = scores if attention_bias is None else scores + attention_bias
        scores = np.where(np.tri(*scores.shape[-2:]) == 1, scores, -np.inf) if unidirectional else scores
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        result = weights / weights.sum(axis=-1, keepdims=True) @ v
        return (np.swapaxes(result, 1, 2).reshape(*query.shape[:2], -1).astype(query.dtype),)

    def _heads(self, x: Array, count: int) -> Array:
        return np.swapaxes(x.reshape(*x.shape[:2], count, -1), 1, 2)


DEFINITIONS = (
    *(*STANDARD, Conv, ConvTranspose, MaxPool, Loop, StandardGelu),
    *(
        Gelu,
        BiasGelu,
        FastGelu,
        QuickGelu,
        SimplifiedLayerNormalization,
        SkipLayerNormalization,
        SkipSimplifiedLayerNormalization,
    ),
    *(FusedMatMul, MatMulIntegerToFloat, MatMulNBits, FusedGemm, FusedConv, MultiHeadAttention),
)
