"""What rewriting yields: a `Rewrite` that was committed, or a `Skip` that says why a match was not; and what names either."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from onnx_subgraph.rewriting.excerpt import Excerpt


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pattern matched, in names that stay the same whichever other matches are replaced.

    scope: the body or function that it is in, "" for the main graph. results: the names of the values that it provides.
    """

    pattern: str
    scope: str
    results: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One committed replacement.

    pattern: its id. op: the operator that stands for the match, `com.microsoft.Gelu`. node: the name of the (first) node added.
    replaces: the names of the nodes removed, in topological order. added: how many nodes were added.
    assumes: what the pattern assumes (`finite`), for the report. body: whether the operator is a model-local function.
    attributes: those of that first node that hold one number or one text, by name.
    before, after: the nodes removed and the nodes added, for a drawing; None where nobody asked for them.
    root: the name of the node at the root of what was replaced. place: what names the rewrite from run to run. lowering: the
    file of the lowering that it is from, "" where it is the pattern's or the operator's own.
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
    root: str = ""
    place: Place = Place("", "", ())
    lowering: str = ""


@dataclass(frozen=True, slots=True)
class Bug:
    """A mistake of this tool: it raised where it planned a replacement. error: in one line. trace: the whole traceback."""

    error: str
    trace: str

    @classmethod
    def of(cls, error: Exception) -> Bug:
        """The mistake that raised `error`, with the place in this package."""
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "onnx_subgraph" in Path(frame.filename).parts]
        place = f" at {Path(*_inside(frames[-1].filename))}:{frames[-1].lineno}" if frames else ""
        message = f"{type(error).__name__}: {error}".splitlines()[0]
        return cls(f"{message}{place}", "".join(traceback.format_exception(error)))


def _inside(file: str) -> tuple[str, ...]:
    """The path of a file of this package, from the package on."""
    parts = Path(file).parts
    return parts[len(parts) - parts[::-1].index("onnx_subgraph") - 1 :]


@dataclass(frozen=True, slots=True)
class Skip:
    """A match that was found and not replaced.

    node: the name of the node at its root. opset: what it would need, or None. change: the smallest change that would let it be
    replaced, in words; "" where none is known. results: the names of the values that the match provides. bug: the mistake of
    this tool that kept a replacement from being planned, or None. winners: the patterns that took its nodes. replaced: whether
    it was replaced all the same, by another replacement than the one that this is about. lowering: the file of that one.
    unloadable: whether a provider does not load a replacement.
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


def taken(pattern: str, node: str, winners: Iterable[str]) -> Skip:
    """A match whose nodes other patterns took, which come first or are larger."""
    names = tuple(winners)
    change = f"leave the other out: --skip {','.join(names)}"
    return Skip(pattern, node, f"taken by {' and '.join(names)}", change=change, winners=names)
