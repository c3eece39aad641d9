"""Where the answer and the progress go: rich consoles for standard output and standard error.

Standard output has colour only on a terminal (rich honours NO_COLOR), and lines that are not cut to 80 columns where it is a file
or a pipe, so that a CI log can be searched. Progress is shown only where standard error is a terminal.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from onnx_subgraph.cli.failure import DEBUG

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

LOG_WIDTH = 160
"""Columns where standard output is no terminal and COLUMNS says nothing."""


def show(answer: RenderableType) -> None:
    """Prints `answer` for a person, on standard output."""
    from rich.console import Console

    if sys.stdout.isatty():
        Console(markup=False, highlight=False, emoji=False).print(answer)
        return
    width = None if "COLUMNS" in os.environ else LOG_WIDTH
    console = Console(markup=False, highlight=False, emoji=False, width=width)
    with console.capture() as capture:
        console.print(answer)
    click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def show_text(answer: str) -> None:
    """Prints `answer`, plain lines, on standard output."""
    click.echo(answer)


def width() -> int:
    """The columns that standard output has, or that its lines may take where it is no terminal."""
    return shutil.get_terminal_size((LOG_WIDTH, 24)).columns


def show_json(answer: object) -> None:
    """Prints `answer` as one JSON document, on standard output."""
    click.echo(json.dumps(answer, indent=2, ensure_ascii=False, allow_nan=False))


def warn(message: str) -> None:
    """Prints `message` on standard error."""
    click.echo(message, err=True)


def quiet_libraries() -> None:
    """Keeps remarks that libraries log for their developers from standard error, which is for progress and errors."""
    if not os.environ.get(DEBUG):
        import logging

        logging.lastResort = None


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Gives a function that shows what is being done now; it shows nothing where standard error is no terminal."""
    quiet_libraries()
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    console = Console(stderr=True, markup=False, highlight=False, emoji=False)
    with console.status("") as status:
        yield status.update
