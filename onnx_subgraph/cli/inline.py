"""`onnx-subgraph inline`: restores the ordinary nodes of engines and fused functions."""

from __future__ import annotations

from pathlib import Path

import click

from onnx_subgraph.cli.options import json_option, quiet_option, verbose_option
from onnx_subgraph.cli.streams import MODEL, OUTPUT, default_output
from onnx_subgraph.cli.written import check_written


@click.command(short_help="Restore the nodes of engines and fused functions.")
@click.argument("model", type=MODEL)
@click.option(
    "-o",
    "--output",
    type=OUTPUT,
    metavar="OUT",
    show_default="MODEL.inlined.onnx beside MODEL.onnx",
    help="The file to write; - for standard output.",
)
@quiet_option
@verbose_option
@json_option
def inline(model: Path, output: Path | None, as_json: bool) -> int:
    """Write MODEL with every call of a model-local function, engines included, replaced by the function's body.

    It computes the same, and any runtime that has its operators runs it. Nodes that were in an engine get their names back.
    """
    from onnx_subgraph.cli.terminal import progress, show_json, show_text
    from onnx_subgraph.files.atomic import check_target
    from onnx_subgraph.partitioning.inline import inline as run
    from onnx_subgraph.report import regions

    output = output or default_output(model, "inlined")
    check_target(output, never=(model,))
    check_written()
    with progress() as say:
        say(f"{model}: inline")
        result = run(model, output)
    if as_json:
        show_json(regions.inlined_json(result))
    else:
        show_text(regions.inlined_text(result), good=True)
    return 0
