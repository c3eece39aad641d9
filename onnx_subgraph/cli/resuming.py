"""`--resume`: models that an earlier run of the same command has fused, and that nothing has changed since.

Of every model that a run over several has fused and written, a note is kept in the cache, as soon as it is done: what it was made
of, the digest of what was written, and the report. What it was made of is, by content: the model with its data, the options and
the files that they name, patterns, versions, libraries and the machine. A note of anything else is not found, and one whose
output is not what was written counts for nothing. So whatever could be different is made again.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnx_subgraph.errors import OnnxSubgraphError, UsageError
from onnx_subgraph.language.installed import with_names_resolved
from onnx_subgraph.session.digest import Memory, digest_of, sources
from onnx_subgraph.session.ingredients import ingredients
from onnx_subgraph.session.settings import PREFIX, SessionSettings

if TYPE_CHECKING:
    from onnx_subgraph.cli.batch import Task

FORMAT = "1"
"""Changes whenever what a note means changes."""
NOTES, FILES = "runs", "files"
"""The folders of the notes and of remembered digests, in the cache."""

Object = dict[str, Any]


def check_resumable(resume: bool, others: Mapping[str, object]) -> None:
    """Raises UsageError where an option among `others` is given that needs the results of all models, not their reports."""
    given = [name for name, value in others.items() if value]
    if resume and given:
        raise UsageError(
            f"--resume leaves models out that {given[0]} would have to tell of", hint="leave one of the two options out"
        )


class Notes:
    """What earlier runs have done, and this one does. Where there is no cache, nothing is kept, and nothing is found.

    It is made before anything is read that decides: what changes after that is not what a note says.
    """

    def __init__(self, target: str, patterns: tuple[Path, ...], libraries: tuple[Path, ...]) -> None:
        unset = {name for name in os.environ if name.startswith(PREFIX)} - {f"{PREFIX}CACHE"}
        cache = SessionSettings.of_environment({name: os.environ[name] for name in os.environ.keys() - unset}).cache
        folder = None if cache is None else Path(cache)
        self.kept = folder is not None
        self._begun = time.time()
        self._notes = Memory(None if folder is None else folder / NOTES)
        self._files = Memory(None if folder is None else folder / FILES)
        # the machine decides what a verdict rests on, as it decides what a measurement does
        settings = SessionSettings(target=target, patterns=patterns, libraries=libraries, measure=True, cache=None)
        python = [platform.python_version(), *(metadata.version(name) for name in ("numpy", "ml_dtypes"))]
        own = [file for place in with_names_resolved(patterns) for file in sources(place)]  # a process may have more than one run
        digests = [self._files.file(file) for file in own]
        self._common = [FORMAT, *python, *digests, ingredients(settings, self._files)] if self.kept else []

    def find(self, task: Task) -> Object | None:
        """The report of the run that has done this task, where its output is still what was written."""
        with suppress(OSError, OnnxSubgraphError):
            note = self._notes.recall("fused", self._key(task))
            report = note.get("report")
            if isinstance(report, dict) and note.get("output") == self._files.model(task.output):
                return report
        return None

    def keep(self, task: Task, report: Object) -> None:
        """Notes down what was made of a task, where none of its files has changed since this began, and it measured nothing."""
        with suppress(OSError, OnnxSubgraphError):  # a note that can't be written costs time, nothing else
            if self.kept and task.tune is None and all(self._is_older(path) for path in self._read_by(task)):
                self._notes.remember("fused", self._key(task), {"output": self._files.model(task.output), "report": report})

    def _key(self, task: Task) -> str:
        """A digest of all that decides what is written, and what is reported of it. Raises OSError, OnnxSubgraphError."""
        options = task.options
        inputs = "" if options.inputs is None else self._files.file(Path(options.inputs))
        names = [str(path) for path in (task.model, task.output, task.model.resolve(), task.output.resolve())]
        return digest_of([*self._common, *names, self._files.model(task.model), inputs, repr(options)])

    def _read_by(self, task: Task) -> list[Path]:
        inputs = [] if task.options.inputs is None else [Path(task.options.inputs)]
        return [task.model, *inputs, *(task.model.parent / name for name in self._files.locations(task.model))]

    def _is_older(self, path: Path) -> bool:
        state = path.stat()
        return max(state.st_mtime, state.st_ctime) < self._begun
