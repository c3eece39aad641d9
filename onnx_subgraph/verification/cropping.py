"""Crop the values that a site reads: fewer elements show an error as well, and are evaluated much faster.

The original and the rewritten nodes must agree on any input, so any part of the values that both accept is a fair test. A
dimension is cropped to the same elements in every value that has it. They are spread over the whole axis, so that a mask of late
elements still counts. Different sizes stay different, and none becomes so small that it would broadcast, or that its mean and sum
would be equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.nested import within
from onnx_subgraph.rewriting.cutting import Cutting

SIZES = (61, 59, 53, 47, 43, 41, 37)
"""The sizes after cropping: primes, so that they differ from the sizes of heads and layers."""
LARGER = 4
"""A dimension is cropped if it is at least this many times larger than its new size."""
SMALL = 64
"""Integer constants of up to this many elements are shapes and indices; sizes that occur in them are not cropped."""


def bytes_read(values: Mapping[str, Any], cutting: Cutting) -> int:
    """The bytes of memory of the values that `cutting` reads."""
    return sum(np.asarray(values[name]).nbytes for name in cutting.reads)


def crops(cutting: Cutting, values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Cropped versions of the values that `cutting` reads: first with all large dimensions cropped, then only the largest.

    A size that occurs in a weight of the site, or in an integer constant of it, is not cropped. The second version helps where
    values are reshaped, because the shapes contain only the product of heads and their size. The site may run on neither.
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
    """The array at elements spread over its large dimensions. A shape vector gets the new sizes."""
    if array.dtype == np.int64 and array.ndim == 1 and array.size <= SMALL:
        return np.array([smaller.get(int(size), int(size)) for size in array], np.int64)
    for axis, size in enumerate(array.shape):
        if size in smaller:
            array = array.take(np.linspace(0, size - 1, smaller[size]).round().astype(np.int64), axis)
    return array


def _named(model: ir.Model) -> Iterator[int]:
    """The sizes of a model's constants, and the sizes that occur in them."""
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
    for graph in within(model.graph):
        yield from (v.const_value for v in graph.initializers.values() if v.const_value is not None)
