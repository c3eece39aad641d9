"""Values that flow into a site, cropped: a few elements of them show an error as well, and are evaluated much faster.

Whatever a site reads, it has to compute the same before and after it was rewritten, so any part of what flows there that both
sides run on is a fair test. A dimension is cropped to the same elements in every value that has it; they are spread over all of
it, so that a mask of what comes late is not lost. Sizes that are different stay different, and none becomes so small that it
would be broadcast or that a mean of it were its sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnx_subgraph.rewriting.cutting import Cutting

SIZES = (61, 59, 53, 47, 43, 41, 37)
"""What dimensions are cropped to: primes, which are not the sizes of heads and layers."""
LARGER = 4
"""A dimension is cropped that is at least so many times as large as what becomes of it."""
SMALL = 64
"""Integer constants of up to so many elements are shapes and indices; the sizes that they name are left as they are."""


def bytes_read(values: Mapping[str, Any], cutting: Cutting) -> int:
    """What the values that `cutting` reads take in memory."""
    return sum(np.asarray(values[name]).nbytes for name in cutting.reads)


def crops(cutting: Cutting, values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The values that `cutting` reads with fewer elements: all dimensions cropped that may be, then the largest alone.

    A size that a weight of the site has, or that an integer constant of it names, stays. The second is for values that are
    reshaped: heads are known by their product alone. There may be none that the site runs on.
    """
    arrays = [value for name in cutting.reads if isinstance(value := values[name], np.ndarray)]
    found = {size for array in arrays for size in array.shape}
    fixed = {size for model in (cutting.before, cutting.after) for size in _named(model)}
    large = sorted((size for size in found - fixed if size >= LARGER * SIZES[0]), reverse=True)
    free = [size for size in SIZES if size not in found | fixed]
    for chosen in (large, large[:1]) if len(large) > 1 else (large,):
        if smaller := dict(zip(chosen, free, strict=False)):
            yield {name: _cropped(value, smaller) if isinstance(value, np.ndarray) else value for name, value in values.items()}


def _cropped(array: np.ndarray, smaller: Mapping[int, int]) -> np.ndarray:
    """The array at elements that are spread over its large dimensions; a shape that names them names the smaller ones."""
    if array.dtype == np.int64 and array.ndim == 1 and array.size <= SMALL:
        return np.array([smaller.get(int(size), int(size)) for size in array], np.int64)
    for axis, size in enumerate(array.shape):
        if size in smaller:
            array = array.take(np.linspace(0, size - 1, smaller[size]).round().astype(np.int64), axis)
    return array


def _named(model: ir.Model) -> Iterator[int]:
    """The sizes that constants of a model have or name."""
    for tensor in _constants(model):
        yield from tensor.shape.numpy()
        if tensor.dtype.is_integer() and tensor.size <= SMALL:
            yield from map(int, tensor.numpy().reshape(-1))


def _constants(model: ir.Model) -> Iterator[ir.TensorProtocol]:
    graphs: Sequence[ir.Graph | ir.Function] = (model.graph, *model.functions.values())
    for node in (node for graph in graphs for node in graph.all_nodes()):
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
                yield attribute.as_tensor()
    for graph in (model.graph, *model.graph.subgraphs()):
        yield from (v.const_value for v in graph.initializers.values() if v.const_value is not None)
