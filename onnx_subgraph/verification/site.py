"""Check each rewrite separately: is the replacement as accurate as the nodes that it replaced?

The operands of the site are captured from the original model, or computed from captured values by earlier rewrites (`remade`),
or captured from a later model where another change made them. They are cropped where they are large (`cropping`). The provider
runs the replaced nodes and the replacement on them, and both results are compared with a float64 evaluation (`holding`). So a
more accurate fusion is never called wrong, and a wrong one is found even if the rest of the model hides its error. Drawn values
are used inside subgraphs and functions, where only zeros, NaN or tiny numbers arrive, and for a large convolution. Of equal
rewrites (`likeness`) only two are checked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Literal

import numpy as np
import onnx_ir as ir

from onnx_subgraph.inputs.guessing import smaller
from onnx_subgraph.rewriting.cutting import Cutting
from onnx_subgraph.rewriting.rewrite import Place, Rewrite
from onnx_subgraph.verification.accuracy import Accuracy
from onnx_subgraph.verification.capture import Capture, capturable
from onnx_subgraph.verification.case import Case
from onnx_subgraph.verification.cropping import bytes_read, crops
from onnx_subgraph.verification.drawn import on_drawn, read_apart
from onnx_subgraph.verification.holding import Held, Holding
from onnx_subgraph.verification.likeness import likeness
from onnx_subgraph.verification.remade import Captured, Remade
from onnx_subgraph.verification.sessions import Failure

FIRST_BATCH = 4
"""The number of sites in the first batch of captures; it shows how many bytes a site takes."""
BATCH_BYTES = 1 << 28
"""The memory for captured values of one batch of sites, estimated from the batch before."""
CASES = 2
"""The number of cases (feeds) on which a site is checked, unless an error is known: two sizes."""
LARGE = 1 << 22
"""If the values of a site take more bytes, it is checked on one case, and on a part of each value if that proves it."""
HUGE = 1 << 22
"""If the values of a convolution take more bytes, it is checked on smaller drawn ones."""
SLOW = 1.0
"""If a run of the model takes more seconds, every convolution is checked on drawn values: no run has to capture them."""
TINY = 2.0**-12
"""If no captured number is larger, drawn values are used: there a GELU, and any false imitation of it, is just x / 2."""


@dataclass(frozen=True, slots=True)
class SiteCheck:
    """The check of one rewrite on one provider. result: the name of its worst value, over all results and cases.

    accuracy: of that value; None where unknown, and then `unknown` gives the reason. against: what it was compared with: the
    "float64" evaluation, or the "unfused" result. values: whether captured ("flowing") or drawn values were used. like: the root
    of the equal rewrite that was checked instead, "" where this one was checked.
    """

    rewrite: Rewrite
    provider: str
    result: str = ""
    accuracy: Accuracy | None = None
    unknown: str = ""
    against: Literal["float64", "unfused"] = "float64"
    values: Literal["flowing", "drawn"] = "flowing"
    like: str = ""

    @property
    def wrong(self) -> bool:
        """Whether the check shows the rewrite to exceed its bound."""
        return self.accuracy is not None and not self.accuracy.holds

    @property
    def proved(self) -> bool:
        """Whether the rewrite is within its bound, and an error would have been seen."""
        return self.accuracy is not None and self.accuracy.holds and self.accuracy.compared > 0


def check_sites(
    model: ir.Model,
    source: Path,
    cuttings: Sequence[Cutting],
    provider: str,
    cases: Sequence[Case] | Failure,
    *,
    thorough: bool = False,
    drawn: bool = False,
    wide: bool = False,
    fix_overflows: bool = False,
    earlier: Sequence[Cutting] = (),
    later: Sequence[ir.Model] = (),
) -> tuple[SiteCheck, ...]:
    """Check every rewrite of `model` against float64, in the order of the rewrites. model: the model before the rewrites.

    source: the file that the model was read from. cases: the feeds to run it on. thorough: check every rewrite, even equal ones,
    on all cases. drawn: use drawn values everywhere, so that the model is not run; the feeds of the cases are then not needed.
    wide: draw values of all magnitudes. fix_overflows: a result that is NaN may become a number.
    earlier: the rewrites before these, which are not checked. later: the model after the rewrites, or between them.
    What a site reads is captured from the first model that has all of it: a change that is no rewrite may have made a part of it.
    """
    if isinstance(cases, Failure):
        return tuple(SiteCheck(c.rewrite, provider, unknown=cases.message) for c in cuttings)
    stands_for = _representatives(cuttings, thorough)
    chosen = list(dict.fromkeys(stands_for))

    def sites_of(captured: ir.Model) -> _Sites:
        remade = Remade((*earlier, *cuttings), capturable(captured), provider)
        few = cases if thorough else cases[:CASES]
        return _Sites(Capture(captured, source, provider), provider, few, thorough, remade, drawn, wide, fix_overflows)

    checks: dict[Cutting, SiteCheck] = {}
    for captured in (model, *later):
        if left := [c for c in chosen if c not in checks]:
            sites = sites_of(captured)
            checks |= sites.checked([c for c in left if not sites.out_of_reach(c)])
    if left := [c for c in chosen if c not in checks]:
        checks |= sites_of(model).checked(left)
    return tuple(_as_like(cutting, checks[other]) for cutting, other in zip(cuttings, stands_for, strict=True))


def _representatives(cuttings: Sequence[Cutting], thorough: bool) -> list[Cutting]:
    """For each cutting the one that is checked instead: of equal ones, the first represents itself, and the last all others."""
    if thorough:
        return list(cuttings)
    alike: dict[Hashable, list[Cutting]] = defaultdict(list)
    keys = [likeness(cutting) for cutting in cuttings]
    for cutting, key in zip(cuttings, keys, strict=True):
        alike[key].append(cutting)
    return [cutting if cutting is alike[key][0] else alike[key][-1] for cutting, key in zip(cuttings, keys, strict=True)]


def _as_like(cutting: Cutting, check: SiteCheck) -> SiteCheck:
    if check.rewrite is cutting.rewrite:
        return check
    return replace(check, rewrite=cutting.rewrite, like=check.rewrite.root)


@dataclass(frozen=True, slots=True)
class _Sites:
    """The cases on which the values of a model before its rewrites are captured.

    remade: the values that rewrites added. drawn: whether no values are captured. wide: whether all magnitudes are drawn.
    """

    capture: Capture
    provider: str
    cases: Sequence[Case]
    thorough: bool
    remade: Remade
    drawn: bool
    wide: bool
    fix_overflows: bool

    def checked(self, cuttings: Sequence[Cutting]) -> dict[Cutting, SiteCheck]:
        """The check of each of these cuttings."""
        reasons = {c: self.out_of_reach(c) for c in cuttings}
        checks = {c: self._on_drawn(c, Held(unknown=why)) for c, why in reasons.items() if why}
        small = {c: model for c, why in reasons.items() if not why and (model := self._uncaptured(c)) is not None}
        checks |= {c: self._on_drawn(c, Held(), model) for c, model in small.items()}
        waiting, size = [c for c in cuttings if c not in checks], FIRST_BATCH
        while waiting:
            batch, waiting = waiting[:size], waiting[size:]
            taken = self._check_batch(batch, checks)
            size = max(1, min(256, int(BATCH_BYTES * len(batch) / max(1, taken))))
        return checks

    def _check_batch(self, batch: Sequence[Cutting], checks: dict[Cutting, SiteCheck]) -> int:
        """Add the checks of a batch of sites; returns the bytes of their captured values."""
        names = dict.fromkeys(name for cutting in batch for name in self.remade.sources(cutting))
        flowing = list(self.capture(names, [case.feeds for case in self.cases]))
        for cutting in batch:
            captured = [self.remade.completed(cutting, values) for values in flowing]
            if not self.thorough and (small := _small(cutting, captured)) is not None:
                checks[cutting] = self._on_drawn(cutting, Held(), small)
                continue
            if not self.thorough and (part := self._on_part(cutting, captured)) is not None:
                checks[cutting] = self._check(cutting, part)
                continue
            holding = self._holding(cutting)
            found = [_held(holding, values) for values in (captured if self.thorough else _few(captured, cutting))]
            worst = max(found, key=lambda held: held.gravity)
            checks[cutting] = self._check(cutting, worst)
            if not worst.shows or (worst.accuracy is not None and worst.accuracy.holds and _shows_little(captured)):
                drawn = self._on_drawn(cutting, worst)
                checks[cutting] = drawn if drawn.accuracy is not None or not worst.shows else checks[cutting]
        arrays = (a for values in flowing if not isinstance(values, Failure) for a in values.values())
        return sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))

    def _holding(self, cutting: Cutting) -> Holding:
        return Holding(cutting, self.provider, fix_overflows=self.fix_overflows)

    def _uncaptured(self, cutting: Cutting) -> ir.Model | None:
        """A smaller input for a local operator, if its values are known to be huge or the model is slow; None otherwise."""
        slow = any(case.seconds > SLOW for case in self.cases)
        return None if self.thorough else smaller(cutting.before) if slow else _small(cutting, ())

    def _on_part(self, cutting: Cutting, captured: Sequence[Captured]) -> Held | None:
        """The result on cropped captured values. None if they are not large, or the crop does not prove the site."""
        values = _few(captured, cutting)[0]
        if isinstance(values, Failure) or bytes_read(values, cutting) <= LARGE:
            return None
        for part in crops(cutting, values):
            held = self._holding(cutting).on(part)
            proves = held.shows and held.against == "float64" and held.accuracy is not None and held.accuracy.holds
            if proves and not _shows_little([part]):
                return held
        return None

    def _on_drawn(self, cutting: Cutting, flowing: Held, reading: ir.Model | None = None) -> SiteCheck:
        """Check a site on drawn values, where captured ones show nothing, are missing or are too large.

        reading: a model whose inputs determine what to draw; None for the replaced nodes.
        """
        if flowing.accuracy is not None and not flowing.accuracy.holds:
            return self._check(cutting, flowing)
        if apart := read_apart(cutting):
            return SiteCheck(cutting.rewrite, self.provider, unknown=flowing.unknown or f"only the fused operator reads {apart}")
        holding, read = self._holding(cutting), reading or cutting.before
        drawn = (on_drawn(holding, read, case, cutting, wide=self.wide) for case in self.cases)
        found = [held for held in drawn if held is not None]
        if not found:
            why = flowing.unknown or "the values that flow there are zero, NaN or infinite"
            return SiteCheck(cutting.rewrite, self.provider, unknown=f"{why}, and it runs on none that were drawn for it")
        return self._check(cutting, max(found, key=lambda held: held.gravity), "drawn")

    def out_of_reach(self, cutting: Cutting) -> str:
        """Why the operands of a site can't be captured; "" where they can."""
        if self.drawn:
            return "the model was not run"
        if cutting.rewrite.place.scope:
            return f"it is inside {cutting.rewrite.place.scope}, whose values can't be captured"
        missing = self.remade.missing(cutting)
        return f"it reads {missing}, which the model did not have before" if missing else ""

    def _check(self, cutting: Cutting, held: Held, values: Literal["flowing", "drawn"] = "flowing") -> SiteCheck:
        return SiteCheck(cutting.rewrite, self.provider, held.result, held.accuracy, held.unknown, held.against, values)


def _few(captured: Sequence[Captured], cutting: Cutting) -> Sequence[Captured]:
    """The captured values of all cases; if they are large, only those of the smallest case."""
    sizes = [0 if isinstance(values, Failure) else bytes_read(values, cutting) for values in captured]
    return captured if sum(sizes) <= LARGE else [captured[sizes.index(min(sizes))]]


def _shows_little(captured: Sequence[Captured]) -> bool:
    """Whether all captured numbers are so small that any formula is linear in them, or each value holds a single number."""
    flowing = [values for values in captured if not isinstance(values, Failure)]
    names = {n for values in flowing for n, a in values.items() if isinstance(a, np.ndarray) and a.dtype.kind == "f"}
    each = [np.concatenate([np.ravel(values[n]) for values in flowing if n in values]) for n in names]
    with np.errstate(invalid="ignore"):
        tiny = all(not (np.abs(array) > TINY).any() for array in each)
    return bool(each) and (tiny or all(array.size > 0 and bool((array == array[0]).all()) for array in each))


def _small(cutting: Cutting, captured: Sequence[Captured]) -> ir.Model | None:
    """A smaller input for a local operator such as a convolution; None where its values are not huge, or it is not local."""
    sizes = [bytes_read(values, cutting) for values in captured if not isinstance(values, Failure)]
    ends = (*cutting.before.graph.inputs, *cutting.before.graph.outputs)
    sizes += [prod(dim for dim in value.shape or () if isinstance(dim, int)) * 4 for value in ends]
    return smaller(cutting.before) if max(sizes, default=0) > HUGE else None


def _held(holding: Holding, values: Captured) -> Held:
    return Held(unknown=f"onnxruntime says: {values.message}") if isinstance(values, Failure) else holding.on(values)


def worst(checks: Sequence[SiteCheck]) -> Iterator[SiteCheck]:
    """For each rewrite, the worst of its checks on all providers."""
    by_place: dict[Place, SiteCheck] = {}
    for check in checks:
        place = check.rewrite.place
        by_place[place] = max(by_place.get(place, check), check, key=lambda c: Held(accuracy=c.accuracy).gravity)
    yield from by_place.values()
