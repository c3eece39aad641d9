"""A node as a call: which of its inputs are values, and what is static: attributes, axes, and constants that are integers."""

from __future__ import annotations

import onnx_ir as ir

from onnx_subgraph.language.axis import numbered
from onnx_subgraph.language.term import Static
from onnx_subgraph.matching.numbering import NOOP, axes_rank, formal
from onnx_subgraph.matching.view import View
from onnx_subgraph.model.attributes import plain_value
from onnx_subgraph.operators import Schema, is_axis, is_ordered

MOST_ELEMENTS = 16
"""Elements of a constant that is written into a formula."""
_INTEGERS = frozenset({ir.DataType.INT64, ir.DataType.INT32})
Keywords = tuple[tuple[str, Static], ...]


def keywords(view: View, node: ir.Node) -> tuple[Keywords, int] | None:
    """The static arguments that are not at their default, and how many inputs come before the static ones.

    Axes count from the back. None where an attribute or an input can't be written down so.
    """
    schema = view.schema(node)
    assert schema is not None
    found: dict[str, Static] = {}
    for name, attribute in node.attributes.items():
        if (held := plain_value(attribute)) is None:
            return None
        found[name] = held
    first = next((i for i, v in enumerate(node.inputs) if v is not None and _is_static(view, schema, i, v)), len(node.inputs))
    for position, value in list(enumerate(node.inputs))[first:]:
        if value is None:
            continue
        said = _static(view, value)
        if said is None or not formal(schema, position):
            return None
        found[formal(schema, position)] = said
    return _meant(node, schema, found), first


def _is_static(view: View, schema: Schema, position: int, value: ir.Value) -> bool:
    """Whether an input holds axes, or is a constant list of integers beside the first input."""
    if is_axis(formal(schema, position)):
        return True
    return position > 0 and value.dtype in _INTEGERS and view.constants.is_constant(value) and bool(formal(schema, position))


def _static(view: View, value: ir.Value) -> Static | None:
    array = view.constants.array(value) if view.constants.is_constant(value) else None
    if array is None or array.size > MOST_ELEMENTS or array.ndim > 1 or array.dtype.kind not in "iuf":
        return None
    said: Static = array.item() if array.ndim == 0 else tuple(array.tolist())
    return said


def _meant(node: ir.Node, schema: Schema, found: dict[str, Static]) -> Keywords:
    """Static arguments without those at their default, or without a meaning: NOOP says what no axes mean."""
    rank = axes_rank(node)
    found = {name: said for name, said in found.items() if name != NOOP or not found.get("axes")}
    kept: list[tuple[str, Static]] = []
    for name, said in sorted(found.items()):
        spec = schema.attributes.get(name)
        default = None if spec is None else spec.default
        if is_axis(name):
            said, default = (numbered(v, rank, ordered=is_ordered(node.op_type)) for v in (said, default))  # type: ignore[assignment]
            said = tuple(int(a) for a in said) if isinstance(said, tuple) else int(said)  # type: ignore[arg-type]
        if default is None or said != default:
            kept.append((name, said))
    return tuple(kept)
