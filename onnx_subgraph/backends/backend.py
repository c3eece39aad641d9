"""The protocol of a backend: does it run this operator, compile this region for these inputs, run it.

A backend is a class with a name and three methods; everything around them (caching, locks, checking, the fallback) is the
engine's business. `docs/engines.md` shows a whole one.
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
"""What a region is compiled for: numpy's name of the dtype, and the shape, of each input in order. None is any size."""


def signature_of(inputs: Sequence[Array]) -> Signature:
    """The signature of these inputs."""
    return tuple((array.dtype.name, array.shape) for array in inputs)


class Backend(ABC):
    """Something that compiles and runs regions. Made once for a session; its methods may be called from several threads."""

    name: str
    """Under which it is registered, and which an engine carries."""
    version: str = ""
    """Of what does the work: what one version compiled, no other one reads from a cache on disk."""
    specializes: bool = True
    """Whether `compile` makes use of the shapes. Where not, a region is compiled once for all shapes."""
    dynamic: bool = False
    """Whether `compile` also takes a signature in which sizes are None: one compilation for all of them."""
    bounded: bool = False
    """Whether a run ends by itself at the deadline of the engines."""
    concurrent: bool = True
    """Whether `run` may be called for one compiled region by several threads at a time."""

    gain: float = math.inf
    """The part of a region's time that it saves where it is used for speed, to hold against the cost of crossing the border."""

    @classmethod
    def configured(cls, options: str) -> Backend:
        """The backend with what stands behind the colon in `name:options`. Raises UsageError for what it does not know."""
        raise UsageError(f"backend {cls.name} takes no options", hint=f"leave out ':{options}'")

    @property
    def coarser(self) -> tuple[str, ...]:
        """The names under which it computes the same faster, in less precision."""
        return ()

    @property
    def title(self) -> str:
        """What reports call it: its name, or the id of the file that declares it."""
        return self.name

    @abstractmethod
    def supports(self, node: ir.Node) -> bool:
        """Whether this node of a model, with these dtypes, attributes and constant inputs, can be in a region."""

    def reason(self, node: ir.Node) -> str:
        """Why a node is not supported, for the report."""
        return f"{self.name} does not run {label(node)}"

    @abstractmethod
    def compile(self, subgraph: Subgraph, signature: Signature) -> Any:
        """A form of `subgraph` that `run` takes. Raises whatever it likes: the region then runs by onnxruntime."""

    @abstractmethod
    def run(self, compiled: Any, inputs: Sequence[Array]) -> Sequence[Array]:
        """The outputs for these inputs, both in the order of the subgraph. Raises whatever it likes, as `compile` does.

        The outputs belong to the caller: no later run may write to their memory, and they are not memory of the inputs.
        """

    def save(self, compiled: Any) -> bytes | None:
        """What a later process may `restore`; None where compiling again is as good."""
        return None

    def restore(self, content: bytes, subgraph: Subgraph, signature: Signature) -> Any:
        """What `save` gave, ready to `run` again. Raises where it doesn't fit any more; it is then compiled anew."""
        raise NotImplementedError


def label(node: ir.Node) -> str:
    """The operator of a node: `MatMul`, `com.microsoft.Gelu`."""
    return operator_of(node)


def opset_of(node: ir.Node) -> int:
    """The opset of the node's domain where the node is; 1 where that is not known."""
    owner = node.graph
    imports = {} if owner is None else owner.opset_imports
    return imports.get(node.domain, 1)


def plain_array(array: Array) -> Array:
    """The array as other libraries read memory: in one piece, aligned, in the byte order of this machine; itself where it is so.

    Its type is the one that numpy means by its name (there are two int64). What only borrows its memory has to be used while
    the result is held: it may be a copy that nobody else knows.
    """
    return np.require(array, np.dtype(array.dtype.name), ("C", "A"))


def dtype_name(dtype: ir.DataType | None) -> str:
    """The name that numpy has for a dtype, `float32`; "" where it is not known or numpy has none."""
    if dtype is None:
        return ""
    try:
        return np.dtype(dtype.numpy()).name
    except TypeError:
        return ""
