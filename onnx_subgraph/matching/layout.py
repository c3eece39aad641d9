"""Layout in normal form: a chain of Reshape, Transpose, Flatten, Squeeze and Unsqueeze as one rearrangement of atoms.

Each axis of the source is split into atoms by what the chain does to the *shapes* (never by how an exporter computes a shape
operand); the chain is then a permutation of the atoms. Atoms that stay neighbours are merged and ones of size 1 dropped, so
two chains are the same rearrangement exactly when their normal forms are equal, whatever detour they take.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from math import prod
from typing import Any

import onnx_ir as ir

from onnx_subgraph.language import term as syntax
from onnx_subgraph.language.axis import numbered
from onnx_subgraph.language.recipe import UNCHANGED
from onnx_subgraph.matching.normal import Layout
from onnx_subgraph.matching.state import State
from onnx_subgraph.matching.view import View, Virtual

OPERATORS = frozenset({"Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze"})
_REPETITIONS = frozenset({"Expand", "Tile", "Concat"})
REPEATING = OPERATORS | _REPETITIONS
PRODUCERS = {"rearrange": OPERATORS, "repeat": REPEATING, "split": frozenset({"Split", "Slice"})}
"""Word → the operators that its result can come from."""
LONGEST = 12
"""A bound on the length of a chain; exporters write two or three."""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of an axis: number * Π symbols, a monomial over symbolic dimensions."""

    number: int
    symbols: tuple[str, ...] = ()

    def __mul__(self, other: Size) -> Size:
        return Size(self.number * other.number, tuple(sorted(self.symbols + other.symbols)))

    def over(self, other: Size) -> Size | None:
        """The quotient, where that is a monomial, else None."""
        if other.number == 0 or self.number % other.number:
            return None
        left = list(self.symbols)
        for symbol in other.symbols:
            if symbol not in left:
                return None
            left.remove(symbol)
        return Size(self.number // other.number, tuple(left))

    def __str__(self) -> str:
        return "*".join([*(() if self.number == 1 and self.symbols else (str(self.number),)), *self.symbols])


ONE = Size(1)
Outcome = tuple["ir.Value | Virtual", Mapping[str, Any], tuple[ir.Node, ...]]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Why a chain is not the rearrangement that the pattern asks for.

    change: what would make it one, where that is plain. reached: how many nodes of the chain there are, where it is of the right
    ranks.
    """

    expected: str
    found: str
    change: str = ""
    reached: int = 0


@dataclass(slots=True, eq=False)
class _Atom:
    size: Size
    parts: list[_Atom] = field(default_factory=list)

    def leaves(self) -> Iterator[_Atom]:
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.leaves()


@dataclass(frozen=True, slots=True)
class Recipe:
    """An einops recipe: the names that make up each axis, before and after; an axis of size 1 has none."""

    left: tuple[tuple[str, ...], ...]
    right: tuple[tuple[str, ...], ...]


@cache
def parse_recipe(text: str) -> Recipe:
    """A checked recipe, `"b s (h d) -> b h s d"`, read by einops' own parser."""
    from einops.parsing import ParsedExpression

    left, right = (tuple(tuple(axis) for axis in ParsedExpression(side).composition) for side in text.split("->"))
    return Recipe(left, right)


NormalForm = tuple[tuple[Size, ...], tuple[int, ...]]
"""The sizes of the atoms in source order, and the order in which the result has them."""


def sizes(value: ir.Value) -> tuple[Size, ...] | None:
    """The size of each axis of `value`, None where its rank is not known; an unknown size is equal to itself alone."""
    if value.shape is None:
        return None
    return tuple(_size(d, f"?{id(value)}.{i}") for i, d in enumerate(value.shape))


def _size(dim: Any, unknown: str) -> Size:
    if isinstance(dim, int):
        return Size(dim)
    text = dim.value
    if text is None:
        return Size(1, (unknown,))
    return Size(1, (text,)) if text.isidentifier() else _factored(text)


@cache
def _factored(text: str) -> Size:
    """An expression as a monomial: `64*past + 64*seq` is 64 times the symbol `past + seq`."""
    import sympy

    try:
        expression = ir.SymbolicDim(text) + 0
        factors = sympy.factor_terms(sympy.sympify(expression._expr)).as_ordered_factors()
        number, symbols = 1, []
        for factor in factors:
            base, power = factor.as_base_exp()
            if base.is_Integer and power == 1:
                number *= int(base)
            elif power.is_Integer and power > 0:
                symbols += [str(base)] * int(power)
            else:
                return Size(1, (text,))
    except Exception:  # a name that is no expression is one symbol
        return Size(1, (text,))
    return Size(number, tuple(sorted(symbols)))


def chains(view: View, value: ir.Value, operators: frozenset[str] = OPERATORS) -> Iterator[tuple[ir.Value, tuple[ir.Node, ...]]]:
    """(source, nodes) for every chain of these operators that ends in `value`, shortest first; nodes from source to value."""
    nodes: tuple[ir.Node, ...] = ()
    current, passed = view.through(value)
    nodes = tuple(reversed(passed))
    for _ in range(LONGEST):
        node = view.producer(current)
        if node is None or node.domain or node.op_type not in operators or node.inputs[0] is None:
            return
        if node.op_type == "Concat" and not all(v is not None and view.same(v, node.inputs[0]) for v in node.inputs):
            return  # a value joined to itself is repeated; others are not
        source, passed = view.through(node.inputs[0])
        nodes = (*reversed(passed), node, *nodes)
        yield source, nodes
        current = source


def unscaled(view: View, value: Virtual) -> Iterator[tuple[ir.Value, tuple[ir.Node, ...]]]:
    """(source, nodes) of a chain of layout operators whose scale was moved out of it: the source is what was scaled."""
    nodes: tuple[ir.Node, ...] = ()
    current: ir.Value | Virtual = value
    while isinstance(current, Virtual) and current.operator in OPERATORS:
        nodes = (current.node, *nodes)
        current = current.inputs[0]
    if isinstance(current, ir.Value):
        yield current, nodes
        for source, before in chains(view, current):
            yield source, (*before, *nodes)


def normal_form(source: ir.Value, nodes: Iterable[ir.Node]) -> NormalForm | None:
    """The normal form of the chain `nodes` that starts at `source`; None where a shape can't be factored."""
    start, steps = sizes(source), _steps(nodes)
    return None if start is None or steps is None else _followed(start, steps)


@dataclass(frozen=True, slots=True)
class Permutation:
    """A Transpose, as a step of a chain; the other steps are the shapes that their axes are regrouped to."""

    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Repetition:
    """An Expand, a Tile, or a Concat of a value with itself: an axis that grows to its size in `sizes` is repeated.

    expands: only axes of size 1 are.
    """

    sizes: tuple[Size, ...]
    expands: bool


Step = Permutation | Repetition | tuple[Size, ...]


def _steps(nodes: Iterable[ir.Node]) -> list[Step] | None:
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
    return steps


def _followed(start: tuple[Size, ...], steps: Iterable[Step]) -> NormalForm | None:
    atoms = [_Atom(size) for size in start]
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
            regrouped = _regroup([leaf for axis in axes for atom in axis for leaf in atom.leaves()], step)
            if regrouped is None:
                return None
            axes = regrouped
    return _canonical(
        [leaf for atom in atoms for leaf in atom.leaves()], [leaf for axis in axes for a in axis for leaf in a.leaves()]
    )


@dataclass(frozen=True, slots=True)
class Rearrangement:
    """What makes a value of `sizes` from `source`: its axes split into `atoms`, these in another `order`, and merged."""

    source: ir.Value
    atoms: tuple[Size, ...]
    order: tuple[int, ...]
    sizes: tuple[Size, ...]


def source_sizes(way: Rearrangement) -> tuple[Size, ...]:
    """The size of each axis of the source."""
    found = sizes(way.source)
    assert found is not None
    return found


def rearrangements(value: ir.Value, recipe: Recipe, known: Mapping[str, int | ir.SymbolicDim]) -> Iterator[Rearrangement]:
    """What `recipe` makes of `value`, from `value` itself and from everything that `value` was rearranged from, nearest first."""
    here = sizes(value)
    if here is None or len(here) != len(recipe.left):
        return
    named = solve(zip(recipe.left, here, strict=True), {name: _as_size(size) for name, size in known.items()})
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
        start, steps = sizes(source), _steps(nodes)
        form = None if start is None or steps is None else _followed(start, [*steps, *taken])
        if form is None:
            return
        yield Rearrangement(source, *form, result)
        node = source.producer()
        if node is None or node.domain or node.op_type not in OPERATORS:
            return
        nodes.insert(0, node)
        source = node.inputs[0]


def _repeated(axes: list[list[_Atom]], step: Repetition) -> list[list[_Atom]] | None:
    """The axes with a new atom in front of each one that is repeated, outermost."""
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
    """`flat` cut into groups whose sizes multiply to `targets`, atoms split where a cut falls inside one."""
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
    # What is repeated counts as further atoms of the source, behind its own, in the order of the result.
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


def solve(equations: Iterable[tuple[tuple[str, ...], Size]], known: Mapping[str, Size]) -> dict[str, Size] | Mismatch:
    """The size of each named axis, from the sizes of the axes that they make up and what is known already."""
    found = dict(known)
    lines = list(equations)
    for _ in range(len(lines) + 1):
        for names, size in lines:
            unknown = [n for n in names if n not in found]
            rest: Size | None = size
            for name in names:
                if name in found and rest is not None:
                    rest = rest.over(found[name])
            if rest is None:
                return _unsolved(names, size, found)
            if len(unknown) == 1:
                found[unknown[0]] = rest
            elif not unknown and rest != ONE:
                return _unsolved(names, size, found)
    missing = [n for names, _ in lines for n in names if n not in found]
    return Mismatch(f"a size for {', '.join(missing)}", "a shape that can't be factored") if missing else found


def _unsolved(names: tuple[str, ...], size: Size, known: Mapping[str, Size]) -> Mismatch:
    """An axis whose size is not what the sizes of its parts make."""
    said = ", ".join(f"{name} is {_word(known[name])}" for name in names if name in known)
    axis = names[0] if len(names) == 1 else f"({' '.join(names)})"
    change = "write the sizes of the Reshape as constants, or fix those of the inputs" if size.symbols else ""
    return Mismatch(f"an axis {axis}, where {said}" if said else f"an axis {axis}", f"size {_word(size)}", change)


def match(view: View, term: Layout, value: ir.Value | Virtual, state: State) -> Iterator[Outcome | Mismatch]:
    """The sources of which `value` is the rearrangement, with the named axes bound, and the nodes of the chain."""
    if isinstance(value, Virtual) and term.term.word != "rearrange":
        return
    if term.term.word == "split" and isinstance(value, ir.Value):
        yield from _match_split(view, term, value, state)
        return
    if term.term.recipe == UNCHANGED:
        yield from _match_unchanged(view, value)
        return
    recipe = parse_recipe(term.term.recipe)
    result = sizes(value if isinstance(value, ir.Value) else value.node.outputs[0])
    if result is None or len(result) != len(recipe.right):
        rank = f"rank {len(recipe.right)}"
        yield Mismatch(rank, "unknown rank" if result is None else f"rank {len(result)}", f"let the result have {rank}")
        return
    tried = False
    ways = chains(view, value, PRODUCERS[term.term.word]) if isinstance(value, ir.Value) else unscaled(view, value)
    for source, nodes in ways:
        tried = True
        start = sizes(source)
        if start is None or len(start) != len(recipe.left):
            rank = f"rank {len(recipe.left)}"
            found = "unknown rank" if start is None else f"rank {len(start)}"
            yield Mismatch(f"a source of {rank}", found, f"let the source have {rank}")
            continue
        known = {n: _as_size(state.bindings[n]) for axis in recipe.left for n in axis if n in state.bindings}
        for name, given in term.term.sizes:
            if isinstance(given, syntax.Literal) and isinstance(given.value, int):
                known[name] = Size(given.value)
        named = solve([*zip(recipe.left, start, strict=True), *zip(recipe.right, result, strict=True)], known)
        if isinstance(named, Mismatch):
            yield replace(named, found=f"{named.found}, from {_shape(start)} to {_shape(result)}", reached=len(nodes))
            continue
        repeats = any(n.op_type not in OPERATORS and n.op_type in REPEATING for n in nodes)
        if repeats != (term.term.word == "repeat") or normal_form(source, nodes) != recipe_form(recipe, named):
            found = f"another one, from {_shape(start)} to {_shape(result)}"
            wanted = f'{term.term.word} "{term.term.recipe}"'
            yield Mismatch(wanted, found, f"let it be {wanted}", reached=len(nodes))
            continue
        yield source, {n: _as_dim(s) for n, s in named.items() if not n.isdigit()}, nodes
    if not tried:
        yield Mismatch(f'{term.term.word} "{term.term.recipe}"', "")


def _match_unchanged(view: View, value: ir.Value | Virtual) -> Iterator[Outcome | Mismatch]:
    """What `value` was rearranged from and back into the same again, farthest first."""
    if isinstance(value, Virtual):
        return
    current, passed = view.through(value)
    ways = [(current, tuple(reversed(passed))), *chains(view, value)]
    found = False
    for source, nodes in reversed(ways):
        form = normal_form(source, nodes) if sizes(source) == sizes(value) else None
        if form is not None and form[1] == tuple(range(len(form[1]))) and any(n.op_type in OPERATORS for n in nodes):
            found = True
            yield source, {}, nodes
    if not found:
        yield Mismatch("a rearrangement that ends as it began", "another one")


def _shape(sizes: Iterable[Size]) -> str:
    """Sizes as a person reads a shape, one that is not known as `?`."""
    return f"[{', '.join(map(_word, sizes))}]"


def _word(size: Size) -> str:
    # Inference calls what it knows nothing about _d0, _d1, …
    return "?" if any(symbol.startswith(("?", "_d")) for symbol in size.symbols) else str(size)


def _as_size(bound: Any) -> Size:
    return Size(bound) if isinstance(bound, int) else _size(bound, "?")


def _as_dim(size: Size) -> int | ir.SymbolicDim:
    return size.number if not size.symbols else ir.SymbolicDim(str(size))


def _match_split(view: View, term: Layout, value: ir.Value, state: State) -> Iterator[Outcome | Mismatch]:
    """Part `term.index` of an equal or given split: a Split's result, or a Slice or Gather of one part."""
    arguments = {k: v.value for k, v in term.term.sizes if isinstance(v, syntax.Literal)}
    current, passed = view.through(value)
    node = view.producer(current)
    if node is None or node.domain or node.op_type not in ("Split", "Slice") or node.inputs[0] is None:
        yield Mismatch("a part of a split", "" if node is None else node.op_type)
        return
    source = view.through(node.inputs[0])[0]
    extent = sizes(source)
    if extent is None:
        yield Mismatch("a part of a split", "a value of unknown rank")
        return
    bound: dict[str, Any] = {}
    wanted = next((t for k, t in term.term.sizes if k == "axis"), None)
    if isinstance(wanted, syntax.Variable):
        axis = state.bindings.get(wanted.name)
        if axis is None:
            axis = _cut_axis(view, node)
            if axis is not None and -len(extent) <= axis < len(extent):
                bound[wanted.name] = numbered(axis, len(extent), ordered=True)
    else:
        axis = arguments["axis"]
    if not isinstance(axis, int) or not -len(extent) <= axis < len(extent):
        yield Mismatch(f"axis {axis}", f"rank {len(extent)}")
        return
    axis %= len(extent)
    whole = extent[axis]
    if whole.symbols:
        yield Mismatch("an axis of known size", f"size {_word(whole)}", f"let axis {axis} have a known size, such as by --shape")
        return
    parts = _part_sizes(arguments, whole.number)
    if parts is None or term.index >= len(parts):
        wanted_parts = f"{arguments['parts']} equal parts" if "parts" in arguments else f"parts of {arguments['sizes']}"
        yield Mismatch(
            f"an axis that divides into {wanted_parts}", f"size {whole}", f"let axis {axis} divide into {wanted_parts}"
        )
        return
    begin = sum(parts[: term.index])
    if _covers(view, node, current, axis, begin, begin + parts[term.index], whole.number):
        yield source, bound, (*passed, node)
    else:
        asked, part = f"elements {begin} to {begin + parts[term.index]} of axis {axis}", sizes(current)
        yield Mismatch(asked, f"a part of shape {_shape(part or ())}", f"let the {node.op_type} give {asked}")


def _cut_axis(view: View, node: ir.Node) -> int | None:
    """The axis that a Split or a Slice of one axis cuts, as it is written there; None where it is not known."""
    if node.op_type == "Split":
        return node.attributes.get_int("axis", 0)
    if len(node.inputs) < 4 or node.inputs[3] is None:
        return 0
    axes = view.constants.array(node.inputs[3])
    return int(axes.item()) if axes is not None and axes.size == 1 else None


def _part_sizes(arguments: Mapping[str, Any], whole: int) -> tuple[int, ...] | None:
    if "sizes" in arguments:
        given = tuple(int(s) for s in arguments["sizes"])
        return given if sum(given) == whole else None
    parts = int(arguments["parts"])
    return (whole // parts,) * parts if whole % parts == 0 else None


def _covers(view: View, node: ir.Node, result: ir.Value, axis: int, begin: int, end: int, whole: int) -> bool:
    """Whether `node` cuts exactly [begin, end) of `axis`, and nothing of another axis."""
    shape, source = sizes(result), node.inputs[0]
    assert source is not None
    if node.op_type == "Split":
        cut = node.attributes.get_int("axis", 0) or 0
        before = [sizes(o) for o in node.outputs[: result.index()]]
        if shape is None or any(s is None or s[axis].symbols for s in before) or source.shape is None:
            return False
        offset = sum(s[axis].number for s in before if s is not None)
        return cut % source.shape.rank() == axis and offset == begin and shape[axis] == Size(end - begin)
    operands = [view.constants.array(v) if v is not None else None for v in node.inputs[1:]]
    if len(operands) < 2 or operands[0] is None or operands[1] is None or operands[0].size != 1:
        return False
    if len(operands) > 3 and (operands[3] is None or operands[3].item() != 1) and node.inputs[4] is not None:
        return False
    axes = operands[2].item() if len(operands) > 2 and operands[2] is not None else 0
    assert source.shape is not None
    bounds = [min(max(int(o.item()) + (whole if o.item() < 0 else 0), 0), whole) for o in operands[:2] if o is not None]
    return int(axes) % source.shape.rank() == axis and bounds == [begin, end]
