"""`onnx-subgraph explain`: what matched in a model, what nearly did, and why it did not.

Writes and verifies nothing. A near miss is the furthest match of a pattern at one place of the model: the part of the pattern
that failed, the node where it failed, what was expected and found there, and the smallest change that would make it match.
"""

from __future__ import annotations

import signal
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import click

from onnx_subgraph.cli.cluster import check_executor, executor_option
from onnx_subgraph.cli.ids import current_ids
from onnx_subgraph.cli.job import Say, absolute_options, read_by
from onnx_subgraph.cli.models import Models, model_argument
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
from onnx_subgraph.cli.page import page_option, plan_pages
from onnx_subgraph.cli.written import check_written
from onnx_subgraph.errors import UsageError

if TYPE_CHECKING:
    from onnx_subgraph.language.library import Library
    from onnx_subgraph.options import Options
    from onnx_subgraph.report.json import Object
    from onnx_subgraph.result import FuseResult


@click.command(short_help="Show matches and near matches, with the reasons.")
@model_argument
@click.argument("pattern", required=False, shell_complete=complete_ids)
@click.option("--node", metavar="NAME", help="Show only what concerns the node of this name.")
@patterns_option
@libraries_option
@prefer_option
@constant_initializers_option
@click.option("-j", "--jobs", type=click.IntRange(min=1), default=1, metavar="N", help="How many models to explain at a time.")
@executor_option
@time_limit_option
@page_option("the places where a pattern came nearest, the lines that matched there, and the line that fails")
@verbose_option
@json_option
def explain(
    models: Models,
    pattern: str | None,
    node: str | None,
    patterns: tuple[Path, ...],
    libraries: tuple[Path, ...],
    prefer: str,
    constant_initializers: bool,
    jobs: int,
    executor: str | None,
    time_limit: float,
    report: Path | None,
    as_json: bool,
) -> int:
    """Show the matches in MODEL, and the near matches with the reason and the change that would help.

    MODEL is a file, a folder of models, a glob, or a list, @FILE; a table then summarizes the models. Without PATTERN and
    --node it shows the patterns that came closest to a match; with PATTERN, the places where it came furthest; with --node or
    --json, all.
    """
    check_executor(executor, jobs)
    pages = plan_pages(models.paths, report, (), models.below, several=models.several)
    check_written(filter(None, pages))

    from onnx_subgraph.cli.batch import run
    from onnx_subgraph.cli.interrupt import break_off
    from onnx_subgraph.cli.job import Failure
    from onnx_subgraph.cli.terminal import progress, show, show_json, warn
    from onnx_subgraph.language.library import load_patterns
    from onnx_subgraph.options import Options
    from onnx_subgraph.report import json, many
    from onnx_subgraph.report.relevance import unfused
    from onnx_subgraph.report.selection import about

    library = load_patterns(patterns)
    if pattern is not None:
        (pattern,) = current_ids([pattern], library)
    only = (pattern,) if pattern else ()
    # A region can only become a function. If the user asks about one, "another target" would be no answer.
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
    tasks = [Explanation(model, patterns, options, node, time_limit) for model in models.paths]
    signal.signal(signal.SIGTERM, break_off)
    found: list[Object] = []
    with progress() as say, closing(run(tasks, library, jobs, say, cluster=executor or "")) as results:
        for task, page, outcome in zip(tasks, pages, results, strict=True):
            if isinstance(outcome, Failure):
                warn(f"Error: {outcome.of(task.model)}")
                found.append(json.failure(task.model, outcome.message))
                continue
            result = unfused(about(outcome, pattern=pattern, node=node))
            found.append(json.explanation(result))
            if page is not None or not as_json:
                _show(result, library, pattern, node, page, quiet=as_json)
    failed = any("error" in one for one in found)
    if models.several and as_json:
        show_json({"models": found})
    elif models.several:
        show(many.explained(found))
    elif as_json and not failed:
        show_json(found[0])
    return 2 if failed else 0


@dataclass(frozen=True, slots=True)
class Explanation:
    """One model to explain. node: a node name that must exist."""

    less: ClassVar[str] = "PATTERN asks about one pattern only, --time-limit gives more time"

    model: Path
    patterns: tuple[Path, ...]
    options: Options
    node: str | None
    time_limit: float

    def work(self, library: Library, tell: Say) -> FuseResult:
        """What fuses in the model, what nearly does, and why not."""
        from onnx_subgraph import explaining

        result = explaining.explain(self.model, library, self.options, tell)
        if self.node is not None:
            _check_node(self.node, result)
        return result

    def places(self) -> tuple[Path, ...]:
        """The files to read."""
        return (self.model, *self.patterns, *read_by(self.options))

    def absolute(self) -> Explanation:
        """The same with absolute paths."""
        patterns = tuple(path.absolute() for path in self.patterns)
        return replace(self, model=self.model.absolute(), patterns=patterns, options=absolute_options(self.options))

    def called(self, result: FuseResult) -> FuseResult:
        """The result with the path of this model."""
        return replace(result, model=self.model)


def _show(result: FuseResult, library: Library, pattern: str | None, node: str | None, page: Path | None, *, quiet: bool) -> None:
    """Print what is of interest unless `quiet`, and write it to `page`."""
    from onnx_subgraph.cli.page import write
    from onnx_subgraph.cli.terminal import show
    from onnx_subgraph.report import explained, text
    from onnx_subgraph.report.relevance import absence, answering, asked

    if pattern is None:
        told, why = answering(result, library) if node is None else result, ""
    else:
        told = asked(result, library.get(pattern)) if node is None else result
        why = absence(result, library.get(pattern), library) if node is None else ""
    hidden = len(result.near_misses) - len(told.near_misses)
    if page is not None:
        # Who writes a pattern wants to see the nearest places even where it only began to match.
        nothing = pattern is not None and not (told.rewrites or told.skipped or told.near_misses)
        seen, unseen = (result, 0) if nothing else (told, hidden)
        write(page, explained.page(seen, pattern=pattern or "", hidden=unseen, absence=why))
    if not quiet:
        show(text.explanation(told, hidden=hidden, pattern=pattern or "", absence=why))


def _check_node(name: str, result: FuseResult) -> None:
    """Raises UsageError, with the nearest name as a hint, if neither the model nor its fused form has a node `name`."""
    from onnx_subgraph.files.models import load
    from onnx_subgraph.language import spelling

    model = load(result.model)
    nodes = [*model.graph.all_nodes(), *(node for function in model.functions.values() for node in function.all_nodes())]
    # A node without a name is named after its result.
    known = {node.name or node.outputs[0].name or "" for node in nodes if node.name or node.outputs}
    known |= {rewrite.node for rewrite in result.rewrites}
    if name not in known:
        hint = spelling.hint(name, sorted(known - {""}), "`onnx-subgraph explain MODEL` names nodes where something matched")
        raise UsageError(f"{result.model} has no node {name!r}", hint=hint)
