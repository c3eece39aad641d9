"""Record what the models of a proof cover: every target, alternative and lowering, or a reason why one is not covered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.proving.spelling import points
from onnx_subgraph.rewriting.rewrite import Rewrite, Skip


@dataclass(frozen=True, slots=True)
class _Left:
    """Why a model was not replaced. opset: the opset that it needs.

    unloadable: whether nothing on this machine loads its operator, or needs it.
    """

    reason: str
    opset: int | None = None
    unloadable: bool = False

    @classmethod
    def of(cls, skips: Sequence[Skip]) -> _Left:
        """The reason in the first skip."""
        return cls(skips[0].reason, skips[0].opset, skips[0].unloadable or skips[0].needless) if skips else cls("not replaced")


_NOTHING_RUNS = _Left("no instance of it runs")


class Coverage:
    """What was proved of one pattern. targets: target → the number of models that were replaced and are equal."""

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self.targets = dict.fromkeys(pattern.targets, 0)
        self._left: dict[str, Counter[_Left]] = {target: Counter() for target in pattern.targets}
        self._proved: dict[str, set[tuple[int, int]]] = {target: set() for target in pattern.targets}
        self._lowered: Counter[str] = Counter()  # file of a lowering → number of rewrites
        self._not_lowered: dict[str, _Left] = {}  # file of a lowering → why it was not used
        self._mixed = False
        self._refused: dict[tuple[str, str], str] = {}  # target, why a model should fuse → what is missing here

    def replaced(self, target: str, used: Iterable[tuple[int, int]], rewrites: Iterable[Rewrite], *, mixed: bool = False) -> None:
        """A model was replaced, and is equal. used: the alternatives in it, by point and number."""
        self.targets[target] += 1
        self._proved[target].update(used)
        self._mixed |= mixed
        self._lowered.update(rewrite.lowering for rewrite in rewrites)

    def left(self, target: str, skips: Sequence[Skip], *, replaced: bool) -> None:
        """A model was not replaced, or not by every lowering."""
        self._not_lowered |= {skip.lowering: _Left.of([skip]) for skip in skips if skip.lowering}
        if not replaced:
            self._left[target][_Left.of(skips)] += 1

    def refused(self, why: str, skips: Mapping[str, Sequence[Skip]]) -> str | None:
        """Why a model that must fuse is not replaced for any target that the pattern is written for.

        None where it is replaced for one of them, or only a kernel is missing on this machine. why: what the model is. skips:
        target → what prevented the replacement.
        """
        written = tuple(self.pattern.replace) or self.pattern.targets
        if not all(target in skips for target in written):
            return None
        left = {target: _Left.of(skips[target]) for target in written}
        missing = next(((target, one.reason) for target, one in left.items() if one.unloadable), None)
        if missing is None:
            return "; ".join(f"{target}: {one.reason}" for target, one in left.items())
        self._refused[missing[0], why] = missing[1]
        return None

    def failures(self, notes: Mapping[str, int]) -> Iterator[str]:
        """What was not proved, and why. notes: reasons why models could not be tried, with the number of models for each."""
        if not any(self.targets.values()):
            yield "nothing could be proved; give real spellings in `fuses`" + "".join(f"; {n}" for n in notes)
            return
        for target in self._missing():
            if not self._is_excused(target):
                said = "; ".join(left.reason for left in list(self._left[target])[:2]) or _NOTHING_RUNS.reason
                yield f"the target {target} was never proved: {said}"
        for target, file, left in self._missing_lowerings():
            if not left.unloadable:
                yield f"the lowering {file} was never proved for {target}: {left.reason}"
        if self.pattern.mixed_precision and not self._mixed:
            yield "it says mixed-precision, and no spelling with casts was proved"
        written = [t for t in self.pattern.replace if self.targets[t]] or [t for t, count in self.targets.items() if count]
        for target in written:
            for point, alternatives in points(self.pattern).items():
                for index, text in enumerate(alternatives):
                    if (point, index) not in self._proved[target]:
                        yield f"the alternative `{text}` was never proved for {target}{self._why_not(target, notes)}"

    def unproved(self) -> dict[str, str]:
        """Target, or lowering of a target → why no model covers it, if the pattern is not at fault."""
        if not any(self.targets.values()):
            return {}
        excused = {t: self._reason(t) for t in self._missing() if self._is_excused(t)}
        lowerings = {f"{t}, as in {file}": left.reason for t, file, left in self._missing_lowerings() if left.unloadable}
        models = {f"{t}, the model to fuse ({why})": reason for (t, why), reason in self._refused.items() if t not in excused}
        return excused | lowerings | models

    def _missing(self) -> Iterator[str]:
        return (target for target, count in self.targets.items() if not count)

    def _is_excused(self, target: str) -> bool:
        """Whether the target need not be proved: nothing here loads it, or the pattern has no replacement written for it.

        A model that needs a later opset was tried again there.
        """
        left = self._left[target]
        tried = any(one.unloadable for one in left) and all(one.unloadable or one.opset is not None for one in left)
        return tried or target not in self.pattern.replace

    def _reason(self, target: str) -> str:
        """Why an excused target has no model: what nothing here loads, before what another opset changes."""
        return min(self._left[target], key=lambda one: not one.unloadable, default=_NOTHING_RUNS).reason

    def _missing_lowerings(self) -> Iterator[tuple[str, str, _Left]]:
        """Target, file and reason of each user's lowering that no model used."""
        for target in self.pattern.replace:
            for block in self.pattern.blocks(target):
                if block.lowering and not self._lowered[block.lowering]:
                    yield target, block.lowering, self._not_lowered.get(block.lowering, _NOTHING_RUNS)

    def _why_not(self, target: str, notes: Mapping[str, int]) -> str:
        """The most frequent reason why models were not replaced, apart from missing kernels."""
        reasons = Counter({o.reason: n for o, n in self._left[target].items() if not o.unloadable and o.opset is None})
        reasons.update(notes)
        return "".join(f": {reason}" for reason, _ in reasons.most_common(1))
