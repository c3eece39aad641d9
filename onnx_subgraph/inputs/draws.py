"""The values of one input, drawn at random by its purpose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnx_subgraph.errors import UsageError
from onnx_subgraph.inputs.ranges import Purpose
from onnx_subgraph.inputs.sizes import resolve

Array = npt.NDArray[Any]

Floats = Literal["normal", "wide", "less wide", "positive", "free"]
"""How values are drawn. Floats are standard normal; of many magnitudes, up to some hundreds, or some tens; or positive.

Integers that are no index, mask or length are drawn from 0 to 99, if wide or free from -1000 to 999. Free values have less of a
purpose: every other row of a mask of numbers has wide numbers, or is added to scores, the others are masks of all kinds; each row
has positions of its own, lengths may be short, and images are positive. Some models are not meant for that.
"""
MAGNITUDES = 8
"""Wide floats are standard normal times a power of two below 2 ** MAGNITUDES …"""
FEW = 5
"""… or below 2 ** FEW in 16 bits, which overflow sooner, and where the others overflow, as exponentials do."""
ADDED = 1e4
"""What is taken from a score that is hidden."""


def element_type(value: ir.Value) -> ir.DataType | None:
    """The type of the elements of a value, or of those of a sequence; None where it is not known."""
    kind = value.type
    while isinstance(kind, ir.SequenceType):
        kind = kind.elem_type
    return kind.dtype if isinstance(kind, ir.TensorType) else None


def draw(
    value: ir.Value,
    meant: Purpose,
    shape: tuple[int, ...],
    sizes: Mapping[str, int],
    seed: int,
    rng: np.random.Generator,
    floats: Floats,
) -> Array:
    """Values of an input for its purpose. sizes: of dimensions that bound it. Raises UsageError where none can be drawn."""
    dtype = element_type(value)
    assert dtype is not None
    if dtype is ir.DataType.STRING:
        return np.asarray([f"text {n}" for n in rng.integers(0, 100, int(np.prod(shape, dtype=int)))], object).reshape(shape)
    numpy_dtype = np.dtype(dtype.numpy())
    if meant.kind in ("mask", "compared"):
        mask = _rows_of_all_kinds(shape, rng, numpy_dtype) if floats == "free" else _mask(shape, seed, rng, numpy_dtype)
        if dtype is ir.DataType.BOOL or (floats != "free" and (meant.kind == "mask" or not seed & 2)):
            return mask
        of_mask = _row(shape) % 2 == 0 if floats == "free" and len(shape) > 1 else rng.random(shape) < 0.5
        numbers = _numbers(value, meant, shape, seed, rng, "wide" if floats == "free" else floats)
        if floats == "free" and len(shape) > 1 and dtype.is_floating_point():
            numbers = np.where(_row(shape) % 4 == 3, (mask.astype(np.float64) - 1) * ADDED, numbers)
        return np.where(of_mask, mask, numbers).astype(numpy_dtype)
    if meant.longest:
        lengths = rng.integers(1 if floats == "free" else (meant.longest + 1) // 2, meant.longest + 1, shape)
        lengths.reshape(-1)[:1] = meant.longest
        return lengths.astype(numpy_dtype)
    is_position = "position" in (value.name or "").lower() and bool(shape)
    if meant.kind == "index":
        low, high = _interval(meant, sizes)
        if is_position and high - low >= shape[-1]:
            return _positions(shape, low, high - shape[-1], rng, floats).astype(numpy_dtype)
        return np.asarray(rng.integers(low, high, shape)).astype(numpy_dtype)
    if meant.kind == "length":
        return np.asarray(rng.integers(1, 5, shape)).astype(numpy_dtype)
    if is_position and dtype.is_integer():
        return _positions(shape, 0, shape[-1] if floats == "free" else 0, rng, floats).astype(numpy_dtype)
    return _numbers(value, meant, shape, seed, rng, floats)


def _numbers(
    value: ir.Value, meant: Purpose, shape: tuple[int, ...], seed: int, rng: np.random.Generator, floats: Floats
) -> Array:
    """Numbers without a purpose. Raises UsageError for a type that can't be drawn."""
    dtype = element_type(value)
    assert dtype is not None
    numpy_dtype = np.dtype(dtype.numpy())
    most = {"wide": MAGNITUDES, "less wide": FEW}.get(floats, 0)
    if dtype.is_integer():
        information = np.iinfo(numpy_dtype)
        if (choice := seed % (len(meant.choices) + 1)) < len(meant.choices):
            return np.full(shape, meant.choices[choice], numpy_dtype)
        # the full range of int8 and uint8 (quantized values, images); small numbers for wider types (timesteps, counts)
        usual = (max(-1000, information.min), 1000) if floats in ("wide", "free") else (0, 100)
        full = information.bits == 8 or (information.bits == 16 and floats in ("wide", "free"))
        low, high = (information.min, information.max + 1) if full else usual
        numbers = np.asarray(rng.integers(low, high, shape)).astype(numpy_dtype)
        if floats == "free" and numbers.size > 1:
            numbers.reshape(-1)[:2] = low, high - 1
        return numbers
    if dtype.is_floating_point():
        scale = magnitudes(rng, shape, numpy_dtype, most) if most else 1.0
        array = np.asarray(rng.standard_normal(shape) * scale).astype(numpy_dtype)
        return np.abs(array) if floats == "positive" or (floats == "free" and len(shape) > 2) else array
    if numpy_dtype.kind == "c":
        return np.asarray(rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(numpy_dtype)
    raise UsageError(
        f"input {value.name} is of {dtype.name.lower()}, for which no feeds can be made", hint="give them with --inputs"
    )


def _positions(shape: tuple[int, ...], low: int, high: int, rng: np.random.Generator, floats: Floats) -> Array:
    """Positions that count up along the last axis. low, high: of the first one, which is another in each row if they are free."""
    starts = rng.integers(low, high + 1, (*shape[:-1], 1)) if floats == "free" else int(rng.integers(low, high + 1))
    return np.broadcast_to(np.arange(shape[-1]) + starts, shape)


def magnitudes(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any], most: int = MAGNITUDES) -> Array:
    """Factors below 2 ** most that make standard normal floats of this dtype wide."""
    return np.asarray(2.0 ** rng.integers(0, most if dtype.itemsize > 2 else FEW, shape))


def _interval(meant: Purpose, sizes: Mapping[str, int]) -> tuple[int, int]:
    """[low, high): indices that are valid in every table that they reach, after any offset on the way. Never empty."""
    low, high = 0, 1 << 31
    for limit, shift in meant.limits:
        rows = limit if isinstance(limit, int) else (resolve(sizes, limit) or 1)
        high = min(high, rows - shift)
        low = max(low, -shift)
    return (low, high) if high > low else (low, low + 1)


def _mask(shape: tuple[int, ...], seed: int, rng: np.random.Generator, dtype: np.dtype[Any]) -> Array:
    """Zeros and ones, with a one in each row. Even seeds pad at the right, odd ones at the left, or make holes.

    Padding at the left hides every element from the first row of a causal mask. In even seeds the first row is all ones. But a
    boolean mask has a False in every row longer than one: in some models True excludes an element, and a row that is entirely
    excluded gives NaN. A single element may choose the branch of an If: it is true in even seeds, else false.
    """
    if not shape or (shape == (1,) and dtype == np.bool_):
        return np.full(shape, seed % 2 == 0).astype(dtype)
    length = shape[-1]
    if seed % 4 == 1 and dtype != np.bool_ and len(shape) == 2:
        return (np.arange(length) >= rng.integers(0, length // 2 + 1, (shape[0], 1))).astype(dtype)
    if seed % 2:
        mask = rng.random(shape) < 0.7
    else:
        kept = rng.integers((length + 1) // 2, length + 1, (*shape[:-1], 1))
        mask = np.arange(length) < kept
        if mask.size:
            mask.reshape(-1, length)[0] = True
    if length:
        mask[..., 0] = True
    if dtype == np.bool_ and length > 1:
        mask[..., -1] = False
    return mask.astype(dtype)


def _rows_of_all_kinds(shape: tuple[int, ...], rng: np.random.Generator, dtype: np.dtype[Any]) -> Array:
    """Zeros and ones, of which each row is of the next kind: padded at the left, with holes, without a 0, padded at the right."""
    if not shape:
        return rng.integers(0, 2, shape).astype(dtype)
    length, rows = shape[-1], (*shape[:-1], 1)
    half = max(1, length // 2)
    start, end = rng.integers(1, half + 1, rows), length - rng.integers(1, half + 1, rows)
    place = np.arange(length)
    kinds = [place >= start, rng.random(shape) < 0.5, place >= 0, place < end]
    return np.choose(_row(shape) % len(kinds), [np.broadcast_to(kind, shape) for kind in kinds]).astype(dtype)


def _row(shape: tuple[int, ...]) -> Array:
    """The number of the row that each element is in, along the last axis."""
    return np.arange(int(np.prod(shape[:-1], dtype=int))).reshape(*shape[:-1], 1)
