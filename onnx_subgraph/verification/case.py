"""One set of feeds, the original's outputs for it, the bounds for a candidate, and the noise that they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from onnx_subgraph.inputs.feeds import Feeds
from onnx_subgraph.inputs.sizes import Sizes
from onnx_subgraph.verification.blocks import Array
from onnx_subgraph.verification.bounds import Bound, Noise
from onnx_subgraph.verification.judge import flatten
from onnx_subgraph.verification.sessions import Failure, Outputs, Session, run

COARSE = 4.0
"""The factor of the bounds of a coarse case."""


@dataclass(slots=True)
class Case:
    """One set of feeds. After the reference ran: its outputs and their bounds.

    drawn: the results of its random operators. seconds: the time of the run that found the feeds; 0 where they were known.
    unsteady: whether a rounding inside the original changes the shape of an output, or makes the run fail. Such a case says
    nothing about a candidate that rounds differently, and is not compared.
    wide: whether the feeds are of many magnitudes, where the original itself may be far from what it means.
    coarse: whether the case is to find large differences, so that its bounds are `COARSE` times as large. Each case more could
    exceed by chance what was measured of its noise.
    spoiled: the outputs that onnxruntime's optimisation changes in the original itself; compared without optimisation only.
    parts: output → masks of the elements of its parts, for each that has several (`parts`).
    flipped: what the original gave in runs with noise that changed a choice (`flips`), by the names of `flatten`.
    """

    sizes: Sizes
    seed: int | None
    feeds: Feeds
    outputs: Outputs = field(default_factory=dict)
    bounds: dict[str, Bound] = field(default_factory=dict)
    drawn: Feeds = field(default_factory=dict)
    seconds: float = 0.0
    unsteady: bool = False
    wide: bool = False
    coarse: bool = False
    spoiled: set[str] = field(default_factory=set)
    parts: dict[str, tuple[Array, ...]] = field(default_factory=dict)
    flipped: list[dict[str, Array]] = field(default_factory=list)

    @property
    def given(self) -> Feeds:
        """The feeds, and the results of random operators."""
        return self.feeds | self.drawn if self.drawn else self.feeds

    def no_noise(self, name: str) -> Noise:
        """The noise of an output before any draw."""
        return Noise(parts=tuple((mask, Noise()) for mask in self.parts.get(name, ())))

    def fed_to(self, session: Session) -> Feeds:
        """The feeds of a session: those of the case, and the results of random operators for which the session has inputs."""
        if not self.drawn:
            return self.feeds
        inputs = {argument.name for argument in session.handle.get_inputs()}
        return self.feeds | {name: value for name, value in self.drawn.items() if name in inputs}


def measure(
    session: Session | Failure,
    cases: Sequence[Case],
    noises: Sequence[Mapping[str, Noise]],
    draws: int,
    *,
    with_flips: bool = True,
) -> list[bool]:
    """Add so many runs with noise to the noises. Returns for each case whether one gave its shapes; yes without a session.

    with_flips: as for `Noise.add`.
    """
    if isinstance(session, Failure):
        return [True] * len(cases)
    steady = []
    for case, noise in zip(cases, noises, strict=True):
        mine = flatten(case.outputs)
        runs = [run(session, case.fed_to(session)) for _ in range(draws)]
        found = [flatten(outputs) for outputs in runs if not isinstance(outputs, Failure)]
        for theirs in found:
            for name, array in mine.items():
                if name in theirs and theirs[name].dtype == array.dtype:
                    noise[name].add(array, theirs[name], with_flips=with_flips)
        steady.append(any(_shapes(theirs) == _shapes(mine) for theirs in found))
    return steady


def _shapes(outputs: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in outputs.items()}
