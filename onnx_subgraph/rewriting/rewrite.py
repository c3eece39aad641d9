"""The results of rewriting: `Rewrite` for a committed replacement, `Skip` for a match that was not replaced, and their keys."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from onnx_subgraph.rewriting.excerpt import Excerpt
from onnx_subgraph.rewriting.lines import MatchedLine


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pattern matched; the names do not depend on which other matches are replaced.

    scope: the subgraph or function, "" for the main graph. results: the names of the values that the match provides.
    """

    pattern: str
    scope: str
    results: tuple[str, ...]


Way = tuple[str, str]
"""How a match is replaced: the main operator of the replacement, and the file of its lowering, as in `Rewrite`."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One committed replacement.

    pattern: its id. op: the main operator of the replacement, such as `com.microsoft.Gelu`. node: the name of that node.
    replaces: the names of the nodes removed, in topological order. added: how many nodes were added.
    assumes: what the pattern assumes (`finite`), for the report. body: whether the operator is a model-local function.
    attributes: those of the main node that are one number or one string, by name.
    before, after: excerpts of the nodes removed and added; None where not requested. lines: the lines of the formula that
    matched, with the steps of `before` that compute them; empty where not requested. root: the name of the last matched node.
    place: the key of the rewrite, the same in every run.
    lowering: the file of the lowering that it is from, "" where the replacement is the pattern's or the operator's own.
    """

    pattern: str
    op: str
    node: str
    replaces: tuple[str, ...]
    added: int
    assumes: frozenset[str] = frozenset()
    body: bool = False
    attributes: tuple[tuple[str, int | float | str], ...] = ()
    before: Excerpt | None = None
    after: Excerpt | None = None
    lines: tuple[MatchedLine, ...] = ()
    root: str = ""
    place: Place = Place("", "", ())
    lowering: str = ""

    @property
    def way(self) -> Way:
        """How the match is replaced."""
        return self.op, self.lowering


@dataclass(frozen=True, slots=True)
class Bug:
    """A bug of this tool: an unexpected exception while a replacement was planned. error: in one line.

    trace: the full traceback.
    """

    error: str
    trace: str

    @classmethod
    def of(cls, error: Exception) -> Bug:
        """The bug that raised `error`, with its location in this package."""
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "onnx_subgraph" in Path(frame.filename).parts]
        place = f" at {Path(*_inside(frames[-1].filename))}:{frames[-1].lineno}" if frames else ""
        message = f"{type(error).__name__}: {error}".splitlines()[0]
        return cls(f"{message}{place}", "".join(traceback.format_exception(error)))


def _inside(file: str) -> tuple[str, ...]:
    """The path of a file relative to the parent of this package."""
    parts = Path(file).parts
    return parts[len(parts) - parts[::-1].index("onnx_subgraph") - 1 :]


@dataclass(frozen=True, slots=True)
class Skip:
    """A match that was found and not replaced.

    node: the name of its last node. opset: the opset that it needs, or None.
    change: the smallest change that would allow the replacement, in words; "" where none is known.
    results: the names of the values that the match provides. bug: the bug of this tool that prevented the plan, or None.
    winners: the patterns that took its nodes.
    replaced: whether the match was replaced in another way than the one that this skip is about. lowering: the file of that one.
    unloadable: whether a provider does not load a replacement. needless: whether the providers run what is matched as it is.
    was_wrong: whether a replacement was made before and was wrong.
    """

    pattern: str
    node: str
    reason: str
    opset: int | None = None
    change: str = ""
    results: tuple[str, ...] = ()
    bug: Bug | None = None
    winners: tuple[str, ...] = ()
    replaced: bool = False
    lowering: str = ""
    unloadable: bool = False
    needless: bool = False
    was_wrong: bool = False


def taken(pattern: str, node: str, winners: Iterable[str]) -> Skip:
    """The skip of a match whose nodes were taken by other patterns, which have precedence or are larger."""
    names = tuple(winners)
    change = f"leave the other out: --skip {','.join(names)}"
    return Skip(pattern, node, f"taken by {' and '.join(names)}", change=change, winners=names)
