"""What analyses of single nodes ask of the constants of a model."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import onnx_ir as ir


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
