"""From a graph to its atoms: chains of sums, products and layout operators taken together, everything else a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import onnx_ir as ir

from onnx_subgraph.matching.equalities import COMMUTATIVE, LINEAR, POWER, PRODUCTS, REARRANGING, SUMS
from onnx_subgraph.matching.expansion import expansions, is_rank_safe
from onnx_subgraph.matching.layout import chains
from onnx_subgraph.matching.rearrangement import Axes, regrouped, steps_of
from onnx_subgraph.matching.sizes import Size, sizes
from onnx_subgraph.matching.view import View, Virtual
from onnx_subgraph.mining.atom import Atom, Call, Items, Layout, Operand, Parts
from onnx_subgraph.mining.calls import keywords
from onnx_subgraph.mining.obstacle import obstacle

_REPEATING = frozenset({"Expand", "Tile"})
"""Operators that are a part of a rearrangement, where the axis that they repeat is merged with another one."""


def atoms_of(view: View, is_free: Callable[[ir.Node], bool]) -> list[Atom]:
    """The atoms of the nodes that are free, in an order in which each comes after what it reads."""
    return list(_Reader(view, is_free))


class _Reader:
    def __init__(self, view: View, is_free: Callable[[ir.Node], bool]) -> None:
        self.view = view
        self.free: set[ir.Node | None] = {node for node in view.nodes if is_free(node) and not obstacle(view, node)}
        self.laid_out = self.free | {n for n in view.nodes if n.op_type in _REPEATING and not n.domain and is_free(n)}
        self.chained = {node for node in self.free if node is not None and node.op_type not in LINEAR}

    def __iter__(self) -> Iterator[Atom]:
        taken: set[ir.Node] = set()
        found: list[tuple[int, Atom]] = []
        for node in reversed(self.view.nodes):  # roots of chains come before what they take in
            if node not in self.free or node in taken:
                continue
            atom = self.items(node) or self.layout(node) or self.parts(node) or self.call(node)
            if atom is not None:
                taken.update(atom.nodes)
                first = isinstance(atom.form, Parts)  # slices of one value stand where the first of them stands
                place = (min if first else max)(self.view.position[n] for n in atom.nodes)
                found.append((place, atom))
        found.sort(key=lambda pair: pair[0])
        return iter([atom for _, atom in found])

    def is_single(self, value: ir.Value) -> bool:
        """Whether one node alone reads a value, and nothing outside."""
        return not value.is_graph_output() and len(self.view.consumers(value)) == 1 and self.all_readers_are_here(value)

    def all_readers_are_here(self, value: ir.Value) -> bool:
        return all(usage.node in self.view.position for usage in value.uses())

    def operand(self, value: ir.Value, port: float, *, may_be_number: bool = True) -> Operand:
        """What an atom reads. may_be_number: whether a constant of one element may be written as its number."""
        source = self.view.through(value)[0]
        scalar = self.view.scalar(source)
        constant = scalar is not None or self.view.constants.is_constant(source)
        return Operand(source, port, scalar.number if scalar is not None and may_be_number else None, constant)

    # Chains

    def items(self, root: ir.Node) -> Atom | None:
        """The sum or product that ends in a node."""
        if root.domain or root.op_type in LINEAR:
            return None
        is_product = root.op_type in PRODUCTS or root.op_type == POWER
        if not is_product and root.op_type not in SUMS:
            return None
        steps = expansions(self.view, is_product=is_product)
        result = root.outputs[0]
        pending: list[tuple[ir.Value, float]] = [(result, 1.0)]
        nodes: list[ir.Node] = []
        powers: dict[ir.Value, float] = {}
        summed: list[tuple[ir.Value, float]] = []
        constant = None
        while pending:
            value, power = pending.pop(0)
            source, passed = self.view.through(value)
            node = self.view.producer(source)
            inner = node is root or (node in self.chained and self.is_single(source))
            step = steps.of(source) if inner else None
            if step is None or any(isinstance(v, Virtual) for v, _ in step.items) or not steps.may_expand(step, power):
                if is_product:
                    powers[source] = powers.get(source, 0.0) + power
                else:
                    summed.append((source, power))
                continue
            nodes += [*passed, *step.nodes]
            if step.scalars or step.constant != steps.neutral:
                constant = steps.combined(steps.neutral if constant is None else constant, step.constant, power)
            pending[:0] = [(v, power * p) for v, p in step.items if isinstance(v, ir.Value)]
        if not nodes:
            return None
        if constant == steps.neutral:
            constant = None
        pairs = [(v, p) for v, p in powers.items() if p] if is_product else summed
        operands = tuple(self.operand(value, power, may_be_number=False) for value, power in pairs)
        return Atom(Items(is_product, constant), self.ordered(nodes), operands, (result,))

    def layout(self, root: ir.Node) -> Atom | None:
        """The rearrangement that ends in a node."""
        if root.domain or root.op_type not in REARRANGING:
            return None
        best: Atom | None = None
        for source, nodes in chains(self.view, root.outputs[0], REARRANGING | _REPEATING):
            own = [n for n in nodes if self.view.through(n.outputs[0])[0] is n.outputs[0]]
            if any(n not in self.laid_out or (n is not root and not self.is_single(n.outputs[0])) for n in own):
                break
            start, steps = sizes(source), steps_of(own)
            way = None if start is None or steps is None else regrouped(start, steps)
            if way is None:
                break
            form = _joined(*way)
            if form.before == form.after:
                continue
            if all(len(axis) > 1 for axis in form.after if not set(axis).isdisjoint(form.repeated)):
                best = Atom(form, self.ordered(nodes), (self.operand(source, 0.0),), (root.outputs[0],))
        return best

    def parts(self, root: ir.Node) -> Atom | None:
        """The value that a Split, or Slices that are its parts, cut."""
        if root.domain or root.op_type not in ("Split", "Slice") or root.inputs[0] is None:
            return None
        source = self.view.through(root.inputs[0])[0]
        extent = sizes(source)
        if extent is None:
            return None
        if root.op_type == "Split":
            axis = (root.attributes.get_int("axis", 0) or 0) % len(extent)
            shapes = [sizes(o) for o in root.outputs]
            if extent[axis].symbols or any(s is None or s[axis].symbols for s in shapes):
                return None
            cut = tuple(s[axis].number for s in shapes if s is not None)
            return Atom(Parts(axis - len(extent), cut), (root,), (self.operand(source, 0.0),), tuple(root.outputs))
        return self.slices(source)

    def slices(self, source: ir.Value) -> Atom | None:
        """Slices of one value that are its parts along one axis."""
        found: dict[int, dict[int, tuple[int, ir.Node]]] = {}
        extent = sizes(source)
        for node in self.view.consumers(source):
            cut = self.cut(node) if node in self.free and node.op_type == "Slice" else None
            if cut is not None:
                axis, begin, end = cut
                if begin in found.setdefault(axis, {}):
                    return None
                found[axis][begin] = end, node
        if len(found) != 1 or extent is None:
            return None
        ((axis, pieces),) = found.items()
        at, parts = 0, []
        for begin, (end, node) in sorted(pieces.items()):
            if begin != at:
                return None
            parts.append((end - begin, node))
            at = end
        if at != extent[axis].number or len(parts) < 2:
            return None
        form = Parts(axis - len(extent), tuple(size for size, _ in parts))
        results = tuple(node.outputs[0] for _, node in parts)
        return Atom(form, self.ordered([n for _, n in parts]), (self.operand(source, 0.0),), results)

    def cut(self, node: ir.Node) -> tuple[int, int, int] | None:
        """The axis that a Slice cuts, counted from the front, and where its part begins and ends."""
        arrays = [None if v is None else self.view.constants.array(v) for v in node.inputs[1:]]
        extent = None if node.inputs[0] is None else sizes(node.inputs[0])
        if extent is None or len(arrays) < 3 or any(a is None or a.size != 1 for a in arrays):
            return None
        numbers = [int(a.item()) for a in arrays if a is not None]
        if len(numbers) > 3 and numbers[3] != 1:
            return None
        axis = numbers[2] % len(extent)
        whole = extent[axis]
        if whole.symbols:
            return None
        begin, end = (min(max(n + (whole.number if n < 0 else 0), 0), whole.number) for n in numbers[:2])
        return axis, begin, end

    # Calls

    def call(self, node: ir.Node) -> Atom | None:
        """A node as a call of its operator; None where an argument, or the axes of a Reshape, can't be written down."""
        static = keywords(self.view, node)
        if static is None or (node.op_type in REARRANGING and not node.domain):
            return None
        said, count = static
        values = list(node.inputs[:count])
        while values and values[-1] is None:
            values.pop()
        commutes = not node.domain and node.op_type in COMMUTATIVE
        operands = tuple(
            self.operand(v, 0.0 if commutes else float(i), may_be_number=self.may_be_number(v, values))
            for i, v in enumerate(values)
            if v is not None
        )
        omitted = tuple(i for i, v in enumerate(values) if v is None)
        form = Call(node.op_type, node.domain, said, omitted, commutes)
        return Atom(form, (node,), operands, tuple(o for o in node.outputs if o.name))

    def may_be_number(self, value: ir.Value, operands: Sequence[ir.Value | None]) -> bool:
        """Whether a formula can write an operand as a number: one that doesn't raise the rank of the result."""
        scalar = self.view.scalar(self.view.through(value)[0])
        return scalar is not None and is_rank_safe(scalar, [v for v in operands if v is not None and v is not value])

    def ordered(self, nodes: list[ir.Node] | tuple[ir.Node, ...]) -> tuple[ir.Node, ...]:
        return tuple(sorted(dict.fromkeys(nodes), key=self.view.position.__getitem__))


def _joined(before: Axes, after: Axes, sizes: tuple[Size, ...]) -> Layout:
    """The rearrangement, in which parts that are neighbours in one axis, before and after, are one."""
    follows = {a: b for axis in before for a, b in pairwise(axis)}
    stays = {pair for axis in after for pair in pairwise(axis)}
    joined = {a: b for a, b in follows.items() if (a, b) in stays}
    every = dict.fromkeys(a for axis in (*before, *after) for a in axis)
    kept = [a for a in every if a not in joined.values()]
    number = {a: i for i, a in enumerate(kept)}
    whole = []
    for part in kept:
        size = sizes[part]
        while part in joined:
            part = joined[part]
            size = size * sizes[part]
        whole.append(size)
    left, right = (tuple(tuple(number[a] for a in axis if a in number) for axis in way) for way in (before, after))
    return Layout(left, right, tuple(whole))
