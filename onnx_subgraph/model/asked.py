"""What analyses of single nodes ask of the constants of a model."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import onnx_ir as ir

_LARGEST = 1 << 20
"""The size in bytes up to which every element of a constant is looked at."""


class Constants(Protocol):
    """What analyses of single nodes ask of the constants of a model."""

    def is_constant(self, value: ir.Value) -> bool:
        """Whether the value is the same in every run."""
        ...

    def array(self, value: ir.Value) -> np.ndarray | None:
        """The elements of a constant."""
        ...

    def scalar(self, value: ir.Value) -> float | int | bool | None:
        """The element of a constant that has exactly one."""
        ...

    def opset(self, node: ir.Node) -> int:
        """The opset of the default domain for a node."""
        ...


def small(constants: Constants, value: ir.Value) -> np.ndarray | None:
    """The elements of a constant that is small enough to look at every one."""
    if not constants.is_constant(value) or (value.const_value is not None and value.const_value.nbytes > _LARGEST):
        return None
    return constants.array(value)
