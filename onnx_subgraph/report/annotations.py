"""A run as workflow commands of GitHub Actions, which annotate lines of files in a pull request.

The format is docs.github.com/actions/reference/workflow-commands-for-github-actions, the escapes those of actions/toolkit. GitHub
shows ten of a kind for each step, so there is one for each problem, and none for success.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onnx_subgraph.report.blame import sentence
from onnx_subgraph.report.notices import notices
from onnx_subgraph.report.wording import outcome

if TYPE_CHECKING:
    from onnx_subgraph.errors import Span
    from onnx_subgraph.expectation.expectation import Section
    from onnx_subgraph.report.entry import Entry


def commands(entries: Sequence[Entry], unused: Iterable[Section] = (), workspace: Path | None = None) -> Iterator[str]:
    """One workflow command a line. unused: sections without a model in the run. workspace: the root of the repository."""
    for entry in entries:
        model = _file(str(entry.model), workspace)
        if entry.result is None:
            yield _command("error", {"file": model, "title": f"{entry.model}: {entry.outcome}"}, entry.error)
            continue
        verdict = entry.result.verdict
        if verdict.verdict == "different" or entry.code == 2:
            said = outcome(verdict.worst) if verdict.worst is not None else verdict.reason
            yield _command("error", {"file": model, "title": f"{entry.model}: {entry.outcome}"}, said)
        for undone in entry.result.undone:
            level = "error" if entry.strict else "warning"
            yield _command(level, {"file": model, "title": f"{entry.model}: {undone.rewrite.pattern}"}, sentence(undone))
        for notice in notices(entry.result):
            if notice.kind == "bug":
                yield _command("warning", {"file": model, "title": f"{entry.model}: bug in onnx-subgraph"}, notice.sentence)
        for check in entry.missed:
            place = _place(check.span, workspace)
            yield _command("error", {**place, "title": f"{entry.model}: {check.what}"}, "\n".join([str(check), *check.reasons]))
    for section in unused:
        title = f"{section.model}: not in this run"
        yield _command(
            "warning", {**_place(section.span, workspace), "title": title}, "expected, but no model of the run has this name"
        )


def _place(span: Span, workspace: Path | None) -> dict[str, str]:
    end = span.column + span.length
    return {"file": _file(span.file, workspace), "line": str(span.line), "col": str(span.column), "endColumn": str(end)}


def _file(path: str, workspace: Path | None) -> str:
    """`path` relative to the root of the repository, as GitHub needs it, if it is inside."""
    whole = Path(os.path.abspath(path))  # noqa: PTH100  (a link is annotated, not its target)
    return whole.relative_to(workspace).as_posix() if workspace is not None and whole.is_relative_to(workspace) else path


def _command(level: str, properties: Mapping[str, str], message: str) -> str:
    written = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{level} {written}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
