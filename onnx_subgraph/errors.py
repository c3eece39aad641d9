"""Every error that a user can cause, with its place and the next step.

There is one root exception, so that the command line catches one type. A `Span` is a place in a text file; an error with a span
prints the line with a caret under the place. An error says what is wrong, where, and what to do next (`hint`).
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Span:
    """A place in a text file: 1-based `line` and `column`, and the number of columns it covers.

    `text` is the whole source line, so that the caret can be drawn later without the file.
    """

    file: str
    line: int
    column: int
    length: int = 1
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def caret(self) -> str:
        """The source line with carets under the place: two lines, no newline at the end."""
        width = max(1, min(self.length, len(self.text) - self.column + 1))
        number = str(self.line)
        return f"{number} | {self.text}\n{' ' * len(number)} | {' ' * (self.column - 1)}{'^' * width}"


def as_raised(error: BaseException) -> str:
    """An exception of other code in words, with the place: `KeyError: 'tiles' at selectors.py:12`.

    The place is in the first file of the traceback outside this package, at its last executed line.
    """
    ours, places = Path(__file__).parent, traceback.extract_tb(error.__traceback__)
    theirs = next((place.filename for place in places if not Path(place.filename).is_relative_to(ours)), None)
    line = next((place.lineno for place in reversed(places) if place.filename == theirs), None)
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return said if theirs is None else f"{said} at {theirs}:{line}"


class OnnxSubgraphError(Exception):
    """The root of all errors that a user can cause and fix. The command line prints it and exits with 2."""

    def __init__(self, message: str, *, span: Span | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.span = span
        self.hint = hint

    def __str__(self) -> str:
        lines = [self.message if self.span is None else f"{self.span}: {self.message}"]
        if self.span is not None and self.span.text:
            lines.append(self.span.caret())
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)


class ModelError(OnnxSubgraphError):
    """A model that can't be read or written, or is not well-formed."""


class PatternError(OnnxSubgraphError):
    """A pattern file or pack with a mistake in it."""


class ExpectationError(OnnxSubgraphError):
    """An expectation file with a mistake in it, or without a section for a model of the run."""


class UsageError(OnnxSubgraphError):
    """Options that don't fit together, the model or this machine (an unknown provider, feeds that don't fit)."""


class TimeLimitError(OnnxSubgraphError):
    """A command that took longer than its user allows."""


class SessionError(OnnxSubgraphError):
    """A model that could not be prepared for a session. Raised if strict; else the unmodified model is used."""


class EngineError(OnnxSubgraphError):
    """A backend that failed to run its region. Raised if strict; else onnxruntime runs it."""


class KernelError(OnnxSubgraphError):
    """A library of kernels that can't be built or loaded."""


class OnnxSubgraphWarning(UserWarning):
    """A failure after which the unmodified model, or region, is used."""


@contextmanager
def about(file: Path) -> Iterator[None]:
    """Within the block, the message of a UsageError begins with the name of the file."""
    try:
        yield
    except UsageError as error:
        error.message = f"{file}: {error.message}"
        raise
