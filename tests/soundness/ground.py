"""A model on which a law is tried, and the commands that run on it: `Ground`."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import onnx

from onnx_subgraph.cli import main
from tests.soundness import judge
from tests.soundness.graphs import Case
from tests.soundness.growth import Array

SCHEMA = Path(__file__).parents[2] / "docs" / "report.schema.json"


class BrokenError(Exception):
    """A law that does not hold, in words."""


@dataclass(frozen=True, slots=True)
class Ground:
    """A case, the file with its model, and a folder for what the commands write."""

    case: Case
    model: Path
    folder: Path

    def run(self, *arguments: object, codes: tuple[int, ...] = (0,)) -> tuple[int, str]:
        """Run a command; its exit code and standard output. Raises BrokenError for another exit code, or an internal error."""
        code, out, err = ran(*arguments)
        if code not in codes or "This is a bug in" in err:
            raise BrokenError(f"`{_line(arguments)}` exits with {code}: {(err.strip() or out.strip())[-600:]}")
        return code, out

    def answer(self, *arguments: object, codes: tuple[int, ...] = (0,)) -> tuple[int, Any]:
        """Run a command with --json. Its answer is valid for the schema, and nothing else is printed."""
        code, out = self.run(*arguments, "--json", codes=codes)
        if code == 2 and not out:
            return code, None  # a message on standard error says why
        try:
            answer = json.loads(out, parse_constant=_no_number)
        except json.JSONDecodeError:
            raise BrokenError(f"`{_line(arguments)}` exits with {code} and prints no JSON: {out[:300]!r}") from None
        error = next(_schema().iter_errors(answer), None)
        if error is not None:
            raise BrokenError(f"`{_line(arguments)}`: the JSON is not as its schema says: {error.message[:300]}")
        return code, answer

    def written(self, *arguments: object) -> Any:
        """The answer of a command that writes a model; None where the verdict is that it could not tell.

        Raises BrokenError for a verdict against the result, unless onnxruntime's optimisation changes the original itself.
        """
        code, answer = self.answer(*arguments, codes=(0, 1, 2))
        if code == 1 and not judge.Judge(self.case.model, self.case.feeds).breaks_when_optimised():
            raise BrokenError(f"`{_line(arguments)}`: {json.dumps(answer['verification'])[:600]}")
        return None if code else answer

    def computes_the_same(self, written: Path, feeds: tuple[Mapping[str, Array], ...] | None = None) -> None:
        """Raises BrokenError unless the written model is valid and computes what the original does on the feeds."""
        made = onnx.load(written)
        problem = judge.problem(made)
        if problem is None:
            problem = judge.Judge(self.case.model, self.case.feeds if feeds is None else feeds).difference(made)
        if problem is not None:
            raise BrokenError(f"{written.name}: {problem}")


def ran(*arguments: object) -> tuple[int, str, str]:
    """Run a command line in this process: its exit code and both outputs."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = main([str(argument) for argument in arguments])
    return code, out.getvalue(), err.getvalue()


def piped(data: bytes, *arguments: object) -> tuple[int, bytes, str]:
    """The same with bytes as standard input; what comes out is bytes, too."""
    read, out, err, before = io.TextIOWrapper(io.BytesIO(data)), io.TextIOWrapper(io.BytesIO()), io.StringIO(), sys.stdin
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sys.stdin = read
        try:
            code = main([str(argument) for argument in arguments])
        finally:
            sys.stdin = before
    out.flush()
    return code, out.buffer.getvalue(), err.getvalue()  # type: ignore[attr-defined]


def _line(arguments: tuple[object, ...]) -> str:
    return " ".join(map(str, arguments))


def _no_number(word: str) -> float:
    raise BrokenError(f"the JSON has {word}, which is no number of JSON")


@cache
def _schema() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
