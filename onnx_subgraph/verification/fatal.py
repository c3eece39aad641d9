"""Refuse feeds on which onnxruntime would end the process.

Its Scan divides by the length of the sequence, and its GRU by that of the sequence and by the batch; its LSTM by the batch. No
exception is raised if one is 0: the process is gone. Sizes that are drawn are never 0, but a model may leave out so much of a
short input that nothing is left. Nodes in subgraphs and in functions are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from onnx_subgraph.matching.origin import label
from onnx_subgraph.verification.memory import open_model
from onnx_subgraph.verification.randomness import yield_only
from onnx_subgraph.verification.sessions import Failure, Session, run


@dataclass(frozen=True, slots=True)
class _Place:
    """An operand of a node that must not be empty along some axes."""

    node: ir.Node
    operand: ir.Value
    axes: tuple[int, ...]


def guarded(session: Session, model: ir.Model, source: Path, provider: str) -> Session:
    """The session of a model; it refuses feeds on which onnxruntime would end the process.

    model: with inferred shapes. source: its file, whose folder holds the external data.
    """
    places = tuple(_places(model))
    return replace(session, refuses=_Guard(model, source, provider, places)) if places else session


class _Guard:
    """Runs what is in front of each place, in the order of the model, and looks at the shape."""

    def __init__(self, model: ir.Model, source: Path, provider: str, places: Sequence[_Place]) -> None:
        self._model, self._home, self._provider, self._places = model, source.resolve().parent, provider, places
        self._drawn = {name for value in model.graph.inputs for name in _names(value)}
        self._sessions: dict[_Place, Session | Failure] = {}

    def __call__(self, feeds: Mapping[str, Any]) -> Failure | None:
        """Why the model must not be run on these feeds; None if it may be."""
        some_are_empty = any(0 in getattr(array, "shape", ()) for array in feeds.values())
        for place in self._places:
            if self._is_filled(place) and not some_are_empty:
                continue
            shape = self._shape(place, feeds)
            if shape is not None and any(shape[axis] == 0 for axis in place.axes):
                at = f"{place.node.op_type} at {label(place.node)}"
                return Failure(f"{at} would get an empty sequence or batch, and onnxruntime would end the process")
        return None

    def _is_filled(self, place: _Place) -> bool:
        """Whether the axes have sizes of the file, or of an input."""
        shape = place.operand.shape
        dims = () if shape is None else (shape[axis] for axis in place.axes)
        return shape is not None and all(d > 0 if isinstance(d, int) else d.value in self._drawn for d in dims)

    def _shape(self, place: _Place, feeds: Mapping[str, Any]) -> tuple[int, ...] | None:
        """The shape of the operand; None where what is in front of it does not run, because the model does not either."""
        name = place.operand.name or ""
        if name in feeds:
            return tuple(np.shape(feeds[name]))
        if place not in self._sessions:
            self._sessions[place] = self._open(name)
        session = self._sessions[place]
        yielded = session if isinstance(session, Failure) else run(session, feeds)
        return None if isinstance(yielded, Failure) else tuple(np.shape(yielded[name]))

    def _open(self, name: str) -> Session | Failure:
        """A session that computes this value and nothing else: onnxruntime also runs nodes that nothing reads."""
        from onnx_ir.passes.common import RemoveUnusedNodesPass  # few models need it

        part = self._model.clone()
        yield_only(part, [name])
        RemoveUnusedNodesPass()(part)
        return open_model(part, self._home, self._provider)


def _places(model: ir.Model) -> Iterator[_Place]:
    """The places of the main graph, in order."""
    opset = model.opset_imports.get("", 0)
    for node in model.graph:
        if node.domain:
            continue
        if node.op_type == "Scan":
            count = node.attributes.get_int("num_scan_inputs", 1)
            axes = node.attributes.get_ints("scan_input_axes", [0] * count)
            for operand, axis in zip(node.inputs[-count:], axes, strict=True):
                if operand is not None:
                    yield _Place(node, operand, (0 if opset < _WITHOUT_BATCH else axis,))
        elif node.op_type in _BATCH and node.inputs[0] is not None:
            batch = _BATCH[node.op_type][node.attributes.get_int("layout", 0)]
            yield _Place(node, node.inputs[0], batch)


_WITHOUT_BATCH = 9
"""The opset from which Scan has no axis of a batch."""
_BATCH = {"GRU": ((0, 1), (0, 1)), "LSTM": ((1,), (0,))}
"""Operator → the axes of its first operand that must not be empty, for each layout."""


def _names(value: ir.Value) -> Iterator[str]:
    """The names of a value's symbolic dimensions."""
    return (d.value for d in value.shape or () if not isinstance(d, int) and d.value is not None)
