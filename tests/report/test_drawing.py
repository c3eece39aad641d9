"""Laws of drawings of any graph: boxes do not overlap, every line goes down, and everything is inside the drawing."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from itertools import combinations, pairwise

from hypothesis import given, settings

from onnx_subgraph.report.drawing import LONGEST, Box, Line, draw, shortened
from onnx_subgraph.rewriting.excerpt import Edge, Excerpt, Step
from tests.report.excerpts import chain, excerpts, fan

few = settings(max_examples=60, deadline=None)


def apart(a: Box, b: Box) -> bool:
    beside = abs(a.x - b.x) >= (a.width + b.width) / 2
    above = a.y + a.height <= b.y or b.y + b.height <= a.y
    return beside or above


@few
@given(excerpts())
def test_no_box_covers_another(excerpt: Excerpt) -> None:
    assert all(apart(a, b) for a, b in combinations(draw(excerpt).boxes, 2))


@few
@given(excerpts())
def test_nothing_is_outside(excerpt: Excerpt) -> None:
    drawing = draw(excerpt)
    for box in drawing.boxes:
        assert box.x - box.width / 2 >= 0 and box.x + box.width / 2 <= drawing.width + 0.1
        assert box.y >= 0 and box.y + box.height <= drawing.height + 0.1
    for line in drawing.lines:
        for x, y in re.findall(r"(-?[\d.]+) (-?[\d.]+)", line.path):
            assert 0 <= float(x) <= drawing.width + 0.1 and 0 <= float(y) <= drawing.height + 0.1


def corners(line: Line) -> list[tuple[float, float]]:
    """The points of a line."""
    found: list[tuple[float, float]] = []
    for letter, words in re.findall(r"([MCV])([^MCV]*)", line.path):
        numbers = [float(word) for word in words.split()]
        found.append((found[-1][0], numbers[0]) if letter == "V" else (numbers[-2], numbers[-1]))
    return found


@few
@given(excerpts())
def test_every_line_goes_down(excerpt: Excerpt) -> None:
    """The reader follows the values from top to bottom."""
    for line in draw(excerpt).lines:
        heights = [y for _, y in corners(line)]
        assert heights == sorted(heights) and heights[-1] > heights[0]


def test_a_line_past_a_row_goes_down_beside_another_part() -> None:
    """Several parts and long lines: a bend must not have the number of a vertex of another part."""
    reads = [(2,), (1,), (4,), (1,), (10,), (10, 9), (12, 7), (10,), (13, 8), (5, 10), (16, 5), (19, 21)]
    gives = [1, 3, 3, 1, 1, 1, 3, 1, 1, 3, 1, 2]
    edges, steps = [Edge(f"in_{n}", "float32", None) for n in range(3)], []
    for number, (read, made) in enumerate(zip(reads, gives, strict=True)):
        outputs = tuple(range(len(edges), len(edges) + made))
        edges += [Edge(f"value_{edge}", "float32", None) for edge in outputs]
        steps.append(Step(f"node_{number}", "", "Add", (), read, outputs))
    results = (3, 5, 6, 8, 10, 11, 12, 14, 15, 17, 18, 20, 21, 22, 23)
    excerpt = Excerpt(tuple(steps), tuple(edges), results, Counter({"Add": len(steps)}))
    for _ in range(20):  # the layout may differ from run to run
        for line in draw(excerpt).lines:
            heights = [y for _, y in corners(line)]
            assert heights == sorted(heights) and heights[-1] > heights[0]


@few
@given(excerpts())
def test_a_long_line_goes_around_the_boxes(excerpt: Excerpt) -> None:
    drawing = draw(excerpt)
    for line in drawing.lines:
        for (x, top), (to_x, bottom) in pairwise(corners(line)):
            for box in drawing.boxes if x == to_x else ():
                meets = top < box.y + box.height - 0.1 and bottom > box.y + 0.1
                assert not (meets and abs(box.x - x) < box.width / 2), (box.head, line.title)


@few
@given(excerpts())
def test_every_node_and_every_value_between_nodes_is_drawn(excerpt: Excerpt) -> None:
    drawing = draw(excerpt)
    kinds = [box.kind for box in drawing.boxes]
    assert len([kind for kind in kinds if kind in {"step", "fused"}]) == len(excerpt.steps)
    assert (kinds.count("read"), kinds.count("result")) == (len(excerpt.reads), len(excerpt.results))
    operands = [i for step in excerpt.steps for i in step.inputs if i is not None and not excerpt.edges[i].constant]
    assert len(drawing.lines) == len(operands) + len(excerpt.results)


@few
@given(excerpts())
def test_the_same_excerpt_is_drawn_the_same(excerpt: Excerpt) -> None:
    assert draw(excerpt) == draw(excerpt)


def test_a_box_shows_constants_and_attributes_other_than_defaults() -> None:
    """With the names of the standard. `group` and `dilations` have their defaults and are not shown."""
    edges = (
        Edge("x", "float16", ("batch", 3, 8, 8)),
        Edge("conv.weight", "float16", (4, 3, 3, 3), constant=True),
        Edge("conv.bias", "float16", (1,), constant=True, literal="0.5"),
        Edge("y", "float16", None),
    )
    attributes = (("dilations", "[1, 1]"), ("group", "1"), ("strides", "[2, 2]"))
    drawing = draw(Excerpt((Step("/c", "", "Conv", attributes, (0, 1, 2), (3,)),), edges, (3,), {"Conv": 1}))
    conv, x, y = drawing.boxes
    assert (conv.head, conv.facts) == ("Conv", ("W float16 [4, 3, 3, 3]", "B 0.5", "strides [2, 2]"))
    assert (x.head, x.facts) == ("x", ("float16 [batch, 3, 8, 8]",))
    assert (y.head, y.facts) == ("y", ("float16",))


def test_a_long_name_is_shortened_in_the_middle_and_complete_in_the_title() -> None:
    name = "/encoder/" + "a_very_long_module_name/" * 5
    x, *_ = [box for box in draw(chain("Sqrt", name=name)).boxes if box.kind == "read"]
    assert len(x.head) <= LONGEST and x.head.startswith("/encoder") and x.head.endswith("value_0")
    assert f"{name}/value_0" in x.title
    assert [len(shortened(name, longest)) for longest in (9, 10, LONGEST)] == [9, 10, LONGEST]


def test_lines_into_a_box_do_not_cross_before_it() -> None:
    *sides, last = fan(5).steps
    steps = (*sides, replace(last, inputs=last.inputs[::-1]))
    lines = [corners(line) for line in draw(replace(fan(5), steps=steps)).lines]
    ends = [(line[-1][0], line[-2][0]) for line in lines if line[-1][1] == max(line[-1][1] for line in lines[:-1])]
    assert len(ends) == 5 and [start for _, start in sorted(ends)] == sorted(start for _, start in ends)


def test_boxes_of_different_heights_have_one_middle() -> None:
    edges = tuple(Edge(name, "float32", (8,)) for name in ("a", "b", "c", "d"))
    steps = (Step("", "", "Sqrt", (), (0,), (1,)), Step("", "", "Softmax", (("axis", "1"),), (2,), (3,)))
    boxes = {box.head: box for box in draw(Excerpt(steps, edges, (1, 3), {"Sqrt": 1, "Softmax": 1})).boxes}
    low, high = boxes["Sqrt"], boxes["Softmax"]
    assert low.height < high.height and low.y + low.height / 2 == high.y + high.height / 2


def test_two_unconnected_parts_are_side_by_side() -> None:
    edges = tuple(Edge(name, "float32", (8,)) for name in ("a", "b", "c", "d"))
    steps = (Step("", "", "Sqrt", (), (0,), (1,)), Step("", "", "Erf", (), (2,), (3,)))
    boxes = {box.head: box for box in draw(Excerpt(steps, edges, (1, 3), {"Sqrt": 1, "Erf": 1})).boxes}
    assert boxes["Sqrt"].y == boxes["Erf"].y and boxes["Sqrt"].x < boxes["Erf"].x
