"""Choose the opset at which a model is fused: one that a replacement needs, or the model's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from onnx_subgraph.clock import Clock
from onnx_subgraph.collection import uncollected
from onnx_subgraph.errors import ModelError, UsageError
from onnx_subgraph.model.opset import raise_opset
from onnx_subgraph.model.shapes import infer_shapes, is_settled
from onnx_subgraph.operators import latest_opset
from onnx_subgraph.rewriting.raising import check_raised
from onnx_subgraph.rewriting.rewrite import Skip
from onnx_subgraph.rewriting.rounds import Fused, Rewriter
from onnx_subgraph.rewriting.wishes import Wishes, look_ahead, wishes_of


@dataclass(frozen=True, slots=True)
class Attempt:
    """A model before and after its rewrites.

    raised_for: the patterns that needed the opset and were rewritten; empty where the opset is the model's own.
    """

    base: ir.Model
    fused: Fused
    raised_for: frozenset[str] = frozenset()


def attempts(original: ir.Model, rewriter: Rewriter, opset: str, clock: Clock, notes: dict[int, str]) -> Iterator[Attempt]:
    """The candidates to verify, best first: at each opset that replacements need, highest first, then at the model's own.

    An opset is tried only after all higher ones failed, and is offered only if a replacement that needs it was made. A look at
    the model shows which are needed. If the first round at an opset shows that a later one is needed, rewriting stops there; it
    is completed if its turn comes. notes: opset → why the model can't be raised to it; filled here.
    """
    own = original.opset_imports.get("", 0)
    if opset == "keep" or not own:
        yield Attempt(original, rewriter(original))
        return
    if opset != "auto":
        if int(opset) < own:
            raise UsageError(f"the model has opset {own}, which can't be lowered to {opset}", hint="give a higher one, or keep")
        if int(opset) > latest_opset():
            raise UsageError(f"onnx knows no opset {opset}", hint=f"give one up to {latest_opset()}, or install a later onnx")
        base = _at_opset(original, int(opset), rewriter, clock)
        yield Attempt(base, rewriter(base))
        return
    hasty = replace(rewriter, raising=True)
    made: dict[int, Attempt] = {}
    with uncollected():
        wishes = {own: frozenset[str](), **look_ahead(original, rewriter)}
    tried: set[int] = set()
    in_vain: dict[int, tuple[Skip, ...]] = {}
    while left := wishes.keys() - notes.keys() - tried:
        highest = max(left)
        if highest in made:
            if made[highest].fused.partial:
                made[highest] = replace(made[highest], fused=rewriter(made[highest].base))
                wishes = _union(wishes, wishes_of(made[highest].fused.skips))
                continue
            fused = made[highest].fused
            wanting = wishes.pop(highest) & {r.pattern for r in fused.rewrites}
            if wanting or highest == own:
                tried.add(highest)
                yield Attempt(made[highest].base, _with_reasons(fused, in_vain), wanting)
            else:
                in_vain[highest] = fused.skips
            continue
        try:
            base = original if highest == own else _at_opset(original, highest, rewriter, clock)
            made[highest] = Attempt(base, hasty(base))
        except ModelError as error:
            notes[highest] = error.message
            continue
        # at this opset, further replacements may need yet another one
        wishes = _union(wishes, wishes_of(made[highest].fused.skips))


def _with_reasons(fused: Fused, in_vain: Mapping[int, Sequence[Skip]]) -> Fused:
    """The model with the real reasons of skips that only named an opset. in_vain: the skips at opsets that were no use."""
    there = {(opset, s.pattern, s.node): s for opset, skips in in_vain.items() for s in skips if s.opset is None}

    def really(skip: Skip) -> Skip:
        other = None if skip.opset is None or skip.replaced else there.get((skip.opset, skip.pattern, skip.node))
        return skip if other is None else replace(other, reason=f"at opset {skip.opset}, {other.reason}")

    return replace(fused, skips=tuple(map(really, fused.skips)))


def _union(wishes: Wishes, others: Wishes) -> Wishes:
    return {opset: wishes.get(opset, frozenset()) | others.get(opset, frozenset()) for opset in (*wishes, *others)}


def _at_opset(model: ir.Model, opset: int, rewriter: Rewriter, clock: Clock) -> ir.Model:
    with clock.stage("raise"), uncollected():
        raises = opset > model.opset_imports.get("", 0) > 0
        if raises:
            model = raise_opset(model, opset)
        if not (raises and is_settled(model)):
            infer_shapes(model)
        if raises:
            check_raised(model, rewriter.loadability)
    return model
