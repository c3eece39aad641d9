"""Defaults of inputs: initializers that are inputs as well, so that a run can override them.

Before IR version 4 every initializer had to be an input. It was constant all the same.
"""

from __future__ import annotations

import onnx_ir as ir

_IR_VERSION = 4


def allows_defaults(model: ir.Model) -> bool:
    """Whether an initializer that is an input is a default, by the IR version of the model."""
    return model.ir_version >= _IR_VERSION


def with_default(model: ir.Model) -> list[ir.Value]:
    """The inputs that have a default."""
    return [value for value in model.graph.inputs if value.is_initializer()] if allows_defaults(model) else []
