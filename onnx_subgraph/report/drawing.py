"""The layout of a graph excerpt: the position of each box and each line, in pixels.

`layout` places boxes in layers and routes long lines. This module decides the text and size of a box and the shape of a line. The
page's template makes the SVG.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from onnx_subgraph.operators.schemas import Schema, schema
from onnx_subgraph.report.layout import layered
from onnx_subgraph.rewriting.excerpt import Edge, Excerpt, Step

MOST_FACTS = 4
"""Lines of text below the operator of a box; its title has the rest."""
LONGEST = 32
"""The most characters of a line in a box; longer ones are cut in the middle. The box's title has the whole line."""

_NEUTRAL = {"dilations": "1", "strides": "1", "pads": "0", "output_padding": "0"}
"""Attributes that are not shown if all elements have this value, which is the standard's default."""

_LETTER, _SMALL_LETTER = 8.3, 6.6  # pixels for a letter, of an operator and of a fact, in a wide common font
_PADDING, _HEAD, _LINE = 10.0, 25.0, 14.0  # padding of the text; height of the first line, and of each further line
_NARROWEST = 76.0
_GAP, _STEP = 22.0, 30.0  # between neighbouring boxes, and between layers
_BEND = 16.0  # space for a line beside a box
_MARGIN = 3.0


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle with text. kind: "step", "fused", "read" or "result". x, y: of its top centre. title: the whole text."""

    kind: str
    x: float
    y: float
    width: float
    height: float
    head: str
    facts: tuple[str, ...]
    title: str


@dataclass(frozen=True, slots=True)
class Line:
    """A line from a box to a box below it, as an SVG path, and the tip of its arrow. title: the value on this edge."""

    path: str
    tip: str
    title: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """Boxes and lines. width, height: in pixels. description: the drawing in words."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    description: str


@dataclass(frozen=True, slots=True)
class _Words:
    """The text of a box before its position is known."""

    kind: str
    head: str
    facts: tuple[str, ...]
    title: str

    @property
    def width(self) -> float:
        letter = _LETTER if self.kind in {"step", "fused"} else _SMALL_LETTER
        longest = max([letter * len(self.head), *(_SMALL_LETTER * len(fact) for fact in self.facts)])
        return max(_NARROWEST, longest + 2 * _PADDING)

    @property
    def height(self) -> float:
        return _HEAD + _LINE * len(self.facts) + (5 if self.facts else 0)


@dataclass(frozen=True, slots=True)
class _Link:
    """An edge: the two boxes, the input of the second, and the value."""

    source: int
    target: int
    arrives: int
    value: Edge


def draw(excerpt: Excerpt) -> Drawing:
    """The drawing of an excerpt with steps: the values read from outside above, the results below."""
    words, links = _plan(excerpt)
    width = max(one.width for one in words)
    edges = list(dict.fromkeys((link.source, link.target) for link in links))
    layout = layered(len(words), edges, width + _GAP, _BEND)
    tops, heights, total = _rows(words, layout.places)
    sides = [(layout.places[i][0] - one.width / 2, layout.places[i][0] + one.width / 2) for i, one in enumerate(words)]
    bends = [x for vertex, (x, _) in layout.places.items() if vertex >= len(words)]
    left, right = min([*bends, *(a for a, _ in sides)]) - _MARGIN, max([*bends, *(b for _, b in sides)]) + _MARGIN
    places = {vertex: (x - left, row) for vertex, (x, row) in layout.places.items()}
    boxes = tuple(
        Box(one.kind, x, tops[row] + (heights[row] - one.height) / 2, one.width, one.height, one.head, one.facts, one.title)
        for i, one in enumerate(words)
        for x, row in [places[i]]
    )
    lines = tuple(_lines(links, boxes, places, layout.routes, tops, heights))
    return Drawing(round(right - left, 1), round(total, 1), boxes, lines, _description(excerpt))


# What the boxes say


def _plan(excerpt: Excerpt) -> tuple[list[_Words], list[_Link]]:
    words = [_step_words(step, excerpt.edges) for step in excerpt.steps]
    made = {edge: number for number, step in enumerate(excerpt.steps) for edge in step.outputs if edge is not None}
    for edge in excerpt.reads:
        made[edge] = len(words)
        words.append(_value_words("read", excerpt.edges[edge]))
    links = [
        _Link(made[edge], number, port, excerpt.edges[edge])
        for number, step in enumerate(excerpt.steps)
        for port, edge in enumerate(step.inputs)
        if edge is not None and edge in made
    ]
    for edge in excerpt.results:
        links.append(_Link(made[edge], len(words), 0, excerpt.edges[edge]))
        words.append(_value_words("result", excerpt.edges[edge]))
    return words, links


def _step_words(step: Step, edges: Sequence[Edge]) -> _Words:
    known = schema(step.op_type, step.domain)
    facts = [step.domain] if step.domain else []
    facts += [*_constants(step, edges, known), *_attributes(step, known)]
    shown = facts if len(facts) <= MOST_FACTS else [*facts[: MOST_FACTS - 1], f"and {len(facts) - MOST_FACTS + 1} more"]
    title = "\n".join([step.name or "a node without a name", step.op_type, *facts])
    return _Words("fused" if step.fused else "step", shortened(step.op_type), tuple(map(shortened, shown)), title)


def _constants(step: Step, edges: Sequence[Edge], known: Schema | None) -> Iterator[str]:
    for position, index in enumerate(step.inputs):
        if index is None or not edges[index].constant:
            continue
        formal = known.inputs[min(position, len(known.inputs) - 1)] if known is not None and known.inputs else None
        name = f"input {position}" if formal is None or formal.variadic else formal.name
        yield f"{name} {edges[index].literal or type_of(edges[index])}"


def _attributes(step: Step, known: Schema | None) -> Iterator[str]:
    for name, value in step.attributes:
        spec = known.attributes.get(name) if known is not None else None
        usual = spec is not None and spec.default is not None and _as_words(spec.default) == value
        if not usual and set(value.strip("[]").split(", ")) != {_NEUTRAL.get(name)}:
            yield f"{name} {value}"


def _as_words(default: object) -> str:
    if isinstance(default, tuple):
        return f"[{', '.join(map(_as_words, default))}]"
    return f"{default:.6g}" if isinstance(default, float) else str(default)


def _value_words(kind: str, edge: Edge) -> _Words:
    words = type_of(edge)
    title = "\n".join(filter(None, (edge.name, words, "read from outside" if kind == "read" else "read outside")))
    return _Words(kind, shortened(edge.name or "a value", LONGEST - 6), (shortened(words),) if words else (), title)


def type_of(edge: Edge) -> str:
    """The type of a value as text: `float16 [batch, 12, 64]`."""
    shape = "" if edge.shape is None else f"[{', '.join(map(str, edge.shape))}]"
    return f"{edge.dtype} {shape}".strip()


def shortened(words: str, longest: int = LONGEST) -> str:
    """`words`, cut in the middle if they are too long for a line."""
    if len(words) <= longest:
        return words
    end = (longest - 1) * 3 // 5
    return f"{words[: longest - 1 - end]}…{words[-end:]}"


def _description(excerpt: Excerpt) -> str:
    names = [step.op_type for step in excerpt.steps]
    reads = ", ".join(excerpt.edges[edge].name or "a value" for edge in excerpt.reads) or "nothing"
    gives = ", ".join(excerpt.edges[edge].name or "a value" for edge in excerpt.results) or "nothing"
    return f"Reads {reads}; {', '.join(names)}; gives {gives}."


def _rows(words: Sequence[_Words], places: dict[int, tuple[float, int]]) -> tuple[list[float], list[float], float]:
    """The top and height of each row, and the total height."""
    count = 1 + max(row for _, row in places.values())
    heights = [max((one.height for i, one in enumerate(words) if places[i][1] == row), default=_HEAD) for row in range(count)]
    tops = [_MARGIN]
    for height in heights:
        tops.append(tops[-1] + height + _STEP)
    return tops[:-1], heights, tops[-1] - _STEP + _MARGIN


# How the lines run


def _lines(
    links: Sequence[_Link],
    boxes: Sequence[Box],
    places: dict[int, tuple[float, int]],
    routes: dict[tuple[int, int], tuple[int, ...]],
    tops: Sequence[float],
    heights: Sequence[float],
) -> Iterator[Line]:
    def first_bend(link: _Link) -> float:
        bends = routes.get((link.source, link.target))
        return places[bends[-1]][0] if bends else places[link.source][0]

    for target, group in groupby(sorted(links, key=lambda link: link.target), key=lambda link: link.target):
        arriving = sorted(group, key=lambda link: (first_bend(link), link.arrives))
        for port, link in enumerate(arriving):
            below = boxes[target]
            spread = min(18.0, below.width / (len(arriving) + 1))
            end = (below.x + (port - (len(arriving) - 1) / 2) * spread, below.y)
            above = boxes[link.source]
            points = [(above.x, above.y + above.height)]
            for bend in routes.get((link.source, link.target), ()):
                x, row = places[bend]
                points += [(x, tops[row]), (x, tops[row] + heights[row])]
            title = "\n".join(filter(None, (link.value.name, type_of(link.value))))
            yield Line(_path([*points, end]), _tip(*end), title)


def _path(points: Sequence[tuple[float, float]]) -> str:
    """A curve through `points` with vertical ends."""
    parts = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for (x, y), (to_x, to_y) in pairwise(points):
        middle = (y + to_y) / 2
        straight = abs(x - to_x) < 0.05
        parts.append(f"V{to_y:.1f}" if straight else f"C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}")
    return "".join(parts)


def _tip(x: float, y: float) -> str:
    return f"M{x - 3.5:.1f} {y - 6:.1f}L{x:.1f} {y:.1f}L{x + 3.5:.1f} {y - 6:.1f}z"
