"""Names of operators and of their domains."""

from __future__ import annotations

from typing import Protocol

OWN_DOMAIN = "onnx_subgraph"
"""The domain of fused operators that carry their definition as a function, and of engines."""
ENGINE = "Engine"
"""The operator in `OWN_DOMAIN` that a backend runs."""
KERNELS = frozenset(
    {
        *("AddLayerNorm", "AddRMSNorm", "Attention", "FastGelu", "Gelu", "LayerNorm", "Linear", "RMSNorm", "Rotary", "Softmax"),
        "Swish",
    }
)
"""The operators in `OWN_DOMAIN` that our library of kernels has."""
KNOWN_DOMAINS = frozenset({"", "ai.onnx.ml", "com.microsoft"})
"""Domains whose operators are known to have no side effects and no state between runs."""
_STANDARD = ("", "ai.onnx")


class Node(Protocol):
    """A node of onnx or onnx-ir."""

    @property
    def domain(self) -> str:
        """The domain of the operator."""
        ...

    @property
    def op_type(self) -> str:
        """The name of the operator in its domain."""
        ...


def qualified(identity: tuple[str, str]) -> str:
    """The name of an operator (domain, name), prefixed with its domain unless it is a standard operator: `com.microsoft.Gelu`."""
    domain, name = identity
    return name if domain in _STANDARD else f"{domain}.{name}"


def operator_of(node: Node) -> str:
    """The name of a node's operator, prefixed with its domain unless it is a standard operator."""
    return qualified((node.domain, node.op_type))
