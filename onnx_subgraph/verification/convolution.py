"""A convolution in numpy: for each element of the kernel one matrix product, over a shifted view of the input.

onnx's reference evaluator copies the input for each element of the kernel first, which takes ten times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

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
