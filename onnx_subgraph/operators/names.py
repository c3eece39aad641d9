"""What operators are called, and whose they are."""

from __future__ import annotations

from typing import Protocol

OWN_DOMAIN = "onnx_subgraph"
"""The domain of fused operators that carry their definition, and of engines."""
ENGINE = "Engine"
"""The operator of ours that a backend runs."""
KNOWN_DOMAINS = frozenset({"", "ai.onnx.ml", "com.microsoft"})
"""The domains whose operators we know: none of them does more than to give its results, or remembers a run."""
_STANDARD = ("", "ai.onnx")


class Node(Protocol):
    """A node, of onnx or of onnx-ir."""

    @property
    def domain(self) -> str:
        """The domain of its operator."""
        ...

    @property
    def op_type(self) -> str:
        """The operator's name in its domain."""
        ...


def qualified(identity: tuple[str, str]) -> str:
    """An operator, (domain, name), by its name, with its domain where that is not the standard's: `com.microsoft.Gelu`."""
    domain, name = identity
    return name if domain in _STANDARD else f"{domain}.{name}"


def operator_of(node: Node) -> str:
    """The operator of a node by its name, with its domain where that is not the standard's."""
    return qualified((node.domain, node.op_type))
