"""The layout of a graph in layers by fast-sugiyama: the place of each vertex, and the bends of edges that pass a layer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layout:
    """places: vertex → x of its centre, and its row, 0 at the top. routes: ends of an edge → the bends between them."""

    places: dict[int, tuple[float, int]]
    routes: dict[tuple[int, int], tuple[int, ...]]


def layered(count: int, edges: Sequence[tuple[int, int]], spacing: float, bend: float) -> Layout:
    """The layout of vertices 0 to `count` - 1. Components are side by side; vertices without an edge are on the right.

    spacing: the distance of neighbouring vertices. bend: the space for a line beside a vertex.
    """
    from fast_sugiyama import from_edges

    places: dict[int, tuple[float, int]] = {}
    routes: dict[tuple[int, int], tuple[int, ...]] = {}
    right, bends = 0.0, count
    for part in _components(edges):
        # Each part is laid out by itself, with vertices counted from 0: else bends get the numbers of vertices of other parts.
        vertices = sorted({vertex for edge in part for vertex in edge})
        number = {vertex: n for n, vertex in enumerate(vertices)}
        numbered = [(number[a], number[b]) for a, b in part]
        ((placed, _, _, short),) = from_edges(numbered, vertex_spacing=spacing, dummy_vertices=True, dummy_size=bend)
        positions = {int(n): place for n, place in placed}
        names = {n: vertices[n] if n < len(vertices) else bends + n for n in positions}
        rows = {y: row for row, y in enumerate(sorted({y for _, y in positions.values()}, reverse=True))}
        left = min(x for x, _ in positions.values())
        places.update((names[n], (x - left + right, rows[y])) for n, (x, y) in positions.items())
        routes.update(_routes([(names[int(a)], names[int(b)]) for a, b in short or ()], count))
        right = max(x for x, _ in places.values()) + spacing
        bends = max(bends, max(places) + 1)
    for vertex in range(count):
        if vertex not in places:
            places[vertex] = (right, 0)
            right += spacing
    return Layout(places, routes)


def _components(edges: Sequence[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """The edges of each connected component, in the order of their smallest vertices."""
    component = {vertex: vertex for edge in edges for vertex in edge}

    def smallest(vertex: int) -> int:
        while component[vertex] != vertex:
            vertex = component[vertex]
        return vertex

    for a, b in edges:
        one, other = sorted((smallest(a), smallest(b)))
        component[other] = one
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for edge in edges:
        found[smallest(edge[0])].append(edge)
    return [found[vertex] for vertex in sorted(found)]


def _routes(edges: Iterable[tuple[int, int]], count: int) -> Iterator[tuple[tuple[int, int], tuple[int, ...]]]:
    """The bends of each long edge, a chain of short ones in the layout, by its ends. Vertices from `count` on are bends."""
    after: dict[int, list[int]] = defaultdict(list)
    for a, b in edges:
        after[a].append(b)
    for source in [vertex for vertex in after if vertex < count]:
        for vertex in after[source]:
            bends = []
            while vertex >= count:
                bends.append(vertex)
                vertex = after[vertex][0]
            if bends:
                yield (source, vertex), tuple(bends)
