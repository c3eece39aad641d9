"""Read `formerly`: the ids of patterns that were merged into another one."""

from __future__ import annotations

from onnx_subgraph.errors import PatternError
from onnx_subgraph.language.pattern import ID
from onnx_subgraph.language.source import Fields, Items, read_text_of


def read_formerly(fields: Fields, identity: str) -> tuple[str, ...]:
    """The ids of patterns that were merged into this one. Raises PatternError, with the place."""
    data = fields.get("formerly")
    items = () if data is None else data.items if isinstance(data, Items) else (data,)
    found = tuple(read_text_of(item, "formerly") for item in items)
    for scalar in found:
        if ID.fullmatch(scalar.text) is None:
            hint = "write the ids that patterns had: `formerly: [old-id]`"
            raise PatternError(f"`{scalar.text}` is not an id", span=scalar.span, hint=hint)
        if scalar.text == identity:
            raise PatternError(f"`{identity}` is the id itself", span=scalar.span, hint="leave it out")
    return tuple(scalar.text for scalar in found)
