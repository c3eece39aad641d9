"""Laws of convex parts, compared with a direct reading of the definition that follows every path."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_subgraph.regions.convex import convex_parts


@dataclass(frozen=True)
class Dag:
    """A graph of numbers: the inputs of each node, which nodes are members, and the edges between members that do not join."""

    before: tuple[tuple[int, ...], ...]
    is_member: tuple[bool, ...]
    barred: frozenset[tuple[int, int]]

    def joins(self, first: int, second: int) -> bool:
        return (first, second) not in self.barred

    @property
    def parts(self) -> list[list[int]]:
        return convex_parts(self.before, self.is_member, self.joins)

    def labels(self, parts: list[list[int]]) -> list[int]:
        """For each node, the first node of its part."""
        labels = list(range(len(self.before)))
        for part in parts:
            for node in part:
                labels[node] = part[0]
        return labels

    def is_acyclic(self, labels: list[int]) -> bool:
        """Whether the graph has no cycle after each part is contracted to one node."""
        edges = {(labels[s], labels[n]) for n, read in enumerate(self.before) for s in read if labels[s] != labels[n]}
        left = set(labels)
        while free := {node for node in left if not any(t == node and s in left for s, t in edges)}:
            left -= free
        return not left


@st.composite
def dags(draw: st.DrawFn, most: int = 14, *, barred: bool = True) -> Dag:
    size = draw(st.integers(1, most))
    before = tuple(tuple(sorted(draw(st.sets(st.integers(0, node - 1), max_size=3)))) if node else () for node in range(size))
    members = tuple(draw(st.lists(st.sampled_from([True, True, True, False]), min_size=size, max_size=size)))
    edges = [(s, n) for n, read in enumerate(before) for s in read]
    left_out = draw(st.sets(st.sampled_from(edges), max_size=4)) if barred and edges else set()
    return Dag(before, members, frozenset(left_out))


@given(dags())
def test_every_member_is_in_one_part(dag: Dag) -> None:
    """The parts hold each member once and nothing else. Each part and the list of parts are sorted."""
    assert sorted(n for part in dag.parts for n in part) == [n for n, member in enumerate(dag.is_member) if member]
    assert dag.parts == sorted(sorted(part) for part in dag.parts)


@given(dags())
def test_a_part_is_connected_by_edges_that_join(dag: Dag) -> None:
    for part in dag.parts:
        edges = [(s, n) for n in part for s in dag.before[n] if s in part and dag.joins(s, n)]
        reached, grown = {part[0]}, True
        while grown:
            more = {b for edge in edges for a, b in (edge, edge[::-1]) if a in reached} - reached
            reached, grown = reached | more, bool(more)
        assert reached == set(part)


@settings(max_examples=500)
@given(dags())
def test_no_path_leaves_a_part_and_returns(dag: Dag) -> None:
    """Convexity, and more: all parts can be replaced at the same time."""
    assert dag.is_acyclic(dag.labels(dag.parts))


@settings(max_examples=500)
@given(dags())
def test_no_two_neighbouring_parts_could_be_merged(dag: Dag) -> None:
    """Maximality: contracting any joining edge between two parts gives a cycle."""
    labels = dag.labels(dag.parts)
    for node, read in enumerate(dag.before):
        for source in read:
            apart = labels[source] != labels[node] and dag.is_member[source] and dag.is_member[node]
            if apart and dag.joins(source, node):
                assert not dag.is_acyclic([labels[source] if label == labels[node] else label for label in labels])


@given(dags(most=40))
def test_larger_graphs_are_acyclic_after_contraction(dag: Dag) -> None:
    assert dag.is_acyclic(dag.labels(dag.parts))


@given(dags(barred=False))
def test_if_all_nodes_are_members_the_parts_are_the_connected_components(dag: Dag) -> None:
    whole = Dag(dag.before, (True,) * len(dag.before), frozenset())
    assert all(whole.labels(whole.parts)[s] == whole.labels(whole.parts)[n] for n, read in enumerate(dag.before) for s in read)


def test_a_part_excludes_a_path_that_leaves_and_returns() -> None:
    """0 → 1 → 3 and 0 → 2 → 3, where 2 is no member: 1 is with 0, and 3 is alone."""
    assert convex_parts([[], [0], [0], [1, 2]], [True, True, False, True], lambda a, b: True) == [[0, 1], [3]]


def test_two_convex_sets_that_depend_on_each_other_are_not_both_made() -> None:
    """{0, 2} and {1, 3} are each convex, but 0 → 3 and 1 → 2 would make a cycle of the two."""
    before: list[list[int]] = [[], [], [0, 1], [0, 1]]
    parts = convex_parts(before, [True] * 4, lambda a, b: (a, b) in {(0, 2), (1, 3)})
    assert len(parts) == 3


@pytest.mark.parametrize("late", [False, True])
def test_a_part_may_join_nodes_far_apart_in_the_order(late: bool) -> None:
    """5 is the first reader of 1 and comes after two non-members. No path leads from 1 to those, so 1 and 5 are one part."""
    before: list[list[int]] = [[], [], [0], [2], [3], [1, 4]]
    members = [True, True, False, True, False, True]
    if late:  # the same, where a later node reads 1 too
        before, members = [*before, [1]], [*members, False]
    assert [1, 5] in convex_parts(before, members, lambda a, b: True)


@pytest.mark.parametrize("member", [lambda i: True, lambda i: i % 2 == 0, lambda i: i % 3 != 0])
def test_a_long_chain_does_not_recurse(member: object) -> None:
    size = 20_000
    assert callable(member)
    members = [bool(member(i)) for i in range(size)]
    parts = convex_parts([[i - 1] if i else [] for i in range(size)], members, lambda a, b: True)
    assert sum(map(len, parts)) == sum(members)
