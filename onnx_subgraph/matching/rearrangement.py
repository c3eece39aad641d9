"""The normal form of layout: a chain of Reshape, Transpose, Flatten, Squeeze and Unsqueeze as one permutation of atoms.

Each axis of the source is split into atoms, as the *shapes* along the chain require; how an exporter computes a shape operand
does not matter. The chain is then a permutation of the atoms. Adjacent atoms that stay together are merged, and atoms of size 1
are dropped. So two chains are the same rearrangement exactly if their normal forms are equal, whatever the intermediate steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod
from typing import Any

import onnx_ir as ir

from onnx_subgraph.language.recipe import as_written
from onnx_subgraph.matching.equalities import REARRANGING
from onnx_subgraph.matching.recipe import Mismatch, Recipe, parse_recipe, solve
from onnx_subgraph.matching.sizes import ONE, Size, as_size, shape_words, sizes
from onnx_subgraph.matching.view import Virtual

_REPETITIONS = frozenset({"Expand", "Tile", "Concat"})
REPEATING = REARRANGING | _REPETITIONS
LONGEST = 12
"""Maximum length of a chain; exporters write two or three nodes."""
Outcome = tuple["ir.Value | Virtual", Mapping[str, Any], tuple[ir.Node, ...]]
"""The source of a layout operation, the axes that are then bound, and the nodes in between."""


@dataclass(slots=True, eq=False)
class _Atom:
    size: Size
    parts: list[_Atom] = field(default_factory=list)

    def leaves(self) -> Iterator[_Atom]:
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.leaves()


NormalForm = tuple[tuple[Size, ...], tuple[int, ...]]
"""The sizes of the atoms in source order, and their order in the result."""


def normal_form(start: tuple[Size, ...], nodes: Iterable[ir.Node]) -> NormalForm | None:
    """The normal form of the chain `nodes`, from a value with the sizes `start`; None where a shape cannot be factored."""
    steps = steps_of(nodes)
    return None if steps is None else _followed(start, steps)


@lru_cache(maxsize=1 << 12)
def fitted(
    word: str,
    written: str,
    start: tuple[Size, ...],
    steps: tuple[Step, ...] | None,
    result: tuple[Size, ...],
    given: tuple[tuple[str, Size], ...],
) -> Mapping[str, Size] | Mismatch:
    """The sizes of a recipe's named axes, if it describes these steps.

    Cached, because the layers of a model repeat the same steps.

    word, written: the layout operation and its recipe. steps: from axes of the sizes `start` to `result`. given: known sizes.
    """
    recipe = parse_recipe(written)
    named = solve([*zip(recipe.left, start, strict=True), *zip(recipe.right, result, strict=True)], dict(given))
    if isinstance(named, Mismatch):
        found = f"{named.found}, from {shape_words(start)} to {shape_words(result)}"
        return replace(named, expected=as_written(named.expected), found=found, change=as_written(named.change))
    form = None if steps is None else _followed(start, steps)
    repeats = any(isinstance(step, Repetition) for step in steps or ())
    if repeats != (word == "repeat") or form != recipe_form(recipe, named):
        wanted = f'{word} "{as_written(written)}"'
        return Mismatch(wanted, f"another one, from {shape_words(start)} to {shape_words(result)}", f"let it be {wanted}")
    return named


@dataclass(frozen=True, slots=True)
class Permutation:
    """A Transpose as a step of a chain. Other steps are the shapes to which axes are regrouped."""

    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Repetition:
    """An Expand, a Tile, or a Concat of a value with itself: it repeats each axis that is smaller than its size in `sizes`.

    expands: only axes of size 1 can be repeated.
    """

    sizes: tuple[Size, ...]
    expands: bool


Step = Permutation | Repetition | tuple[Size, ...]


def steps_of(nodes: Iterable[ir.Node]) -> tuple[Step, ...] | None:
    """The step of each node of a chain; None where a shape is unknown."""
    steps: list[Step] = []
    for node in nodes:
        result = sizes(node.outputs[0])
        if result is None:
            return None
        if node.op_type == "Transpose":
            steps.append(Permutation(tuple(node.attributes.get_ints("perm") or reversed(range(len(result))))))
        elif node.op_type in _REPETITIONS:
            steps.append(Repetition(result, node.op_type == "Expand"))
        else:
            steps.append(result)
    return tuple(steps)


Axes = tuple[tuple[int, ...], ...]
"""The numbers of the atoms that make up each axis."""


@lru_cache(maxsize=1 << 12)
def regrouped(start: tuple[Size, ...], steps: tuple[Step, ...]) -> tuple[Axes, Axes, tuple[Size, ...]] | None:
    """The axes of the source and of the result as atoms, and the size of each atom; None where a shape cannot be factored.

    An axis of size 1 has no atoms.
    """
    atoms = [_Atom(size) for size in start]
    axes = _after(atoms, steps)
    if axes is None:
        return None
    before, after = (
        [[a for atom in axis for a in atom.leaves() if a.size != ONE] for axis in way] for way in ([[a] for a in atoms], axes)
    )
    leaves = {id(a): a for axis in (*before, *after) for a in axis}
    number = {key: i for i, key in enumerate(leaves)}
    left, right = (tuple(tuple(number[id(a)] for a in axis) for axis in way) for way in (before, after))
    return left, right, tuple(a.size for a in leaves.values())


@lru_cache(maxsize=1 << 12)
def _followed(start: tuple[Size, ...], steps: tuple[Step, ...]) -> NormalForm | None:
    """The normal form of a chain. Cached, because the layers of a model repeat the same shapes."""
    atoms = [_Atom(size) for size in start]
    axes = _after(atoms, steps)
    if axes is None:
        return None
    return _canonical(
        [leaf for atom in atoms for leaf in atom.leaves()], [leaf for axis in axes for a in axis for leaf in a.leaves()]
    )


def _after(atoms: list[_Atom], steps: tuple[Step, ...]) -> list[list[_Atom]] | None:
    """The axes after the steps, starting with one axis per atom. Splits atoms where needed."""
    axes: list[list[_Atom]] = [[a] for a in atoms]
    for step in steps:
        if isinstance(step, Permutation):
            if sorted(step.axes) != list(range(len(axes))):
                return None
            axes = [axes[axis] for axis in step.axes]
        elif isinstance(step, Repetition):
            repeated = _repeated(axes, step)
            if repeated is None:
                return None
            axes = repeated
        else:
            cut = _regroup([leaf for axis in axes for atom in axis for leaf in atom.leaves()], step)
            if cut is None:
                return None
            axes = cut
    return axes


@dataclass(frozen=True, slots=True)
class Rearrangement:
    """How to make a value of `sizes` from `source`: split its axes into `atoms`, permute them to `order`, and merge them."""

    source: ir.Value
    atoms: tuple[Size, ...]
    order: tuple[int, ...]
    sizes: tuple[Size, ...]


def source_sizes(way: Rearrangement) -> tuple[Size, ...]:
    """The size of each axis of the source."""
    found = sizes(way.source)
    assert found is not None
    return found


def rearrangements(
    value: ir.Value,
    recipe: Recipe,
    known: Mapping[str, int | ir.SymbolicDim],
    stand_ins: Mapping[ir.Value, ir.Value],
) -> Iterator[Rearrangement]:
    """The ways to compute `recipe` of `value`, from `value` itself and from each value it was rearranged from; nearest first.

    stand_ins: value → the value of the graph that it represents.
    """
    value = stand_ins.get(value, value)
    here = sizes(value)
    if here is None or len(here) != len(recipe.left):
        return
    named = solve(zip(recipe.left, here, strict=True), {name: as_size(size) for name, size in known.items()})
    if isinstance(named, Mismatch) or not all(n in named for axis in recipe.right for n in axis):
        return
    apart = [n for axis in recipe.left for n in axis]
    together = [n for axis in recipe.right for n in axis]
    if set(apart) != set(together):
        return
    result = tuple(prod((named[n] for n in axis), start=ONE) for axis in recipe.right)
    taken: list[Step] = [tuple(named[n] for n in apart), Permutation(tuple(apart.index(n) for n in together)), result]
    nodes: list[ir.Node] = []
    source: ir.Value | None = value
    while source is not None and len(nodes) <= LONGEST:
        start, steps = sizes(source), steps_of(nodes)
        form = None if start is None or steps is None else _followed(start, (*steps, *taken))
        if form is None:
            return
        yield Rearrangement(source, *form, result)
        node = source.producer()
        if node is None or node.domain or node.op_type not in REARRANGING:
            return
        nodes.insert(0, node)
        source = node.inputs[0]
        source = source if source is None else stand_ins.get(source, source)


def _repeated(axes: list[list[_Atom]], step: Repetition) -> list[list[_Atom]] | None:
    """The axes with a new atom as the outermost part of each repeated one."""
    padded: list[list[_Atom]] = [[] for _ in range(len(step.sizes) - len(axes))] + axes
    result: list[list[_Atom]] = []
    for axis, size in zip(padded, step.sizes, strict=True):
        before = prod((leaf.size for atom in axis for leaf in atom.leaves()), start=ONE)
        times = size.over(before)
        if times is None or (step.expands and times != ONE != before):
            return None
        result.append(axis if times == ONE else [_Atom(times), *axis])
    return result


def _regroup(flat: list[_Atom], targets: tuple[Size, ...]) -> list[list[_Atom]] | None:
    """Cut `flat` into groups whose sizes multiply to `targets`. An atom is split where a cut is inside it."""
    pending = [a for a in flat if a.size != ONE][::-1]
    groups: list[list[_Atom]] = []
    for target in targets:
        group: list[_Atom] = []
        left = target
        while left != ONE:
            if not pending:
                return None
            atom = pending.pop()
            smaller = left.over(atom.size)
            if smaller is not None:
                group.append(atom)
                left = smaller
                continue
            rest = atom.size.over(left)
            if rest is None:
                return None
            atom.parts = [_Atom(left), _Atom(rest)]
            group.append(atom.parts[0])
            pending.append(atom.parts[1])
            left = ONE
        groups.append(group)
    return None if pending else groups


def _canonical(before: list[_Atom], after: list[_Atom]) -> NormalForm:
    before = [a for a in before if a.size != ONE]
    after = [a for a in after if a.size != ONE]
    # Repeated atoms are appended to the atoms of the source, in the order of the result.
    own = {id(a) for a in before}
    before = [*before, _Atom(ONE), *(a for a in after if id(a) not in own)]
    position = {id(a): i for i, a in enumerate(before)}
    runs: list[list[int]] = []
    for atom in after:
        index = position[id(atom)]
        if runs and runs[-1][-1] + 1 == index:
            runs[-1].append(index)
        else:
            runs.append([index])
    in_source = sorted(range(len(runs)), key=lambda r: runs[r][0])
    rank = {run: i for i, run in enumerate(in_source)}
    merged = []
    for run in in_source:
        size = ONE
        for index in runs[run]:
            size = size * before[index].size
        merged.append(size)
    return tuple(merged), tuple(rank[r] for r in range(len(runs)))


def recipe_form(recipe: Recipe, named: Mapping[str, Size]) -> NormalForm:
    """The normal form of an einops recipe whose axes have the sizes `named`."""
    atoms = {name: _Atom(named[name]) for axis in (*recipe.left, *recipe.right) for name in axis}
    return _canonical([atoms[n] for axis in recipe.left for n in axis], [atoms[n] for axis in recipe.right for n in axis])
