"""Repeat find, rewrite and simplify until nothing changes, because each enables the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnx_subgraph.collection import uncollected
from onnx_subgraph.emitting.definitions import drop_unused
from onnx_subgraph.language.library import is_built_in
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.language.term import operators_of
from onnx_subgraph.matching.find import Found, find
from onnx_subgraph.matching.match import NearMiss
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.nested import within
from onnx_subgraph.model.shapes import copied, infer_shapes
from onnx_subgraph.regions.ground import PATTERN
from onnx_subgraph.rewriting.apply import Barred, Record, apply
from onnx_subgraph.rewriting.computed import compute_constants
from onnx_subgraph.rewriting.costs import Costs
from onnx_subgraph.rewriting.cse import eliminate_common
from onnx_subgraph.rewriting.cutting import Cutting
from onnx_subgraph.rewriting.einsum import put_back, write_as_products
from onnx_subgraph.rewriting.loadability import Loadability
from onnx_subgraph.rewriting.numerics import allow_rounding
from onnx_subgraph.rewriting.outcomes import Outcomes
from onnx_subgraph.rewriting.outline import Outline
from onnx_subgraph.rewriting.rewrite import Rewrite, Skip
from onnx_subgraph.rewriting.subnormal import Counts, Flushed, flush
from onnx_subgraph.simplification.simplify import NOTHING, Simplified, simplify
from onnx_subgraph.simplification.simplify_first import simplify_first
from onnx_subgraph.targets import FLOAT32

if TYPE_CHECKING:  # few models have a Loop
    from onnx_subgraph.rewriting.recurrent import Recurrent

MOST_ROUNDS = 16
"""The most rounds. In practice one fusion enables the next two or three times."""

_ONCE_MORE = "fuse the result once more, unless the pattern matches its own replacement"
_LESS_TO_TRY = "let the pattern say more of the items of its sums and products, or write it as two patterns"

Stage = Callable[[str], AbstractContextManager[None]]
"""Called with the name of a stage, "find" or "rewrite"; the stage lasts as long as the context."""


@dataclass(frozen=True, slots=True)
class Fused:
    """A model after rewriting, not yet verified. cuttings: one for each rewrite, where they were recorded.

    flushed: the weights in which subnormal numbers became zeros. simplified: what was evaluated before the model runs.
    recurrent: the Loops that became LSTM, GRU or RNN. opset: of the default domain.
    partial: whether rewriting stopped after the first round, because replacements need a later opset.
    products: the model with its Einsums written as MatMuls, where cuttings were recorded and it has some.
    """

    model: ir.Model
    rewrites: tuple[Rewrite, ...]
    skips: tuple[Skip, ...]
    found: Found
    cuttings: tuple[Cutting, ...] = ()
    flushed: tuple[Flushed, ...] = ()
    simplified: Simplified = NOTHING
    recurrent: tuple[Recurrent, ...] = ()
    partial: bool = False
    products: ir.Model | None = None

    @property
    def near_misses(self) -> tuple[NearMiss, ...]:
        """Where a pattern nearly matched the remaining graph."""
        return self.found.near_misses

    @property
    def held(self) -> tuple[Rewrite, ...]:
        """All rewrites that are verified one by one, in the order of the commits: the Loops, then the others."""
        return (*(one.rewrite for one in self.recurrent), *self.rewrites)

    @property
    def is_changed(self) -> bool:
        """Whether the model was changed, apart from its opset."""
        return bool(self.rewrites or self.flushed or self.simplified or self.recurrent)

    @property
    def opset(self) -> int:
        return self.model.opset_imports.get("", 0)


@dataclass(frozen=True, slots=True)
class Rewriter:
    """The settings of rewriting: the patterns, the target, and the providers that must load the result.

    stage: enters the stages "find" and "rewrite". excerpts: whether each rewrite records excerpts for a report.
    costs: what replacements cost on these providers. thorough, asked: see `find`.
    recording: whether the cutting of each rewrite is kept. flushing: whether subnormal weights become zeros at the end.
    simplifying: whether the rest of the model is simplified.
    recurring: whether Loops that are recurrent networks become operators, before anything else.
    numerics: how far our kernels may round. rounded: the results of the products that may be rounded; None for all.
    counts: known counts of subnormal weights, valid at every opset.
    raising: whether to stop after the first round if a replacement needs a later opset.
    outcomes: what became of the kinds of places so far, in this model at any opset, and with any rewrites left out.
    """

    patterns: Sequence[Pattern]
    target: str
    loadability: Sequence[Loadability]
    stage: Stage = lambda _: nullcontext()
    excerpts: bool = False
    costs: Costs | None = None
    thorough: bool = False
    asked: bool = False
    recording: bool = False
    flushing: bool = False
    simplifying: bool = False
    recurring: bool = False
    numerics: str = FLOAT32
    rounded: tuple[str, ...] | None = None
    counts: Counts = field(default_factory=dict)
    raising: bool = False
    outcomes: Outcomes = field(default_factory=Outcomes)

    @uncollected()
    def __call__(self, base: ir.Model, barred: Barred = lambda place: ()) -> Fused:
        """Return `base` rewritten; `base` itself is unchanged. barred: what may not be replaced.

        The user's patterns are tried first alone, then together with the built-in ones; those that are late come last.
        """
        model = copied(base)
        cuttings: list[Cutting] = []
        run = _Run(self, model, barred, cuttings.append if self.recording else None)
        skips: list[Skip] = []
        recurrent = run.recurrent(skips.append)
        own = [p for p in self.patterns if not is_built_in(p.file)]
        found = Found()
        flushed, products = tuple[Flushed, ...](), None
        for patterns in (own, self.patterns) if 0 < len(own) < len(self.patterns) else (self.patterns,):
            terms = [p for p in patterns if p.grow is None]
            is_last = patterns is self.patterns
            of_einsums = [p for p in terms if not is_built_in(p.file) and "Einsum" in operators_of(p.match)]
            as_written: tuple[NearMiss, ...] = ()
            if of_einsums:
                not_made, found = run.rounds(of_einsums)
                skips += not_made
                as_written = found.near_misses  # before the graph changes
            if (written := write_as_products(model)) and self.recording and products is None:
                products = copied(model)
            if is_last and (self.simplifying or self.asked):  # who asks about one pattern wants to know what is found in all
                run.simplified += simplify_first(model)
            not_made, found = run.stages(terms, simplifying=self.simplifying and is_last)
            skips += not_made
            if run.stops_early(skips):  # the graph has changed since the last search, so near misses can't be told
                return Fused(model, tuple(run.rewrites), tuple(dict.fromkeys(skips)), Found(), partial=True)
            if written or as_written:
                found = found.after(as_written)
                put_back(model)
            growing = [p for p in patterns if p.grow is not None]
            near_misses = found.near_misses if growing else ()  # they describe the current graph
            if self.flushing and is_last:
                flushed = flush(model, self.counts)
            for pattern in growing:  # after the model is simplified, because a node without effect can divide a region
                not_made, grown = run.rounds([pattern])
                skips += not_made
                near_misses = (*near_misses, *grown.near_misses)
                found = Found(told=near_misses)
        drop_unused(model, kept=base.functions)
        allow_rounding(model, self.numerics, self.rounded)
        done, told = tuple(run.rewrites), tuple(dict.fromkeys(skips))
        return Fused(model, done, told, found, tuple(cuttings), flushed, run.simplified, recurrent, products=products)


@dataclass(slots=True, eq=False)
class _Run:
    """A model that is being rewritten, and what was done to it so far. Every method but `stops_early` changes the model.

    barred: what may not be replaced. record: takes the cutting of each rewrite.
    """

    settings: Rewriter
    model: ir.Model
    barred: Barred
    record: Record | None
    rewrites: list[Rewrite] = field(default_factory=list)
    simplified: Simplified = NOTHING

    def stops_early(self, skips: Sequence[Skip]) -> bool:
        """Whether rewriting stops, because one of these replacements needs a later opset."""
        return self.settings.raising and any(skip.opset is not None for skip in skips)

    def recurrent(self, tell: Callable[[Skip], None]) -> tuple[Recurrent, ...]:
        """The Loops that became recurrent operators. tell: is called for those that stay, as in `make_recurrent`."""
        if not self.settings.recurring:
            return ()
        with self.settings.stage("rewrite"):
            if not any(node.op_type == "Loop" for graph in within(self.model.graph) for node in graph):
                return ()
            from onnx_subgraph.rewriting.recurrent import make_recurrent

            recurrent = make_recurrent(self.model, self.settings.loadability, self.barred, self.record, tell)
            if recurrent:
                infer_shapes(self.model)
        return recurrent

    def stages(self, patterns: Sequence[Pattern], *, simplifying: bool) -> tuple[list[Skip], Found]:
        """Run rounds of the patterns that are not late, then of those that are, until these enable nothing."""
        early, late = ([p for p in patterns if p.late is wanted] for wanted in (False, True))
        waiting: list[Skip] = []
        told: tuple[NearMiss, ...] = ()
        for _ in range(MOST_ROUNDS):
            skips, found = self.rounds(early, simplifying=simplifying)
            if not late or self.stops_early(skips):
                break
            made = len(self.rewrites)
            also, found = self.rounds(late, earlier=found)
            skips += also
            if len(self.rewrites) == made:
                break
            waiting += filter(_waits, skips)
            told = (*told, *found.near_misses) if self.settings.thorough else told  # of the original graph, too
        if told:
            found = found.after(told)
        return [*skips, *waiting], found

    def rounds(
        self, patterns: Sequence[Pattern], *, simplifying: bool = False, earlier: Found | None = None
    ) -> tuple[list[Skip], Found]:
        """Run rounds while they make something. Returns the skips and the last result of `find`.

        simplifying: simplify the model when nothing is left to rewrite, and go on if that changed it. earlier: what was found of
        other patterns in this model.
        """
        settings, first = self.settings, len(self.rewrites)
        waiting: list[Skip] = []
        before: tuple[NearMiss, ...] = ()
        is_simple = not simplifying
        for turn in range(MOST_ROUNDS):
            constants = Constants(self.model)
            with settings.stage("find"):
                found = find(self.model, patterns, constants=constants, thorough=settings.thorough, asked=settings.asked)
                if settings.thorough and not turn:  # near misses of the original graph, which a change may hide
                    before = found.near_misses
                if earlier is not None and found.matches:  # they must be read before the graph changes
                    before, earlier = (*earlier.near_misses, *before), None
            with settings.stage("rewrite"):
                made, skips = apply(
                    self.model,
                    (*found.matches, *found.parts),
                    target=settings.target,
                    loadability=settings.loadability,
                    constants=constants,
                    costs=settings.costs,
                    excerpts=settings.excerpts,
                    barred=self.barred,
                    record=self.record,
                    outcomes=settings.outcomes,
                )
            self.rewrites += made
            if self.stops_early(skips):
                return list(skips), Found()  # the graph has changed since the search, so near misses can't be told
            if made:
                is_simple = not simplifying
            elif is_simple or not (changed := self._simplify(self.rewrites[first:])):
                break
            else:  # a removed node may have been the last other reader of an inner value
                is_simple = True
                self.simplified += changed
            # Keep these skips, because the next round may not find the match again: a smaller match may replace one that needs a
            # later opset.
            waiting += filter(_waits, skips)
        else:  # the last round still changed the model
            if simplifying:
                self.simplified += self._simplify(self.rewrites[first:])
            with settings.stage("find"):
                found = find(self.model, patterns, thorough=settings.thorough, asked=settings.asked)
            left = {match.pattern.id for match in found.matches}
            reason = f"after {MOST_ROUNDS} rounds of matching and rewriting it could be replaced again"
            waiting += [Skip(one.pattern, one.node, reason, change=_ONCE_MORE) for one in made if one.pattern in left]
        if before:
            found = found.after(before)
        bounded = [Skip(g.pattern, g.node, g.reason, change=_LESS_TO_TRY) for g in found.given_up]
        return [*skips, *waiting, *bounded], found if earlier is None else Found.together((earlier, found))

    def _simplify(self, rewrites: Sequence[Rewrite]) -> Simplified:
        """Simplify the model, and merge what became equal among the nodes that these rewrites added."""
        with self.settings.stage("rewrite"):
            simplified = simplify(self.model)
            if stored := compute_constants(self.model):
                infer_shapes(self.model)
                simplified += Simplified(computed=stored, removed=stored)
            if simplified and rewrites:
                eliminate_common(Outline(self.model), Constants(self.model), PATTERN, fused=frozenset(r.node for r in rewrites))
            return simplified


def _waits(skip: Skip) -> bool:
    """Whether a skip is told even if later rounds do not find its match again."""
    return skip.opset is not None or skip.bug is not None or bool(skip.winners) or skip.replaced
