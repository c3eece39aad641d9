"""`--report`: the HTML page, and its path.

The path, and the packages that the page needs, are checked before the first model is read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from onnx_subgraph.cli.streams import WrittenPath
from onnx_subgraph.errors import UsageError

if TYPE_CHECKING:
    from onnx_subgraph.language.library import Library
    from onnx_subgraph.report.entry import Entry

Command = TypeVar("Command", bound=Callable[..., Any])


def report_option(command: Command) -> Command:
    """`--report`: an HTML page of what was fused."""
    return page_option("a drawing of every fusion, before and after")(command)


def page_option(what: str) -> Callable[[Command], Command]:
    """`--report`: an HTML page with `what`."""
    words = f"Write an HTML page with {what}. For several models, a folder."
    return click.option("--report", type=WrittenPath(), metavar="FILE.html", help=words)


def plan_pages(
    models: Sequence[Path], report: Path | None, outputs: Sequence[Path], below: Sequence[Path] = (), *, several: bool = False
) -> list[Path | None]:
    """The page for each model, None without `--report`; one for each in a folder, if there are several or the folder exists.

    below: the paths in that folder; by default each page has the name of its model. several: whether there may be more than one.
    Raises UsageError if a package is missing, or a page would overwrite another file of the run, or can't be written.
    """
    if report is None:
        return [None] * len(models)
    from onnx_subgraph.report.html import check_installed

    check_installed()
    folder = several or len(models) > 1 or report.is_dir()
    names = below or [Path(model.name) for model in models]
    pages = [report / name.with_name(f"{name.stem}.html") for name in names] if folder else [report]
    taken = {path.resolve() for path in (*models, *outputs)}
    for page in pages:
        if page.resolve() in taken:
            raise UsageError(f"{page} would be written twice, or is read", hint="name another file or folder for the report")
        taken.add(page.resolve())
    check_folder(report if folder else report.parent, may_be_made=folder)
    return list(pages)


def write_page(page: Path, entry: Entry, library: Library, *, hidden: int) -> None:
    """Writes the page of one model, whole or not at all; none for a model that could not be fused.

    hidden: how many near misses the entry omits.
    """
    from onnx_subgraph.report import html

    if entry.result is not None:
        write(page, html.page(entry, library, hidden=hidden))


def write(page: Path, words: str) -> None:
    """Writes a page, whole or not at all."""
    from onnx_subgraph.files.atomic import written_whole

    page.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(page) as (file,):
        file.write(words.encode())


def check_folder(folder: Path, *, may_be_made: bool) -> None:
    """Raises UsageError if no file can be written to `folder`, so that the user learns it before the model is read."""
    there = folder
    while may_be_made and not os.path.lexists(there):
        there = there.parent
    if not there.is_dir():
        what = f"{there} is no folder" if os.path.lexists(there) else f"there is no folder {there}"
        raise UsageError(f"{what}, so nothing can be written to {folder}", hint="make the folder, or name another output")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UsageError(f"the folder {there} can't be written to", hint="name another output")
