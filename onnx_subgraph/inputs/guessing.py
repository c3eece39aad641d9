"""Guess shapes for the inputs of a small model, such that the operators that read them accept them."""

from __future__ import annotations

import onnx_ir as ir

_LOCAL = frozenset(("Conv", "FusedConv", "ConvTranspose"))
LENGTH = 8
"""The size of each spatial dimension; but where the window of a convolution is known, at least so much more than the window."""


def with_shapes(model: ir.Model) -> ir.Model:
    """The model itself, or a copy in which each input has a shape."""
    if all(value.shape is not None for value in model.graph.inputs):
        return model
    copy = model.clone()
    for value in copy.graph.inputs:
        if value.shape is None:
            value.shape = ir.Shape(next(filter(None, (_taken(node, index) for node, index in value.uses())), (2, 3, 8)))
    return copy


def smaller(model: ir.Model) -> ir.Model | None:
    """A copy whose single input has a small size that its operator accepts; None where such a size is unknown."""
    if len(model.graph.inputs) != 1:
        return None
    copy = model.clone()
    (value,) = copy.graph.inputs
    shape = next(filter(None, (_taken(node, index) for node, index in value.uses() if node.op_type in _LOCAL)), None)
    if shape is None:
        return None
    value.shape = ir.Shape(shape)
    return copy


def _taken(node: ir.Node, index: int) -> tuple[int, ...]:
    """A shape that a node accepts as input `index`, derived from its weights; () where they do not determine it."""
    weight = node.inputs[1] if len(node.inputs) > 1 else None
    if weight is None or weight.const_value is None:
        return ()
    sizes = tuple(weight.const_value.shape.numpy())
    match node.op_type, index:
        case ("Conv" | "FusedConv", 0) if len(sizes) > 2:
            dilations = node.attributes.get_ints("dilations", [1] * len(sizes[2:]))
            window = [(size - 1) * dilation + 1 for size, dilation in zip(sizes[2:], dilations, strict=False)]
            return (2, sizes[1] * node.attributes.get_int("group", 1), *(max(LENGTH, size + 4) for size in window))
        case ("ConvTranspose", 0) if len(sizes) > 2:
            return (2, sizes[0], *(LENGTH for _ in sizes[2:]))
        case ("Gemm", 0) if len(sizes) == 2:
            return (2, sizes[1] if node.attributes.get_int("transB", 0) else sizes[0])
        case ("MatMul", 0) if len(sizes) > 1:
            return (2, 3, sizes[-2])
        case ("BatchNormalization", 0):
            return (2, *sizes, LENGTH)
        case _ if sizes and index == 0:
            return (2, 3, sizes[-1])
    return ()
