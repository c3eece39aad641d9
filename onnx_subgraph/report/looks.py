"""Sites of a fusion that look the same: their names, drawings, and the nodes of each line of the formula."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onnx_subgraph.report.drawing import Drawing, draw, type_of
from onnx_subgraph.report.wording import UNNAMED, count

if TYPE_CHECKING:
    from onnx_subgraph.rewriting.excerpt import Excerpt
    from onnx_subgraph.rewriting.rewrite import Rewrite

MOST_LISTED = 500
"""Sites of one fusion that are listed; `--json` has all."""
MOST_LINES = 40
"""Lines of a formula that are shown beside a drawing."""
MOST_NAMES = 12
"""Names in one cell."""


@dataclass(frozen=True, slots=True)
class Place:
    """One site in words. type: of its result, "" where unknown."""

    node: str
    removed: int
    added: int
    replaces: str
    type: str


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the formula, and the names of the nodes of the first site that compute it. number: from 1, within the site."""

    number: int
    text: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Look:
    """Sites that look the same, drawn once. before, after: None where they are too large, too many, or were not noted down.

    lines: of the formula, where it is drawn before. beside: the names of the nodes of that drawing that no line matched.
    of_box: number of a box of the drawing → its lines.
    """

    places: tuple[Place, ...]
    hidden: int
    before: Drawing | None
    after: Drawing | None
    instead: str = ""
    lines: tuple[Line, ...] = ()
    beside: tuple[str, ...] = ()
    of_box: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    @property
    def width(self) -> float:
        """Of the wider drawing, in pixels."""
        return max((drawing.width for drawing in (self.before, self.after) if drawing is not None), default=0.0)

    @property
    def count(self) -> int:
        """How many sites look so."""
        return len(self.places) + self.hidden


def look_of(sites: Sequence[Rewrite], *, drawn: bool = True) -> Look:
    """Sites that look the same; the first is drawn, unless told otherwise."""
    first = sites[0]
    places = tuple(map(_place, sites[:MOST_LISTED]))
    hidden = len(sites) - len(places)
    if not drawn or first.before is None or first.after is None:
        return Look(places, hidden, None, None)
    if not first.before.steps:
        return Look(places, hidden, None, None, _in_numbers(first.before))
    lines = first.lines[:MOST_LINES]
    names = [step.name.removeprefix(_scope(first)) or step.op_type for step in first.before.steps]
    return Look(
        places,
        hidden,
        draw(first.before),
        draw(first.after) if first.after.steps else None,
        lines=tuple(Line(number, line.text, tuple(names[i] for i in line.steps)) for number, line in enumerate(lines, 1)),
        beside=tuple(name for i, name in enumerate(names) if lines and not any(i in line.steps for line in lines)),
        of_box={i: tuple(number for number, line in enumerate(lines, 1) if i in line.steps) for i in range(len(names))},
    )


def highlights() -> str:
    """The style by which a line of a formula under the pointer, or with the focus, marks its nodes, and a node its lines."""
    rules = []
    for number in range(1, MOST_LINES + 1):
        chosen = f"figure:has(.at-{number}:is(:hover, :focus))"
        rules.append(f"{chosen} .of-{number} rect {{ stroke: var(--accent); stroke-width: 3; fill: var(--pale); }}")
        marked = "background: var(--pale); box-shadow: inset 3px 0 var(--accent);"
        rules.append(f"figure:has(.of-{number}:hover) .at-{number} {{ {marked} }}")
    return "\n".join(rules)


def _in_numbers(excerpt: Excerpt) -> str:
    most = sorted(excerpt.operators.items(), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{number} {name}" for name, number in most[:MOST_NAMES])
    more = f" and {count(len(most) - MOST_NAMES, 'operator')} more" if len(most) > MOST_NAMES else ""
    return f"{excerpt.size} nodes, too many to draw: {shown}{more}."


def _place(site: Rewrite) -> Place:
    after = site.after
    result = next((after.edges[index] for index in after.results), None) if after is not None else None
    replaces = [name.removeprefix(_scope(site)) for name in site.replaces]
    node = site.node or next(filter(None, site.replaces), UNNAMED)
    gives = type_of(result) if result is not None else ""
    return Place(node, len(site.replaces), site.added, some_names(replaces), gives)


def _scope(site: Rewrite) -> str:
    """The path that the names of a site's nodes begin with, as exporters write it; "" where there is none."""
    path, slash, _ = site.node.rpartition("/")
    return f"{path}{slash}" if path else ""


def some_names(names: Sequence[str], limit: int = MOST_NAMES) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(dict.fromkeys(name or UNNAMED for name in names[:limit]))
    return f"{shown}, and {len(names) - limit} more" if len(names) > limit else shown
