"""The expected outputs of a region for a signature: dtypes, ranks, and the sizes that follow from the inputs' sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnx_subgraph.backends.array import Array
from onnx_subgraph.backends.backend import Signature, dtype_name
from onnx_subgraph.backends.subgraph import Subgraph


@dataclass(frozen=True, slots=True)
class Expectation:
    """The expectation for one output. dtype: numpy's name, "" for any. shape: None for any; a dimension of None is any size."""

    name: str
    dtype: str = ""
    shape: tuple[int | None, ...] | None = None

    def problem(self, output: object) -> str:
        """The error of `output`, in words; "" if there is none."""
        if not isinstance(output, np.ndarray):
            return f"gave {type(output).__name__} for {self.name}, not an array"
        if self.dtype and output.dtype.name != self.dtype:
            return f"gave {self.name} as {output.dtype.name}, not as {self.dtype}"
        if self.shape is None:
            return ""
        fits = len(output.shape) == len(self.shape) and all(
            size is None or size == given for size, given in zip(self.shape, output.shape, strict=True)
        )
        if fits:
            return ""
        return (
            f"gave {self.name} of shape {list(output.shape)}, not [{', '.join('?' if d is None else str(d) for d in self.shape)}]"
        )


def expected(subgraph: Subgraph, signature: Signature) -> tuple[Expectation, ...]:
    """The expectation for each output when the inputs have this signature."""
    sizes: dict[str, int | None] = {}
    for value, (_, given) in zip(subgraph.model.graph.inputs, signature, strict=True):
        for dim, size in zip(value.shape or (), given, strict=False):
            if isinstance(dim, ir.SymbolicDim) and dim.value:
                # one symbol for two different sizes is an error in the declaration
                sizes[dim.value] = size if sizes.get(dim.value, size) == size else None
    return tuple(_expectation(value, sizes) for value in subgraph.model.graph.outputs)


def _expectation(value: ir.Value, sizes: dict[str, int | None]) -> Expectation:
    if value.shape is None:
        return Expectation(str(value.name), dtype_name(value.dtype))
    shape = tuple(dim if isinstance(dim, int) else sizes.get(dim.value or "") for dim in value.shape)
    return Expectation(str(value.name), dtype_name(value.dtype), shape)


def of_any_shape(subgraph: Subgraph) -> tuple[Expectation, ...]:
    """What is expected of the outputs of a region whose shapes are not known."""
    return tuple(Expectation(name) for name in subgraph.outputs)


def unexpected_of(expectations: Sequence[Expectation], outputs: Sequence[Array]) -> str:
    """How outputs differ from what is expected; "" where they do not."""
    if len(outputs) != len(expectations):
        return f"gave {len(outputs)} outputs, the region has {len(expectations)}"
    return next((wrong for e, output in zip(expectations, outputs, strict=True) if (wrong := e.problem(output))), "")
