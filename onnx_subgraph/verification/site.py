"""Each rewrite by itself: is what it put there as near to the truth as what was there before?

The values that really flow into the place are captured from the model before it was rewritten, or computed from them by earlier
rewrites (`remade`), and cropped where they are large (`cropping`). On them what was replaced and what replaces it are run by the
provider, and both are held against a float64 evaluation of what was replaced (`holding`). So a fusion that is more accurate is
never called wrong, and a wrong one is seen that the rest hides. A place inside a body or function, one where only zeros, NaN or
tiny numbers flow, and a large convolution are held on drawn values. Of rewrites that are alike (`likeness`) two stand for all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx_ir as ir

from onnx_subgraph.errors import UsageError
from onnx_subgraph.rewriting.cutting import Cutting
from onnx_subgraph.rewriting.rewrite import Place, Rewrite
from onnx_subgraph.verification.accuracy import Accuracy
from onnx_subgraph.verification.capture import capturable, capture
from onnx_subgraph.verification.case import Case
from onnx_subgraph.verification.cropping import bytes_read, crops
from onnx_subgraph.verification.feeds import draw_feeds
from onnx_subgraph.verification.guessing import smaller, with_shapes
from onnx_subgraph.verification.holding import Held, Holding
from onnx_subgraph.verification.likeness import likeness
from onnx_subgraph.verification.remade import Captured, Remade
from onnx_subgraph.verification.sessions import Failure
from onnx_subgraph.verification.sizes import Sizes, assignments

FIRST_BATCH = 4
"""For so many sites the values are captured first; that shows how many bytes a site takes."""
BATCH_BYTES = 1 << 28
"""What the captured values of one batch of sites may take in memory, as far as a batch before it can tell."""
CASES = 2
"""On so many sets of feeds a site is held, where nothing is wrong yet: two sizes."""
LARGE = 1 << 22
"""Where the values of a site take more bytes, it is held on one set of feeds, and on a part of each value if that proves it."""
HUGE = 1 << 22
"""Where the values of a convolution take more bytes, it is held on smaller ones that are drawn."""
TINY = 2.0**-12
"""Where no number that flows is larger, drawn values say more: a GELU is half of so small a number, and so are its imitations."""
SCALES = (1.0, 30.0, 1000.0)
"""By how much drawn values are multiplied, until something comes out: a unit that is never active gives zeros otherwise."""
TRIALS = 24
"""How many sets of sizes are tried for values that are drawn."""


@dataclass(frozen=True, slots=True)
class SiteCheck:
    """One rewrite on one provider. result: the name of the value that is furthest from its bound, of all its results and cases.

    accuracy: of that value; None where it could not be told, and then `unknown` says why. against: what it was held against:
    the truth in "float64", or the "unfused" result. values: those that it was held on. like: the root of the rewrite that
    stood for it, "" where it was held itself.
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
        """Whether the rewrite is shown to be further from the truth than it may be."""
        return self.accuracy is not None and not self.accuracy.holds

    @property
    def proved(self) -> bool:
        """Whether the rewrite holds, and an error would have been seen."""
        return self.accuracy is not None and self.accuracy.holds and self.accuracy.compared > 0


def check_sites(
    model: ir.Model,
    source: Path,
    cuttings: Sequence[Cutting],
    provider: str,
    cases: Sequence[Case] | Failure,
    *,
    thorough: bool = False,
    earlier: Sequence[Cutting] = (),
) -> tuple[SiteCheck, ...]:
    """Holds every rewrite of `model`, which is as it was before them, against the truth, in the order of the rewrites.

    source: the file that the model was read from. cases: the feeds to run it on. thorough: hold each rewrite itself, on all
    cases, whichever others it is like. earlier: the rewrites before these, which are not held.
    """
    if isinstance(cases, Failure):
        return tuple(SiteCheck(c.rewrite, provider, unknown=cases.message) for c in cuttings)
    stands_for = _representatives(cuttings, thorough)
    chosen = list(dict.fromkeys(stands_for))
    remade = Remade((*earlier, *cuttings), capturable(model), provider)
    sites = _Sites(model, source, provider, cases if thorough else cases[:CASES], thorough, remade)
    checks = dict(zip(chosen, sites.checked(chosen), strict=True))
    return tuple(_as_like(cutting, checks[other]) for cutting, other in zip(cuttings, stands_for, strict=True))


def _representatives(cuttings: Sequence[Cutting], thorough: bool) -> list[Cutting]:
    """Which cutting stands for each: itself, or the last of those that it is like; of them the first stands for itself, too."""
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
    """A model before it was rewritten, whose values are captured, and the cases that it is run on.

    remade: the values that rewrites made.
    """

    model: ir.Model
    source: Path
    provider: str
    cases: Sequence[Case]
    thorough: bool
    remade: Remade

    def checked(self, cuttings: Sequence[Cutting]) -> list[SiteCheck]:
        """A check of each, in order."""
        reasons = {c: self._out_of_reach(c) for c in cuttings}
        checks = {c: self._on_drawn(c, Held(unknown=why)) for c, why in reasons.items() if why}
        waiting, size = [c for c, why in reasons.items() if not why], FIRST_BATCH
        while waiting:
            batch, waiting = waiting[:size], waiting[size:]
            taken = self._check_batch(batch, checks)
            size = max(1, min(256, int(BATCH_BYTES * len(batch) / max(1, taken))))
        return [checks[cutting] for cutting in cuttings]

    def _check_batch(self, batch: Sequence[Cutting], checks: dict[Cutting, SiteCheck]) -> int:
        """Adds the checks of a few sites; returns the bytes that their captured values took."""
        names = dict.fromkeys(name for cutting in batch for name in self.remade.sources(cutting))
        flowing = list(capture(self.model, self.source, names, self.provider, [case.feeds for case in self.cases]))
        for cutting in batch:
            captured = [self.remade.completed(cutting, values) for values in flowing]
            if not self.thorough and (small := _small(cutting, captured)) is not None:
                checks[cutting] = self._on_drawn(cutting, Held(), small)
                continue
            if not self.thorough and (part := self._on_part(cutting, captured)) is not None:
                checks[cutting] = self._check(cutting, part)
                continue
            holding = Holding(cutting, self.provider)
            found = [_held(holding, values) for values in (captured if self.thorough else _few(captured, cutting))]
            worst = max(found, key=lambda held: held.gravity)
            checks[cutting] = self._check(cutting, worst)
            if not worst.shows or (worst.accuracy is not None and worst.accuracy.holds and _shows_little(captured)):
                drawn = self._on_drawn(cutting, worst)
                checks[cutting] = drawn if drawn.accuracy is not None or not worst.shows else checks[cutting]
        arrays = (a for values in flowing if not isinstance(values, Failure) for a in values.values())
        return sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))

    def _on_part(self, cutting: Cutting, captured: Sequence[Captured]) -> Held | None:
        """How it stands on a part of large values that flow; None where they are not large, or the part does not prove it."""
        values = _few(captured, cutting)[0]
        if isinstance(values, Failure) or bytes_read(values, cutting) <= LARGE:
            return None
        for part in crops(cutting, values):
            held = Holding(cutting, self.provider).on(part)
            proves = held.shows and held.against == "float64" and held.accuracy is not None and held.accuracy.holds
            if proves and not _shows_little([part]):
                return held
        return None

    def _on_drawn(self, cutting: Cutting, flowing: Held, reading: ir.Model | None = None) -> SiteCheck:
        """The check of a place where the values that flow show nothing, can't be had or are too large: on drawn ones.

        reading: a model whose inputs say which; what was replaced, where there is none.
        """
        if flowing.accuracy is not None and not flowing.accuracy.holds:
            return self._check(cutting, flowing)
        if apart := _read_apart(cutting):
            return SiteCheck(cutting.rewrite, self.provider, unknown=flowing.unknown or f"only the fused operator reads {apart}")
        holding = Holding(cutting, self.provider)
        found = [
            held for case in self.cases if (held := _on_some(holding, reading or cutting.before, case, cutting.equal)) is not None
        ]
        if not found:
            why = flowing.unknown or "the values that flow there are zero, NaN or infinite"
            return SiteCheck(cutting.rewrite, self.provider, unknown=f"{why}, and it runs on none that were drawn for it")
        return self._check(cutting, max(found, key=lambda held: held.gravity), "drawn")

    def _out_of_reach(self, cutting: Cutting) -> str:
        """Why the values that flow into a place can't be captured; "" where they can."""
        if cutting.rewrite.place.scope:
            return f"it is inside {cutting.rewrite.place.scope}, whose values can't be captured"
        missing = self.remade.missing(cutting)
        return f"it reads {missing}, which the model did not have before" if missing else ""

    def _check(self, cutting: Cutting, held: Held, values: Literal["flowing", "drawn"] = "flowing") -> SiteCheck:
        return SiteCheck(cutting.rewrite, self.provider, held.result, held.accuracy, held.unknown, held.against, values)


def _few(captured: Sequence[Captured], cutting: Cutting) -> Sequence[Captured]:
    """The captured values of all cases; of the case that takes the least bytes alone, where they are large."""
    sizes = [0 if isinstance(values, Failure) else bytes_read(values, cutting) for values in captured]
    return captured if sum(sizes) <= LARGE else [captured[sizes.index(min(sizes))]]


def _shows_little(captured: Sequence[Captured]) -> bool:
    """Whether numbers flow there, but so small ones that any formula is linear in them, or one number alone in each value."""
    flowing = [values for values in captured if not isinstance(values, Failure)]
    names = {n for values in flowing for n, a in values.items() if isinstance(a, np.ndarray) and a.dtype.kind == "f"}
    each = [np.concatenate([np.ravel(values[n]) for values in flowing if n in values]) for n in names]
    with np.errstate(invalid="ignore"):
        tiny = all(not (np.abs(array) > TINY).any() for array in each)
    return bool(each) and (tiny or all(array.size > 0 and bool((array == array[0]).all()) for array in each))


def _small(cutting: Cutting, captured: Sequence[Captured]) -> ir.Model | None:
    """What a local operator reads, of a smaller size; None where the values that flow are not huge, or it is not local."""
    sizes = [bytes_read(values, cutting) for values in captured if not isinstance(values, Failure)]
    sizes += [prod(dim for dim in v.shape or () if isinstance(dim, int)) * 4 for v in cutting.before.graph.outputs]
    return smaller(cutting.before) if max(sizes) > HUGE else None


def _held(holding: Holding, values: Captured) -> Held:
    return Held(unknown=f"onnxruntime says: {values.message}") if isinstance(values, Failure) else holding.on(values)


def _on_some(holding: Holding, reading: ir.Model, case: Case, equal: Mapping[str, str]) -> Held | None:
    """How the rewrite stands on the first drawn values that show something; None where there are none.

    Sizes that only the replacement refuses, as of batches that would broadcast, count where it runs on no others.
    """
    tried: list[Sizes] = []
    refused: Held | None = None
    model = with_shapes(reading)
    for sizes in islice(_sizes(model, case.sizes), TRIALS):
        if sizes in tried:
            continue
        tried.append(sizes)
        try:
            values = draw_feeds(model, sizes, case.seed or 0)
        except UsageError:
            return None
        for scale in SCALES:
            held = holding.on(_all_read({name: _scaled(value, scale) for name, value in values.items()}, equal))
            refused = refused if held.runs else refused or held
            if held.shows and held.runs:
                return held
            if held.accuracy is None or not held.runs:
                break
    return refused


def _all_read(values: Mapping[str, Any], equal: Mapping[str, str]) -> dict[str, Any]:
    """The values, with one value for all that always hold the same."""
    return {**values, **{name: values[other] for name, other in equal.items() if other in values}}


def _scaled(value: Any, scale: float) -> Any:
    return value * np.asarray(scale, value.dtype) if isinstance(value, np.ndarray) and value.dtype.kind == "f" else value


def _read_apart(cutting: Cutting) -> str:
    """A value that only the replacement reads, or "".

    It is some other form of a value that was read before, such as its own source, and one drawn for it would be another one.
    """
    known = {value.name for value in cutting.before.graph.inputs}
    known |= {name for name, other in cutting.equal.items() if other in known}
    return next((str(value.name) for value in cutting.after.graph.inputs if value.name not in known), "")


def _sizes(model: ir.Model, sizes: Mapping[str, int]) -> Iterator[Sizes]:
    """Sizes for the dimensions that the inputs of `model` have, those of the case first."""
    for found in assignments(list(model.graph.inputs), {}):
        yield found | dict(sizes)
    yield from assignments(list(model.graph.inputs), {})


def worst(checks: Sequence[SiteCheck]) -> Iterator[SiteCheck]:
    """For each rewrite, the gravest of its checks on all providers."""
    by_place: dict[Place, SiteCheck] = {}
    for check in checks:
        place = check.rewrite.place
        by_place[place] = max(by_place.get(place, check), check, key=lambda c: Held(accuracy=c.accuracy).gravity)
    yield from by_place.values()
