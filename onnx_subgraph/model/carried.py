"""The functions that a model file carries, read without its graph, so that it takes the same time however large the model is."""

from __future__ import annotations

import io
from pathlib import Path

from onnx_subgraph.protobuf import fields

_FUNCTIONS, _NAME, _DOMAIN = 25, 1, 10
"""The fields of ModelProto that hold a function, and of FunctionProto that hold its name and domain, in onnx.proto."""


def carried_functions(source: Path | bytes) -> frozenset[tuple[str, str]]:
    """Domain and name of each; none of what is no model. Raises OSError where the file can't be read."""
    with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as file:
        try:
            functions = [dict(fields(io.BytesIO(content), {_NAME, _DOMAIN})) for _, content in fields(file, {_FUNCTIONS})]
        except ValueError:
            return frozenset()
    texts = ({number: text.decode(errors="replace") for number, text in one.items()} for one in functions)
    return frozenset((text.get(_DOMAIN, ""), text.get(_NAME, "")) for text in texts)
