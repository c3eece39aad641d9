"""`onnx-subgraph mine`: subgraphs that models repeat and no pattern covers, ranked by cost."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from onnx_subgraph.cli.models import Models, models_argument
from onnx_subgraph.cli.options import json_option, patterns_option, time_limit_option, verbose_option
from onnx_subgraph.cli.streams import WrittenPath


@click.command(short_help="Find repeated subgraphs that no pattern covers.")
@models_argument
@patterns_option
@click.option(
    "--top", type=click.IntRange(min=1), default=10, metavar="N", help="How many units the table shows; --json has all."
)
@click.option("--least", type=click.IntRange(min=1), default=1, metavar="N", help="The fewest times that a unit occurs.")
@click.option("--report", type=WrittenPath(dir_okay=False), metavar="FILE.html", help="Write a page with each unit drawn.")
@click.option(
    "--profile", is_flag=True, help="Run each MODEL, and rank by the measured time of its nodes. Without it nothing is run."
)
@time_limit_option
@verbose_option
@json_option
def mine(
    models: Models,
    patterns: tuple[Path, ...],
    top: int,
    least: int,
    report: Path | None,
    profile: bool,
    time_limit: float,
    as_json: bool,
) -> int:
    """Find the subgraphs that the MODELs repeat and no pattern covers, the largest saving first.

    A MODEL is a file, a folder of them, a glob, or a list, @FILE. All of them are mined together; unreadable ones are left out.

    Two spellings of one formula are one unit. A unit ends at products with weights. Nothing is run: the cost of a unit is an
    estimate from the bytes that its nodes read and write. With --profile onnxruntime runs each MODEL, and the cost is the
    measured time.
    """
    from onnx_subgraph.cli.failure import describe
    from onnx_subgraph.cli.interrupt import Interrupt, was_interrupted
    from onnx_subgraph.cli.terminal import progress, show, show_json, warn
    from onnx_subgraph.deadline import within
    from onnx_subgraph.files.atomic import written_whole
    from onnx_subgraph.language.library import load_patterns
    from onnx_subgraph.mining.mine import mine as run
    from onnx_subgraph.report import many
    from onnx_subgraph.report import mined as text
    from onnx_subgraph.timing.bench import BenchOptions, time_nodes

    _check_page(report, models)
    library = load_patterns(patterns)
    errors: dict[Path, str] = {}

    def failed(model: Path, error: Exception) -> None:
        if was_interrupted():
            raise Interrupt from error
        errors[model] = describe(error)
        warn(f"Error: {errors[model]}")

    measure = partial(time_nodes, options=BenchOptions(threads=1)) if profile else None
    work = partial(run, models.paths, library, least=least, failed=failed if models.several else None, profile=measure)
    with progress() as say:
        found = within(time_limit, lambda tell: work(progress=tell), say, "--time-limit gives more time")
    if report is not None:
        words = text.page(found)
        with written_whole(report) as (file,):
            file.write(words.encode())
    if as_json:
        show_json(text.as_json(found) | {"each": text.each(found, errors)})
    else:
        show(text.as_text(found, top))
        if models.several:
            show(many.mined(text.each(found, errors)))
    return 2 if errors else 0


def _check_page(report: Path | None, models: Models) -> None:
    """Raises UsageError if the page can't be made or written, before any work."""
    if report is None:
        return
    from onnx_subgraph.cli.page import check_folder
    from onnx_subgraph.cli.written import check_written
    from onnx_subgraph.files.atomic import check_target
    from onnx_subgraph.report.html import check_installed

    check_installed()
    check_folder(report.parent, may_be_made=False)
    check_target(report, never=models.paths)
    check_written()
