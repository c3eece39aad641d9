"""Initializers that are also inputs: from IR version 4 on, a run can override them, so they are not constants.

Old exporters listed every weight as an input. Removing them from the inputs makes them constants: the model computes the same,
but no longer accepts other weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from onnx_subgraph.model.defaults import with_default
from onnx_subgraph.model.shapes import DECLARED


@dataclass(frozen=True, slots=True)
class Overridable:
    """The initializers of a model that are also inputs. readers: the number of nodes that read one."""

    names: tuple[str, ...] = ()
    readers: int = 0


def overridable(model: ir.Model) -> Overridable:
    """Find the initializers that a run can override."""
    found = with_default(model)
    readers = {user for value in found for user, _ in value.uses()}
    return Overridable(tuple(str(value.name) for value in found), len(readers))


def make_constant(model: ir.Model) -> tuple[str, ...]:
    """Remove overridable initializers from the inputs. Returns their names. Changes `model`."""
    found = with_default(model)
    for value in found:
        model.graph.inputs.remove(value)
        value.meta[DECLARED] = (None, None)  # The file's declaration was for the input.
    return tuple(str(value.name) for value in found)
