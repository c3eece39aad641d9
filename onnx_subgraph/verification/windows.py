"""The standard's operators over windows of an image, in numpy: one step for each element of the kernel, over shifted views.

onnx's reference evaluator copies the input of a convolution for each element of the kernel first, which takes ten times as long.
It visits the elements of a transposed convolution and of a maximum pool one by one, which takes hours and minutes for an image.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

Array = np.ndarray[Any, np.dtype[Any]]


def convolve(
    x: Array,
    w: Array,
    b: Array | None,
    *,
    auto_pad: str,
    group: int,
    dilations: Sequence[int],
    pads: Sequence[int],
    strides: Sequence[int],
) -> Array:
    """Conv of the standard: x of shape (N, C, D1, …), w (M, C / group, K1, …), b (M) → (N, M, O1, …), in the type of x.

    dilations, pads, strides: empty for their defaults. Raises ValueError for shapes that do not fit.
    """
    rank = x.ndim - 2
    kernel = w.shape[2:]
    dilations, strides = tuple(dilations) or (1,) * rank, tuple(strides) or (1,) * rank
    reach = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True)]
    around = _pads(x.shape[2:], reach, strides, auto_pad, pads)
    padded = np.pad(x, ((0, 0), (0, 0), *around))
    out = tuple((size - span) // step + 1 for size, span, step in zip(padded.shape[2:], reach, strides, strict=True))
    weights = w.reshape(group, w.shape[0] // group, w.shape[1], -1)
    y = np.zeros((x.shape[0], group, weights.shape[1], int(np.prod(out))), x.dtype)
    product = np.empty_like(y)
    for index, offset in enumerate(np.ndindex(*kernel)):
        starts = [at * dilation for at, dilation in zip(offset, dilations, strict=True)]
        window = tuple(slice(at, at + (n - 1) * step + 1, step) for at, n, step in zip(starts, out, strides, strict=True))
        seen = padded[(slice(None), slice(None), *window)].reshape(x.shape[0], group, w.shape[1], -1)
        y += np.matmul(weights[..., index], seen, out=product)
    y = y.reshape(x.shape[0], w.shape[0], *out)
    return y if b is None else y + b.reshape(-1, *(1,) * rank)


def convolve_transposed(
    x: Array,
    w: Array,
    b: Array | None,
    *,
    auto_pad: str,
    group: int,
    dilations: Sequence[int],
    output_padding: Sequence[int],
    output_shape: Sequence[int],
    pads: Sequence[int],
    strides: Sequence[int],
) -> Array:
    """ConvTranspose of the standard: x (N, C, D1, …), w (C, M / group, K1, …), b (M) → (N, M, O1, …), in the type of x.

    The sequences are empty for their defaults. Raises ValueError for shapes that do not fit.
    """
    rank = x.ndim - 2
    kernel = w.shape[2:]
    dilations, strides = tuple(dilations) or (1,) * rank, tuple(strides) or (1,) * rank
    more = tuple(output_padding) or (0,) * rank
    weights = w.reshape(group, w.shape[0] // group, w.shape[1], -1)
    flat = x.reshape(x.shape[0], group, weights.shape[1], -1)
    reach = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True)]
    whole = [(n - 1) * step + span + extra for n, step, span, extra in zip(x.shape[2:], strides, reach, more, strict=True)]
    y = np.zeros((x.shape[0], group * w.shape[1], *whole), x.dtype)
    for index, offset in enumerate(np.ndindex(*kernel)):
        starts = [at * dilation for at, dilation in zip(offset, dilations, strict=True)]
        window = tuple(slice(at, at + (n - 1) * step + 1, step) for at, n, step in zip(starts, x.shape[2:], strides, strict=True))
        product = np.matmul(weights[..., index].swapaxes(1, 2), flat)
        y[(slice(None), slice(None), *window)] += product.reshape(*y.shape[:2], *x.shape[2:])
    if not len(output_shape) and auto_pad.startswith("SAME"):
        output_shape = [n * step for n, step in zip(x.shape[2:], strides, strict=True)]
    cut = _cut(whole, auto_pad, pads, tuple(output_shape)[-rank:])
    y = np.pad(y, ((0, 0), (0, 0), *((max(0, -before), max(0, -after)) for before, after in cut)))
    kept = tuple(slice(max(0, before), y.shape[axis] - max(0, after)) for axis, (before, after) in enumerate(cut, 2))
    y = y[(slice(None), slice(None), *kept)]
    return y if b is None else y + b.reshape(-1, *(1,) * rank)


def _cut(whole: Sequence[int], auto_pad: str, pads: Sequence[int], wanted: Sequence[int]) -> list[tuple[int, int]]:
    """The elements that a transposed convolution cuts off before and after each axis; negative where it appends zeros."""
    if not len(wanted):
        given = (0,) * 2 * len(whole) if auto_pad == "VALID" or not len(pads) else pads
        return list(zip(given[: len(whole)], given[len(whole) :], strict=True))
    over = [size - out for size, out in zip(whole, wanted, strict=True)]
    halves = [(total // 2, total - total // 2) for total in over]
    return halves if auto_pad == "SAME_UPPER" else [(after, before) for before, after in halves]


def _pads(
    sizes: Sequence[int], reach: Sequence[int], strides: Sequence[int], auto_pad: str, pads: Sequence[int]
) -> list[tuple[int, int]]:
    """The padding before and after each axis, in elements."""
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        given = (0,) * 2 * len(sizes) if auto_pad == "VALID" or not len(pads) else pads
        return list(zip(given[: len(sizes)], given[len(sizes) :], strict=True))
    missing = [max(0, (-(-n // step) - 1) * step + span - n) for n, span, step in zip(sizes, reach, strides, strict=True)]
    halves = [(total // 2, total - total // 2) for total in missing]
    return halves if auto_pad == "SAME_UPPER" else [(after, before) for before, after in halves]


def max_pool(
    x: Array,
    kernel: Sequence[int],
    *,
    auto_pad: str,
    ceil_mode: bool,
    dilations: Sequence[int],
    pads: Sequence[int],
    strides: Sequence[int],
) -> Array:
    """MaxPool of the standard: x of shape (N, C, D1, …) → (N, C, O1, …).

    dilations, pads, strides: empty for their defaults. Raises ValueError for shapes that do not fit.
    """
    rank = x.ndim - 2
    dilations, strides = tuple(dilations) or (1,) * rank, tuple(strides) or (1,) * rank
    reach = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True)]
    around = _pads(x.shape[2:], reach, strides, auto_pad, pads)
    out = []
    for n, (before, after), span, step in zip(x.shape[2:], around, reach, strides, strict=True):
        room = n + before + after - span
        steps = -(-room // step) if ceil_mode else room // step
        out.append(steps + (not ceil_mode or steps * step < n + before))  # a window begins in the image or the padding before it
    more = [
        (before, max(after, (count - 1) * step + span - n - before))
        for n, (before, after), span, step, count in zip(x.shape[2:], around, reach, strides, out, strict=True)
    ]
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    padded = np.pad(x, ((0, 0), (0, 0), *more), constant_values=least)
    y = np.full((*x.shape[:2], *out), least, x.dtype)
    for offset in np.ndindex(*kernel):
        starts = [at * dilation for at, dilation in zip(offset, dilations, strict=True)]
        window = tuple(slice(at, at + (n - 1) * step + 1, step) for at, n, step in zip(starts, out, strides, strict=True))
        np.maximum(y, padded[(slice(None), slice(None), *window)], out=y)
    return y


def convolved(x: Any, w: Any, b: Any, auto_pad: Any, dilations: Any, group: Any, pads: Any, strides: Any) -> Array:
    """A convolution with a node's attributes; None for an attribute that it lacks."""
    lists = {"dilations": dilations or (), "pads": pads or (), "strides": strides or ()}
    return convolve(x, w, b, auto_pad=auto_pad or "NOTSET", group=group or 1, **lists)


class Conv(OpRun):
    """The standard's Conv; the reference evaluator's version takes several times the time and memory."""

    op_domain = ""

    def _run(
        self,
        x: Any,
        w: Any,
        b: Any = None,
        auto_pad: str | None = None,
        dilations: Any = None,
        group: int | None = None,
        kernel_shape: Any = None,
        pads: Any = None,
        strides: Any = None,
    ) -> Any:
        return (convolved(x, w, b, auto_pad, dilations, group, pads, strides),)


class ConvTranspose(OpRun):
    """The standard's ConvTranspose; the reference evaluator's version visits each element by itself."""

    op_domain = ""

    def _run(
        self,
        x: Any,
        w: Any,
        b: Any = None,
        auto_pad: str | None = None,
        dilations: Any = None,
        group: int | None = None,
        kernel_shape: Any = None,
        output_padding: Any = None,
        output_shape: Any = None,
        pads: Any = None,
        strides: Any = None,
    ) -> Any:
        y = convolve_transposed(
            x,
            w,
            b,
            auto_pad=auto_pad or "NOTSET",
            group=group or 1,
            dilations=dilations or (),
            output_padding=output_padding or (),
            output_shape=output_shape or (),
            pads=pads or (),
            strides=strides or (),
        )
        return (y,)


class MaxPool(OpRun):
    """The standard's MaxPool. Raises NotImplementedError for its second output."""

    op_domain = ""

    def _run(
        self,
        x: Any,
        auto_pad: str | None = None,
        ceil_mode: int | None = None,
        dilations: Any = None,
        kernel_shape: Any = None,
        pads: Any = None,
        storage_order: int | None = None,
        strides: Any = None,
    ) -> Any:
        if len(self.onnx_node.output) > 1 and self.onnx_node.output[1]:
            raise NotImplementedError("the indices of MaxPool")
        lists = {"dilations": dilations or (), "pads": pads or (), "strides": strides or ()}
        return (max_pool(x, kernel_shape, auto_pad=auto_pad or "NOTSET", ceil_mode=bool(ceil_mode), **lists),)
