"""Compare the interfaces of two models: names, order, types and declared dimensions of inputs and outputs."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnx_subgraph.model.defaults import allows_defaults
from onnx_subgraph.verification.verdict import Run


def interface_problems(reference: ir.Model, candidate: ir.Model) -> tuple[Run, ...]:
    """Inputs and outputs of the candidate that differ from the reference's."""
    problems = []
    for what, mine, theirs in (
        ("inputs", _inputs(reference, candidate), candidate.graph.inputs),
        ("outputs", reference.graph.outputs, candidate.graph.outputs),
    ):
        if [value.name for value in mine] != [value.name for value in theirs]:
            problems.append(("", f"has the {what} {_names(theirs)}; the reference has {_names(mine)}"))
            continue
        for one, other in zip(mine, theirs, strict=True):
            if (before := _declared(one)) != (after := _declared(other)):
                problems.append((str(one.name), f"is declared {after}, in the reference {before}"))
            elif one.is_initializer() != other.is_initializer():
                problems.append((str(one.name), "has a default in one model and none in the other"))
    return tuple(Run("", False, {}, None, name, float("inf"), 0.0, (), problem) for name, problem in problems)


def _inputs(reference: ir.Model, candidate: ir.Model) -> Sequence[ir.Value]:
    """The inputs that a candidate must have. Of a model without defaults, it may have left out inputs that are initializers."""
    kept = {value.name for value in candidate.graph.inputs}
    constant = not allows_defaults(reference)
    return [value for value in reference.graph.inputs if not (constant and value.is_initializer() and value.name not in kept)]


def _names(values: Sequence[ir.Value]) -> str:
    return ", ".join(str(value.name) for value in values)


def _declared(value: ir.Value) -> str:
    shape = "" if value.shape is None else f"[{', '.join(str(d if isinstance(d, int) else d.value or '?') for d in value.shape)}]"
    return f"{value.type}{shape}"
