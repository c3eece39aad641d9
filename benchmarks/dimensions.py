"""Renames the symbolic dimensions of a model, as other exporters would name them."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

PLAIN = "plain"
SPELLINGS = (PLAIN, "?", "batch size", "N:1", "<dynamic>")
"""The new name of the first dimension of a model; the others get a number after it."""


def renamed(model: onnx.ModelProto, spelling: str) -> onnx.ModelProto | None:
    """The model, changed in place, with each symbolic dimension renamed; None if it has none."""
    names: dict[str, str] = {}
    for value in _values(model.graph):
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_param:
                name = f"{spelling}{len(names) or ''}"
                dimension.dim_param = names.setdefault(dimension.dim_param, name)
    return model if names else None


def _values(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    """The values that the graph and the bodies of its nodes declare."""
    yield from (*graph.input, *graph.output, *graph.value_info)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _values(attribute.g)
