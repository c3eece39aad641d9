"""The functions in a model file, read without the graph; takes the same time whatever the size of the model."""

from __future__ import annotations

import io
from pathlib import Path

from onnx_subgraph.protobuf import fields

_FUNCTIONS, _NAME, _DOMAIN = 25, 1, 10
"""Field numbers in onnx.proto: the functions of a ModelProto; the name and the domain of a FunctionProto."""


def carried_functions(source: Path | bytes) -> frozenset[tuple[str, str]]:
    """Domain and name of each function; empty for a file that is not a model. Raises OSError where the file cannot be read."""
    with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as file:
        try:
            functions = [dict(fields(io.BytesIO(content), {_NAME, _DOMAIN})) for _, content in fields(file, {_FUNCTIONS})]
        except ValueError:
            return frozenset()
    texts = ({number: text.decode(errors="replace") for number, text in one.items()} for one in functions)
    return frozenset((text.get(_DOMAIN, ""), text.get(_NAME, "")) for text in texts)
