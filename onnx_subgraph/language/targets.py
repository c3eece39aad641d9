"""Read the targets of a pattern: those of its replacements or of its canonical operator, restricted by `targets`."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from onnx_subgraph.errors import PatternError
from onnx_subgraph.language import spelling
from onnx_subgraph.language.source import Fields, Items, Scalar, read_text_of
from onnx_subgraph.operators.names import OWN_DOMAIN
from onnx_subgraph.targets import TARGETS, WRITTEN


def read_targets(fields: Fields, operators: Mapping[str, Collection[str]]) -> tuple[str, ...]:
    """The targets of a file, in the order of `TARGETS`, read without its blocks.

    operators: canonical operator → its targets.
    """
    data = fields.get("replace")
    written = {key.text for key, _ in data.entries} if isinstance(data, Fields) else set()
    if fields.get("bodies") is not None:
        return WRITTEN
    function = data.get("function") if isinstance(data, Fields) and fields.get("grow") is not None else None
    if isinstance(function, Scalar) and "." in function.text.partition("(")[0]:
        return TARGETS  # an operator in the author's domain is the same for every target
    raised = fields.get("raises")
    if isinstance(raised, Scalar):
        written.update(*(lowered for name, lowered in operators.items() if f"{OWN_DOMAIN}.{name}(" in raised.text))
    wanted = wanted_targets(fields)
    return tuple(t for t in TARGETS if (t in written and t in wanted) or t == "function")


def wanted_targets(fields: Fields) -> tuple[str, ...]:
    """The targets allowed by `targets`; all without it. Raises PatternError, with the place."""
    data = fields.get("targets")
    if data is None:
        return TARGETS
    found = [read_text_of(item, "targets") for item in (data.items if isinstance(data, Items) else (data,))]
    if fields.get("raises") is None:
        raise PatternError("`targets` stands beside `raises`", span=data.span, hint="leave it out: `replace` names its targets")
    for word in found:
        if word.text not in TARGETS[:-1]:
            raise PatternError(f"`{word.text}` is not a target", span=word.span, hint=spelling.hint(word.text, TARGETS[:-1]))
    return tuple(word.text for word in found)
