"""Nodes that may stand together, put together into parts as large as they can be without a path that leaves one and comes back.

A graph is numbers here: node `i` reads the nodes `before[i]`, all smaller than `i`. Every part has a level that grows along each
path from part to part, so that no order of the parts can be circular; two parts become one when one of them can be moved to the
level of the other, and only what lies between the two is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from heapq import heappop, heappush

STEPS = 10_000
EARNED = 16
"""Steps of searching to begin with, and those that every node and edge adds; where they are used up, two parts stay apart."""

Joins = Callable[[int, int], bool]
"""Whether two members with an edge from the first to the second may be in one part because of this edge."""


def convex_parts(before: Sequence[Sequence[int]], is_member: Sequence[bool], joins: Joins) -> list[list[int]]:
    """The members in parts that are connected by edges that join, each part ascending, the parts in the order of their first.

    All parts may be replaced by one node each at the same time: the result has no cycle. No two parts that an edge joins could
    be one (as long as `STEPS` and `EARNED` allow to look for a path). The cost follows the number of nodes and edges.
    """
    parts = Parts(is_member)
    apart = [edge for node, sources in enumerate(before) for edge in parts.add(node, sources, joins)]
    while apart:  # what lay between two parts may by now be inside one of them
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
    """The parts of the nodes added so far; a node that is no member is a part of its own.

    level: of each part, strictly growing along every edge between two parts, but equal ones between two nodes that are no
    members: even for members, odd for others, so that between two parts of one level nothing leads from one to the other.
    """

    def __init__(self, is_member: Sequence[bool]) -> None:
        self.is_member = is_member
        self.parent = list(range(len(is_member)))
        self.level = [0] * len(is_member)
        self.neighbours: dict[int, list[list[int]]] = {1: [[] for _ in is_member], -1: [[] for _ in is_member]}
        self.steps = STEPS

    def of(self, node: int) -> int:
        """The node that stands for the part of `node`."""
        parent = self.parent
        while parent[node] != node:
            parent[node] = node = parent[parent[node]]
        return node

    def add(self, node: int, sources: Sequence[int], joins: Joins) -> list[tuple[int, int]]:
        """Add the next node, above what it reads, and let it be one with what it joins; returns the edges that could not."""
        self.steps += EARNED * (1 + len(sources))
        parts = dict.fromkeys(map(self.of, sources))
        member = self.is_member[node]
        joined = {self.of(s): None for s in sources if member and self.is_member[s] and joins(s, node)}
        floor = [self.level[p] + self.is_member[p] + member for p in parts if p not in joined]
        floor += [self.level[p] for p in joined]
        self.level[node] = max(floor, default=0 if member else -1)
        self.neighbours[-1][node] += parts
        for part in parts:
            self.neighbours[1][part].append(node)
        return [(p, node) for p in sorted(joined, key=lambda p: -self.level[p]) if not self.join(p, node)]

    def join(self, first: int, second: int) -> bool:
        """Make one part of two with an edge from `first` to `second`, where no other path leads from one to the other."""
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
        """New levels that bring `a` up to `b`, or `b` down to `a`, whichever is sooner found; None where there is no way."""
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
        """The levels of all that must move when `start` comes to the level of `goal`; None where it leads to `goal` itself.

        way: 1 for up, along the edges, -1 for down, against them. Yields after each neighbour that it looks at.
        """
        level, is_member = self.level, self.is_member
        moved = {start: level[goal]}
        # In the order of the old levels, so that each has been pushed by all that can push it when its turn comes.
        queue = [(way * level[start], way * start, start)]
        while queue:
            part = heappop(queue)[2]
            neighbours = self.neighbours[way][part]
            index = 0
            while index < len(neighbours):
                yield
                other = self.of(neighbours[index])
                if other == part:  # an edge that has come to lie inside
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
