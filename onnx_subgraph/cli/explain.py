"""`onnx-subgraph explain`: what matched in a model, what nearly did, and why it did not.

Nothing is written and nothing is verified. A near miss is the furthest that a pattern got from one place of the model: the part
of the pattern that failed, the node where it failed, what was expected and found there, and the smallest change that would do.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onnx_subgraph.cli.ids import current_ids
from onnx_subgraph.cli.options import (
    complete_ids,
    constant_initializers_option,
    json_option,
    libraries_option,
    patterns_option,
    prefer_option,
    time_limit_option,
    verbose_option,
)
from onnx_subgraph.cli.streams import MODEL
from onnx_subgraph.errors import UsageError

if TYPE_CHECKING:
    from onnx_subgraph.result import FuseResult


@click.command(short_help="Say what matched, what nearly did, and why not.")
@click.argument("model", type=MODEL)
@click.argument("pattern", required=False, shell_complete=complete_ids)
@click.option("--node", metavar="NAME", help="Only what has to do with the node of this name.")
@patterns_option
@libraries_option
@prefer_option
@constant_initializers_option
@time_limit_option
@verbose_option
@json_option
def explain(
    model: Path,
    pattern: str | None,
    node: str | None,
    patterns: tuple[Path, ...],
    libraries: tuple[Path, ...],
    prefer: str,
    constant_initializers: bool,
    time_limit: float,
    as_json: bool,
) -> int:
    """Say what matched in MODEL, what nearly did, why it did not, and what would have to change.

    Without PATTERN and --node it tells of what came most of the way to a match, with PATTERN of what came
    furthest; with --node, and with --json, of all.
    """
    from onnx_subgraph import explaining
    from onnx_subgraph.cli.terminal import progress, show, show_json
    from onnx_subgraph.deadline import within
    from onnx_subgraph.language.library import load_patterns
    from onnx_subgraph.options import Options
    from onnx_subgraph.report import json, text
    from onnx_subgraph.report.relevance import absence, answering, asked, unfused
    from onnx_subgraph.report.selection import about

    library = load_patterns(patterns)
    if pattern is not None:
        (pattern,) = current_ids([pattern], library)
    only = (pattern,) if pattern else ()
    # A region becomes a function and nothing else: asked about one, we don't answer that the target is another.
    target = "function" if pattern and library.get(pattern).grow else "onnxruntime"
    options = Options(
        target,
        prefer=prefer,
        only=only,
        dry_run=True,
        verify=False,
        constant_initializers=constant_initializers,
        libraries=libraries,
    )
    hint = "PATTERN asks about one pattern only, --time-limit gives more time"
    explained = partial(explaining.explain, model, library, options)
    with progress() as say:
        result = within(time_limit, explained, lambda stage: say(f"{model}: {stage}"), hint)
    if node is not None:
        _check_node(node, result)
    result = unfused(about(result, pattern=pattern, node=node))
    if as_json:
        show_json(json.explanation(result))
        return 0
    if pattern is None:
        told, why = answering(result, library) if node is None else result, ""
    else:
        told = asked(result, library.get(pattern)) if node is None else result
        why = absence(result, library.get(pattern), library) if node is None else ""
    hidden = len(result.near_misses) - len(told.near_misses)
    show(text.explanation(told, hidden=hidden, pattern=pattern or "", absence=why))
    return 0


def _check_node(name: str, result: FuseResult) -> None:
    """Raises UsageError, with the nearest name as a hint, where neither the model nor what it becomes has a node `name`."""
    from onnx_subgraph.language import spelling
    from onnx_subgraph.model.files import load

    model = load(result.model)
    nodes = [*model.graph.all_nodes(), *(node for function in model.functions.values() for node in function.all_nodes())]
    # A node without a name is called by what it makes.
    known = {node.name or node.outputs[0].name or "" for node in nodes if node.name or node.outputs}
    known |= {rewrite.node for rewrite in result.rewrites}
    if name not in known:
        hint = spelling.hint(name, sorted(known - {""}), "`onnx-subgraph explain MODEL` names nodes where something matched")
        raise UsageError(f"{result.model} has no node {name!r}", hint=hint)
