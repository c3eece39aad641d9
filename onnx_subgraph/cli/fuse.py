"""`onnx-subgraph fuse`: fuses models, verifies them, and writes them.

Several models are independent: if one fails, the others go on, and the exit code is the worst of all. All output paths are
checked before the first model is read, so that a mistake in the options costs no time.
"""

from __future__ import annotations

import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from onnx_subgraph.cli.ci import Wanted, ci_options
from onnx_subgraph.cli.cluster import check_executor, executor_option
from onnx_subgraph.cli.fused import Told, hidden_in
from onnx_subgraph.cli.ids import current_ids
from onnx_subgraph.cli.models import Models, models_argument
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
from onnx_subgraph.cli.outputs import output_folder, plan_outputs, without_own, without_written
from onnx_subgraph.cli.page import check_folder, plan_pages, report_option, write_page
from onnx_subgraph.cli.streams import OUTPUT
from onnx_subgraph.cli.tuning import Tuner, tune_options
from onnx_subgraph.errors import UsageError


@click.command(short_help="Fuse models, verify them, and write them.")
@models_argument
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
    help="The folder to write to. Files keep their names; those from a folder, glob or list keep their relative "
    "paths. Created if missing.",
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
    help="A provider that this machine does not have: fuse into operators that it loads according to a table, and run "
    "nothing on it. Without --provider nothing is run at all. May be repeated.",
)
@prefer_option
@beside_options
@click.option("--no-verify", is_flag=True, help="Write the model without comparing it with the original.")
@click.option("--strict", is_flag=True, help="If a fusion is wrong, write nothing instead of undoing it; exit code 1.")
@click.option("--sites", is_flag=True, help="Check each fusion alone against float64, on its values in the model, and show all.")
@click.option(
    "--sites-only",
    is_flag=True,
    help="For a model larger than memory: check each fusion alone on drawn values, and do not run the model. Makes no other "
    "changes, since only a run can verify them.",
)
@fix_overflows_option
@click.option(
    "--compare-ort",
    is_flag=True,
    help="Show onnxruntime's own fusions at load, what our fusions add, and whether any of ours prevents one.",
)
@libraries_option
@feeds_options
@click.option("--bench", is_flag=True, help="Compare the time of the output with that of MODEL; `bench` shows more.")
@tune_options
@click.option(
    "--opset",
    type=opset_choice,
    default="auto",
    metavar="auto|keep|N",
    help="Raise the opset if a replacement needs it (auto), never (keep), or to N.",
)
@click.option("-j", "--jobs", type=click.IntRange(min=1), default=1, metavar="N", help="How many models to fuse at a time.")
@executor_option
@click.option(
    "--resume", is_flag=True, help="Skip models that an earlier run of this command has written, if nothing has changed since."
)
@time_limit_option
@click.option("--dry-run", is_flag=True, help="Write no model.")
@report_option
@ci_options
@quiet_option
@verbose_option
@json_option
def fuse(
    models: Models,
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
    sites_only: bool,
    compare_ort: bool,
    bench: bool,
    tune: bool,
    tune_budget: float | None,
    accuracy: float | None,
    backends: tuple[str, ...],
    tuned: Path | None,
    opset: str,
    jobs: int,
    executor: str | None,
    resume: bool,
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

    A MODEL is a file, a folder of them, a glob, or a list, @FILE; - is a model from standard input. MODEL.onnx becomes
    MODEL.fused.onnx beside it. A model in which nothing fuses is copied. If the fused model is not equivalent to the original,
    the wrong fusions are undone, with a warning. If none can be found, or the result is not as --expect wants it, nothing is
    written and the exit code is 1.
    """
    models = _left(models, output, output_dir)
    outputs = plan_outputs(models.paths, output, output_dir, models.below)
    if not dry_run:
        for model, path in zip(models.paths, outputs, strict=True):
            if path.parent != model.parent or model.exists():
                check_folder(path.parent, may_be_made=output_dir is not None)
    pages = plan_pages(models.paths, report, outputs, models.below, several=models.several)
    wanted = Wanted(expect, write_expect, junit, summary, annotations)
    wanted.check((*outputs, *filter(None, pages)))
    if no_verify and (strict or sites):
        raise UsageError("--strict and --sites need verification, which --no-verify turns off", hint="leave out --no-verify")
    if sites_only and tune:
        raise UsageError("--sites-only does not run the model, and does not go with --tune", hint="leave one of the two out")
    if bench and (dry_run or jobs > 1 or executor):
        raise UsageError(
            "--bench times the written model and nothing else: it excludes --dry-run and -j",
            hint=f"`onnx-subgraph bench {models.paths[0]}` writes nothing",
        )
    check_executor(executor, jobs)
    files = {"--expect": expect, "--write-expect": write_expect, "--junit": junit, "--summary": summary, "--report": report}
    if resume:
        from onnx_subgraph.cli.resuming import check_resumable

        check_resumable({**files, "--tune": tune, "--bench": bench, "--dry-run": dry_run})

    from onnx_subgraph.cli.batch import Task, run
    from onnx_subgraph.cli.interrupt import break_off
    from onnx_subgraph.language.library import load_patterns
    from onnx_subgraph.options import Options

    notes = None
    if resume or (models.several and not dry_run):
        from onnx_subgraph.cli.resuming import Notes

        notes = Notes(target, patterns, feeds["libraries"])
    library = load_patterns(patterns)
    only_ids, skip_ids = current_ids(flat(only), library, "only"), current_ids(flat(skip), library, "skip")
    expectation = wanted.expectation(models.paths, library)
    sections = [None if expectation is None else expectation.section(model) for model in models.paths]
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
        sites_only=sites_only,
        compare_ort=compare_ort,
        bench=bench,
        accuracy=accuracy,
        shapes=shapes(shape),
        opset=opset,
        dry_run=dry_run,
        excerpts=report is not None,
        **feeds,
    )
    named = target if click.get_current_context().get_parameter_source("target") is ParameterSource.COMMANDLINE else None
    tuner = Tuner(tune, tune_budget, tuned, backends, lambda line: click.echo(line, err=True), named)
    tuner.check(jobs, options)
    if executor and tune:
        raise UsageError("--tune needs this machine for itself", hint="leave --executor out")
    tasks = [
        Task(model, path, patterns, tuner.known(model, options), section, wanted.measured, time_limit, tuner.measure)
        for model, path, section in zip(models.paths, outputs, sections, strict=True)
    ]
    # A CI system ends a job with SIGTERM. Like ^C, it must leave no half-written file behind.
    signal.signal(signal.SIGTERM, break_off)

    from onnx_subgraph.cli.terminal import progress

    told = Told(tasks, library, notes, as_json=as_json, several=models.several)
    left = told.resume() if resume else tasks
    with (
        output_folder(None if dry_run else output_dir, outputs),
        progress() as say,
        closing(run(left, library, jobs, say, told.settled, executor or "")) as results,
    ):
        for task, outcome, page in zip(tasks, told.in_order(results), pages, strict=True):
            entry = told.tell(task, outcome)
            if page is not None and entry is not None:
                write_page(page, entry, library, hidden=hidden_in(entry, outcome))
    told.finish()
    tuner.finish()
    wanted.finish(told.entries, () if expectation is None else expectation.unused(models.paths))
    return told.code


def _left(models: Models, output: Path | None, output_dir: Path | None) -> Models:
    """The models without those that earlier runs of this command have written."""

    def say(line: str) -> None:
        click.echo(line, err=True)

    if output_dir is not None:
        models = without_written(models, output_dir, say)
    elif output is None:
        models = models.only(without_own(models.paths, say))
    if not models.named:
        raise UsageError("no model is left to fuse: earlier runs wrote all models that were found", hint="name other models")
    return models


def _is_given(parameter: str) -> bool:
    """Whether the user gave a value for a parameter of this command."""
    return click.get_current_context().get_parameter_source(parameter) is not ParameterSource.DEFAULT
