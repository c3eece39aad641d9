"""The opset at which a standard operator first takes given attributes and inputs."""

from __future__ import annotations

from collections.abc import Collection

from onnx_subgraph.operators.schemas import Schema, latest_opset, schema


def takes(known: Schema, keywords: Collection[str], arguments: int) -> bool:
    """Whether an operator has attributes or inputs of these names, and at least so many inputs."""
    formals = {f.name for f in known.inputs}
    return arguments <= known.max_inputs and all(k in known.attributes or k in formals for k in keywords)


def later_opset(name: str, keywords: Collection[str], arguments: int, opset: int) -> int | None:
    """The first opset after `opset` at which a standard operator takes these; None if it does at `opset`, or never."""
    here = schema(name, "", opset)
    if here is not None and takes(here, keywords, arguments):
        return None
    for later in range(opset + 1, latest_opset() + 1):
        known = schema(name, "", later)
        if known is not None and takes(known, keywords, arguments):
            return later
    return None
