"""The order in which a node gives the axes of its operand: a Transpose, or a Reshape that adds and removes axes of size 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import onnx_ir as ir

from onnx_subgraph.model.asked import Constants
from onnx_subgraph.model.shapes import same_dim
from onnx_subgraph.operators.elementwise import REARRANGING

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Layout:
    """The axes of a result. order: for each one, the operand's axis; None for a new one. rank: the operand's.

    Axes of the operand that are not in `order` have the size 1, as new ones have.
    """

    order: tuple[int | None, ...]
    rank: int

    @property
    def dropped(self) -> tuple[int, ...]:
        return tuple(axis for axis in range(self.rank) if axis not in self.order)

    def of(self, sizes: Sequence[T], one: T) -> list[T]:
        """The sizes in this layout."""
        return [one if axis is None else sizes[axis] for axis in self.order]

    def admits(self, shape: Sequence[int | ir.SymbolicDim]) -> bool:
        """Whether a value of this shape has the layout: the axes that are dropped have the size 1."""
        return len(shape) == self.rank and all(shape[axis] == 1 for axis in self.dropped)

    def then(self, later: Layout) -> Layout:
        """The layout of a result that has a later layout of this one's result."""
        return Layout(tuple(None if axis is None else self.order[axis] for axis in later.order), self.rank)

    def as_permutation(self) -> list[int] | None:
        """The operand's axis for each axis of the result; new ones are dropped ones. None if there are more of either."""
        dropped = iter(self.dropped)
        return [next(dropped) if axis is None else axis for axis in self.order] if len(self.order) == self.rank else None

    def undoes(self, earlier: Layout) -> bool:
        """Whether the layout after an earlier one is the original. What both leave out has the size 1."""
        if earlier.rank != len(self.order) or len(earlier.order) != self.rank:
            return False
        before = [None if axis is None else earlier.order[axis] for axis in self.order]
        return all(axis is None or axis == now for now, axis in enumerate(before))


def layout_of(constants: Constants, node: ir.Node) -> Layout | None:
    """The layout of a node's result; None where it is not known, or axes are merged or split."""
    source, result = next(iter(node.inputs), None), node.outputs[0]
    if node.domain or node.op_type not in REARRANGING or source is None or source.shape is None or result.shape is None:
        return None
    rank, axes = len(source.shape), len(result.shape)
    if node.op_type == "Transpose":
        given = node.attributes.get("perm")
        if given is not None and given.is_ref():
            return None
        return Layout(tuple(range(rank))[::-1] if given is None else tuple(given.as_ints()), rank)
    if node.op_type in ("Reshape", "Flatten"):
        return _regrouped(source.shape, result.shape)
    if (changed := named_axes(constants, node, max(rank, axes))) is None or abs(rank - axes) != len(changed):
        return None
    kept = [axis for axis in range(max(rank, axes)) if axis not in changed]
    if node.op_type == "Squeeze":
        return Layout(tuple(kept), rank)
    return Layout(tuple(None if axis in changed else kept.index(axis) for axis in range(axes)), rank)


def _regrouped(before: ir.Shape, after: ir.Shape) -> Layout | None:
    """The layout after a Reshape that only adds and removes axes of size 1."""
    old, new = ([axis for axis, dim in enumerate(shape) if dim != 1] for shape in (before, after))
    if len(old) != len(new) or not all(same_dim(before[one], after[two]) for one, two in zip(old, new, strict=True)):
        return None
    order = dict(zip(new, old, strict=True))
    return Layout(tuple(order.get(axis) for axis in range(len(after))), len(before))


def named_axes(constants: Constants, node: ir.Node, rank: int) -> set[int] | None:
    """The axes that a node names by an attribute or its second input, counted from the first; None where they are not known."""
    if not rank:
        return None
    named, given = node.attributes.get("axes"), node.inputs[1] if len(node.inputs) > 1 else None
    array = None if given is None else constants.array(given)
    if named is not None:
        return None if named.is_ref() else {axis % rank for axis in named.as_ints()}
    return None if array is None else {int(axis) % rank for axis in array.reshape(-1)}
