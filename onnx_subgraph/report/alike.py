"""Groups the sites of a fusion that look the same: 24 equal layers are drawn once.

Two sites are alike if the same operators are connected in the same way, before and after, on values of the same types. Names,
sizes, attributes and constants may differ.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from onnx_subgraph.rewriting.excerpt import Excerpt, Step
from onnx_subgraph.rewriting.rewrite import Rewrite


@dataclass(frozen=True, slots=True)
class Alike:
    """Sites that look the same; the first represents all."""

    sites: tuple[Rewrite, ...]

    @property
    def first(self) -> Rewrite:
        """The site to draw."""
        return self.sites[0]


def alike(sites: Iterable[Rewrite]) -> tuple[Alike, ...]:
    """`sites` grouped by their form, the most frequent first."""
    groups: dict[Hashable, list[Rewrite]] = {}
    for site in sites:
        groups.setdefault((form(site.before), form(site.after)), []).append(site)
    return tuple(Alike(tuple(group)) for group in sorted(groups.values(), key=len, reverse=True))


def form(excerpt: Excerpt | None) -> Hashable:
    """The form of an excerpt: equal for two that differ only in names, sizes, attributes and the order of their nodes.

    The steps are numbered from the results upwards, so the order of independent nodes in the file does not matter.
    """
    if excerpt is None:
        return None
    if not excerpt.steps:
        return tuple(sorted(excerpt.operators.items()))
    makers = {edge: (step, port) for step in excerpt.steps for port, edge in enumerate(step.outputs) if edge is not None}
    numbers: dict[object, int] = {}
    forms: list[Hashable] = []

    def source(edge: int | None) -> Hashable:
        if edge is None:
            return None
        if edge in makers:
            step, port = makers[edge]
            return number(step), port
        value = excerpt.edges[edge]
        return ("constant", value.dtype) if value.constant else (numbers.setdefault(edge, len(numbers)), value.dtype)

    def number(step: Step) -> int:
        if step not in numbers:
            inputs = tuple(map(source, step.inputs))
            forms.append((step.domain, step.op_type, step.fused, inputs))
            numbers[step] = len(numbers)
        return numbers[step]

    results = tuple(map(source, excerpt.results))
    for step in excerpt.steps:
        number(step)
    return results, tuple(forms)
