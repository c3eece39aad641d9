"""Find the axes of rearrangements that are the same: they get one name in a formula.

Two axes are the same if a computation requires equal sizes, as an elementwise operator or a MatMul does of its operands. Sizes
that are equal by chance do not count. An axis of size 1 can be broadcast, so it is never the same as another.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import mul

import onnx_ir as ir

from onnx_subgraph.matching.sizes import ONE, Size, sizes
from onnx_subgraph.mining.atom import Atom, Call, Items, Layout, Parts
from onnx_subgraph.operators import is_elementwise

_KEEPING = frozenset({"Softmax", "LogSoftmax", "CumSum", "LayerNormalization", "RMSNormalization", "LpNormalization"})
"""Operators whose result has the shape of the first operand. `Reduce*` also keeps its axes, if it keeps the rank."""
Axis = tuple[int, ...]
"""The classes of the parts of an axis, the outermost first."""


def shared_axes(atoms: Sequence[Atom]) -> dict[tuple[int, int], int]:
    """(number of a rearrangement among the atoms, number of one of its parts) → the class of its axis."""
    axes = _Axes()
    for number, atom in enumerate(atoms):
        axes.add(number, atom)
    return {part: axes.find(kind) for part, kind in axes.parts.items()}


class _Axes:
    def __init__(self) -> None:
        self.parts: dict[tuple[int, int], int] = {}
        self._known: dict[ir.Value, list[Axis] | None] = {}
        self._sizes: list[Size] = []
        self._parent: list[int] = []

    def find(self, kind: int) -> int:
        while self._parent[kind] != kind:
            kind = self._parent[kind]
        return kind

    def add(self, number: int, atom: Atom) -> None:
        """Follow the axes of an atom's operands to its results."""
        read = [self._axes(operand.value) for operand in atom.operands if operand.number is None]
        if not read or any(axes is None for axes in read):
            return
        operands = [axes for axes in read if axes is not None]
        result = atom.results[0]
        match atom.form:
            case Layout() as layout:
                self._known[result] = self._rearranged(number, layout, operands[0])
            case Parts(axis=axis):
                for part in atom.results:
                    self._meet(part, [[() if i == len(operands[0]) + axis else a for i, a in enumerate(operands[0])]])
            case Call(operator="MatMul", domain="") if min(map(len, operands)) > 1:
                (*batch, rows, inner), (*others, same, columns) = operands
                self._join(inner, same)
                self._meet(result, [[*batch, rows, ()], [*others, (), columns]])
            case Items():
                self._meet(result, operands)
            case Call(operator=operator, domain=domain) if is_elementwise(operator, domain):
                self._meet(result, operands)
            case Call(operator=operator, domain="") if operator in _KEEPING or operator.startswith("Reduce"):
                kept = self._axes(result)
                self._meet(result, operands[:1] if kept is not None and len(kept) == len(operands[0]) else [])

    def _axes(self, value: ir.Value) -> list[Axis] | None:
        """The axes of a value; None where its rank is unknown."""
        if value not in self._known:
            extent = sizes(value)
            self._known[value] = None if extent is None else [() if size == ONE else (self._new(size),) for size in extent]
        return self._known[value]

    def _new(self, size: Size) -> int:
        self._parent.append(len(self._parent))
        self._sizes.append(size)
        return self._parent[-1]

    def _rearranged(self, number: int, layout: Layout, source: Sequence[Axis]) -> list[Axis]:
        """The axes of the result. A part is new if its axis was known only as a whole."""
        for axis, parts in zip(source, layout.before, strict=True):
            known = [self._sizes[kind] for kind in axis] == [layout.sizes[part] for part in parts]
            kinds = axis if known else tuple(self._new(layout.sizes[part]) for part in parts)
            self.parts.update({(number, part): kind for part, kind in zip(parts, kinds, strict=True)})
        self.parts.update({(number, part): self._new(layout.sizes[part]) for part in layout.repeated})
        return [tuple(self.parts[number, part] for part in parts) for parts in layout.after]

    def _meet(self, result: ir.Value, operands: Sequence[Sequence[Axis]]) -> None:
        """Make the axes of the operands, aligned from the back, the same as those of the result."""
        axes = self._axes(result)
        if axes is None:
            return
        for operand in operands:
            for place in range(-min(len(axes), len(operand)), 0):
                if self._join(axes[place], operand[place]):
                    axes[place] = operand[place]

    def _join(self, first: Axis, second: Axis) -> bool:
        """Make two axes the same. Returns whether the second may stand for the first."""
        here, there = ([self._sizes[kind] for kind in axis] for axis in (first, second))
        if first and here == there:
            for one, other in zip(first, second, strict=True):
                self._parent[self.find(one)] = self.find(other)
            return True
        return len(first) == 1 and len(second) > 1 and reduce(mul, there) == here[0]
