"""partition(): find the regions that a backend supports, make engines of those that are worth it, verify, and write.

A partitioned model is compared with the original twice: inlined, as it runs without the backend, and with its engines. Each
engine is also checked separately against float64, on the values that it reads (`holding`). A region that its backend fails to
run, or runs wrongly, stays unchanged, and the result says so.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import onnx_ir as ir

from onnx_subgraph import temporary
from onnx_subgraph.backends.backend import Backend
from onnx_subgraph.clock import Clock, Progress
from onnx_subgraph.custom_ops import libraries
from onnx_subgraph.engine.operator import note_bounds
from onnx_subgraph.engine.session import EngineSession
from onnx_subgraph.errors import OnnxSubgraphWarning
from onnx_subgraph.files.models import hand_on, load, save, write_temporary
from onnx_subgraph.model.shapes import copied, infer_shapes
from onnx_subgraph.partitioning.choice import MadeEngine, Partition, RefusedRegion, Spot, Unsupported, partition_model
from onnx_subgraph.partitioning.holding import Watched, apart, further, wrong
from onnx_subgraph.partitioning.measure import slower
from onnx_subgraph.partitioning.options import PartitionOptions
from onnx_subgraph.partitioning.runners import Runner, runners_of
from onnx_subgraph.partitioning.work import likely_sizes
from onnx_subgraph.partitioning.worth import RegionLimits
from onnx_subgraph.paths import StrPath, path_of
from onnx_subgraph.values import check_not_negative, check_shapes, check_whole
from onnx_subgraph.verification.fed import Fed
from onnx_subgraph.verification.found_shapes import find_shapes, of_unknown_operators
from onnx_subgraph.verification.libraries import with_libraries
from onnx_subgraph.verification.reference import Reference
from onnx_subgraph.verification.rounding import COARSEST, Truth, held_to, with_roundings
from onnx_subgraph.verification.sessions import Failure, Session
from onnx_subgraph.verification.trial import CPU
from onnx_subgraph.verification.verdict import Verdict

ALONE = 32
"""If no engine is wrong separately, each is tried alone; but only if there are at most this many."""


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """What `partition` did to one model.

    output: the file written, or None. backend: the names, separated by commas. unchanged: there is no engine, and the file is a
    copy. seconds: stage → seconds.
    """

    model: Path
    output: Path | None
    backend: str
    nodes_before: int
    nodes_after: int
    engines: tuple[MadeEngine, ...]
    refused: tuple[RefusedRegion, ...]
    unsupported: tuple[Unsupported, ...]
    verdict: Verdict
    seconds: Mapping[str, float]

    @property
    def unchanged(self) -> bool:
        """Whether no region became an engine."""
        return not self.engines


Given = Backend | Sequence[Backend] | None
"""Backends to use instead of those that the options name."""
Accepts = Callable[[PartitionResult], bool]
"""Called with the result before the output is written; returns whether to write it."""


def partition(
    model: StrPath,
    output: StrPath | None,
    options: PartitionOptions,
    progress: Progress | None = None,
    backend: Given = None,
    accepts: Accepts = lambda _: True,
) -> PartitionResult:
    """Partition one model file. The input is never changed; the output is written completely or not at all.

    backend: used instead of those in `options`. If nothing is partitioned, the output is a byte-for-byte copy of the input. If
    the verdict is "different", or is missing although verification was requested, nothing is written.
    accepts: called before a result is written; if it returns False, nothing is written.
    Raises ModelError for a model that can't be read or written, UsageError for a missing backend or a negative number.
    """
    check_not_negative(rtol=options.rtol, atol=options.atol, accuracy=options.accuracy)
    check_whole(seed=options.seed)
    check_shapes(options.shapes)
    model, output = path_of(model), None if output is None else Path(output)
    with with_libraries(options.libraries):
        return _partition(model, output, options, Clock(progress), backend, accepts)


def _partition(
    model: Path,
    output: Path | None,
    options: PartitionOptions,
    clock: Clock,
    given: Given,
    accepts: Accepts,
) -> PartitionResult:
    if given is None:
        runners = runners_of(options.backends, isolated=options.isolated, runs=options.verify)
    else:
        runners = tuple(Runner(one, one) for one in ([given] if isinstance(given, Backend) else given))
    with clock.stage("load"):
        original = load(model)
        infer_shapes(original)
        if libraries() and of_unknown_operators(original):
            reference = Reference(model, seed=options.seed, shapes=options.shapes, inputs=options.inputs)
            find_shapes(original, model, CPU, reference.cases(CPU), declared=True)
    trial = _Trial(model, original, runners, options, clock)
    partition, verdict = trial.partitioned()
    writes = verdict.verdict == "equivalent" or (not options.verify and verdict.verdict == "not-run")
    result = PartitionResult(
        model=model,
        output=None,
        backend=", ".join(options.backends),
        nodes_before=_count(original),
        nodes_after=_count(partition.model),
        engines=partition.engines,
        refused=partition.refused,
        unsupported=partition.unsupported,
        verdict=verdict,
        seconds=clock.seconds,
    )
    if output is None or options.dry_run or not writes or not accepts(result):
        return result
    with clock.stage("write"):
        if partition.engines:
            save(partition.model, output, model)
        else:
            hand_on(model, output)
    return replace(result, output=output)


@dataclass(slots=True)
class _Trial:
    """The attempts at one model; each leaves out the regions that failed in the attempts before."""

    path: Path
    original: ir.Model
    runners: Sequence[Runner]
    options: PartitionOptions
    clock: Clock
    refused: dict[Spot, str] = field(default_factory=dict)
    failed: set[Spot] = field(default_factory=set)
    _truth: Truth | None = None

    def truth(self, reference: Reference) -> Truth:
        """The original in float64, evaluated once."""
        self._truth = self._truth or Truth(reference)
        return self._truth

    def partitioned(self) -> tuple[Partition, Verdict]:
        """The last attempt and its verdict."""
        partition = self._attempt()
        options = self.options
        if not options.verify:
            return partition, Verdict("not-run", reason="verification was not asked for")
        reference = Reference(
            self.path,
            seed=options.seed,
            rtol=options.rtol,
            atol=options.atol,
            shapes=options.shapes,
            inputs=options.inputs,
            progress=self.clock.progress,
        )
        while partition.engines:
            with self.clock.stage("verify"):
                verdict, failures = self._compared(partition, reference)
                if verdict.verdict == "different" and not failures:
                    failures = self._wrong_alone(partition, reference)
            if options.measure and not failures and verdict.verdict == "equivalent":
                with self.clock.stage("measure"):
                    failures = self._slower(partition, reference)
            if not failures:
                return partition, verdict
            self.refused |= failures
            partition = self._attempt()
        return partition, Verdict("equivalent", reason="no region became an engine: the file is the original, byte for byte")

    @property
    def _limits(self) -> RegionLimits:
        limits = self.options.limits
        gain = math.inf if self.options.measure and limits.gain is None else limits.gain  # measurements replace the estimate
        return replace(limits, gain=gain, sizes={**likely_sizes(self.original, self.options.shapes), **limits.sizes})

    def _attempt(self, *, without: Mapping[Spot, str] | None = None) -> Partition:
        with self.clock.stage("partition"):
            refused, options = {**self.refused, **(without or {})}, self.options
            asked, model = [runner.asked for runner in self.runners], copied(self.original)
            return partition_model(model, asked, self._limits, refused, self.failed, options.pattern, options.results)

    def _compared(self, partition: Partition, reference: Reference) -> tuple[Verdict, dict[Spot, str]]:
        """The verdict, and the engines whose backend failed or is wrong: spot → why."""
        opened: list[EngineSession] = []

        def by_engines(fed: Fed) -> Session | Failure:
            try:
                file = write_temporary(fed.to(partition.model), self.path, folder) if fed.results else candidate
                session = EngineSession(file, backends=watched, weights=weights)
            except Exception as error:  # onnxruntime's errors have no common base
                return Failure(str(error))
            opened.append(session)
            return Session(session, tuple(argument.name for argument in session.get_outputs()))

        watched = {runner.asked.name: Watched(runner.running) for runner in self.runners}
        name = ", ".join(watched)
        weights = self.path.resolve().parent
        with temporary.folder() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore", OnnxSubgraphWarning)  # the report tells them
            candidate = write_temporary(partition.model, self.path, folder)
            coarser = 1.0 if self.options.accuracy is None else COARSEST
            verdict = reference.verdict(candidate, weights, also={name: by_engines}, coarser=coarser)
            if (accuracy := self.options.accuracy) is None:
                failures = wrong(watched.values())
            else:
                verdict = replace(verdict, also=(name,))
                if verdict.verdict == "equivalent":
                    verdict = with_roundings(verdict, self.truth(reference), by_engines(reference.fed(CPU)))
                verdict, failures = held_to(verdict, accuracy), further(watched.values(), accuracy, partition.final)
        if verdict.verdict == "equivalent":
            note_bounds(partition.model, apart(watched.values()))
        failed = {engine.subgraph.name: engine.failure for session in opened for engine in session.engines if engine.failure}
        self.failed |= {made.spot for made in partition.engines if made.node in failed}
        failures |= failed
        return verdict, {made.spot: failures[made.node] for made in partition.engines if made.node in failures}

    def _slower(self, partition: Partition, reference: Reference) -> dict[Spot, str]:
        """The engines that are not faster than onnxruntime: spot → what was measured."""
        cases = reference.cases(CPU)
        if isinstance(cases, Failure):
            return {}
        weights = self.path.resolve().parent
        with temporary.folder() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore", OnnxSubgraphWarning)  # the report tells them
            candidate = write_temporary(partition.model, self.path, folder)
            running = {runner.asked.name: runner.running for runner in self.runners}
            found = slower(self.path, candidate, weights, running, CPU, cases[0].feeds)
        return {made.spot: found[made.node] for made in partition.engines if made.node in found}

    def _wrong_alone(self, partition: Partition, reference: Reference) -> dict[Spot, str]:
        """The engines whose results differ from the original's when they are the only engine: spot → why."""
        if len(partition.engines) == 1 or len(partition.engines) > ALONE:
            return {}
        found = {}
        for made in partition.engines:
            others = {other.spot: "left out" for other in partition.engines if other is not made}
            verdict, _ = self._compared(self._attempt(without=others), reference)
            if verdict.verdict == "different" and verdict.worst is not None:
                worst = verdict.worst
                said = worst.problem or f"{worst.output} is off by {worst.error:.3g}, {worst.bound:.3g} is allowed"
                found[made.spot] = f"its results differ: {said}"
        return found


def _count(model: ir.Model) -> int:
    """The number of nodes in the model and its subgraphs, without definitions of operators."""
    return sum(1 for _ in model.graph.all_nodes())
