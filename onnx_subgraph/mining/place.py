"""A graph that is mined: its atoms, who reads whose results, and which of them may be one without a path around."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container
from functools import cached_property

import onnx_ir as ir

from onnx_subgraph.matching.view import View
from onnx_subgraph.mining.atom import Atom, Parts
from onnx_subgraph.mining.atoms import atoms_of
from onnx_subgraph.model.nested import reads
from onnx_subgraph.regions import convex


class Place:
    """One graph of one model. number: among all that are mined. atoms: of its nodes that are free, each after what it reads.

    whole: whether all of these nodes were asked for, those that cut a value for others among them.
    """

    def __init__(self, number: int, model: str, view: View, is_free: Callable[[ir.Node], bool], *, whole: bool = False) -> None:
        self.number = number
        self.model = model
        self.view = view
        found = atoms_of(view, is_free)
        inside = {node for atom in found for node in atom.nodes}
        self.atoms = found if whole else [atom for atom in found if not self.is_shared_cut(atom, inside)]
        self.position = {atom: i for i, atom in enumerate(self.atoms)}
        self.made = {value: (i, n) for i, atom in enumerate(self.atoms) for n, value in enumerate(atom.results)}
        """Value → the atom that gives it, and which of its results it is."""
        self.readers: dict[ir.Value, list[tuple[int, float]]] = defaultdict(list)
        """Value → the atoms that read it, and at which port."""
        for i, atom in enumerate(self.atoms):
            for operand in atom.operands:
                self.readers[operand.value].append((i, operand.port))

    @cached_property
    def _convex(self) -> tuple[convex.Parts, list[int]]:
        """What may be one so far, and the vertex of each atom."""
        owner = {node: i for i, atom in enumerate(self.atoms) for node in atom.nodes}
        order: dict[object, int] = {}
        members: list[bool] = []
        sources: list[list[int]] = []
        waiting = dict.fromkeys(range(len(self.atoms)))
        last = {i: max(self.view.position[n] for n in atom.nodes) for i, atom in enumerate(self.atoms)}
        for node in self.view.nodes:
            atom = owner.get(node)
            if atom is None and self.is_transparent(node):
                continue
            if atom is not None and (atom not in waiting or self.view.position[node] < last[atom]):
                continue
            key: object = node if atom is None else atom
            inside = (node,) if atom is None else self.atoms[atom].nodes
            behind = (self.view.producer(self.view.through(v)[0]) for n in inside for v in reads(n))
            read = [p for p in behind if p is not None and p not in inside]
            order[key] = len(members)
            members.append(atom is not None)
            sources.append([order[k] for p in dict.fromkeys(read) if (k := owner.get(p, p)) in order and k != key])
            if atom is not None:
                waiting.pop(atom)
        parts = convex.Parts(members)
        for vertex, before in enumerate(sources):
            parts.add(vertex, list(dict.fromkeys(before)), lambda first, second: False)
        return parts, [order[i] for i in range(len(self.atoms))]

    def is_shared_cut(self, atom: Atom, inside: Container[ir.Node]) -> bool:
        """Whether an atom cuts a value for others, too, as that of queries, keys and values: it then belongs to none of them."""
        return isinstance(atom.form, Parts) and any(self.leaves(value, inside) for value in atom.results)

    def is_transparent(self, node: ir.Node) -> bool:
        """Whether a node hands on what it reads, so that nobody needs to look at it."""
        return len(node.outputs) == 1 and self.view.through(node.outputs[0])[0] is not node.outputs[0]

    def leaves(self, value: ir.Value, inside: Container[ir.Node]) -> bool:
        """Whether anything outside reads a value, or what hands it on."""
        pending = [value]
        while pending:
            current = pending.pop()
            if current.is_graph_output():
                return True
            for usage in current.uses():
                if usage.node in self.view.position and self.is_transparent(usage.node):
                    pending += usage.node.outputs
                elif usage.node not in inside:
                    return True
        return False

    def join(self, first: int, second: int) -> bool:
        """Make one of the clusters of two atoms, of which the second reads the first, where no other path leads between them."""
        parts, vertex = self._convex
        return parts.join(vertex[first], vertex[second])
