"""Emit layout words as nodes: rearrange and repeat as Reshape, Transpose and Expand, split as Split.

Shapes are constants where possible: known sizes, 0 for a size copied from the same axis, and at most one -1. Otherwise they are
computed from the source's shape. A recipe whose dynamic sizes need more than that is refused, with the axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np
import onnx_ir as ir

from onnx_subgraph.emitting.attribute import Lookup, plain, static
from onnx_subgraph.emitting.fragment import Fragment
from onnx_subgraph.emitting.refused import Refused
from onnx_subgraph.language.recipe import ELLIPSIS, UNCHANGED, ranked
from onnx_subgraph.language.term import Operator, Rearrange
from onnx_subgraph.matching.equalities import REARRANGING
from onnx_subgraph.matching.match import Binding
from onnx_subgraph.matching.rearrangement import Rearrangement, rearrangements, source_sizes
from onnx_subgraph.matching.recipe import parse_recipe
from onnx_subgraph.matching.sizes import ONE, Size

Axis = TypeVar("Axis")
Axes = Sequence[tuple[str, ...]]
"""The atoms of each dimension, outermost first; () is a dimension of size 1."""


def rearrange(fragment: Fragment, source: ir.Value, term: Rearrange, bindings: Mapping[str, Binding], lookup: Lookup) -> ir.Value:
    """The nodes of `rearrange(source, recipe)` or `repeat(source, recipe)`."""
    dims = fragment.shape(source)
    if term.recipe == UNCHANGED or (ELLIPSIS in term.recipe and dims is None):
        raise Refused(f'"{term.recipe}" has an ellipsis, which a replacement can\'t write')
    if ELLIPSIS in term.recipe and dims is not None:
        term = replace(term, recipe=ranked(term.recipe, len(dims), side=0))
    shorter = _shorter(fragment, source, term, bindings, lookup)
    if shorter is not None:
        return _write(fragment, shorter)
    recipe = parse_recipe(term.recipe)
    left, right = recipe.left, recipe.right
    sizes = _sizes(fragment, source, term, bindings, lookup)
    atoms = [a for group in left for a in group]
    wanted = [a for group in right for a in group]
    added = [a for a in wanted if a not in atoms]
    value = source
    if any(len(group) != 1 for group in left):
        value = _reshape(fragment, value, left, [(a,) for a in atoms], sizes)
    kept = [a for a in wanted if a in atoms]
    if kept != atoms:
        permutation = ir.AttrInt64s("perm", [atoms.index(a) for a in kept])
        value = fragment.node("Transpose", [value], [permutation])[0]
    current: Axes = [(a,) for a in kept]
    if added:
        value = _reshape(fragment, value, current, [() if a in added else (a,) for a in wanted], sizes)
        grown = [sizes[a] if a in added else 1 for a in wanted]
        if None in grown:
            raise Refused(f"`{term}` repeats by a number that is not known")
        fragment.schema(Operator("Expand"), (), 2)
        shape = fragment.constant(np.array(grown, np.int64))
        value = fragment.node("Expand", [value, shape])[0]
        current = [(a,) for a in wanted]
    if tuple(current) != right:
        value = _reshape(fragment, value, current, right, sizes)
    return value


def unmoved(
    fragment: Fragment, source: ir.Value, term: Rearrange, bindings: Mapping[str, Binding], lookup: Lookup
) -> ir.Value | None:
    """The value of `rearrange(source, recipe)` if it exists already, or needs only a Reshape; else None."""
    if ELLIPSIS in term.recipe:
        return None
    way = _shorter(fragment, source, term, bindings, lookup)
    return _write(fragment, way) if way is not None and _in_order(way) else None


def _shorter(
    fragment: Fragment, source: ir.Value, term: Rearrange, bindings: Mapping[str, Binding], lookup: Lookup
) -> Rearrangement | None:
    """The cheapest rearrangement to the result from a value that `source` was rearranged from. None if `source` is the best."""
    if term.word != "rearrange" or fragment.shape(source) is None:
        return None
    recipe = parse_recipe(term.recipe)
    axes = {name for side in (recipe.left, recipe.right) for axis in side for name in axis}
    known = {n: b for n in axes if isinstance(b := bindings.get(n), int | ir.SymbolicDim)}
    known |= {n: size for n, t in term.sizes if isinstance(size := plain(static(t, lookup) or ()), int)}
    found = enumerate(rearrangements(source, recipe, known, fragment.read))
    # Skip values that the fragment itself rearranged: starting from one would add the cost of that rearrangement.
    each = ((depth, way) for depth, one in found if not _is_passing(fragment, one.source) for way in (one, _apart(one)))
    ways = [(c, -depth, way) for depth, way in each if (c := _cost(way)) is not None]
    best = min(ways, default=None, key=lambda w: w[:2])
    return None if best is None or best[1] == 0 else best[2]


def _apart(way: Rearrangement) -> Rearrangement:
    """The same with each atom that is several axes of the result split into them, so that no Reshape follows the Transpose."""
    pieces: dict[int, tuple[Size, ...]] = {}
    start = 0
    for atom in way.order:
        end, product = start, ONE
        while product != way.atoms[atom] and end < len(way.sizes):
            product, end = product * way.sizes[end], end + 1
        if product != way.atoms[atom] or end == start:
            return way  # an axis of the result is several atoms
        pieces[atom], start = way.sizes[start:end], end
    first = {atom: sum(len(pieces[before]) for before in range(atom)) for atom in way.order}
    order = tuple(first[atom] + part for atom in way.order for part in range(len(pieces[atom])))
    return replace(way, atoms=tuple(size for atom in sorted(pieces) for size in pieces[atom]), order=order)


def _is_passing(fragment: Fragment, value: ir.Value) -> bool:
    """Whether a value of the fragment is the result of a layout operator."""
    node = value.producer()
    return node is not None and node.op_type in REARRANGING and not node.domain and value in fragment


def _cost(way: Rearrangement) -> int | None:
    """A Transpose moves memory, a Reshape does not. None where the shape of a Reshape can't be written."""
    stages = [(before, after) for before, after in _stages(way) if before != after]
    if any(_target(before, after, _number) is None for before, after in stages):
        return None
    return len(stages) + (0 if _in_order(way) else 4)


def _number(size: Size) -> int | None:
    return None if size.symbols else size.number


def _in_order(way: Rearrangement) -> bool:
    return way.order == tuple(range(len(way.order)))


def _stages(way: Rearrangement) -> list[tuple[tuple[Size, ...], tuple[Size, ...]]]:
    """The Reshapes, as (sizes before, sizes after): one without a Transpose, else those before and after it."""
    start = source_sizes(way)
    if _in_order(way):
        return [(start, way.sizes)]
    return [(start, way.atoms), (tuple(way.atoms[axis] for axis in way.order), way.sizes)]


def _write(fragment: Fragment, way: Rearrangement) -> ir.Value:
    value = way.source if way.source in fragment else fragment.stand_in(way.source)
    for number, (before, after) in enumerate(_stages(way)):
        if number:
            value = fragment.node("Transpose", [value], [ir.AttrInt64s("perm", list(way.order))])[0]
        value = value if before == after else _reshaped(fragment, value, _target(before, after, _number))
    return value


def split(fragment: Fragment, source: ir.Value, term: Rearrange, lookup: Lookup, count: int) -> tuple[ir.Value, ...]:
    """The node of `split(source, axis=…, parts=… or sizes=…)`, with `count` results."""
    options = {k: plain(v) for k, t in term.sizes if (v := static(t, lookup)) is not None}
    axis, sizes = options.get("axis", 0), options.get("sizes")
    if not isinstance(axis, int):
        raise Refused(f"the axis of `{term}` is not a number")
    attributes, inputs = [ir.AttrInt64("axis", axis)], [source]
    version = fragment.opset_imports.get("", 1)
    if isinstance(sizes, list):
        if len(sizes) != count:
            raise Refused(f"`{term}` has {len(sizes)} parts, and {count} are named")
        if version >= 13:
            inputs.append(fragment.constant(np.array(sizes, np.int64)))
        else:
            attributes.append(ir.AttrInt64s("split", sizes))
    elif version >= 18:
        attributes.append(ir.AttrInt64("num_outputs", count))
    return fragment.node("Split", inputs, attributes, outputs=[True] * count)


def _sizes(
    fragment: Fragment,
    source: ir.Value,
    term: Rearrange,
    bindings: Mapping[str, Binding],
    lookup: Lookup,
) -> dict[str, int | None]:
    """The size of each atom, None where it is unknown."""
    recipe = parse_recipe(term.recipe)
    left = recipe.left
    sizes: dict[str, int | None] = {a: None for group in (*left, *recipe.right) for a in group}
    given = dict(term.sizes)
    for atom in sizes:
        binding = static(given[atom], lookup) if atom in given else bindings.get(atom)
        number = plain(binding) if isinstance(binding, int | np.ndarray | np.generic | ir.Attr) else None
        sizes[atom] = number if isinstance(number, int) else None
    shape = fragment.shape(source)
    if shape is not None and len(shape) != len(left):
        raise Refused(f"`{term}` needs {len(left)} dimensions, and its source has {len(shape)}")
    for group, dim in zip(left, shape or [], strict=False):
        unknown = [a for a in group if sizes[a] is None]
        if isinstance(dim, int) and not unknown and _product(group, sizes) != dim:
            raise Refused(f"the replacement needs an axis of size {_product(group, sizes)}, and has one of size {dim}")
        if isinstance(dim, int) and len(unknown) == 1:
            sizes[unknown[0]] = dim // max(1, _product(group, {**sizes, unknown[0]: 1}) or 1)
    return sizes


def _reshape(fragment: Fragment, value: ir.Value, before: Axes, after: Axes, sizes: dict[str, int | None]) -> ir.Value:
    target = _target(before, after, lambda group: _product(group, sizes))
    if target is None:
        unknown = next(group for group in after if _product(group, sizes) is None and group not in before)
        raise Refused(f"the size of ({' '.join(unknown)}) is dynamic, and so is another one of the same Reshape")
    return _reshaped(fragment, value, target)


class Copied(NamedTuple):
    """In the shape of a Reshape: the size of this axis of the reshaped value."""

    axis: int


def _target(before: Sequence[Axis], after: Sequence[Axis], number: Callable[[Axis], int | None]) -> list[int | Copied] | None:
    """The shape of a Reshape: numbers, sizes copied from axes of the source, at most one -1; None where that is not enough."""
    shape: list[int | Copied] = []
    for position, axis in enumerate(after):
        size = number(axis)
        if size is not None:
            shape.append(size)
        elif position < len(before) and before[position] == axis:
            shape.append(Copied(position))
        elif axis in before:
            shape.append(Copied(before.index(axis)))
        elif -1 not in shape:
            shape.append(-1)
        else:
            return None
    return shape


def _reshaped(fragment: Fragment, value: ir.Value, target: list[int | Copied] | None) -> ir.Value:
    """A Reshape to `target`. Its shape is a constant where possible: 0 copies the same axis, -1 is the remaining size."""
    assert target is not None
    static = [0 if size == Copied(axis) else size for axis, size in enumerate(target)]
    moved = [axis for axis, size in enumerate(static) if isinstance(size, Copied)]
    if len(moved) == 1 and -1 not in static:
        static[moved[0]] = -1
    numbers = [size for size in static if isinstance(size, int)]
    if len(numbers) == len(static):
        return fragment.node("Reshape", [value, fragment.constant(np.array(numbers, np.int64))])[0]
    parts = [
        fragment.constant(np.array([size], np.int64))
        if isinstance(size, int)
        else fragment.sizes(value, size.axis, size.axis + 1)
        for size in static
    ]
    shape = fragment.node("Concat", parts, [ir.AttrInt64("axis", 0)])[0]
    return fragment.node("Reshape", [value, shape])[0]


def _product(group: Iterable[str], sizes: dict[str, int | None]) -> int | None:
    total = 1
    for atom in group:
        size = sizes[atom]
        if size is None:
            return None
        total *= size
    return total
