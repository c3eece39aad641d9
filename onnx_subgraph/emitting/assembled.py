"""Assemble the shape of a value that is removed from the shapes of values that stay."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnx_subgraph.emitting.fragment import SHAPE_OF_PART

Source = int | tuple[ir.Value, int]
"""A size: a number, or that of a value's axis."""


def assembled(sizes: Sequence[Source], opset: int) -> list[ir.Node]:
    """Nodes of which the last one computes these sizes as a vector."""
    nodes: list[ir.Node] = []
    parts: list[ir.Value] = []
    for part in _parts(sizes):
        first = part[0]
        if isinstance(first, int):
            nodes.append(_constant(part))
        elif opset >= SHAPE_OF_PART:
            nodes.append(ir.node("Shape", [first[0]], {"start": first[1], "end": first[1] + len(part)}))
        else:
            axes = range(first[1], first[1] + len(part))
            nodes += [ir.node("Shape", [first[0]]), _constant(axes)]
            nodes.append(ir.node("Gather", [nodes[-2].outputs[0], nodes[-1].outputs[0]]))
        parts.append(nodes[-1].outputs[0])
    if not parts:
        return [_constant(())]
    return nodes if len(parts) == 1 else [*nodes, ir.node("Concat", parts, {"axis": 0})]


def _parts(sizes: Sequence[Source]) -> list[list[Source]]:
    """The longest parts that consist of numbers, or of consecutive axes of one value."""
    parts: list[list[Source]] = []
    for size in sizes:
        last = parts[-1][-1] if parts else None
        is_next = isinstance(size, int) if isinstance(last, int) else last is not None and size == (last[0], last[1] + 1)
        if is_next:
            parts[-1].append(size)
        else:
            parts.append([size])
    return parts


def _constant(numbers: Sequence[object]) -> ir.Node:
    return ir.node("Constant", [], {"value": ir.tensor(np.array(numbers, np.int64))})
