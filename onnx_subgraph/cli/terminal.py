"""The output of commands: rich consoles for standard output and standard error.

Standard output has colour only on a terminal (rich honours NO_COLOR). In a file or a pipe its lines are not cut to 80 columns, so
that a CI log can be searched. Progress is shown only if standard error is a terminal.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import click

from onnx_subgraph.cli import last_words
from onnx_subgraph.cli.failure import DEBUG
from onnx_subgraph.cli.interrupt import check
from onnx_subgraph.cli.options import VERBOSITY
from onnx_subgraph.cli.streams import is_sent, naming

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

LOG_WIDTH = 160
"""Columns if standard output is no terminal and COLUMNS is not set."""


def show(answer: RenderableType, *, good: bool = False) -> None:
    """Prints `answer` for a person, on standard output. good: all is well, so `--quiet` omits it."""
    from rich.console import Console

    if good and _verbosity() == "quiet":
        return
    if sys.stdout.isatty() and not is_sent():
        Console(markup=False, highlight=False, emoji=False).print(answer)
        return
    width = None if "COLUMNS" in os.environ else LOG_WIDTH
    console = Console(markup=False, highlight=False, emoji=False, width=width)
    with console.capture() as capture:
        console.print(answer)
    _print("\n".join(line.rstrip() for line in capture.get().splitlines()))


def show_text(answer: str, *, good: bool = False) -> None:
    """Prints `answer`, plain lines, on standard output. good: as for `show`."""
    if not (good and _verbosity() == "quiet"):
        _print(answer)


def _print(answer: str) -> None:
    """Prints on standard output, or on standard error if a model goes to standard output."""
    click.echo(naming()(answer), err=is_sent())


def _verbosity() -> str:
    context = click.get_current_context(silent=True)
    return "" if context is None else str(context.meta.get(VERBOSITY, ""))


def is_verbose() -> bool:
    """Whether the user asked for details (`--verbose`)."""
    return _verbosity() == "verbose"


def width() -> int:
    """The columns of standard output, or the limit for lines if it is no terminal."""
    return shutil.get_terminal_size((LOG_WIDTH, 24)).columns


def show_json(answer: object) -> None:
    """Prints `answer` as one JSON document, on standard output."""
    _print(json.dumps(answer, indent=2, ensure_ascii=False, allow_nan=False))


def warn(message: str) -> None:
    """Prints `message` on standard error."""
    click.echo(naming()(message), err=True)


def quiet_libraries() -> None:
    """Keeps libraries' log messages off standard error, which is for progress and errors."""
    if not os.environ.get(DEBUG):
        import logging

        logging.lastResort = logging.NullHandler()  # with None, Python prints that there is no handler


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A function that shows the current stage: as lines with `--verbose`, not at all if no terminal would show it.

    If the process is ended inside, the stage is said (`last_words`). The function raises Interrupt if Python ignored a ^C.
    """
    quiet_libraries()
    name, begun = naming(), time.monotonic()

    def say(stage: str) -> None:
        check()
        last_words.now(name(stage))
        show_stage(stage)

    with ExitStack() as stack:
        show_stage: Callable[[str], None] = lambda _: None  # noqa: E731
        if is_verbose():
            show_stage = lambda stage: click.echo(f"{time.monotonic() - begun:8.2f} s  {name(stage)}", err=True)  # noqa: E731
        elif sys.stderr.isatty():
            from rich.console import Console

            console = Console(stderr=True, markup=False, highlight=False, emoji=False)
            show_stage = stack.enter_context(console.status("")).update
        stack.callback(last_words.now, "")
        yield say
