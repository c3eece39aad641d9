"""Rounds of find and rewrite until nothing changes: one fusion enables the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_subgraph.collection import uncollected
from onnx_subgraph.language.library import is_built_in
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.matching.find import Found, find
from onnx_subgraph.matching.match import NearMiss
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.shapes import copied, infer_shapes
from onnx_subgraph.model.simplify import NOTHING, Simplified, simplify
from onnx_subgraph.rewriting.apply import Admits, Record, apply
from onnx_subgraph.rewriting.costs import Costs
from onnx_subgraph.rewriting.cutting import Cutting
from onnx_subgraph.rewriting.loadability import Loadability
from onnx_subgraph.rewriting.numerics import FLOAT32, allow_rounding
from onnx_subgraph.rewriting.recurrent import Recurrent, make_recurrent
from onnx_subgraph.rewriting.rewrite import Place, Rewrite, Skip
from onnx_subgraph.rewriting.subnormal import Counts, Flushed, flush

MOST_ROUNDS = 16
"""A bound on the rounds; one fusion enables the next two or three times, not more."""

_LESS_TO_TRY = "let the pattern say more of the items of its sums and products, or write it as two patterns"

Stage = Callable[[str], AbstractContextManager[None]]
"""Told which stage lasts as long as the context: "find", "rewrite"."""


@dataclass(frozen=True, slots=True)
class Fused:
    """A model after rewriting, not yet verified. cuttings: each rewrite by itself, where they were recorded.

    flushed: the weights in which subnormal numbers were made zeros. simplified: what was decided before the model runs.
    recurrent: the Loops that became LSTM, GRU or RNN. opset: of the default domain. partial: whether it was left off after the
    first round, since replacements want a later opset.
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

    @property
    def near_misses(self) -> tuple[NearMiss, ...]:
        """Where a pattern nearly matched what is left."""
        return self.found.near_misses

    @property
    def held(self) -> tuple[Rewrite, ...]:
        """What is held by itself, in the order of the commits: the Loops and the rewrites."""
        return (*(one.rewrite for one in self.recurrent), *self.rewrites)

    @property
    def is_changed(self) -> bool:
        """Whether anything was done to the model, apart from its opset."""
        return bool(self.rewrites or self.flushed or self.simplified or self.recurrent)

    @property
    def opset(self) -> int:
        return self.model.opset_imports.get("", 0)


@dataclass(frozen=True, slots=True)
class Rewriter:
    """What a model is rewritten with: the patterns, what they become, and the providers that must load it.

    stage: enters the stages "find" and "rewrite". excerpts: whether each rewrite notes down what a report draws. costs: what
    replacements cost on these providers. thorough, asked: see `find`. recording: whether each rewrite is kept by itself.
    flushing: whether subnormal weights become zeros in the end. simplifying: whether what is left is evaluated as far as known.
    recurring: whether Loops that are recurrent networks become operators, before anything else.
    numerics: what our kernels may round. rounded: the results of the products that may be; None for all.
    counts: of subnormal numbers in weights, which the model has at every opset. raising: whether a model is left off after the
    first round where a replacement wants a later opset than it has.
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

    @uncollected()
    def __call__(self, base: ir.Model, admits: Admits | None = None) -> Fused:
        """`base` rewritten, itself left as it is. admits: whether a place may be touched.

        Patterns that did not come with the package have the first choice, and what the others leave in the end.
        """
        model = copied(base)
        cuttings: list[Cutting] = []
        record = cuttings.append if self.recording else None
        allowed = admits or _everywhere
        recurrent = self._recurrent(model, allowed, record)
        own = [p for p in self.patterns if not is_built_in(p.file)]
        rewrites: list[Rewrite] = []
        skips: list[Skip] = []
        found = Found((), ())
        for patterns in (own, self.patterns) if 0 < len(own) < len(self.patterns) else (self.patterns,):
            made, not_made, found = self._all(model, patterns, allowed, record)
            rewrites += made
            skips += not_made
            if self._is_left_off(skips):
                return Fused(model, tuple(rewrites), tuple(dict.fromkeys(skips)), found, partial=True)
        allow_rounding(model, self.numerics, self.rounded)
        flushed = flush(model, self.counts) if self.flushing else ()
        with self.stage("rewrite"):
            simplified = simplify(model) if self.simplifying else NOTHING
        return Fused(model, tuple(rewrites), tuple(dict.fromkeys(skips)), found, tuple(cuttings), flushed, simplified, recurrent)

    def _is_left_off(self, skips: Sequence[Skip]) -> bool:
        return self.raising and any(skip.opset is not None for skip in skips)

    def _recurrent(self, model: ir.Model, admits: Admits, record: Record | None) -> tuple[Recurrent, ...]:
        """The Loops that became recurrent operators. Changes `model`."""
        if not self.recurring:
            return ()
        with self.stage("rewrite"):
            recurrent = make_recurrent(model, self.loadability, admits, record)
            if recurrent:
                infer_shapes(model)
        return recurrent

    def _all(
        self, model: ir.Model, patterns: Sequence[Pattern], admits: Admits, record: Record | None
    ) -> tuple[list[Rewrite], list[Skip], Found]:
        """What `_rounds` gives for these patterns. Regions take what the others have left. Changes `model`."""
        terms = [p for p in patterns if p.grow is None]
        rewrites, skips, found = self._rounds(model, terms, MOST_ROUNDS, admits, record)
        if self._is_left_off(skips):
            return rewrites, skips, found
        for pattern in (p for p in patterns if p.grow is not None):
            near_misses = found.near_misses  # they are about the graph as it is now
            made, not_made, grown = self._rounds(model, [pattern], 1, admits, record)
            rewrites += made
            skips += not_made
            found = Found((), (), (*near_misses, *grown.near_misses))
        return rewrites, skips, found

    def _rounds(
        self, model: ir.Model, patterns: Sequence[Pattern], most: int, admits: Admits, record: Record | None
    ) -> tuple[list[Rewrite], list[Skip], Found]:
        """Up to `most` rounds of find and rewrite; what was done, what was not, and what was found last. Changes `model`."""
        rewrites: list[Rewrite] = []
        waiting: list[Skip] = []
        before: tuple[NearMiss, ...] = ()
        for turn in range(most):
            constants = Constants(model)
            with self.stage("find"):
                found = find(model, patterns, constants=constants, thorough=self.thorough, asked=self.asked)
                if self.thorough and not turn:  # the graph as its author knows it: a fusion may hide what was wrong with another
                    before = found.near_misses
            with self.stage("rewrite"):
                made, skips = apply(
                    model,
                    (*found.matches, *found.parts),
                    target=self.target,
                    loadability=self.loadability,
                    constants=constants,
                    costs=self.costs,
                    excerpts=self.excerpts,
                    admits=admits,
                    record=record,
                )
            rewrites += made
            if not made:
                break
            # A smaller match may take the place of one that waits for a later opset; that one must not be forgotten, nor a bug,
            # nor that a match was taken: the next round does not find it.
            waiting += (s for s in skips if s.opset is not None or s.bug is not None or s.winners)
            if self._is_left_off(skips):
                break
        if before and rewrites:
            found = Found((), (), tuple(dict.fromkeys((*before, *found.near_misses))), found.given_up)
        bounded = [Skip(g.pattern, g.node, g.reason, change=_LESS_TO_TRY) for g in found.given_up]
        return rewrites, [*skips, *waiting, *bounded], found


def _everywhere(place: Place) -> bool:
    return True
