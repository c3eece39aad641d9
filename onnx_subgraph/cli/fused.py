"""What `fuse` prints about each model when it is done, and about all of them at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from onnx_subgraph.cli.ci import held
from onnx_subgraph.cli.job import Failure

if TYPE_CHECKING:
    from onnx_subgraph.cli.batch import Task
    from onnx_subgraph.cli.resuming import Notes
    from onnx_subgraph.language.library import Library
    from onnx_subgraph.report.entry import Entry
    from onnx_subgraph.report.json import Object
    from onnx_subgraph.result import FuseResult


def exit_code(outcome: FuseResult | Failure, verify: bool, strict: bool = False) -> int:
    """0 if the model was fused (or nothing fuses), 1 if it was not equivalent, 2 if that could not be told.

    strict: a fusion that was wrong and is undone counts as 1.
    """
    if isinstance(outcome, Failure):
        return 2
    match outcome.verdict.verdict:
        case "different":
            return 1
        case "equivalent" if strict and outcome.undone:
            return 1
        case "not-run" if verify and not outcome.unchanged:
            return 2
        case _:
            return 0


def entry_of(task: Task, outcome: FuseResult | Failure, library: Library) -> Entry:
    """The outcome of one model: only the near misses worth telling, and whether its expectations were met."""
    from onnx_subgraph.report.entry import Entry
    from onnx_subgraph.report.relevance import telling

    code = exit_code(outcome, task.options.verify, task.options.strict)
    if isinstance(outcome, Failure):
        return Entry(task.model, code, error=outcome.message)
    checks = () if task.section is None else held(task.section, outcome, library)
    missed = any(not check.met for check in checks)
    return Entry(task.model, max(code, int(missed)), telling(outcome, library), checks=checks, strict=task.options.strict)


def hidden_in(entry: Entry, outcome: FuseResult | Failure | Earlier) -> int:
    """How many near misses the entry omits."""
    if isinstance(outcome, Failure | Earlier) or entry.result is None:
        return 0
    return len(outcome.near_misses) - len(entry.result.near_misses)


def tell(entry: Entry, outcome: FuseResult | Failure, hidden: int, *, as_json: bool) -> None:
    """Prints the outcome of one model, and warnings on standard error."""
    from onnx_subgraph.cli.terminal import is_verbose, show, warn
    from onnx_subgraph.report.blame import sentences
    from onnx_subgraph.report.entry import missed_text
    from onnx_subgraph.report.grouping import skipped
    from onnx_subgraph.report.notices import REPORT, bug

    if isinstance(outcome, Failure):
        warn(f"Error: {outcome.of(entry.model)}")
        return
    for sentence in sentences(outcome.undone):
        warn(f"Warning: {entry.model}: {sentence}")
    for skip in skipped(skip for skip in outcome.skipped if skip.bug is not None):
        warn(f"Warning: {entry.model}: bug in onnx-subgraph: {bug(skip)}; {REPORT}")
    if entry.result is not None and not as_json:
        from onnx_subgraph.report import text

        show(text.fusion(entry.result, hidden=hidden, verbose=is_verbose()), good=entry.code == 0 and not outcome.undone)
        if entry.checks:
            show(text.expectations(entry.checks), good=not entry.missed)
    elif as_json:
        for check in entry.missed:
            warn(f"{entry.model}: {missed_text(check)}")


class Earlier(NamedTuple):
    """The outcome of a model that an earlier run has fused. report: the JSON of that run."""

    report: Object


class Told:
    """The output about the models of a run, in their order. entries: of those that were fused now. code: the worst.

    notes: the record of finished models; None for none. several: whether to print a table and JSON for many models.
    """

    def __init__(self, tasks: Sequence[Task], library: Library, notes: Notes | None, *, as_json: bool, several: bool) -> None:
        self._tasks, self._library, self._notes = tasks, library, notes
        self._as_json, self._several = as_json, several
        self._earlier: dict[int, Earlier] = {}
        self._reports: list[Object] = []
        self._words: list[str] = []
        self._left = list(tasks)
        self.entries: list[Entry] = []

    @property
    def code(self) -> int:
        """The worst of all exit codes."""
        return max((entry.code for entry in self.entries), default=0)

    def resume(self) -> list[Task]:
        """The tasks that no earlier run has done. Prints how many were done before."""
        from onnx_subgraph.cli.terminal import warn
        from onnx_subgraph.report.wording import count

        assert self._notes is not None
        found = ((number, self._notes.find(task)) for number, task in enumerate(self._tasks))
        self._earlier = {number: Earlier(report) for number, report in found if report is not None}
        if not self._notes.kept:
            warn("Warning: nothing can be resumed, because there is no cache: ONNX_SUBGRAPH_CACHE is off")
        if self._earlier:
            fused = f"{len(self._earlier)} of {count(len(self._tasks), 'model')}"
            warn(f"{fused} left out, because an earlier run has fused them, and nothing has changed since")
        self._left = [task for number, task in enumerate(self._tasks) if number not in self._earlier]
        return self._left

    def settled(self, number: int, outcome: FuseResult | Failure) -> None:
        """Records the outcome of a task, by its number among the remaining tasks."""
        if self._notes is None:
            return
        entry = entry_of(self._left[number], outcome, self._library)
        if entry.code == 0 and entry.result is not None and entry.result.output is not None:
            self._notes.keep(self._left[number], _report(entry))

    def in_order(self, results: Iterator[FuseResult | Failure]) -> Iterator[FuseResult | Failure | Earlier]:
        """The outcomes of all tasks, including those of earlier runs."""
        for number in range(len(self._tasks)):
            yield self._earlier[number] if number in self._earlier else next(results)

    def tell(self, task: Task, outcome: FuseResult | Failure | Earlier) -> Entry | None:
        """Prints the outcome of a model; the entry if it was fused now."""
        if isinstance(outcome, Earlier):
            self._reports.append({**outcome.report, "resumed": True})
            self._words.append("fused by an earlier run")
            return None
        entry = entry_of(task, outcome, self._library)
        tell(entry, outcome, hidden_in(entry, outcome), as_json=self._as_json)
        self.entries.append(entry)
        if self._as_json or self._several:
            self._reports.append(_report(entry))
        self._words.append(entry.error.partition("\n")[0] if entry.result is None else entry.outcome)
        return entry

    def finish(self) -> None:
        """Prints the JSON, or the table of several models."""
        from onnx_subgraph.cli.terminal import show, show_json

        if self._as_json:
            show_json({"models": self._reports} if self._several else self._reports[0])
        elif self._several:
            from onnx_subgraph.report import many

            good = sum(entry.code == 0 for entry in self.entries) + len(self._earlier)
            show(many.fused(self._reports, self._words, good), good=good == len(self._reports))


def _report(entry: Entry) -> Object:
    from onnx_subgraph.report import json

    if entry.result is None:
        return json.failure(entry.model, entry.error)
    return json.fusion(entry.result) | ({"expectations": json.expectations(entry.checks)} if entry.checks else {})
