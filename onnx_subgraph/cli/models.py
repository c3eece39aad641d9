"""Names of models, for every command that takes many: files, folders, globs, and lists of all of these.

A folder stands for the `*.onnx` below it, sorted. A glob that the shell did not expand is expanded here. `@FILE` is a list, one
entry a line. These words stand for several models, even if they find only one.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from onnx_subgraph.cli.streams import MODEL
from onnx_subgraph.errors import UsageError

Command = TypeVar("Command", bound=Callable[..., Any])

SUFFIX = ".onnx"
LIST = "@"
"""The prefix of a list."""
COMMENT = "#"
ANY_DEPTH = "**"
"""The part of a glob for any number of folders."""


class Named(NamedTuple):
    """A model file. below: its path in an output folder: its name, or its path relative to the searched folder. found: whether a
    search found it.
    """

    path: Path
    below: Path
    found: bool = False

    @property
    def root(self) -> Path:
        """The folder that it was found in."""
        return self.path.parents[len(self.below.parts) - 1]


@dataclass(frozen=True, slots=True)
class Models:
    """The models of a command. several: whether it may be more than one, so that the answer has the form for many."""

    named: tuple[Named, ...]
    several: bool

    @property
    def paths(self) -> tuple[Path, ...]:
        """Their files, in order."""
        return tuple(one.path for one in self.named)

    @property
    def below(self) -> tuple[Path, ...]:
        """Their paths in an output folder, in order."""
        return tuple(one.below for one in self.named)

    def only(self, paths: Collection[Path]) -> Models:
        """The models whose file is among `paths`."""
        return replace(self, named=tuple(one for one in self.named if one.path in paths))


def models_argument(command: Command) -> Command:
    """`MODEL...`: one word or more, as `Models`."""
    return click.argument("models", metavar="MODEL...", nargs=-1, required=True, type=MODEL, callback=_of_words)(command)


def model_argument(command: Command) -> Command:
    """`MODEL`: one word, as `Models`."""
    return click.argument("models", metavar="MODEL", type=MODEL, callback=_of_word)(command)


def _of_words(context: click.Context, parameter: click.Parameter, words: Sequence[Path]) -> Models | None:
    return None if context.resilient_parsing else find_models(words)


def _of_word(context: click.Context, parameter: click.Parameter, word: Path) -> Models | None:
    return None if context.resilient_parsing else find_models([word])


def find_models(words: Sequence[Path]) -> Models:
    """The models that words name, in order, each file once.

    Raises UsageError for a folder or a list without models, and for a list that can't be read.
    """
    named: list[Named] = []
    seen: set[Path] = set()
    for word in words:
        for one in _named(word):
            # A link keeps its own name: in a cache it leads to a checksum.
            place = Path(os.path.realpath(one.path.parent)) / one.path.name
            if place not in seen:
                named.append(one)
            seen.add(place)
    return Models(tuple(named), len(words) > 1 or any(one.found for one in named))


def _named(word: Path) -> list[Named]:
    if _is_list(word):
        return list(_listed(Path(str(word).removeprefix(LIST))))
    if word.is_dir():
        return _in_folder(word)
    if glob.has_magic(str(word)) and not os.path.lexists(word):
        return _globbed(word)
    return [Named(word, Path(word.name))]


def _is_list(word: Path) -> bool:
    return str(word).startswith(LIST) and not os.path.lexists(word)


def _in_folder(folder: Path) -> list[Named]:
    """The models below a folder, except hidden ones: environments hold the test data of onnx itself."""
    found = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(place, name) for name in files if name.endswith(SUFFIX) and not name.startswith(".")]
    if not found:
        raise UsageError(f"{folder}: is a folder without models", hint=f"name one with *{SUFFIX} files in it, at any depth")
    return [Named(path, path.relative_to(folder), found=True) for path in sorted(found)]


def _globbed(word: Path) -> list[Named]:
    """The files that a glob names. If there is none, the glob is a missing file, as for a shell, and fails as one."""
    fixed = next(number for number, part in enumerate(word.parts) if glob.has_magic(part))
    root = Path(*word.parts[:fixed])
    paths = sorted(set(_expanded(root, word.parts[fixed:])))
    found = [Named(path, path.relative_to(root), found=True) for path in paths if not path.is_dir()]
    return found or [Named(word, Path(word.name))]


def _expanded(folder: Path, parts: Sequence[str]) -> Iterator[Path]:
    """What the parts of a glob name below a folder. `**` is searched as a folder is: without links, which may lead back."""
    if ANY_DEPTH not in parts:
        names = glob.glob(str(Path(*parts)), root_dir=folder)  # noqa: PTH207 - `Path.glob` shows hidden files
        yield from (folder / name for name in names)
        return
    at = parts.index(ANY_DEPTH)
    for top in _expanded(folder, parts[:at]) if at else [folder]:
        for place, folders, _ in os.walk(top):
            folders[:] = [name for name in folders if not name.startswith(".")]
            yield from _expanded(Path(place), parts[at + 1 :] or ["*"])


def _listed(file: Path) -> Iterator[Named]:
    """The models of a list. Entries are relative to its folder, and keep their relative paths."""
    entries = [line.strip() for line in _lines(file)]
    entries = [entry for entry in entries if entry and not entry.startswith(COMMENT)]
    if not entries:
        raise UsageError(f"{file}: is a list without models", hint="write one path, folder or glob a line")
    for entry in entries:
        if entry.startswith(LIST):
            raise UsageError(f"{file}: the entry {entry} is a list itself", hint="write its entries into this one")
        for one in _named(file.parent / entry):
            yield Named(one.path, _below(one, file.parent), found=True)


def _below(one: Named, folder: Path) -> Path:
    try:
        below = one.path.relative_to(folder)
    except ValueError:
        return one.below
    return one.below if ".." in below.parts else below


def _lines(file: Path) -> Iterable[str]:
    try:
        return file.read_text(encoding="utf-8-sig", errors="surrogateescape").splitlines()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}", hint=f"{LIST}FILE is a list of models, one a line") from error
