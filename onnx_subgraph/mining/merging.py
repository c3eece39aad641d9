"""Merging: what always stands side by side becomes one, a pair of kinds at a time, as in grammar-based compression.

A pair is two kinds of clusters and the edges between them. A pair that loses no occurrence of either side comes first, of
several the one with the most traffic between its sides. A cluster of several atoms is merged only where none of its kind would be
left over, or what is left over becomes a part of something else: its count would drop. What is left in the end are the units.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Hashable, Sequence
from heapq import heappop, heappush

import onnx_ir as ir

from onnx_subgraph.mining.cluster import Cluster, Kinds
from onnx_subgraph.mining.place import Place

MOST_ATOMS = 64
"""Atoms of one unit; larger ones nobody would read."""
Pair = Hashable
Weigh = Callable[[Place, ir.Value], int]
"""The bytes of a value of a graph."""


def merged(places: Sequence[Place], weigh: Weigh) -> list[list[Cluster]]:
    """The clusters that are left when no two may be merged any more, by kind, in the order of their first."""
    merging = _Merging(places, weigh)
    merging.run()
    return merging.left()


class _Merging:
    def __init__(self, places: Sequence[Place], weigh: Weigh) -> None:
        self.places = places
        self.weigh = weigh
        self.kinds = Kinds()
        self.owner: dict[tuple[int, int], Cluster] = {}
        self.alive: dict[int, dict[Cluster, None]] = defaultdict(dict)
        self.pairs: dict[Pair, dict[tuple[Cluster, Cluster], int]] = defaultdict(dict)
        self.of_cluster: dict[Cluster, dict[tuple[Pair, Cluster, Cluster], None]] = defaultdict(dict)
        self.blocked: dict[int, dict[Pair, None]] = defaultdict(dict)
        self.queue: list[tuple[int, int, int, Pair]] = []
        self.turn = 0

    def run(self) -> None:
        clusters = [self.kinds.of(p.number, p.atoms, [i]) for p in self.places for i in range(len(p.atoms))]
        for cluster in clusters:
            self.add(cluster)
        for cluster in clusters:
            self.link(cluster, backwards=False)
        for pair in list(self.pairs):
            self.push(pair)
        while self.queue:
            bad, gain, _, pair = heappop(self.queue)
            now = self.worth(pair)
            if now is None:
                continue
            if now != (bad, gain):
                self.push(pair)
                continue
            self.merge(pair)

    def left(self) -> list[list[Cluster]]:
        kinds = [list(clusters) for clusters in self.alive.values() if clusters]
        return sorted(kinds, key=lambda clusters: min((c.graph, c.atoms[0]) for c in clusters))

    def add(self, cluster: Cluster) -> None:
        self.alive[cluster.kind][cluster] = None
        for atom in cluster.atoms:
            self.owner[cluster.graph, atom] = cluster

    def link(self, cluster: Cluster, *, backwards: bool = True) -> set[Pair]:
        """Note down the pairs that a cluster is a side of; with those before it only where `backwards`."""
        place = self.places[cluster.graph]
        edges: dict[tuple[Cluster, Cluster], list[tuple[int, int, int, float]]] = defaultdict(list)
        bytes_between: dict[tuple[Cluster, Cluster], int] = defaultdict(int)

        def note(source: int, index: int, target: int, port: float, value: ir.Value) -> None:
            first, second = self.owner[cluster.graph, source], self.owner[cluster.graph, target]
            if first is not second:
                edges[first, second].append((first.colours[source], index, second.colours[target], port))
                bytes_between[first, second] += self.weigh(place, value)

        for atom in cluster.atoms:
            for index, value in enumerate(place.atoms[atom].results):
                for reader, port in place.readers.get(value, ()):
                    note(atom, index, reader, port, value)
            for operand in place.atoms[atom].operands if backwards else ():
                source = place.made.get(operand.value)
                if source is not None:
                    note(source[0], source[1], atom, operand.port, operand.value)
        touched: set[Pair] = set()
        for (first, second), ways in edges.items():
            pair = (first.kind, second.kind, tuple(sorted(ways)))
            self.pairs[pair][first, second] = bytes_between[first, second]
            for side in (first, second):
                self.of_cluster[side][pair, first, second] = None
            touched.add(pair)
        return touched

    def worth(self, pair: Pair) -> tuple[int, int] | None:
        """What merging a pair is worth, least first; None where it may not be merged."""
        places = self.pairs.get(pair)
        if not places:
            return None
        firsts, seconds = {a for a, _ in places}, {b for _, b in places}
        times = min(len(firsts), len(seconds))
        first, second = next(iter(places))
        if first.kind == second.kind or len(first.atoms) + len(second.atoms) > MOST_ATOMS:
            return None
        lossless = True
        for side, here in ((first, firsts), (second, seconds)):
            total = len(self.alive[side.kind])
            lossless &= times == total
            if times < total and len(side.atoms) > 1 and not self.is_used_up(side.kind, here):
                self.blocked[side.kind][pair] = None  # until fewer of that kind are left
                return None
        if times < 2 and not lossless:
            return None
        return (2 if times < 2 else 0 if lossless else 1), -sum(places.values())

    def is_used_up(self, kind: int, here: Container[Cluster]) -> bool:
        """Whether each cluster of a kind is `here`, or in a pair that leaves none of its other side and takes none of `here`."""
        fit: dict[Pair, bool] = {}
        for cluster in self.alive[kind]:
            if cluster in here:
                continue
            for pair, _, _ in self.of_cluster[cluster]:
                if pair not in fit:
                    fit[pair] = self.is_apart(pair, kind, here)
                if fit[pair]:
                    break
            else:
                return False
        return True

    def is_apart(self, pair: Pair, kind: int, here: Container[Cluster]) -> bool:
        """Whether a pair leaves none of the side that is not of this kind, and takes none of `here`."""
        mine, others = set(), set()
        for first, second in self.pairs[pair]:  # empty where no way leads from one to the other but through a third
            mine.add(first if first.kind == kind else second)
            others.add(second if first.kind == kind else first)
        if not others or any(cluster in here for cluster in mine):
            return False
        return len(others) == len(self.alive[next(iter(others)).kind])

    def push(self, pair: Pair) -> None:
        worth = self.worth(pair)
        if worth is not None:
            self.turn += 1
            heappush(self.queue, (*worth, self.turn, pair))

    def merge(self, pair: Pair) -> None:
        """Merge the two sides of a pair wherever it is."""
        touched: dict[Pair, None] = {}
        kinds: dict[int, None] = {}
        for first, second in list(self.pairs[pair]):
            if (first, second) not in self.pairs[pair] or not self.places[first.graph].join(first.atoms[0], second.atoms[0]):
                self.pairs[pair].pop((first, second), None)
                continue
            for side in (first, second):
                del self.alive[side.kind][side]
                kinds[side.kind] = None
                for edge in self.of_cluster.pop(side, {}):
                    other, a, b = edge
                    self.pairs[other].pop((a, b), None)
                    self.of_cluster[b if a is side else a].pop(edge, None)
                    touched[other] = None
            place = self.places[first.graph]
            cluster = self.kinds.of(first.graph, place.atoms, sorted((*first.atoms, *second.atoms)))
            self.add(cluster)
            touched.update(dict.fromkeys(sorted(self.link(cluster), key=repr)))
        self.pairs.pop(pair, None)
        for kind in kinds:
            touched.update(self.blocked.pop(kind, {}))
        for other in touched:
            self.push(other)
