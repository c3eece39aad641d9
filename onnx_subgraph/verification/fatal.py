"""Refuse feeds on which onnxruntime would end the process.

Its Scan divides by the length of the sequence; its GRU ends the process for an empty sequence or batch, its LSTM (and
DynamicQuantizeLSTM) for an empty batch, and its InstanceNormalization for an empty image. No exception is raised: the process is
gone. Sizes that are drawn are never 0, but a model may leave out so much of a short input that nothing is left. Nodes in
subgraphs and in functions are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from onnx_subgraph.matching.origin import label
from onnx_subgraph.model.dimension_names import Dim
from onnx_subgraph.verification.memory import open_model
from onnx_subgraph.verification.randomness import yield_only
from onnx_subgraph.verification.sessions import Failure, Session, run


@dataclass(frozen=True, slots=True)
class _Place:
    """An operand of a node that must not be empty along some axes."""

    node: ir.Node
    operand: ir.Value
    axes: tuple[int, ...]

    def dims(self) -> list[Dim] | None:
        """The sizes of the axes; None where one is not known, not even by a name."""
        shape = self.operand.shape
        dims = [] if shape is None else [shape[axis] for axis in self.axes]
        return None if shape is None or any(not isinstance(d, int) and d.value is None for d in dims) else dims


def guarded(session: Session, model: ir.Model, source: Path, provider: str) -> Session:
    """The session of a model; it refuses feeds on which onnxruntime would end the process.

    model: with inferred shapes. source: its file, whose folder holds the external data.
    """
    places = tuple(_places(model))
    return replace(session, refuses=_Guard(model, source, provider, places)) if places else session


class _Guard:
    """Runs what is in front of each place, in the order of the model, and looks at the shape."""

    def __init__(self, model: ir.Model, source: Path, provider: str, places: Sequence[_Place]) -> None:
        self._model, self._home, self._provider = model, source.resolve().parent, provider
        self._of_inputs = {name for value in model.graph.inputs for name in _names(value)}
        seen: set[str] = set()
        self._places: list[_Place] = []
        for place in places:  # sizes of one name are equal, so one place tells of them
            names = None if (dims := place.dims()) is None else {str(d) for d in dims if not isinstance(d, int)}
            if names is None or not names <= seen:
                self._places.append(place)
                seen |= names or set()
        self._sessions: dict[_Place, Session | Failure] = {}

    def __call__(self, feeds: Mapping[str, Any]) -> Failure | None:
        """Why the model must not be run on these feeds; None if it may be."""
        some_are_empty = any(0 in getattr(array, "shape", ()) for array in feeds.values())
        for place in self._places:
            if self._is_never_empty(place) and not some_are_empty:
                continue
            shape = self._shape(place, feeds)
            if shape is not None and any(shape[axis] == 0 for axis in place.axes):
                at = f"{place.node.op_type} at {label(place.node)}"
                return Failure(f"{at} would get an empty operand, and onnxruntime would end the process")
        return None

    def _is_never_empty(self, place: _Place) -> bool:
        """Whether the axes have sizes of the file, or of an input."""
        dims = place.dims()
        return dims is not None and all(d > 0 if isinstance(d, int) else d.value in self._of_inputs for d in dims)

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
    for node in model.graph:
        first = node.inputs[0] if node.inputs else None
        if node.domain not in ("", "com.microsoft") or (first is None and node.op_type != "Scan"):
            continue
        if node.op_type == "Scan" and model.opset_imports.get("", 0) >= _WITHOUT_BATCH:
            count = node.attributes.get_int("num_scan_inputs", 1)
            axes = node.attributes.get_ints("scan_input_axes", [0] * count)
            operands = zip(node.inputs[-count:], axes, strict=True)
            yield from (_Place(node, operand, (axis,)) for operand, axis in operands if operand is not None)
        elif node.op_type in _AXES and first is not None:
            yield _Place(node, first, _AXES[node.op_type])
        elif node.op_type == "InstanceNormalization" and first is not None and first.shape is not None:
            yield _Place(node, first, tuple(range(2, len(first.shape))))


_WITHOUT_BATCH = 9
"""The opset from which Scan has no axis of a batch. Before, onnxruntime raises an exception."""
_AXES = {"GRU": (0, 1), "LSTM": (1,), "DynamicQuantizeLSTM": (1,)}
"""Operator → the axes of its first operand that must not be empty. onnxruntime has no kernel for their other layout."""


def _names(value: ir.Value) -> Iterator[str]:
    """The names of a value's symbolic dimensions."""
    return (d.value for d in value.shape or () if not isinstance(d, int) and d.value is not None)
