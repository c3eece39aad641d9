"""The matches and near misses of a pattern of regions."""

from __future__ import annotations

from onnx_subgraph.language.falsity import wish
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.matching.failure import Kind
from onnx_subgraph.matching.match import Match, NearMiss
from onnx_subgraph.matching.origin import label
from onnx_subgraph.matching.view import View
from onnx_subgraph.regions.ground import Ground
from onnx_subgraph.regions.growing import Grown, Refusal, regions_of

LEAST = 2
"""A region with fewer nodes that is not kept is not reported."""


def grown(view: View, pattern: Pattern) -> tuple[list[Match], list[NearMiss]]:
    """The matches of a pattern of regions, and a near miss for each region that is not kept, with the sentence that failed."""
    ground: Ground = view.shared("ground", lambda: Ground(view.graph, view.constants, view.schema))
    regions = regions_of(ground, pattern)
    matches = [_match(view, pattern, region) for region in regions if region.refusal is None]
    refused = ((r, r.refusal) for r in regions if r.refusal is not None and len(r.region.nodes) >= LEAST)
    return matches, [_near_miss(pattern, region, refusal) for region, refusal in refused]


def _match(view: View, pattern: Pattern, grown: Grown) -> Match:
    bindings = {f"x{i}": value for i, value in enumerate(grown.region.inputs)}
    roots = {f"y{i}": value for i, value in enumerate(grown.region.outputs)}
    return Match(pattern, view.owner, {**bindings, **roots}, {}, roots, grown.region.nodes, {}, grown.selector)


def _near_miss(pattern: Pattern, grown: Grown, refusal: Refusal) -> NearMiss:
    nodes, sentence = grown.region.nodes, refusal.sentence
    place, span = label(nodes[0]), None if sentence is None else sentence.span
    change = "" if sentence is None else wish(sentence.tree)
    said = (refusal.expected, refusal.found, len(nodes), change)
    return NearMiss(pattern.id, span, place, place, *said, kind=Kind.SENTENCE)
