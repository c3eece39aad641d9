"""`--resume`: skips models that an earlier run of the same command has fused, if nothing has changed since.

A run over several models stores a note in the cache for each model that it has written, as soon as it is done: a key, the digest
of the output, and the report. The key covers, by content, the model with its data, the options and the files that they name,
patterns, versions, libraries and the machine. A note with another key is not found. A note whose output has changed is ignored.
So everything that could differ is made again.
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
"""Increase this when the content of a note changes its meaning."""
NOTES, FILES = "runs", "files"
"""The cache folders of the notes and of remembered digests."""

Object = dict[str, Any]


def check_resumable(others: Mapping[str, object]) -> None:
    """Raises UsageError if one of the `others` is an option that needs the results of all models, not their reports."""
    given = [name for name, value in others.items() if value]
    if given:
        raise UsageError(
            f"{given[0]} needs the results of all models, but --resume leaves some out", hint="leave one of the two options out"
        )


class Notes:
    """The notes of earlier runs, and of this one. Without a cache nothing is stored or found.

    Create it before reading anything that the key covers: later changes are then detected.
    """

    def __init__(self, target: str, patterns: tuple[Path, ...], libraries: tuple[Path, ...]) -> None:
        unset = {name for name in os.environ if name.startswith(PREFIX)} - {f"{PREFIX}CACHE"}
        cache = SessionSettings.of_environment({name: os.environ[name] for name in os.environ.keys() - unset}).cache
        folder = None if cache is None else Path(cache)
        self.kept = folder is not None
        self._begun = time.time()
        self._notes = Memory(None if folder is None else folder / NOTES)
        self._files = Memory(None if folder is None else folder / FILES)
        # the verdict depends on the machine, as a measurement does
        settings = SessionSettings(target=target, patterns=patterns, libraries=libraries, measure=True, cache=None)
        python = [platform.python_version(), *(metadata.version(name) for name in ("numpy", "ml_dtypes"))]
        own = [file for place in with_names_resolved(patterns) for file in sources(place)]  # a process may have more than one run
        digests = [self._files.file(file) for file in own]
        self._common = [FORMAT, *python, *digests, ingredients(settings, self._files)] if self.kept else []

    def find(self, task: Task) -> Object | None:
        """The report of the run that did this task, if its output is unchanged."""
        with suppress(OSError, OnnxSubgraphError):
            note = self._notes.recall("fused", self._key(task))
            report = note.get("report")
            if isinstance(report, dict) and note.get("output") == self._files.model(task.output):
                return report
        return None

    def keep(self, task: Task, report: Object) -> None:
        """Stores a note for a task, if none of its files has changed since the start, and nothing was measured."""
        with suppress(OSError, OnnxSubgraphError):  # a note that can't be written only costs time later
            if self.kept and task.tune is None and all(self._is_older(path) for path in self._read_by(task)):
                self._notes.remember("fused", self._key(task), {"output": self._files.model(task.output), "report": report})

    def _key(self, task: Task) -> str:
        """A digest of everything that affects the output and the report. Raises OSError, OnnxSubgraphError."""
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
