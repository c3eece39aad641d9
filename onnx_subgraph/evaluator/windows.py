"""The standard's operators over windows of an image, in numpy: one step for some elements of the kernel, over shifted views.

onnx's reference evaluator copies the input of a convolution for each element of the kernel first, which takes ten times as long.
It visits the elements of a transposed convolution and of a maximum pool one by one. For an image that takes minutes to hours.

An empty sequence (dilations, pads, strides, …) stands for its default. ValueError is raised for shapes that do not fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

Array = np.ndarray[Any, np.dtype[Any]]
Pads = list[tuple[int, int]]
"""The elements before and after each axis."""
COLUMNS = 1 << 21
"""The most elements of an input's copies that are multiplied at once. A few large products are faster than many small ones."""


def convolve(
    x: Array,
    w: Array,
    b: Array | None = None,
    *,
    auto_pad: str = "NOTSET",
    group: int = 1,
    dilations: Sequence[int] = (),
    pads: Sequence[int] = (),
    strides: Sequence[int] = (),
) -> Array:
    """Conv of the standard: x of shape (N, C, D1, …), w (M, C / group, K1, …), b (M) → (N, M, O1, …), in the type of x."""
    kernel = w.shape[2:]
    dilations, strides = dilations or (1,) * len(kernel), strides or (1,) * len(kernel)
    reach = _reach(kernel, dilations)
    padded = np.pad(x, ((0, 0), (0, 0), *_pads(x.shape[2:], reach, strides, auto_pad, pads)))
    out = tuple((size - span) // step + 1 for size, span, step in zip(padded.shape[2:], reach, strides, strict=True))
    # the elements of the kernel are outside the channels, so that some of them are a slice
    weights = np.moveaxis(w.reshape(group, w.shape[0] // group, w.shape[1], -1), -1, 2).reshape(group, w.shape[0] // group, -1)
    y = np.zeros((x.shape[0], group, weights.shape[1], int(np.prod(out))), x.dtype)
    windows = list(_windows(kernel, out, dilations, strides))
    at_once = max(1, COLUMNS // max(1, x.shape[0] * x.shape[1] * y.shape[-1]))
    for start in range(0, len(windows), at_once):
        seen = [padded[window].reshape(x.shape[0], group, w.shape[1], -1) for window in windows[start : start + at_once]]
        columns = np.concatenate(seen, axis=2)
        first = start * w.shape[1]
        y += weights[..., first : first + columns.shape[2]] @ columns
    return _with_bias(y.reshape(x.shape[0], w.shape[0], *out), b)


def convolve_transposed(
    x: Array,
    w: Array,
    b: Array | None = None,
    *,
    auto_pad: str = "NOTSET",
    group: int = 1,
    dilations: Sequence[int] = (),
    output_padding: Sequence[int] = (),
    output_shape: Sequence[int] = (),
    pads: Sequence[int] = (),
    strides: Sequence[int] = (),
) -> Array:
    """ConvTranspose of the standard: x (N, C, D1, …), w (C, M / group, K1, …), b (M) → (N, M, O1, …), in the type of x."""
    kernel, sizes = w.shape[2:], x.shape[2:]
    dilations, strides = dilations or (1,) * len(kernel), strides or (1,) * len(kernel)
    more = output_padding or (0,) * len(kernel)
    weights = np.ascontiguousarray(w.reshape(group, w.shape[0] // group, w.shape[1], -1).transpose(3, 0, 2, 1))
    flat = x.reshape(x.shape[0], group, weights.shape[3], -1)
    reach = _reach(kernel, dilations)
    whole = [(n - 1) * step + span + extra for n, step, span, extra in zip(sizes, strides, reach, more, strict=True)]
    y = np.zeros((x.shape[0], group * w.shape[1], *whole), x.dtype)
    for index, window in enumerate(_windows(kernel, sizes, dilations, strides)):
        y[window] += np.matmul(weights[index], flat).reshape(*y.shape[:2], *sizes)
    if not output_shape and auto_pad.startswith("SAME"):
        output_shape = [n * step for n, step in zip(sizes, strides, strict=True)]
    cut = _cut(whole, auto_pad, pads, output_shape[-len(kernel) :])
    return _with_bias(padded_or_cut(y, [(0, 0), (0, 0), *((-before, -after) for before, after in cut)]), b)


def max_pool(
    x: Array,
    kernel_shape: Sequence[int],
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] = (),
    pads: Sequence[int] = (),
    storage_order: int = 0,
    strides: Sequence[int] = (),
) -> tuple[Array, Array]:
    """MaxPool of the standard: x of shape (N, C, D1, …) → (N, C, O1, …), and where in x each maximum first is."""
    sizes, kernel = x.shape[2:], kernel_shape
    dilations, strides = dilations or (1,) * len(kernel), strides or (1,) * len(kernel)
    reach = _reach(kernel, dilations)
    around = _pads(sizes, reach, strides, auto_pad, pads)
    out, widths = [], [(0, 0), (0, 0)]
    for n, (before, after), span, step in zip(sizes, around, reach, strides, strict=True):
        room = n + before + after - span
        steps = -(-room // step) if ceil_mode else room // step
        steps -= ceil_mode and steps * step >= n + before  # a window begins in the image or in the padding before it
        out.append(steps + 1)
        widths.append((before, max(after, steps * step + span - n - before)))
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    padded = np.pad(x, widths, constant_values=least)
    places = np.pad(_places(x.shape, by_columns=bool(storage_order)), widths, constant_values=-1)
    y = np.full((*x.shape[:2], *out), least, x.dtype)
    indices = np.full(y.shape, -1)
    windows = list(_windows(kernel, out, dilations, strides))
    for window in windows:
        np.maximum(y, padded[window], out=y)
    for window in windows:
        np.copyto(indices, places[window], where=(indices < 0) & (padded[window] == y))
    return y, indices


def padded_or_cut(x: Array, widths: Pads, **options: Any) -> Array:
    """`np.pad`, in which a negative width cuts elements off. options: of `np.pad`."""
    kept = tuple(slice(max(0, -before), size + min(0, after)) for (before, after), size in zip(widths, x.shape, strict=True))
    return np.pad(x[kept], [(max(0, before), max(0, after)) for before, after in widths], **options)


def _reach(kernel: Sequence[int], dilations: Sequence[int]) -> list[int]:
    """The number of elements that the kernel spans along each axis."""
    return [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True)]


def _windows(
    kernel: Sequence[int], counts: Sequence[int], dilations: Sequence[int], strides: Sequence[int]
) -> Iterator[tuple[slice, ...]]:
    """For each element of the kernel, the elements that it meets in `counts` windows, of all channels."""
    for offset in np.ndindex(*kernel):
        each = zip(offset, dilations, counts, strides, strict=True)
        along = (slice(at * dilation, at * dilation + (n - 1) * step + 1, step) for at, dilation, n, step in each)
        yield (slice(None), slice(None), *along)


def _places(shape: Sequence[int], *, by_columns: bool) -> Array:
    """The position of each element in the flat array. by_columns: along the last axes the first one runs fastest."""
    places = np.arange(int(np.prod(shape)))
    if not by_columns:
        return places.reshape(shape)
    axes = range(len(shape) - 1, 1, -1)
    return places.reshape(*shape[:2], *(shape[axis] for axis in axes)).transpose(0, 1, *axes)


def _with_bias(y: Array, b: Array | None) -> Array:
    return y if b is None else y + b.reshape(-1, *(1,) * (y.ndim - 2))


def _pads(sizes: Sequence[int], reach: Sequence[int], strides: Sequence[int], auto_pad: str, pads: Sequence[int]) -> Pads:
    """The padding of each axis, in elements."""
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        return _written(len(sizes), auto_pad, pads)
    missing = [max(0, (-(-n // step) - 1) * step + span - n) for n, span, step in zip(sizes, reach, strides, strict=True)]
    return _halves(missing, auto_pad)


def _cut(whole: Sequence[int], auto_pad: str, pads: Sequence[int], wanted: Sequence[int]) -> Pads:
    """The elements that a transposed convolution cuts off each axis; negative where it appends zeros."""
    if not wanted:
        return _written(len(whole), auto_pad, pads)
    return _halves([size - out for size, out in zip(whole, wanted, strict=True)], auto_pad)


def _written(rank: int, auto_pad: str, pads: Sequence[int]) -> Pads:
    given = (0,) * 2 * rank if auto_pad == "VALID" or not pads else pads
    return list(zip(given[:rank], given[rank:], strict=True))


def _halves(totals: Sequence[int], auto_pad: str) -> Pads:
    """A total of each axis in two halves; the larger one is last for SAME_UPPER, else first."""
    halves = [(total // 2, total - total // 2) for total in totals]
    return halves if auto_pad == "SAME_UPPER" else [(after, before) for before, after in halves]


def given(attributes: Mapping[str, Any], *unread: str) -> dict[str, Any]:
    """The attributes that a node has, without those that are not read. The evaluator gives None for an attribute it lacks."""
    return {name: value for name, value in attributes.items() if value is not None and name not in unread}


class Conv(OpRun):
    """The standard's Conv."""

    op_domain = ""

    def _run(self, x: Any, w: Any, b: Any = None, **attributes: Any) -> Any:
        return (convolve(x, w, b, **given(attributes, "kernel_shape")),)


class ConvTranspose(OpRun):
    """The standard's ConvTranspose."""

    op_domain = ""

    def _run(self, x: Any, w: Any, b: Any = None, **attributes: Any) -> Any:
        return (convolve_transposed(x, w, b, **given(attributes, "kernel_shape")),)


class MaxPool(OpRun):
    """The standard's MaxPool, also with its second output."""

    op_domain = ""

    def _run(self, x: Any, **attributes: Any) -> Any:
        return max_pool(x, **given(attributes))[: len(self.onnx_node.output)]
