"""Run a candidate on every case, with optimisation off and on, and compare its outputs with the reference's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx_ir as ir

from onnx_subgraph import temporary
from onnx_subgraph.verification.case import Case
from onnx_subgraph.verification.fed import Fed
from onnx_subgraph.verification.judge import Finding, compare_all
from onnx_subgraph.verification.memory import open_model
from onnx_subgraph.verification.randomness import with_results_fed
from onnx_subgraph.verification.sessions import Failure, Outputs, Session, executed, open_session, placement, run
from onnx_subgraph.verification.verdict import Placement, Run

CPU = "CPUExecutionProvider"

Nearer = Callable[[Case, Collection[str], Outputs], Mapping[str, Finding]]
"""Checks unequal outputs again, and returns findings for those that are accurate enough."""


@dataclass(slots=True)
class Trial:
    """A candidate to run. file: its path, None for a model in memory. home: the folder of its external data.

    placements: where nodes ran, by provider, except the CPU's. executed: the nodes that ran, by onnxruntime's names.
    """

    model: ir.Model
    file: Path | None
    home: Path
    placements: dict[str, Placement] = field(default_factory=dict)
    executed: set[str] = field(default_factory=set)

    def runs(self, provider: str, optimised: bool, cases: Sequence[Case], fed: Fed) -> Iterator[Run]:
        """Run all cases on one provider. fed: the random results of the original that are fed."""
        placing = provider != CPU and not optimised
        with temporary.folder() as folder:
            profile = None if optimised else folder / "ran"
            session = self._opened(provider, optimised, fed, placing, profile)
            if placing and not isinstance(session, Failure) and (placed := placement(session, provider)) is not None:
                self.placements[provider] = placed
            yield from runs_of(session, provider, optimised, cases)
            if profile is not None and not isinstance(session, Failure):
                self.executed |= executed(session)

    def _opened(self, provider: str, optimised: bool, fed: Fed, placing: bool, profile: Path | None) -> Session | Failure:
        if self.file is None or fed.results:
            model = with_results_fed(self.model, fed.results, fed.sources) if fed.results else self.model
            return open_model(model, self.home, provider, optimised=optimised, placing=placing, profile=profile)
        return open_session(
            self.file,
            provider,
            optimised=optimised,
            folder=self.home,
            placing=placing,
            profile=profile,
        )


def runs_of(
    session: Session | Failure,
    provider: str,
    optimised: bool,
    cases: Sequence[Case],
    nearer: Nearer = lambda case, names, outputs: {},
) -> Iterator[Run]:
    """Compare every output of every case with the reference's. A case that does not run gives one run with a problem.

    provider, optimised: reported in the runs. nearer: checks unequal outputs again.
    """
    for case in cases:
        outputs = session if isinstance(session, Failure) else run(session, case.fed_to(session))
        if isinstance(outputs, Failure):
            what = "does not load" if isinstance(session, Failure) else "does not run"
            yield Run(provider, optimised, case.sizes, case.seed, "", float("inf"), 0.0, (), f"{what}: {outputs.message}")
            continue
        findings = compare_all(case.outputs, outputs, case.bounds)
        if off := [name for name, finding in findings.items() if not finding.equal]:
            findings |= nearer(case, off, outputs)
        for name, finding in findings.items():
            yield Run(
                provider,
                optimised,
                case.sizes,
                case.seed,
                name,
                finding.error,
                finding.bound,
                finding.worst,
                finding.problem,
                finding.overflows,
            )
