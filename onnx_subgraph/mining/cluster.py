"""Clusters of atoms, and when two of them are the same: a canonical key that no name, order or spelling has a part in."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_subgraph.mining.atom import Atom


@dataclass(frozen=True, slots=True, eq=False)
class Cluster:
    """Atoms of one graph that one node could take the place of.

    graph: the number of the graph. atoms: their numbers in it, ascending. kind: equal for clusters that are the same.
    colours: of each atom; equal for atoms that stand alike in clusters of one kind.
    """

    graph: int
    atoms: tuple[int, ...]
    kind: int
    colours: Mapping[int, int]

    @property
    def aligned(self) -> tuple[int, ...]:
        """The atoms in an order that is the same for all clusters of a kind."""
        return tuple(sorted(self.atoms, key=lambda atom: (self.colours[atom], atom)))


@dataclass(slots=True)
class Kinds:
    """Gives clusters their kinds. Atoms are coloured by all that they are made of, then by all that reads them."""

    numbers: dict[Hashable, int] = field(default_factory=dict)

    def of(self, graph: int, atoms: Sequence[Atom], chosen: Sequence[int]) -> Cluster:
        """The cluster of the atoms that are chosen, ascending."""
        made = {value: (i, n) for i in chosen for n, value in enumerate(atoms[i].results)}
        below: dict[ir.Value, list[tuple[float, int]]] = {}
        up = self._upwards(atoms, chosen, made, {})
        for i in chosen:
            for operand in atoms[i].operands:
                if operand.value not in made:
                    below.setdefault(operand.value, []).append((operand.port, up[i]))
        shared = {value: self._number(("read", tuple(sorted(ports)))) for value, ports in below.items() if len(ports) > 1}
        up = self._upwards(atoms, chosen, made, shared) if shared else up
        readers: dict[int, list[tuple[int, float, int]]] = {i: [] for i in chosen}
        colours: dict[int, int] = {}
        for i in reversed(chosen):
            colours[i] = self._number((up[i], tuple(sorted(readers[i]))))
            for operand in atoms[i].operands:
                if operand.value in made:
                    source, index = made[operand.value]
                    readers[source].append((index, operand.port, colours[i]))
        kind = self._number(("kind", tuple(sorted(colours.values()))))
        return Cluster(graph, tuple(chosen), kind, colours)

    def _upwards(
        self,
        atoms: Sequence[Atom],
        chosen: Sequence[int],
        made: Mapping[ir.Value, tuple[int, int]],
        shared: Mapping[ir.Value, int],
    ) -> dict[int, int]:
        """The colour of each atom by what it is made of. shared: the colours of values that several atoms read from outside."""
        up: dict[int, int] = {}
        for i in chosen:
            reads = []
            for operand in atoms[i].operands:
                source = made.get(operand.value)
                inner = (up[source[0]], source[1]) if source is not None else (-1, shared.get(operand.value, -1))
                reads.append((operand.port, *inner))
            up[i] = self._number((atoms[i].label, tuple(sorted(reads))))
        return up

    def _number(self, key: Hashable) -> int:
        return self.numbers.setdefault(key, len(self.numbers))
