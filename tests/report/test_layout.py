"""Laws of the layout of any graph without cycles: an edge goes from row to row, and no two lines share a bend."""

from __future__ import annotations

from collections import Counter

from hypothesis import example, given, settings
from hypothesis import strategies as st

from onnx_subgraph.report.layout import layered

COUNT = 8
EDGES = st.lists(st.tuples(*[st.integers(0, COUNT - 1)] * 2).filter(lambda edge: edge[0] < edge[1]), unique=True)


@settings(max_examples=60, deadline=None)
@given(EDGES)
@example([(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5)])
@example([(2, 3), (3, 4), (0, 4)])
def test_an_edge_has_a_bend_of_its_own_in_every_row_that_it_passes(edges: list[tuple[int, int]]) -> None:
    found = layered(COUNT, edges, 10.0, 2.0)
    bends = [bend for route in found.routes.values() for bend in route]
    assert sorted(found.places) == sorted([*range(COUNT), *bends])
    for edge in edges:
        rows = [found.places[vertex][1] for vertex in (edge[0], *found.routes.get(edge, ()), edge[1])]
        assert rows == list(range(rows[0], rows[0] + len(rows)))
    assert max(Counter(found.places.values()).values()) == 1, "each has its own place"
