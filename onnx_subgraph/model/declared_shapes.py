"""Give shape inference the rule of a standard operator for another operator whose result has the same type and shape."""

from __future__ import annotations


def shaped_like(domain: str, name: str, standard: str) -> bool:
    """Register the shape rule of a standard operator for an operator with the same first inputs. Returns whether there is a rule.

    An operator that already has a rule keeps it. The registration holds for the whole process.
    """
    from onnx_subgraph.model import inference

    inference.install()
    return inference.add_rule_of(standard, domain, name)
