"""When two sites look alike: names, sizes, attributes and the order in the file do not count."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_subgraph.report.alike import alike, form
from onnx_subgraph.rewriting.excerpt import Edge, Excerpt, Step
from onnx_subgraph.rewriting.rewrite import Rewrite
from tests.report.excerpts import chain, excerpts

few = settings(max_examples=60, deadline=None)


def site(before: Excerpt, name: str = "/Gelu") -> Rewrite:
    return Rewrite("gelu", "Gelu", name, ("/a",), 1, before=before, after=chain("Gelu"))


@few
@given(excerpts(), st.text(max_size=5))
def test_names_sizes_and_attributes_do_not_count(excerpt: Excerpt, other: str) -> None:
    edges = tuple(replace(edge, name=other, shape=(7, 7), literal=other and edge.literal) for edge in excerpt.edges)
    steps = tuple(replace(step, name=other, attributes=()) for step in excerpt.steps)
    assert form(replace(excerpt, edges=edges, steps=steps)) == form(excerpt)


def test_the_order_of_independent_nodes_does_not_count() -> None:
    edges = tuple(Edge(name, "float32") for name in ("x", "a", "b", "y"))
    left, right = Step("", "", "Sqrt", (), (0,), (1,)), Step("", "", "Erf", (), (0,), (2,))
    add = Step("", "", "Add", (), (1, 2), (3,))
    one, other = (Excerpt(steps, edges, (3,), {"Add": 1}) for steps in ((left, right, add), (right, left, add)))
    assert form(one) == form(other)


@pytest.mark.parametrize(
    "other",
    [
        chain("Div", "Erf", "Mul", "Mul"),
        chain("Div", "Tanh", "Mul"),
        replace(chain("Div", "Erf", "Mul"), results=(2, 3)),
        replace(chain("Div", "Erf", "Mul"), edges=tuple(Edge("", "float16") for _ in range(4))),
        Excerpt(operators={"Div": 400}),
    ],
    ids=["another node", "another operator", "another result", "another type", "too large"],
)
def test_operators_and_connections_count(other: Excerpt) -> None:
    assert form(other) != form(chain("Div", "Erf", "Mul"))


def test_equal_layers_are_one_group_and_the_most_frequent_comes_first() -> None:
    sites = [site(chain("Sqrt"), "/odd"), *(site(chain("Div", "Erf", name=f"/layer.{i}"), f"/{i}") for i in range(3))]
    groups = alike(sites)
    assert [[one.node for one in group.sites] for group in groups] == [["/0", "/1", "/2"], ["/odd"]]
    assert groups[0].first.node == "/0"
