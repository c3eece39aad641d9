"""Errors that all elements of a result share, which show far below the rounding of one element.

The gain of a result r over its truth t is <r - t, t> / <t, t>: of roundings, which fall either way, little is left in it, and of
a factor everything. So it tells an error of a thousandth in float16, whose elements are rounded by a two-thousandth.

A right replacement has a gain, too, where it holds constants that were computed and then rounded. Each of n different numbers
is off by half a unit in the last place at most. What that does to the gain is measured: all numbers of a constant are moved by as
much, up or down by chance, equal ones alike. That gives the length of the vector of their effects, which the gain is at most √n
times, and hardly ever more than `SIGMAS` times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import sqrt

import numpy as np
import onnx
from onnx import numpy_helper

from onnx_subgraph.verification.accuracy import EPSILON, SLACK, parts_by_size

NARROW: dict[int, str] = {onnx.TensorProto.FLOAT16: "float16", onnx.TensorProto.BFLOAT16: "bfloat16"}
"""Dtypes so coarse that an error of a thousandth is no more than a rounding."""
SIGMAS = 6.0
"""So many times the length of its effects a sum of roundings is at most, however many they are."""
DRAWS = 4
"""How often the numbers of a constant are moved."""
SHORT = 2.0**4
"""A number whose binary digits are four at most is not a rounded one."""
FEW = 4.0
"""Of n elements, the share of a unit in the last place that is allowed besides is this through √n."""
SPREAD = 8.0
"""How many times the error of the unfused result, as if it were by chance, the gain of the fused one may be."""

Array = np.ndarray
Evaluate = Callable[[onnx.ModelProto], "Array | None"]
"""A result of a model in a wider dtype, or None where it can't be had."""


def gain(result: Array, exact: Array, part: Array) -> float:
    """By how much of itself the truth is exceeded throughout; 0 where it is zero. part: the elements that count."""
    t = exact[part]
    with np.errstate(all="ignore"):
        return float(np.dot(result[part] - t, t) / (np.dot(t, t) or 1.0))


def parts(exact: Array, *results: Array) -> Iterator[Array]:
    """The elements that are numbers in all of them: those that are usual, and those that are far larger."""
    shown = np.isfinite(exact)
    for result in results:
        shown &= np.isfinite(result)
    yield from parts_by_size(exact, shown)


def kernel_gain(unfused: Array, exact: Array, part: Array, dtype: str) -> float:
    """The gain that a kernel of a narrow dtype may have over the truth.

    As much as the unfused result has, or might have had by chance, and a unit in the last place for numbers that it rounded
    inside, a little more where there are few elements.
    """
    count = int(part.sum())
    size, off = (float(np.sqrt(np.mean(x[part] ** 2))) for x in (exact, unfused - exact))
    chance = off / max(size, np.finfo(np.float64).tiny) * min(1.0, SPREAD / sqrt(count))
    return SLACK * (abs(gain(unfused, exact, part)) + chance) + EPSILON[dtype] * (1 + FEW / sqrt(count))


def constants_gain(before: onnx.ModelProto, after: onnx.ModelProto, evaluate: Evaluate, exact: Array, part: Array) -> float:
    """The gain that the roundings of the constants that `after` holds, and `before` does not, may give a result of it."""
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
    """Which share of the largest error of one is left in the mean of so many, which are by chance."""
    return min(1.0, SIGMAS / sqrt(max(1, count)))


def has_rounded_constants(before: onnx.ModelProto, after: onnx.ModelProto) -> bool:
    """Whether `after` holds narrow numbers that were computed, and so rounded."""
    return any(_is_rounded(array, before) for array in _constants(after))


def is_short(number: Array) -> bool:
    """Whether all numbers have so few digits that none was rounded away: 0.5, 1, 3, 6."""
    mantissa, _ = np.frexp(number.astype(np.float64))
    return bool((mantissa * SHORT == np.rint(mantissa * SHORT)).all())


def _tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """The narrow constants of a model and of its functions."""
    nodes = (*proto.graph.node, *(node for function in proto.functions for node in function.node))
    stored = (a.t for node in nodes if node.op_type == "Constant" for a in node.attribute if a.name == "value")
    yield from (tensor for tensor in (*proto.graph.initializer, *stored) if tensor.data_type in NARROW)


def _constants(proto: onnx.ModelProto) -> list[Array]:
    return [numpy_helper.to_array(tensor) for tensor in _tensors(proto)]


def _is_rounded(array: Array, before: onnx.ModelProto) -> bool:
    """Whether numbers of a constant are not just numbers of `before` put elsewhere."""
    return not is_short(array) and bool((_counted([array]) > _counted(_constants(before))).any())


def _counted(arrays: list[Array]) -> Array:
    """How often each number of 16 bits occurs."""
    total = np.zeros(1 << 16, np.int64)
    for array in arrays:
        total += np.bincount(_bits(array), minlength=1 << 16)
    return total


def _bits(array: Array) -> Array:
    return np.ascontiguousarray(array).view(np.uint16).reshape(-1)


def _with_moved(proto: onnx.ModelProto, index: int, seed: int) -> onnx.ModelProto:
    """A copy with the numbers of one constant, then in float32, moved by half a unit in the last place, equal ones alike."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    tensor = list(_tensors(copy))[index]
    array = numpy_helper.to_array(tensor)
    ways = np.random.default_rng(seed).choice((-0.5, 0.5), 1 << 16) * EPSILON[NARROW[tensor.data_type]]
    moved = array.astype(np.float64) * (1 + ways[_bits(array)].reshape(array.shape))
    tensor.CopyFrom(numpy_helper.from_array(moved.astype(np.float32), tensor.name))
    return copy
