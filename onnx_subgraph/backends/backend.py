"""The protocol of a backend: whether it supports an operator, and how it compiles and runs a region.

A backend is a class with a name and three methods. The engine does everything else: caching, locks, checks, the fallback.
`docs/engines.md` has an example.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from onnx_subgraph.backends.array import Array
from onnx_subgraph.errors import UsageError
from onnx_subgraph.operators.names import operator_of

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_subgraph.backends.subgraph import Subgraph

Signature = tuple[tuple[str, tuple[int | None, ...]], ...]
"""The dtypes (numpy's names) and shapes of the inputs for which a region is compiled, in order. None is any size."""


def signature_of(inputs: Sequence[Array]) -> Signature:
    """The signature of these inputs."""
    return tuple((array.dtype.name, array.shape) for array in inputs)


class Declined(Exception):  # noqa: N818
    """Raised by `Backend.run`: onnxruntime is to run these inputs, and the backend others. The text says why: `has NaN`."""


class Backend(ABC):
    """Compiles and runs regions. One instance for a session; several threads may call its methods."""

    name: str
    """Its name in the registry and in engines."""
    version: str = ""
    """The version of its implementation: a compiled region in the cache on disk is only read by the same version."""
    specializes: bool = True
    """Whether `compile` uses the shapes. If not, a region is compiled once for all shapes."""
    dynamic: bool = False
    """Whether `compile` also takes a signature with sizes of None: one compilation for all of them."""
    bounded: bool = False
    """Whether a run ends by itself at the deadline of the engines."""
    concurrent: bool = True
    """Whether several threads may call `run` for one compiled region at a time."""

    gain: float = math.inf
    """The expected share of a region's time that it saves, if used for speed; compared with the cost of crossing the border."""

    @classmethod
    def configured(cls, options: str) -> Backend:
        """The backend with the options after the colon in `name:options`. Raises UsageError for unknown options."""
        raise UsageError(f"backend {cls.name} takes no options", hint=f"leave out ':{options}'")

    @property
    def coarser(self) -> tuple[str, ...]:
        """The names under which it computes the same faster, with less precision."""
        return ()

    @property
    def title(self) -> str:
        """Its name in reports: the name, or the id of the file that declares it."""
        return self.name

    @abstractmethod
    def supports(self, node: ir.Node) -> bool:
        """Whether this node of a model, with these dtypes, attributes and constant inputs, can be in a region."""

    def reason(self, node: ir.Node) -> str:
        """Why a node is not supported, for the report."""
        return f"{self.name} does not run {label(node)}"

    @abstractmethod
    def compile(self, subgraph: Subgraph, signature: Signature) -> Any:
        """A form of `subgraph` for `run`. May raise any exception: onnxruntime then runs the region."""

    @abstractmethod
    def run(self, compiled: Any, inputs: Sequence[Array]) -> Sequence[Array]:
        """The outputs for these inputs, both in the order of the subgraph. May raise any exception, as `compile`, or `Declined`.

        The inputs must stay as they are. The outputs belong to the caller: no later run may write to their memory, and they may
        not share memory with the inputs.
        """

    def save(self, compiled: Any) -> bytes | None:
        """Bytes for `restore` in a later process; None if compiling again is as good."""
        return None

    def restore(self, content: bytes, subgraph: Subgraph, signature: Signature) -> Any:
        """The compiled region from the bytes of `save`. Raises if they don't fit any more; the region is then compiled again."""
        raise NotImplementedError


def label(node: ir.Node) -> str:
    """The operator of a node: `MatMul`, `com.microsoft.Gelu`."""
    return operator_of(node)


def opset_of(node: ir.Node) -> int:
    """The opset of the node's domain for the node; 1 if unknown."""
    owner = node.graph
    imports = {} if owner is None else owner.opset_imports
    return imports.get(node.domain, 1)


def plain_array(array: Array) -> Array:
    """The array for other libraries: contiguous, aligned, in native byte order; the same object if it already is.

    Its type is numpy's canonical one for the name (there are two int64). The result may be a copy, so code that reads its memory
    must keep the result alive.
    """
    return np.require(array, np.dtype(array.dtype.name), ("C", "A"))


def dtype_name(dtype: ir.DataType | None) -> str:
    """Numpy's name for a dtype, `float32`; "" if unknown or numpy has none."""
    if dtype is None:
        return ""
    try:
        return np.dtype(dtype.numpy()).name
    except TypeError:
        return ""
