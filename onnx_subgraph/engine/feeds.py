"""The inputs and outputs of a session, and the feeds that it takes: those that onnxruntime takes, and also numbers and tuples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnx_subgraph.backends.array import Array
from onnx_subgraph.backends.backend import dtype_name
from onnx_subgraph.errors import UsageError
from onnx_subgraph.model.shapes import DECLARED


@dataclass(frozen=True, slots=True)
class Argument:
    """An input or output, like onnxruntime's `NodeArg`: a type such as `tensor(float)`, sizes or names as dimensions."""

    name: str
    type: str
    shape: list[int | str | None] | None


def argument(value: ir.Value) -> Argument:
    """An input or output of a model, as its file declares it."""
    type_, declared = value.meta.get(DECLARED, (value.type, value.shape))
    shape = None if declared is None else [_size(d) for d in declared]
    return Argument(str(value.name), _spelled(type_), [] if "seq(" in _spelled(type_) else shape)


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of a model. types: None for a map, which onnx_ir does not have. defaults: the names of those that have one."""

    arguments: tuple[Argument, ...]
    types: Mapping[str, ir.TypeProtocol | None]
    defaults: frozenset[str]

    @classmethod
    def of(cls, graph: ir.Graph) -> Inputs:
        """The inputs of a graph."""
        defaults = frozenset(str(v.name) for v in graph.inputs if v.is_initializer() and v.const_value is not None)
        return cls(tuple(map(argument, graph.inputs)), {str(v.name): v.type for v in graph.inputs}, defaults)

    def taken(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Feeds as arrays, lists of arrays for sequences, None for optional inputs that are not given.

        Raises UsageError if they don't fit the inputs.
        """
        for name in feeds:
            if name not in self.types:
                raise UsageError(f"the model has no input {name}", hint=f"it has {', '.join(self.types)}")
        found = {}
        for one in self.arguments:
            if one.name in feeds and (feeds[one.name] is not None or one.name not in self.defaults):
                found[one.name] = _taken(feeds[one.name], one, self.types[one.name], one.shape)
            elif isinstance(self.types[one.name], ir.OptionalType):
                found[one.name] = None
            elif one.name not in self.defaults:
                raise _missing(one)
        return found


def _taken(feed: Any, to: Argument, type_: ir.TypeProtocol | None, shape: Sequence[int | str | None] | None) -> Any:
    if isinstance(type_, ir.OptionalType):
        return None if feed is None else _taken(feed, to, type_.elem_type, shape)
    if feed is None:
        raise _missing(to)
    if isinstance(type_, ir.SequenceType):
        if not isinstance(feed, list | tuple):
            raise UsageError(f"input {to.name} is no list of arrays", hint=f"give it as {to.type}")
        return [_taken(one, to, type_.elem_type, None) for one in feed]
    if not isinstance(type_, ir.TensorType):
        return feed
    array = _array(feed, to, dtype := dtype_name(type_.dtype))
    if dtype and array.dtype.name != dtype:
        wanted, use = ("strings", "str") if dtype == "object" else (dtype, f"'{dtype}'")
        raise UsageError(f"input {to.name} is {array.dtype.name}, the model takes {wanted}", hint=f"use .astype({use})")
    if shape and not _fits(array.shape, shape):  # as in onnxruntime, a declared scalar may have any shape
        raise UsageError(
            f"input {to.name} has the shape {list(array.shape)}, the model takes {list(shape)}", hint="reshape or pad it"
        )
    return array


def _array(feed: Any, to: Argument, dtype: str) -> Array:
    """An array, also from an OrtValue; lists and numbers get the type that the model declares, arrays keep theirs."""
    try:
        feed = feed.numpy() if hasattr(feed, "numpy") else feed
    except RuntimeError as error:  # of an OrtValue of bfloat16
        raise UsageError(f"input {to.name} is no array of numpy: {error}", hint=f"give it as {to.type}") from error
    if isinstance(feed, np.ndarray | np.generic):
        return np.asarray(feed, object if dtype == "object" and feed.dtype.kind == "U" else None)
    try:
        return np.asarray(feed, dtype or None)
    except (ValueError, TypeError, OverflowError) as error:
        raise UsageError(f"input {to.name} does not become an array of {dtype}: {error}", hint=f"give it as {to.type}") from error


def _missing(to: Argument) -> UsageError:
    return UsageError(f"input {to.name} is not given", hint=f"give it as {to.type}")


def _spelled(type_: ir.TypeProtocol | None) -> str:
    """A type in onnxruntime's words."""
    if isinstance(type_, ir.SequenceType):
        return f"seq({_spelled(type_.elem_type)})"
    if isinstance(type_, ir.OptionalType):
        return f"optional({_spelled(type_.elem_type)})"
    return f"tensor({'' if type_ is None else type_.dtype.name.lower()})"


def _size(dimension: int | ir.SymbolicDim) -> int | str | None:
    """A size, or a name; None if there is neither: some exporters write -1 for that."""
    if isinstance(dimension, int):
        return dimension if dimension >= 0 else None
    return dimension.value


def _fits(shape: Sequence[int], declared: Sequence[int | str | None]) -> bool:
    return len(shape) == len(declared) and all(
        not isinstance(size, int) or size == given for size, given in zip(declared, shape, strict=True)
    )
