"""Find errors common to all elements of a result, even if they are far below the rounding of one element.

The gain of a result r over its truth t is <r - t, t> / <t, t>. Roundings nearly cancel in it, but a common factor does not. So it
shows an error of 1/1000 in float16, although each element is rounded by 1/2000.

A correct replacement has a gain too if it holds constants that were computed and then rounded. Each of n different numbers has an
error of at most half a unit in the last place. The effect on the gain is measured: all numbers of a constant are moved by that
much, up or down at random, equal ones alike. That gives the length of the vector of their effects. The gain is at most √n times
that length, and hardly ever more than `SIGMAS` times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import sqrt

import numpy as np
import onnx
from onnx import numpy_helper

from onnx_subgraph.verification.accuracy import EPSILON, SLACK, parts_by_size

NARROW: dict[int, str] = {onnx.TensorProto.FLOAT16: "float16", onnx.TensorProto.BFLOAT16: "bfloat16"}
"""Dtypes so coarse that an error of 1/1000 is no more than a rounding."""
SIGMAS = 6.0
"""The bound of a sum of random roundings, in units of the length of the vector of their effects."""
DRAWS = 4
"""The number of random moves of a constant's numbers."""
SHORT = 2.0**4
"""A number of at most four binary digits counts as exact, not as rounded."""
FEW = 4.0
"""For n elements, FEW / √n units in the last place are allowed in addition."""
SPREAD = 8.0
"""The allowed gain of the fused result, in units of the gain that the unfused result's error would have if it were random."""

Array = np.ndarray
Evaluate = Callable[[onnx.ModelProto], "Array | None"]
"""A result of a model in a wider dtype, or None where it can't be computed."""


def gain(result: Array, exact: Array, part: Array) -> float:
    """The common relative error of a result; 0 where the truth is zero. part: the elements to use."""
    t = exact[part]
    with np.errstate(all="ignore"):
        return float(np.dot(result[part] - t, t) / (np.dot(t, t) or 1.0))


def parts(exact: Array, *results: Array) -> Iterator[Array]:
    """The elements that are finite in all arrays, in two parts: usual sizes, and far larger ones."""
    shown = np.isfinite(exact)
    for result in results:
        shown &= np.isfinite(result)
    yield from parts_by_size(exact, shown)


def kernel_gain(unfused: Array, exact: Array, part: Array, dtype: str) -> float:
    """The allowed gain of a kernel of a narrow dtype.

    It is the unfused result's gain, or the one it could have at random, plus one unit in the last place for inner roundings, and
    a little more where there are few elements.
    """
    count = int(part.sum())
    size, off = (float(np.sqrt(np.mean(x[part] ** 2))) for x in (exact, unfused - exact))
    chance = off / max(size, np.finfo(np.float64).tiny) * min(1.0, SPREAD / sqrt(count))
    return SLACK * (abs(gain(unfused, exact, part)) + chance) + EPSILON[dtype] * (1 + FEW / sqrt(count))


def constants_gain(before: onnx.ModelProto, after: onnx.ModelProto, evaluate: Evaluate, exact: Array, part: Array) -> float:
    """The gain that rounded constants may cause, which `after` holds and `before` does not."""
    plain = evaluate(after)
    total = 0.0
    for index, array in enumerate(_constants(after)):
        if plain is None or not _is_rounded(array, before):
            continue
        gains = []
        for seed in range(DRAWS):
            moved = evaluate(_with_moved(after, index, seed))
            gains.append(0.0 if moved is None else gain(moved, exact, part) - gain(plain, exact, part))
        different = int(np.unique(_bits(array)).size)
        total += sqrt(sum(g * g for g in gains) / DRAWS) * sqrt(different) * chance(different)
    return total


def chance(count: int) -> float:
    """The fraction of the largest single error that may remain in the mean of `count` random ones."""
    return min(1.0, SIGMAS / sqrt(max(1, count)))


def has_rounded_constants(before: onnx.ModelProto, after: onnx.ModelProto) -> bool:
    """Whether `after` holds computed, and so rounded, numbers of a narrow dtype."""
    return any(_is_rounded(array, before) for array in _constants(after))


def is_short(number: Array) -> bool:
    """Whether all numbers have so few binary digits that they are exact: 0.5, 1, 3, 6."""
    flat = number.reshape(-1)
    return _are_short(flat[:64]) and _are_short(flat)  # weights are not, and most show it at once


def _are_short(numbers: Array) -> bool:
    mantissa, _ = np.frexp(numbers.astype(np.float64))
    return bool((mantissa * SHORT == np.rint(mantissa * SHORT)).all())


def _tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """The constants of narrow dtypes in a model and its functions."""
    nodes = (*proto.graph.node, *(node for function in proto.functions for node in function.node))
    stored = (a.t for node in nodes if node.op_type == "Constant" for a in node.attribute if a.name == "value")
    yield from (tensor for tensor in (*proto.graph.initializer, *stored) if tensor.data_type in NARROW)


def _constants(proto: onnx.ModelProto) -> list[Array]:
    return [numpy_helper.to_array(tensor) for tensor in _tensors(proto)]


def _is_rounded(array: Array, before: onnx.ModelProto) -> bool:
    """Whether a constant holds numbers that were not just copied from `before`."""
    return not is_short(array) and bool((_counted([array]) > _counted(_constants(before))).any())


def _counted(arrays: list[Array]) -> Array:
    """The number of occurrences of each 16-bit number."""
    total = np.zeros(1 << 16, np.int64)
    for array in arrays:
        total += np.bincount(_bits(array), minlength=1 << 16)
    return total


def _bits(array: Array) -> Array:
    return np.ascontiguousarray(array).view(np.uint16).reshape(-1)


def _with_moved(proto: onnx.ModelProto, index: int, seed: int) -> onnx.ModelProto:
    """A copy where the numbers of one constant, then in float32, are moved by half a unit in the last place; equal ones alike."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    tensor = list(_tensors(copy))[index]
    array = numpy_helper.to_array(tensor)
    ways = np.random.default_rng(seed).choice((-0.5, 0.5), 1 << 16) * EPSILON[NARROW[tensor.data_type]]
    moved = array.astype(np.float64) * (1 + ways[_bits(array)].reshape(array.shape))
    tensor.CopyFrom(numpy_helper.from_array(moved.astype(np.float32), tensor.name))
    return copy
