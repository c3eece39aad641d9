"""Check the shapes that a user gives: against the inputs of the model, the user's feeds, and the memory of this machine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from onnx_subgraph.errors import UsageError
from onnx_subgraph.inputs.sizes import fixed_by
from onnx_subgraph.verification.memory import physical_memory


def check_given_shapes(
    inputs: Sequence[ir.Value], shapes: Mapping[str, tuple[int, ...]], feeds: Mapping[str, Any] | None = None
) -> None:
    """Raises UsageError where a shape does not fit its input, the others, the array in the user's `feeds`, or the memory."""
    fixed_by(inputs, shapes)
    memory = physical_memory() or math.inf
    for value in inputs:
        name = str(value.name)
        shape = shapes.get(name)
        if shape is None:
            continue
        fed = getattr((feeds or {}).get(name), "shape", shape)
        if tuple(fed) != tuple(shape):
            contradiction = f"--shape gives {name} {_spelled(shape)}, and --inputs gives it {_spelled(fed)}"
            raise UsageError(contradiction, hint="leave one of the two out")
        bits = 8 if value.dtype in (None, ir.DataType.STRING, ir.DataType.UNDEFINED) else value.dtype.bitwidth
        size = math.prod(shape) * bits // 8
        if size > memory:
            needed = f"--shape gives {name} {size // 10**9:,} GB, and this machine has {memory // 10**9:,.0f} GB of memory"
            raise UsageError(needed, hint="give smaller sizes")


def _spelled(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "a scalar"
