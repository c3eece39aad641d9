"""Decide which nodes of a model may be in a region, and give the reasons for the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import onnx_ir as ir

from onnx_subgraph.backends.backend import Backend, dtype_name, label
from onnx_subgraph.emitting.enclosure import unenclosable
from onnx_subgraph.engine.operator import is_engine
from onnx_subgraph.errors import OnnxSubgraphError, UsageError, as_raised
from onnx_subgraph.model.nested import bodies, reads
from onnx_subgraph.partitioning.worth import RegionLimits
from onnx_subgraph.verification.randomness import random_operator


@dataclass(slots=True)
class Support:
    """A backend's answers about the nodes of `model`, within the limits. reasons: node → why it can't be in a region."""

    model: ir.Model
    backend: Backend
    limits: RegionLimits
    reasons: dict[ir.Node, str] = field(default_factory=dict)

    def __call__(self, node: ir.Node) -> bool:
        """Whether a node may be in a region."""
        if node.op_type == "Constant" and not node.domain:
            return False  # a constant follows its readers, and does not make a region
        reason = self._reason(node)
        if reason:
            self.reasons[node] = reason
        return not reason

    def _reason(self, node: ir.Node) -> str:
        if is_engine(node):
            return "is an engine already"
        if self.limits.allow and not _named(node, self.limits.allow):
            return "is not among those allowed"
        if _named(node, self.limits.deny):
            return "is among those denied"
        if self.limits.results is not None and not any(output.name in self.limits.results for output in node.outputs):
            return "is left to another backend"
        if random_operator(node, self.model):
            return "gives random results, which can't be compared inside an engine"
        return _not_a_tensor(node) or _unenclosable(node) or self._unsupported(node)

    def _unsupported(self, node: ir.Node) -> str:
        function = self.model.functions.get(node.op_identifier())
        if function is None:
            return self._asked(node)
        inner = (n for n in function if n.op_type != "Constant")
        return next((f"calls a function in which {why}" for n in inner if (why := self._unsupported(n))), "")

    def _asked(self, node: ir.Node) -> str:
        """Why the backend does not support a node, or "". Raises UsageError where the backend raises."""
        try:
            return "" if self.backend.supports(node) else self.backend.reason(node)
        except OnnxSubgraphError:
            raise
        except Exception as error:  # the backend's code may raise anything
            which = f"{label(node)} {node.name or ''}".rstrip()
            message = f"backend {self.backend.name} fails when it is asked whether it supports {which}: {as_raised(error)}"
            raise UsageError(message, hint="fix its `supports`") from error


def _named(node: ir.Node, names: tuple[str, ...]) -> bool:
    return any(fnmatchcase(label(node), name) or fnmatchcase(node.name or "", name) for name in names)


def _unenclosable(node: ir.Node) -> str:
    everything = (node, *(inner for body in bodies(node) for inner in body.all_nodes()))
    return next(filter(None, map(unenclosable, everything)), "")


def _not_a_tensor(node: ir.Node) -> str:
    """Why the node's values can't cross a border as arrays; "" if they can."""
    for value in (*reads(node), *(output for output in node.outputs if output.name)):
        if value.type is not None and not isinstance(value.type, ir.TensorType):
            return "has a value that is no tensor"
        if value.dtype is None:
            return "has a value whose dtype is not known"
        if value.dtype == ir.DataType.STRING or value.dtype.name.startswith(_EXOTIC) or not dtype_name(value.dtype):
            return f"has a value of dtype {value.dtype.name.lower()}"
    return ""


_EXOTIC = ("BFLOAT", "FLOAT8", "FLOAT4", "INT4", "UINT4", "INT2", "UINT2", "COMPLEX")
"""Prefixes of dtypes that onnxruntime does not accept as arrays."""
