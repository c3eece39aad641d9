"""`onnx-subgraph explain`: what matched in a model, what nearly did, and why it did not.

Nothing is written and nothing is verified. A near miss is the furthest that a pattern got from one place of the model: the part
of the pattern that failed, the node where it failed, and what was expected and found there.
"""

from __future__ import annotations

from pathlib import Path

import click

from onnx_subgraph.cli.options import check_ids, json_option, patterns_option


@click.command(short_help="Say what matched, what nearly did, and why not.")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("pattern", required=False)
@click.option("--node", metavar="NAME", help="Only what has to do with the node of this name.")
@patterns_option
@json_option
def explain(model: Path, pattern: str | None, node: str | None, patterns: tuple[Path, ...], as_json: bool) -> int:
    """Say what matched in MODEL, what nearly did, and why it did not; for all patterns or for PATTERN."""
    from onnx_subgraph import pipeline
    from onnx_subgraph.cli.terminal import progress, show, show_json
    from onnx_subgraph.language.library import load_patterns
    from onnx_subgraph.report import json, text
    from onnx_subgraph.report.selection import about

    library = load_patterns(patterns)
    if pattern is not None:
        check_ids([pattern], library)
    options = pipeline.Options(only=(pattern,) if pattern else (), dry_run=True, verify=False)
    with progress() as say:
        say(f"{model}: find")
        result = pipeline.explain(model, library, options)
    result = about(result, pattern=pattern, node=node)
    if as_json:
        show_json(json.explanation(result))
    else:
        show(text.explanation(result))
    return 0
