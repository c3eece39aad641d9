"""Partition the member nodes of a graph into convex, connected parts that are as large as possible.

A part is convex when no path leaves it and comes back. Nodes are numbers: node `i` reads the nodes `before[i]`, all smaller than
`i`. Every part has a level, and levels grow along each path from part to part; so the graph of the parts has no cycle. Two parts
are merged when one of them can be moved to the level of the other. The search for this visits only the parts between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from heapq import heappop, heappush

STEPS = 10_000
EARNED = 16
"""Search steps at the start, and the steps that every node and edge adds. When they are used up, two parts stay separate."""

Joins = Callable[[int, int], bool]
"""Whether two members with an edge from the first to the second may be in one part because of this edge."""


def convex_parts(before: Sequence[Sequence[int]], is_member: Sequence[bool], joins: Joins) -> list[list[int]]:
    """Partition the members into convex parts. Each part is ascending; parts are ordered by their first node.

    The nodes of a part are connected by edges that `joins` accepts. Replacing every part by one node leaves the graph acyclic.
    Parts are maximal: no two parts that such an edge connects could be merged, as long as `STEPS` and `EARNED` allow the search
    for a path. Takes time linear in the number of nodes and edges.
    """
    parts = Parts(is_member)
    apart = [edge for node, sources in enumerate(before) for edge in parts.add(node, sources, joins)]
    while apart:  # A merge can put the nodes between two other parts inside a part, so that these two can now be merged.
        rest = [edge for edge in apart if not parts.join(*edge)]
        if len(rest) == len(apart):
            break
        apart = rest
    found: dict[int, list[int]] = {}
    for node, member in enumerate(is_member):
        if member:
            found.setdefault(parts.of(node), []).append(node)
    return list(found.values())


class Parts:
    """The parts of the nodes added so far. A node that is not a member is a part of its own.

    level: one number per part. It grows strictly along every edge between two parts, except between two non-members, where it may
    be equal. Members have even levels, non-members odd ones; so no path connects two parts of members with the same level.
    """

    def __init__(self, is_member: Sequence[bool]) -> None:
        self.is_member = is_member
        self.parent = list(range(len(is_member)))
        self.level = [0] * len(is_member)
        self.neighbours: dict[int, list[list[int]]] = {1: [[] for _ in is_member], -1: [[] for _ in is_member]}
        self.steps = STEPS

    def of(self, node: int) -> int:
        """The node that represents the part of `node`."""
        parent = self.parent
        while parent[node] != node:
            parent[node] = node = parent[parent[node]]
        return node

    def add(self, node: int, sources: Sequence[int], joins: Joins) -> list[tuple[int, int]]:
        """Add the next node and merge it with the sources that it joins. Returns the edges that could not be merged."""
        self.steps += EARNED * (1 + len(sources))
        parts = dict.fromkeys(map(self.of, sources))
        member = self.is_member[node]
        joined = {self.of(s): None for s in sources if self.is_member[s] and joins(s, node)} if member else {}
        level = 0 if member else -1
        for part in parts:
            least = self.level[part] if part in joined else self.level[part] + self.is_member[part] + member
            if least > level:
                level = least
            self.neighbours[1][part].append(node)
        self.level[node] = level
        self.neighbours[-1][node] += parts
        return [(p, node) for p in sorted(joined, key=lambda p: -self.level[p]) if not self.join(p, node)]

    def join(self, first: int, second: int) -> bool:
        """Merge the two parts of an edge from `first` to `second`, unless another path connects them.

        Returns whether they are one.
        """
        a, b = self.of(first), self.of(second)
        if a == b:
            return True
        if self.level[a] != self.level[b]:
            moves = self.meeting(a, b)
            if moves is None:
                return False
            for part, level in moves.items():
                self.level[part] = level
        if sum(len(n[a]) for n in self.neighbours.values()) < sum(len(n[b]) for n in self.neighbours.values()):
            a, b = b, a
        self.parent[b] = a
        for neighbours in self.neighbours.values():
            neighbours[a] += neighbours[b]
            neighbours[b] = []
        return True

    def meeting(self, a: int, b: int) -> dict[int, int] | None:
        """New levels that put `a` and `b` on the same level, by raising `a` or by lowering `b`; None where neither is possible.

        Runs both searches in turn and takes the one that ends first.
        """
        searches = (self.moves(a, b, 1), self.moves(b, a, -1))
        while self.steps > 0:
            for search in searches:
                self.steps -= 1
                try:
                    next(search)
                except StopIteration as found:
                    moves: dict[int, int] | None = found.value
                    return moves
        return None

    def moves(self, start: int, goal: int, way: int) -> Generator[None, None, dict[int, int] | None]:
        """The new level of every part that must move if `start` moves to the level of `goal`; None if `goal` would move too.

        way: 1 moves up along the edges, -1 moves down against them. Yields after each neighbour that it visits.
        """
        level, is_member = self.level, self.is_member
        moved = {start: level[goal]}
        # In the order of the old levels: when a part's turn comes, every part that can move it has been visited.
        queue = [(way * level[start], way * start, start)]
        while queue:
            part = heappop(queue)[2]
            neighbours = self.neighbours[way][part]
            index = 0
            while index < len(neighbours):
                yield
                other = self.of(neighbours[index])
                if other == part:  # an edge inside the part
                    neighbours[index] = neighbours[-1]
                    neighbours.pop()
                    continue
                index += 1
                if other == goal:
                    if part != start:
                        return None
                    continue
                needed = way * moved[part] + is_member[part] + is_member[other]
                if needed > way * moved.get(other, level[other]):
                    if other not in moved:
                        heappush(queue, (way * level[other], way * other, other))
                    moved[other] = way * needed
        return moved
