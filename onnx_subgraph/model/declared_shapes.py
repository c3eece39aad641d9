"""Operators whose results have the types and shapes that a standard operator would give: what inference is told of them."""

from __future__ import annotations

_LATEST = 13
"""The version of the standard operator's rule; rules of shapes have hardly changed, and read inputs and attributes by name."""


def shaped_like(domain: str, name: str, standard: str) -> bool:
    """Let inference take an operator for a standard one that has the same first inputs; whether that has a rule.

    What the operator has a rule for already stays. A rule holds for the whole process.
    """
    from onnx_shape_inference import registry

    from onnx_subgraph.model import inference_rules

    inference_rules.install()

    if registry.has(domain, name):
        return True
    rule = registry.get("", standard, version=_LATEST)
    if rule is not None:
        registry.register(domain, name, 1)(rule)
    return rule is not None
