"""`onnx-subgraph fuse`: fuses models, verifies them, and writes them.

Several models are independent: one that fails doesn't stop the others, and the exit code is the worst of all. What is
written where is settled before the first model is read, so that a mistake in the options costs no time.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from onnx_subgraph.cli.ci import Wanted, ci_options, held
from onnx_subgraph.cli.ids import current_ids
from onnx_subgraph.cli.options import (
    beside_options,
    feeds_options,
    fix_overflows_option,
    flat,
    ids_option,
    json_option,
    libraries_option,
    numerics_option,
    opset_choice,
    patterns_option,
    prefer_option,
    provider_option,
    quiet_option,
    shapes,
    target_option,
    time_limit_option,
    verbose_option,
)
from onnx_subgraph.cli.outputs import plan_outputs, without_own
from onnx_subgraph.cli.page import check_folder, plan_pages, report_option, write_page
from onnx_subgraph.cli.streams import MODEL, OUTPUT
from onnx_subgraph.cli.tuning import Tuner, tune_options
from onnx_subgraph.errors import UsageError

if TYPE_CHECKING:
    from onnx_subgraph.cli.batch import Failure, Task
    from onnx_subgraph.language.library import Library
    from onnx_subgraph.report.entry import Entry
    from onnx_subgraph.result import FuseResult


@click.command(short_help="Fuse models, verify them, and write them.")
@click.argument("models", metavar="MODEL...", nargs=-1, required=True, type=MODEL)
@click.option(
    "-o",
    "--output",
    type=OUTPUT,
    metavar="OUT",
    show_default="MODEL.fused.onnx beside MODEL.onnx",
    help="The file to write, for one model; - for standard output.",
)
@click.option(
    "--output-dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The folder to write to; files keep their names. Made if it is missing.",
)
@patterns_option
@ids_option("--only", "Use these patterns and no others. May be repeated.")
@ids_option("--skip", "Do not use these patterns. May be repeated.")
@target_option
@numerics_option
@provider_option
@click.option(
    "--assume-provider",
    "assumed",
    multiple=True,
    metavar="EP",
    help="A provider that is not on this machine: fuse into what a table says it loads, and run nothing on it. May be repeated; "
    "without --provider nothing is run at all.",
)
@prefer_option
@beside_options
@click.option("--no-verify", is_flag=True, help="Write the model without comparing it with the original.")
@click.option("--strict", is_flag=True, help="Write nothing where a fusion was wrong, instead of undoing it; exit code 1.")
@click.option(
    "--sites", is_flag=True, help="Hold each fusion by itself against float64, on the values that flow there, and show all."
)
@fix_overflows_option
@click.option(
    "--compare-ort",
    is_flag=True,
    help="Show what onnxruntime fuses by itself at load, what ours add to that, and whether any of ours is in its way.",
)
@libraries_option
@feeds_options
@click.option("--bench", is_flag=True, help="Time what is written beside MODEL, and show it; `bench` says more.")
@tune_options
@click.option(
    "--opset",
    type=opset_choice,
    default="auto",
    metavar="auto|keep|N",
    help="Raise the opset where a replacement needs it (auto), never (keep), or to N.",
)
@click.option("-j", "--jobs", type=click.IntRange(min=1), default=1, metavar="N", help="How many models to fuse at a time.")
@time_limit_option
@click.option("--dry-run", is_flag=True, help="Write no model.")
@report_option
@ci_options
@quiet_option
@verbose_option
@json_option
def fuse(
    models: tuple[Path, ...],
    output: Path | None,
    output_dir: Path | None,
    patterns: tuple[Path, ...],
    only: tuple[tuple[str, ...], ...],
    skip: tuple[tuple[str, ...], ...],
    target: str,
    numerics: str,
    providers: tuple[str, ...],
    prefer: str,
    constant_initializers: bool,
    keep_subnormals: bool,
    no_simplify: bool,
    keep_loops: bool,
    assumed: tuple[str, ...],
    no_verify: bool,
    strict: bool,
    fix_overflows: bool,
    sites: bool,
    compare_ort: bool,
    bench: bool,
    tune: bool,
    tune_budget: float,
    accuracy: float | None,
    backends: tuple[str, ...],
    tuned: Path | None,
    opset: str,
    jobs: int,
    time_limit: float,
    dry_run: bool,
    report: Path | None,
    expect: Path | None,
    write_expect: Path | None,
    junit: Path | None,
    summary: Path | None,
    annotations: bool | None,
    as_json: bool,
    shape: tuple[tuple[str, tuple[int, ...]], ...],
    **feeds: Any,
) -> int:
    """Fuse MODELs, verify them against the originals, and write them.

    MODEL.onnx becomes MODEL.fused.onnx beside it; - is a model from standard input. A model in which nothing fuses is copied.
    Where the fused model is not equivalent to the original, the fusions that are to blame are undone, with a warning. Where none
    can be blamed, or the result is not as --expect wants it, nothing is written and the exit code is 1.
    """
    if output is None and output_dir is None:
        models = without_own(models, lambda line: click.echo(line, err=True))
    outputs = plan_outputs(models, output, output_dir)
    if not dry_run:
        for model, path in zip(models, outputs, strict=True):
            if path.parent != model.parent or model.exists():
                check_folder(path.parent, may_be_made=output_dir is not None)
    pages = plan_pages(models, report, outputs)
    wanted = Wanted(expect, write_expect, junit, summary, annotations)
    wanted.check((*models, *outputs, *filter(None, pages)))
    if no_verify and (strict or sites):
        raise UsageError("--no-verify leaves nothing for --strict and --sites to look at", hint="leave out --no-verify")
    if bench and (dry_run or jobs > 1):
        raise UsageError(
            "--bench times what is written, on a machine that does nothing else: it goes with neither --dry-run nor -j",
            hint=f"`onnx-subgraph bench {models[0]}` writes nothing",
        )

    from onnx_subgraph.cli.batch import Task, run
    from onnx_subgraph.cli.interrupt import break_off
    from onnx_subgraph.language.library import load_patterns
    from onnx_subgraph.options import Options

    library = load_patterns(patterns)
    only_ids, skip_ids = current_ids(flat(only), library), current_ids(flat(skip), library)
    expectation = wanted.expectation(models, library)
    sections = [None if expectation is None else expectation.section(model) for model in models]
    options = Options(
        target=target,
        numerics=numerics,
        providers=() if assumed and not _is_given("providers") else providers,
        assumed=assumed,
        prefer=prefer,
        constant_initializers=constant_initializers,
        keep_subnormals=keep_subnormals,
        simplify=not no_simplify,
        keep_loops=keep_loops,
        only=only_ids,
        skip=skip_ids,
        verify=not no_verify,
        strict=strict,
        fix_overflows=fix_overflows,
        sites=sites,
        compare_ort=compare_ort,
        bench=bench,
        accuracy=accuracy,
        shapes=shapes(shape),
        opset=opset,
        dry_run=dry_run,
        excerpts=report is not None,
        **feeds,
    )
    tuner = Tuner(tune, tune_budget, tuned, backends, lambda line: click.echo(line, err=True))
    tuner.check(jobs, options)
    tasks = [
        Task(model, path, patterns, tuner.known(model, options), section, wanted.measured, time_limit, tuner.measure)
        for model, path, section in zip(models, outputs, sections, strict=True)
    ]
    # A CI system ends a job with SIGTERM: like ^C, it leaves no half-written file behind.
    signal.signal(signal.SIGTERM, break_off)

    from onnx_subgraph.cli.terminal import progress

    entries: list[Entry] = []
    with _folder(None if dry_run else output_dir), progress() as say, closing(run(tasks, library, jobs, say)) as results:
        for task, outcome, page in zip(tasks, results, pages, strict=True):
            entries.append(_entry(task, outcome, library))
            hidden = _hidden(entries[-1], outcome)
            _tell(entries[-1], outcome, hidden, as_json=as_json)
            if page is not None:
                write_page(page, entries[-1], library, hidden=hidden)
    if as_json:
        _print_json(entries)
    tuner.finish()
    wanted.finish(entries, () if expectation is None else expectation.unused(models))
    return max(entry.code for entry in entries)


def _is_given(parameter: str) -> bool:
    """Whether a parameter of this command has a value that the user gave."""
    return click.get_current_context().get_parameter_source(parameter) is not ParameterSource.DEFAULT


def exit_code(outcome: FuseResult | Failure, verify: bool, strict: bool = False) -> int:
    """0 when the model was fused (or nothing was to be fused), 1 when it was not equivalent, 2 when that could not be told.

    strict: a fusion that was wrong and is undone is a 1.
    """
    from onnx_subgraph.cli.batch import Failure

    if isinstance(outcome, Failure):
        return 2
    match outcome.verdict.verdict:
        case "different":
            return 1
        case "equivalent" if strict and outcome.undone:
            return 1
        case "not-run" if verify and not outcome.unchanged:
            return 2
        case _:
            return 0


def _entry(task: Task, outcome: FuseResult | Failure, library: Library) -> Entry:
    """What became of one model: only the near misses worth telling, and how its expectations were met."""
    from onnx_subgraph.cli.batch import Failure
    from onnx_subgraph.report.entry import Entry
    from onnx_subgraph.report.relevance import telling

    code = exit_code(outcome, task.options.verify, task.options.strict)
    if isinstance(outcome, Failure):
        return Entry(task.model, code, error=outcome.message)
    checks = () if task.section is None else held(task.section, outcome, library)
    missed = any(not check.met for check in checks)
    return Entry(task.model, max(code, int(missed)), telling(outcome, library), checks=checks, strict=task.options.strict)


def _hidden(entry: Entry, outcome: FuseResult | Failure) -> int:
    """How many near misses the entry does not tell of."""
    from onnx_subgraph.cli.batch import Failure

    if isinstance(outcome, Failure) or entry.result is None:
        return 0
    return len(outcome.near_misses) - len(entry.result.near_misses)


def _tell(entry: Entry, outcome: FuseResult | Failure, hidden: int, *, as_json: bool) -> None:
    from onnx_subgraph.cli.batch import Failure
    from onnx_subgraph.cli.terminal import is_verbose, show, warn
    from onnx_subgraph.report.blame import sentence
    from onnx_subgraph.report.entry import missed_text
    from onnx_subgraph.report.grouping import skipped
    from onnx_subgraph.report.notices import REPORT, bug

    if isinstance(outcome, Failure):
        prefix = "" if str(entry.model) in outcome.message else f"{entry.model}: "
        warn(f"Error: {prefix}{outcome.message}")
        return
    for undone in outcome.undone:
        warn(f"Warning: {entry.model}: {sentence(undone)}")
    for skip in skipped(skip for skip in outcome.skipped if skip.bug is not None):
        warn(f"Warning: {entry.model}: bug in onnx-subgraph: {bug(skip)}; {REPORT}")
    if entry.result is not None and not as_json:
        from onnx_subgraph.report import text

        show(text.fusion(entry.result, hidden=hidden, verbose=is_verbose()), good=entry.code == 0 and not outcome.undone)
        if entry.checks:
            show(text.expectations(entry.checks), good=not entry.missed)
    elif as_json:
        for check in entry.missed:
            warn(f"{entry.model}: {missed_text(check)}")


def _print_json(entries: Sequence[Entry]) -> None:
    from onnx_subgraph.cli.terminal import show_json
    from onnx_subgraph.report import json

    objects = [
        json.failure(entry.model, entry.error)
        if entry.result is None
        else json.fusion(entry.result) | ({"expectations": json.expectations(entry.checks)} if entry.checks else {})
        for entry in entries
    ]
    show_json(objects[0] if len(objects) == 1 else {"models": objects})


@contextmanager
def _folder(path: Path | None) -> Iterator[None]:
    """The output folder exists meanwhile, and afterwards where something was written to it."""
    if path is None or path.exists():
        yield
        return
    path.mkdir(parents=True)
    try:
        yield
    finally:
        if not any(path.iterdir()):
            path.rmdir()
