"""Give shape inference the rule of a standard operator for another operator whose result has the same type and shape."""

from __future__ import annotations

_LATEST = 13
"""Opset of the standard operator's rule. Rules hardly change between opsets, and read inputs and attributes by name."""


def shaped_like(domain: str, name: str, standard: str) -> bool:
    """Register the shape rule of a standard operator for an operator with the same first inputs. Returns whether there is a rule.

    An operator that already has a rule keeps it. The registration holds for the whole process.
    """
    from onnx_shape_inference import registry

    from onnx_subgraph.model import inference

    inference.install()

    if registry.has(domain, name):
        return True
    rule = registry.get("", standard, version=_LATEST)
    if rule is not None:
        registry.register(domain, name, 1)(rule)
    return rule is not None
