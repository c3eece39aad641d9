"""Operators of the standard that onnx's reference evaluator lacks or has wrong, by the standard's formulas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from onnx_subgraph.evaluator.windows import padded_or_cut


def erf(x: Any) -> Any:
    """The error function of each element, in the type of x."""
    return np.fromiter(map(math.erf, x.flat), np.float64, x.size).reshape(x.shape).astype(x.dtype)


class Erf(OpRun):
    """The error function. The evaluator's own version rounds its result to float32."""

    op_domain = ""

    def _run(self, x: Any) -> Any:
        return (erf(x),)


class BatchNormalization(OpRun):
    """(x - mean) / sqrt(var + ε) · scale + bias for each channel; with training_mode the statistics are those of x."""

    op_domain = ""

    def _run(
        self,
        x: Any,
        scale: Any,
        bias: Any,
        mean: Any,
        var: Any,
        epsilon: Any = None,
        momentum: Any = None,
        training_mode: Any = None,
        spatial: Any = None,
    ) -> Any:
        kept = 0.9 if momentum is None else momentum
        per_channel = (-1, *(1 for _ in x.shape[2:]))
        if training_mode:
            axes = tuple(a for a in range(x.ndim) if a != 1)
            own, spread = x.mean(axes), x.var(axes)
            running = (mean * kept + own * (1 - kept), var * kept + spread * (1 - kept))
            mean, var = own, spread
        else:
            running = (mean, var)
        factor = (scale / np.sqrt(var + (1e-5 if epsilon is None else epsilon))).reshape(per_channel)
        results = ((x - mean.reshape(per_channel)) * factor + bias.reshape(per_channel), *running)
        return results[: len(self.onnx_node.output)]


class LpNormalization(OpRun):
    """x / ‖x‖ₚ along an axis, 0 where the norm is 0. The evaluator's own version sums x, not |x|."""

    op_domain = ""

    def _run(self, x: Any, axis: Any = None, p: Any = None) -> Any:
        order, along = 2 if p is None else p, -1 if axis is None else axis
        norm = np.sum(np.abs(x) ** order, axis=along, keepdims=True) ** (1 / order)
        return (np.divide(x, norm, out=np.zeros_like(x), where=norm != 0),)


class GatherElements(OpRun):
    """data[…, indices[…, i, …], …] along an axis. The evaluator's own version reads only a part of two-dimensional indices."""

    op_domain = ""

    def _run(self, data: Any, indices: Any, axis: Any = None) -> Any:
        along = (axis or 0) % data.ndim
        read = data[tuple(slice(None) if a == along else slice(size) for a, size in enumerate(indices.shape))]
        return (np.take_along_axis(read, indices % data.shape[along], along),)


class Unsqueeze(OpRun):
    """The standard's Unsqueeze. Before opset 13, the evaluator's own version adds the axes one after the other."""

    op_domain = ""

    def _run(self, data: Any, axes: Any = None) -> Any:
        return (np.expand_dims(data, tuple(np.ravel(axes).tolist())),)


class STFT(OpRun):
    """The Fourier transform of the frames of real signals [batch, length], or [batch, length, 1] as the evaluator passes them."""

    op_domain = ""

    def _run(self, signal: Any, step: Any, window: Any = None, length: Any = None, onesided: int = 1) -> Any:
        if signal.ndim == 3 and signal.shape[2] != 1:
            raise NotImplementedError("STFT of complex signals")
        size = int(length) if length is not None else len(window)
        frames = np.lib.stride_tricks.sliding_window_view(signal.reshape(signal.shape[:2]), size, axis=1)[:, :: int(step)]
        frames = frames if window is None else frames * window
        found = np.fft.rfft(frames) if onesided else np.fft.fft(frames)
        return (np.stack([found.real, found.imag], axis=-1).astype(signal.dtype),)


class DequantizeLinear(OpRun):
    """The standard's (x − zero) · scale, for one scale, or one for each index or block of an axis.

    onnx's reference evaluator lacks it before opset 19.
    """

    op_domain = ""

    def _run(self, x: Any, scale: Any, zero: Any = None, axis: int | None = None, block_size: int | None = None, **_: Any) -> Any:
        def spread(given: Any) -> Any:
            if given.size == 1:
                return given.reshape(()).astype(scale.dtype)
            at = 1 if axis is None else axis
            if not block_size:
                return given.astype(scale.dtype).reshape([-1 if i == at % x.ndim else 1 for i in range(x.ndim)])
            return np.repeat(given.astype(scale.dtype), block_size, at).take(range(x.shape[at]), at)

        moved = x.astype(scale.dtype) - (0 if zero is None else spread(zero))
        return (moved * spread(scale),)


class Pad(OpRun):
    """The standard's Pad. The evaluator's own version refuses negative pads, which cut elements off."""

    op_domain = ""

    def _run(
        self,
        data: Any,
        pads: Any = None,
        constant: Any = None,
        axes: Any = None,
        mode: str | None = None,
        value: float | None = None,
        paddings: Any = None,
    ) -> Any:
        widths = [int(pad) for pad in (paddings if pads is None else pads)]
        half = len(widths) // 2
        along = range(data.ndim) if axes is None else (int(axis) % data.ndim for axis in axes)
        each = dict.fromkeys(range(data.ndim), (0, 0)) | dict(
            zip(along, zip(widths[:half], widths[half:], strict=True), strict=True)
        )
        options: dict[str, Any] = {"mode": mode or "constant"}
        if options["mode"] == "constant":
            options["constant_values"] = (value or 0) if constant is None else constant
        return (padded_or_cut(data, list(each.values()), **options).astype(data.dtype),)


STANDARD = (Erf, BatchNormalization, LpNormalization, GatherElements, Unsqueeze, STFT, DequantizeLinear, Pad)
"""The operators. The evaluator finds them by their class names."""
