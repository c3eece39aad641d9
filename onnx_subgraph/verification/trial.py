"""Run a candidate on every case, with optimisation off and on, and compare its outputs with the reference's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx_ir as ir

from onnx_subgraph import temporary
from onnx_subgraph.verification.case import Case
from onnx_subgraph.verification.fed import Fed
from onnx_subgraph.verification.judge import Finding, compare_all, compare_flipped
from onnx_subgraph.verification.memory import open_model
from onnx_subgraph.verification.sessions import Failure, Outputs, Session, executed, open_session, placement, run
from onnx_subgraph.verification.verdict import Placement, Run

CPU = "CPUExecutionProvider"

Nearer = Callable[[Case, Collection[str], Outputs], Mapping[str, Finding]]
"""Checks unequal outputs again, and returns findings for those that are accurate enough."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a candidate gave for a case. problem: why it gave nothing, or "". also: whether our kernels or engines ran it."""

    provider: str
    optimised: bool
    case: Case
    outputs: Outputs
    problem: str = ""
    also: bool = False

    def runs(self, coarser: float = 1.0, nearer: Nearer = lambda case, names, outputs: {}) -> list[Run]:
        """Compare every output with the reference's, by the bounds that the case has now.

        coarser: a factor for the bounds. nearer: checks unequal outputs again.
        """
        if self.case.unsteady:
            return []
        if self.problem:
            return [self._run("", Finding(float("inf"), 0.0, (), self.problem))]
        bounds = {name: allowed.times(coarser) for name, allowed in self.case.bounds.items()}
        spoiled = self.case.spoiled if self.optimised and not self.also else ()
        findings = compare_all(self.case.outputs, self.outputs, bounds)
        if self.case.flipped and not all(findings[name].equal for name in findings.keys() - set(spoiled)):
            findings = compare_flipped(self.case.outputs, self.outputs, bounds, self.case.flipped, apart=spoiled) or findings
        if off := [name for name, finding in findings.items() if not finding.equal]:
            findings |= nearer(self.case, off, self.outputs)
        return [self._run(name, finding) for name, finding in findings.items() if name not in spoiled]

    def _run(self, name: str, found: Finding) -> Run:
        return Run(
            self.provider,
            self.optimised,
            self.case.sizes,
            self.case.seed,
            name,
            found.error,
            found.bound,
            found.worst,
            found.problem,
            found.overflows,
            found.jumps,
        )


@dataclass(slots=True)
class Trial:
    """A candidate to run. file: its path, None for a model in memory. home: the folder of its external data.

    named: whether the model has names that the file lacks, which a profile needs.
    placements: where nodes ran, for every provider except the CPU's. executed: the nodes that ran, by onnxruntime's names.
    """

    model: ir.Model
    file: Path | None
    home: Path
    named: bool = False
    placements: list[Placement] = field(default_factory=list)
    executed: set[str] = field(default_factory=set)

    def outcomes(self, provider: str, optimised: bool, cases: Sequence[Case], fed: Fed) -> Iterator[Outcome]:
        """Run all cases on one provider. fed: the random results of the original that are fed."""
        placing = provider != CPU and not optimised
        with temporary.folder() as folder:
            profile = None if optimised else folder / "ran"
            session = self._opened(provider, optimised, fed, placing, profile)
            if placing and not isinstance(session, Failure) and (placed := placement(session, provider)) is not None:
                self.placements.append(placed)
            yield from outcomes_of(session, provider, optimised, cases)
            if profile is not None and not isinstance(session, Failure):
                self.executed |= executed(session)

    def _opened(self, provider: str, optimised: bool, fed: Fed, placing: bool, profile: Path | None) -> Session | Failure:
        if self.file is None or fed.results or (self.named and profile is not None):
            return open_model(fed.to(self.model), self.home, provider, optimised=optimised, placing=placing, profile=profile)
        folder = None if self.file.resolve().parent == self.home else self.home  # a link's own data have the names of links
        return open_session(self.file, provider, optimised=optimised, folder=folder, placing=placing, profile=profile)


def outcomes_of(
    session: Session | Failure, provider: str, optimised: bool, cases: Sequence[Case], *, also: bool = False
) -> Iterator[Outcome]:
    """Run all cases. provider, optimised: reported in the runs. also: as for `Outcome`."""
    for case in cases:
        outputs = session if isinstance(session, Failure) else run(session, case.fed_to(session))
        if isinstance(outputs, Failure):
            at = " ".join(f"{name}={size}" for name, size in case.sizes.items())
            what = "does not load" if isinstance(session, Failure) else f"does not run at {at}" if at else "does not run"
            yield Outcome(provider, optimised, case, {}, f"{what}: {outputs.message}", also)
        else:
            yield Outcome(provider, optimised, case, outputs, also=also)
