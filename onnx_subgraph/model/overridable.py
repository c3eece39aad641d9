"""Initializers that are inputs as well: from IR version 4 on a run of the model may replace them, so they are no constants.

Exporters of those years listed every weight as an input. Taken out of the inputs, they are constants: the model computes the
same, and takes no other weights any more.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from onnx_subgraph.model.shapes import DECLARED

_IR_VERSION = 4
"""Before it, every initializer had to be an input, and was constant all the same."""


@dataclass(frozen=True, slots=True)
class Overridable:
    """The initializers of a model that are inputs as well. names: theirs. readers: how many nodes read one."""

    names: tuple[str, ...] = ()
    readers: int = 0


def overridable(model: ir.Model) -> Overridable:
    """The initializers that a run may replace."""
    found = _values(model)
    readers = {user for value in found for user, _ in value.uses()}
    return Overridable(tuple(str(value.name) for value in found), len(readers))


def make_constant(model: ir.Model) -> tuple[str, ...]:
    """Take them out of the inputs; their names. Changes `model`."""
    found = _values(model)
    for value in found:
        model.graph.inputs.remove(value)
        value.meta[DECLARED] = (None, None)  # what the file declared was the input
    return tuple(str(value.name) for value in found)


def _values(model: ir.Model) -> list[ir.Value]:
    if model.ir_version < _IR_VERSION:
        return []
    return [value for value in model.graph.inputs if value.is_initializer()]
