"""`onnx-subgraph new-pattern`: writes a pattern file from places of a model, generalised, and proves it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from onnx_subgraph.cli.models import Models, models_argument
from onnx_subgraph.cli.options import json_option, patterns_option, time_limit_option, verbose_option
from onnx_subgraph.errors import UsageError


@click.command("new-pattern", short_help="Write a pattern file from places of a model.")
@models_argument
@click.option(
    "--mined", type=click.IntRange(min=1), metavar="RANK", help="From the unit of this rank that `mine` finds in the MODELs."
)
@click.option("--from", "first", metavar="NODE", help="From the nodes between this one and --to, both included.")
@click.option("--to", "last", metavar="NODE", help="The last of the nodes.")
@click.option("--nodes", metavar="NODE,…", help="From the nodes of these names in the first MODEL.")
@click.option("--scope", metavar="MODULE", help="From a module that the exporter recorded; * stands for any part of a name.")
@click.option("--id", "identity", required=True, metavar="ID", help="The id of the pattern.")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.yaml",
    help="The file to write, which must not exist; its stem is the id with _ for -.",
)
@patterns_option
@time_limit_option
@verbose_option
@json_option
def new_pattern(
    models: Models,
    mined: int | None,
    first: str | None,
    last: str | None,
    nodes: str | None,
    scope: str | None,
    identity: str,
    output: Path,
    patterns: tuple[Path, ...],
    time_limit: float,
    as_json: bool,
) -> int:
    """Write a pattern file from a place of MODEL, or from all places of a mined unit, and prove it.

    Numbers that differ from place to place become names, axes have any size, and values that other nodes read are results. The
    file gives the reason for each choice. It is written even if its proof fails: the exit code is then 1.
    """
    from onnx_subgraph.authoring.author import new_pattern as run
    from onnx_subgraph.authoring.choosing import Chosen
    from onnx_subgraph.cli.terminal import progress, show, show_json
    from onnx_subgraph.deadline import within
    from onnx_subgraph.files.atomic import check_target, written_whole
    from onnx_subgraph.language.library import load_patterns
    from onnx_subgraph.report import authored as text

    ways = (mined is not None, first is not None or last is not None, nodes is not None, scope is not None)
    if sum(ways) != 1 or (first is None) != (last is None):
        raise UsageError(
            "say once what the pattern is written from",
            hint="--mined RANK, --from NODE --to NODE, --nodes NODE,… or --scope MODULE",
        )
    if output.exists():
        raise UsageError(f"{output} is there already, and is not overwritten", hint="name another file, or remove it")
    if output.stem != identity.replace("-", "_") or output.suffix not in (".yaml", ".yml"):
        raise UsageError(f"{output} is not the file of {identity!r}", hint=f"name it {identity.replace('-', '_')}.yaml")
    check_target(output, never=models.paths)
    names = tuple(name.strip() for name in (nodes or "").split(",") if name.strip())
    chosen = Chosen(mined or 0, first or "", last or "", names, scope or "")
    library = load_patterns(patterns)
    work = partial(run, models.paths, chosen, identity, output, library)
    with progress() as say:
        made = within(time_limit, work, say, "--time-limit gives more time")
    with written_whole(output) as (file,):
        file.write(made.text.encode())
    if as_json:
        show_json(text.as_json(made, output))
    else:
        show(text.as_text(made, output))
    return 0 if made.holds else 1
