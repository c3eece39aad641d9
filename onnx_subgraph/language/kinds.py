"""What pattern files contain: patterns, canonical operators, and lowerings."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from onnx_subgraph.errors import PatternError, Span
from onnx_subgraph.language.shared import formulas_of
from onnx_subgraph.language.source import Fields, Scalar, read_content

Contents = tuple[tuple[Path, bytes], ...]
"""Files with their contents."""
File = tuple[Path, Fields]


class Kinds(NamedTuple):
    """The contents of files. patterns: also those that share a file."""

    patterns: list[File]
    operators: list[File]
    lowerings: list[File]


def read_kinds(files: Contents) -> Kinds:
    """The contents of files. Raises PatternError, with the place, for a file that is not YAML, and for an id that is taken."""
    found = Kinds([], [], [])
    places: dict[str, Span] = {}
    for path, content in files:
        fields = read_content(content, str(path))
        shared = formulas_of(fields)
        _check_unique((fields, *shared), places)
        if fields.get("operator") is not None:
            found.operators.append((path, fields))
        if fields.get("operator") is not None or fields.get("each") is not None:
            found.patterns.extend((path, one) for one in shared)
        else:
            (found.patterns if fields.get("lowers") is None else found.lowerings).append((path, fields))
    return found


def _check_unique(patterns: Iterable[Fields], places: dict[str, Span]) -> None:
    """Raise PatternError where an id is in `places`. Add the ids to it, with their places."""
    for name in (one.get("id") for one in patterns):
        if not isinstance(name, Scalar):
            continue
        if name.text in places:
            hint = "rename one of the two, file and id"
            raise PatternError(f"the id `{name.text}` is taken by {places[name.text]}", span=name.span, hint=hint)
        places[name.text] = name.span


def named(files: Iterable[File], key: str) -> set[str]:
    """The texts under a key in files."""
    return {name.text for _, fields in files if isinstance(name := fields.get(key), Scalar)}
