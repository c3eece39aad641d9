"""Find out which later opsets replacements need, before a model is rewritten.

A model is then raised first, and rewritten once. Only patterns are matched that have a replacement with an operator of a later
opset. A pattern is planned until it has asked for the latest opset that it can need. The model is not changed. A match that only
another rewrite makes possible is not seen here; it asks for its opset in the rounds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.language.term import Apply, walk
from onnx_subgraph.matching.find import find
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.operators.later import later_opset
from onnx_subgraph.rewriting.outline import Outline
from onnx_subgraph.rewriting.plan import plan, targets_tried
from onnx_subgraph.rewriting.replacement import Site
from onnx_subgraph.rewriting.rewrite import Skip

if TYPE_CHECKING:
    from onnx_subgraph.rewriting.rounds import Rewriter

Wishes = dict[int, frozenset[str]]
"""Opset → the patterns that could be replaced there."""


def wishes_of(skips: Iterable[Skip]) -> Wishes:
    """The opsets that skipped patterns need."""
    asked = [(s.opset, s.pattern) for s in skips if s.opset is not None]
    return {opset: frozenset(pattern for other, pattern in asked if other == opset) for opset, _ in asked}


def look_ahead(model: ir.Model, rewriter: Rewriter) -> Wishes:
    """The opsets that replacements need at places where their patterns match the model as it is."""
    opset, constants = model.opset_imports.get("", 0), Constants(model)
    latest: dict[str, int | None] = {}

    def can_ask(pattern: Pattern) -> bool:
        latest[pattern.id] = _latest(pattern, rewriter.target, opset)
        return latest[pattern.id] is not None

    with rewriter.stage("find"):
        found = find(model, rewriter.patterns, constants=constants, parts=False, wanted=can_ask)
    skips: list[Skip] = []
    with rewriter.stage("rewrite"):
        site = Site(Outline(model, set()), constants, rewriter.loadability, rewriter.costs, rewriter.outcomes)
        for match in found.matches:
            if latest[match.pattern.id] is None:
                continue
            planned = plan(match, rewriter.target, site)
            asked = [planned] if isinstance(planned, Skip) else planned.remarks
            skips += asked
            if latest[match.pattern.id] in [skip.opset for skip in asked]:
                latest[match.pattern.id] = None
    return wishes_of(skips)


def _latest(pattern: Pattern, target: str, opset: int) -> int | None:
    """The latest opset after this one that a replacement for the target needs; None if there is none."""
    lines = (line for one in targets_tried(target) for block in pattern.blocks(one) for line in block)
    calls = (term for line in lines for term in walk(line.term) if isinstance(term, Apply))
    needed = (
        later_opset(operator.name, [name for name, _ in call.keywords], len(call.arguments), opset)
        for call in calls
        for operator in call.operators
        if not operator.domain
    )
    return max((later for later in needed if later is not None), default=None)
