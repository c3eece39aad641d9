"""The options of `fuse` for CI jobs: expectations to check, and the files and annotations that CI systems read.

If a file can't be written, the command says so before it reads the first model. Files are written whole, at the end of the run,
also if it failed; an expectation file is written only if the run was good.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from onnx_subgraph.cli.streams import WrittenPath
from onnx_subgraph.cli.written import check_writable, check_written
from onnx_subgraph.errors import UsageError

if TYPE_CHECKING:
    from onnx_subgraph.expectation.check import Check
    from onnx_subgraph.expectation.expectation import Expectation, Section
    from onnx_subgraph.language.library import Library
    from onnx_subgraph.report.entry import Entry
    from onnx_subgraph.result import FuseResult

Command = TypeVar("Command", bound=Callable[..., Any])


EXPECT = click.option(
    "--expect",
    type=click.Path(path_type=Path),
    metavar="FILE.yaml",
    help="Check the run against the expectations in this file. A model that misses one is not written: exit code 1.",
)
WRITE_EXPECT = click.option(
    "--write-expect", type=WrittenPath(), metavar="FILE.yaml", help="Write the expectations that this run meets."
)


def ci_options(command: Command) -> Command:
    """`--expect`, `--write-expect`, `--junit`, `--summary` and `--annotations`."""
    for option in reversed(
        (
            EXPECT,
            WRITE_EXPECT,
            click.option("--junit", type=WrittenPath(), metavar="FILE.xml", help="Write a JUnit report, a case for each check."),
            click.option(
                "--summary", type=WrittenPath(), metavar="FILE.md", help="Append a summary in Markdown, for the page of a job."
            ),
            click.option(
                "--annotations/--no-annotations",
                default=None,
                show_default="on where GITHUB_ACTIONS is true",
                help="Print problems as annotations of GitHub Actions, on standard error.",
            ),
        )
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options of `ci_options`."""

    expect: Path | None
    write_expect: Path | None
    junit: Path | None = None
    summary: Path | None = None
    annotations: bool | None = None

    @property
    def measured(self) -> bool:
        """Whether to report the size of the fused model."""
        return self.expect is not None or self.write_expect is not None

    def check(self, others: Iterable[Path]) -> None:
        """Raises UsageError if a file can't be written, or is one that the run reads or writes. others: as of `check_written`."""
        if self.expect is not None and self.write_expect is not None:
            hint = "use --expect to check a run, --write-expect to make the file again"
            raise UsageError("--expect and --write-expect exclude each other", hint=hint)
        for option, path in (("--write-expect", self.write_expect), ("--junit", self.junit), ("--summary", self.summary)):
            if path is not None:
                check_writable(option, path)
        check_written(others)

    def expectation(self, models: Sequence[Path], library: Library) -> Expectation | None:
        """The expectations for `models`. Raises ExpectationError for mistakes, or a model without a section."""
        if self.expect is None:
            return None
        from onnx_subgraph.cli.terminal import warn
        from onnx_subgraph.expectation.reading import read_expectation

        expectation = read_expectation(self.expect, [pattern.id for pattern in library.patterns], library.renamed, warn)
        for model in models:
            expectation.section(model)
        return expectation

    def finish(self, entries: Sequence[Entry], unused: Sequence[Section]) -> None:
        """Writes and prints the requested files and annotations. The entries hold only near misses worth telling."""
        if self.annotations or (self.annotations is None and os.environ.get("GITHUB_ACTIONS") == "true"):
            _annotate(entries, unused)
        if self.junit is not None:
            from onnx_subgraph.report import junit

            write_whole(self.junit, junit.document(entries, unused))
        if self.summary is not None:
            from onnx_subgraph.report import summary

            before = self.summary.read_bytes() if self.summary.exists() else b""
            write_whole(self.summary, before + summary.markdown(entries, unused).encode())
        if self.write_expect is not None:
            _write_expectation(self.write_expect, entries)


def held(section: Section, result: FuseResult, library: Library) -> tuple[Check, ...]:
    """The expectations of `section`, checked against `result`."""
    from onnx_subgraph.expectation.check import check
    from onnx_subgraph.report.relevance import telling

    return check(section, result, telling(result, library).near_misses)


def _annotate(entries: Sequence[Entry], unused: Sequence[Section]) -> None:
    from onnx_subgraph.cli.terminal import warn
    from onnx_subgraph.report.annotations import commands

    workspace = os.environ.get("GITHUB_WORKSPACE")
    for line in commands(entries, unused, Path(workspace) if workspace else None):
        warn(line)


def _write_expectation(path: Path, entries: Sequence[Entry]) -> None:
    from onnx_subgraph.cli.terminal import warn
    from onnx_subgraph.expectation.writing import expectation_text

    bad = next((entry for entry in entries if entry.code), None)
    if bad is not None:
        warn(f"{path} was not written: {bad.model} {bad.outcome}")
        return
    results = [(entry.result, entry.result.near_misses) for entry in entries if entry.result is not None]
    write_whole(path, expectation_text(results).encode())


def write_whole(path: Path, content: bytes) -> None:
    """Write a file, or leave the existing one unchanged."""
    from onnx_subgraph.files.atomic import written_whole

    with written_whole(path) as (file,):
        file.write(content)
