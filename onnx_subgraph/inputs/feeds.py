"""Feeds for a model: drawn at random by the purpose of each input, or read from the user's .npz.

Equal models, sizes and seeds give equal feeds. Integers stay within the table that they index, and categories are some that
their encoder knows. Masks have at least one 1 in each row. Other floats are standard normal, or as `Floats` says. An overridable
initializer keeps its default in even seeds, and gets another value of its dtype and shape in odd ones; that exposes a fusion
that treated it as a constant.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from onnx_subgraph.errors import UsageError
from onnx_subgraph.inputs.categories import categories, drawn
from onnx_subgraph.inputs.draws import Array, Floats, draw, element_type
from onnx_subgraph.inputs.ranges import Purpose, purpose
from onnx_subgraph.inputs.sizes import dimension, known, shape_of
from onnx_subgraph.model.defaults import with_default
from onnx_subgraph.model.shapes import same_dim, same_shape

_LENGTH_OF = re.compile(r"(?P<other>.*?)_?(lens?|lengths?)$")

Feeds = dict[str, Any]
"""Input name → array; for a sequence input, a list of arrays."""

MAX_OVERRIDE = 1 << 22
"""Overridable initializers with more elements keep their default, because old exporters declare every weight as overridable."""


def required_inputs(model: ir.Model) -> list[ir.Value]:
    """The graph inputs that have no default, in order."""
    return [value for value in model.graph.inputs if not value.is_initializer()]


def unfeedable(model: ir.Model) -> str:
    """Why no feeds can be drawn for this model; "" if they can."""
    for value in required_inputs(model):
        if isinstance(value.type, (ir.OptionalType, ir.SparseTensorType)):
            return f"input {value.name} is {value.type}, for which no feeds can be made"
        if element_type(value) is None:
            return f"input {value.name} has no type"
        if (dtype := element_type(value)) not in {None, ir.DataType.STRING} and dtype.bitwidth < 8:
            return f"input {value.name} is of {dtype.name.lower()}, which onnxruntime takes from no numpy array"
    return ""


def draw_feeds(model: ir.Model, sizes: Mapping[str, int], seed: int = 0, floats: Floats = "normal") -> Feeds:
    """Feeds for all inputs without a default and, in odd seeds, for those with one.

    sizes: symbolic dimension → size, complete (see `sizes`).
    Raises UsageError for an input for which no feed can be made.
    """
    if reason := unfeedable(model):
        raise UsageError(reason, hint="--inputs FEEDS.npz gives inputs of your own")
    feeds: Feeds = {}
    sizes = known(model.graph.inputs, sizes)
    for value in required_inputs(model):
        rng = np.random.default_rng((seed, zlib.crc32((value.name or "").encode())))
        shape = shape_of(value, sizes)
        if isinstance(value.type, ir.SequenceType):
            feeds[str(value.name)] = [draw(value, Purpose("number"), shape, sizes, seed, rng, floats) for _ in range(2)]
        else:
            array = draw(value, _meant(model, value, sizes), shape, sizes, seed, rng, floats)
            feeds[str(value.name)] = drawn(array, categories(model, value), rng)
    for value in with_default(model) if seed % 2 else ():
        if value.const_value is not None and value.const_value.size <= MAX_OVERRIDE:
            rng = np.random.default_rng((seed, zlib.crc32((value.name or "").encode())))
            feeds |= _override(value, rng)
    return feeds


def _meant(model: ir.Model, value: ir.Value, sizes: Mapping[str, int]) -> Purpose:
    """The purpose of an input. One named as the length of another input is bounded by that one's size."""
    meant = purpose(model, value)
    other = _measured(required_inputs(model), value) if meant.kind in ("length", "index") else None
    if other is None:
        return meant
    axes = range(1, 0 if other.shape is None else len(other.shape))
    free = [axis for axis in axes if isinstance(dimension(other, axis), str)]
    return replace(meant, longest=shape_of(other, sizes)[free[-1]]) if free else meant


def _measured(inputs: Sequence[ir.Value], value: ir.Value) -> ir.Value | None:
    """An input whose lengths another one gives: the one it is named after, or else one of those with rows, if they are alike."""
    said = _LENGTH_OF.match(value.name or "")
    if said is None:
        return None
    named = next((one for one in inputs if one.name == said["other"]), None)
    if named is not None or value.shape is None or len(value.shape) != 1:
        return named
    others = [(one, one.shape[0]) for one in inputs if one.shape is not None and len(one.shape) > 1]
    alike = bool(others) and all(same_shape(one, others[0][0]) for one, _ in others)
    return others[0][0] if alike and same_dim(others[0][1], value.shape[0]) else None


def read_feeds(path: Path, inputs: Sequence[ir.Value]) -> Feeds:
    """The user's feeds. Raises UsageError that names every array that does not fit the model."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            if not hasattr(archive, "files"):
                raise UsageError(f"{path} holds one array, not an archive of arrays", hint="write it with numpy.savez")
            feeds = {name: archive[name] for name in archive.files}
    except UsageError:
        raise
    except Exception as error:  # OSError, ValueError, and errors of zipfile and zlib
        raise UsageError(
            f"{path} can't be read as an .npz of arrays: {error}", hint="write it with numpy.savez, one array an input"
        ) from error
    faults = [f"{name} is no input of the model" for name in feeds if name not in {value.name for value in inputs}]
    sizes: dict[str, int] = {}
    for value in inputs:
        name = str(value.name)
        if name in feeds:
            feeds[name] = _reinterpreted(feeds[name], value)
            faults += _misfits(feeds[name], value, sizes)
        elif not value.is_initializer():
            faults.append(f"{name} is missing")
    if faults:
        needed = ", ".join(str(value.name) for value in inputs if not value.is_initializer())
        raise UsageError(f"{path} does not fit the model: {'; '.join(faults)}", hint=f"write one array for each of {needed}")
    return feeds


def sizes_of(feeds: Mapping[str, Any], inputs: Sequence[ir.Value]) -> dict[str, int]:
    """Symbolic dimension → its size in these feeds."""
    sizes: dict[str, int] = {}
    for value in inputs:
        array = feeds.get(str(value.name))
        if array is None or isinstance(array, list) or value.shape is None:
            continue
        for axis, size in enumerate(array.shape):
            if isinstance(name := dimension(value, axis), str):
                sizes.setdefault(name, int(size))
    return sizes


def _misfits(array: Array, value: ir.Value, sizes: dict[str, int]) -> list[str]:
    faults = []
    expected = element_type(value)
    if expected is not None and expected is not ir.DataType.STRING and array.dtype != expected.numpy():
        faults.append(f"{value.name} is {array.dtype}, the model takes {expected.numpy()}")
    if value.shape is None:
        return faults
    if array.ndim != len(value.shape):
        return [*faults, f"{value.name} has {array.ndim} dimensions, the model declares {len(value.shape)}"]
    for axis, size in enumerate(array.shape):
        dim = dimension(value, axis)
        if isinstance(dim, int) and dim != size:
            faults.append(f"{value.name} has size {size} in dimension {axis}, the model declares {dim}")
        elif isinstance(dim, str) and sizes.setdefault(dim, size) != size:
            faults.append(f"{value.name} has size {size} in dimension {axis}, but {dim} is {sizes[dim]} elsewhere")
    return faults


def _reinterpreted(array: Array, value: ir.Value) -> Array:
    """Convert bfloat16 and float8 from raw bytes (void), as numpy stores them, to the model's dtype."""
    expected = element_type(value)
    if expected is ir.DataType.STRING:
        return array.astype(object)
    if array.dtype.kind == "V" and expected is not None and array.dtype.itemsize == expected.numpy().itemsize:
        return array.view(expected.numpy())
    return array


def _override(value: ir.Value, rng: np.random.Generator) -> Feeds:
    """Another value for an overridable float initializer: each element times 0.5 to 1.5, or small normals where all are zero.

    Signs are kept, because a variance may not be negative. Integers are not changed, because they are shapes and indices.
    """
    tensor = value.const_value
    if tensor is None or not tensor.dtype.is_floating_point() or tensor.dtype.bitwidth < 16:
        return {}
    default = tensor.numpy()
    factor = rng.uniform(0.5, 1.5, default.shape)
    wide = default.astype(np.float64)
    changed = wide * factor if np.any(wide) else (factor - 1.0) * 0.2
    return {str(value.name): changed.astype(default.dtype)}
