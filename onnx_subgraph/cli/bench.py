"""`onnx-subgraph bench`: is the fused model faster? Models side by side, as ratios with their spread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onnx_subgraph.cli.finite import Finite
from onnx_subgraph.cli.models import Models, model_argument
from onnx_subgraph.cli.options import (
    dimension_size,
    feeds_file,
    input_shape,
    json_option,
    libraries_option,
    shapes,
    target_option,
    time_limit_option,
    verbose_option,
)
from onnx_subgraph.cli.streams import MODEL
from onnx_subgraph.errors import UsageError

if TYPE_CHECKING:
    from onnx_subgraph.options import Options as FuseOptions
    from onnx_subgraph.timing import Bench, BenchOptions


@click.command(short_help="Time models side by side.")
@model_argument
@click.argument("candidates", metavar="[CANDIDATE]...", nargs=-1, type=MODEL)
@click.option(
    "--runtime",
    "runtimes",
    type=click.Choice(["onnxruntime", "kernels", "engines", "openvino", "openvino-f32"]),
    multiple=True,
    default=("onnxruntime",),
    help="Where to run the models: onnxruntime, onnxruntime with our library of kernels, an EngineSession with its "
    "backends, OpenVINO in its default precision or in float32. May be repeated.",
)
@click.option("--provider", default="CPUExecutionProvider", metavar="EP", help="The execution provider of onnxruntime.")
@click.option(
    "--threads",
    type=click.IntRange(1, 1024),
    metavar="N",
    show_default="what the runtime takes by itself",
    help="Threads of each session.",
)
@click.option("--budget", type=Finite(min=0), default=10.0, metavar="SECONDS", help="The time to run all models, in total.")
@click.option(
    "--dim",
    "sizes",
    type=dimension_size,
    multiple=True,
    metavar="NAME=128",
    help="The size of a symbolic dimension. May be repeated. Default: one image or text of 128 tokens, or sizes "
    "that the model takes; small ones if a run with them takes more than a second.",
)
@click.option(
    "--shape", "shape", type=input_shape, multiple=True, metavar="INPUT=1x128", help="The shape of an input. May be repeated."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, metavar="N", help="Seed of the inputs that are drawn.")
@click.option(
    "--inputs",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    callback=feeds_file,
    metavar="FEEDS.npz",
    help="Inputs to run on, by name, in a NumPy .npz file.",
)
@click.option("--profile", is_flag=True, help="Show where the time goes, by operator and by module, and what no pattern covers.")
@click.option(
    "--max-ratio",
    type=Finite(min=0, min_open=True),
    metavar="X",
    help="Exit with 1 if a CANDIDATE takes more than X times as long as MODEL.",
)
@target_option
@libraries_option
@time_limit_option
@verbose_option
@json_option
def bench(
    models: Models,
    candidates: tuple[Path, ...],
    runtimes: tuple[str, ...],
    provider: str,
    threads: int | None,
    budget: float,
    sizes: tuple[tuple[str, int], ...],
    shape: tuple[tuple[str, tuple[int, ...]], ...],
    seed: int,
    inputs: Path | None,
    profile: bool,
    max_ratio: float | None,
    target: str,
    libraries: tuple[Path, ...],
    time_limit: float,
    as_json: bool,
) -> int:
    """Time MODEL and CANDIDATEs in turn, in one process, on the same inputs.

    Without a CANDIDATE, MODEL is compared with what `fuse` would write for --target. Each figure is a median. A ratio is relative
    to MODEL's time, with the least and most of parts of the runs after it. Nothing is verified: use `verify`. The models of a
    folder, a glob or a list, @FILE, are timed one after another, never at the same time; a CANDIDATE is then a folder.
    """
    from onnx_subgraph.options import Options as FuseOptions
    from onnx_subgraph.timing import BenchOptions

    options = BenchOptions(
        runtimes=tuple(dict.fromkeys((*runtimes, *(["kernels"] if target == "native" else [])))),
        provider=provider,
        threads=threads or 0,
        budget=budget,
        seed=seed,
        sizes=_sizes(sizes),
        shapes=shapes(shape),
        inputs=inputs,
        libraries=libraries,
        profile=profile,
    )
    fusing = FuseOptions(target=target, providers=(provider,), libraries=libraries)
    others = _paired(models, candidates)
    work = [partial(_bench, one, held, options, fusing, time_limit) for one, held in zip(models.paths, others, strict=True)]
    if models.several:
        return _bench_many(models.paths, work, max_ratio, as_json=as_json)

    from onnx_subgraph.cli.terminal import progress, show, show_json
    from onnx_subgraph.report import bench as text
    from onnx_subgraph.report import bench_json

    with progress() as say:
        result = work[0](say)
    if as_json:
        show_json(bench_json.bench(result))
    else:
        show(text.as_text(result))
    return _code(result, max_ratio)


def _paired(models: Models, candidates: Sequence[Path]) -> list[tuple[Path, ...]]:
    """The candidates of each model; for several models, the files with the same path in folders. Raises UsageError for files."""
    if not models.several:
        return [tuple(candidates)]
    for candidate in candidates:
        if not candidate.is_dir():
            hint = "name the folder in which the candidates have the models' paths, as `fuse --output-dir` writes them"
            raise UsageError(f"{candidate} is no folder, and there are several models", hint=hint)
    return [tuple(candidate / below for candidate in candidates) for below in models.below]


def _bench(
    model: Path,
    candidates: Sequence[Path],
    options: BenchOptions,
    fusing: FuseOptions,
    time_limit: float,
    say: Callable[[str], None],
) -> Bench:
    from onnx_subgraph import temporary
    from onnx_subgraph.deadline import within
    from onnx_subgraph.timing import bench as run

    hint = "--budget runs for less time, --time-limit gives more"
    with temporary.folder() as folder:
        models = [model, *(candidates or _fused(model, folder, fusing, say))]
        if len(models) == 1 and not options.profile:
            message = f"{model}: nothing in it fuses, and there is nothing to compare it with"
            raise NothingToCompareError(message, hint="name a CANDIDATE, or add --profile")
        return within(time_limit, lambda tell: run(models, options, tell), say, hint)


def _bench_many(
    models: Sequence[Path], work: Sequence[Callable[[Callable[[str], None]], Bench]], max_ratio: float | None, *, as_json: bool
) -> int:
    """Times the models one after another, and goes on if one fails."""
    from onnx_subgraph.cli.failure import describe
    from onnx_subgraph.cli.interrupt import Interrupt, was_interrupted
    from onnx_subgraph.cli.job import Failure
    from onnx_subgraph.cli.terminal import progress, show, show_json, warn
    from onnx_subgraph.report import bench as text
    from onnx_subgraph.report import bench_json, json, many

    found: list[json.Object] = []
    codes = []
    for model, measured in zip(models, work, strict=True):
        try:
            with progress() as say:
                result = measured(lambda stage, model=model, say=say: say(f"{model}: {stage}"))  # type: ignore[misc]
        except NothingToCompareError:
            found.append({"model": str(model), "note": "nothing in it fuses"})
        except Exception as error:
            if was_interrupted():
                raise Interrupt from error
            warn(f"Error: {Failure(describe(error)).of(model)}")
            found.append(json.failure(model, describe(error)))
            codes.append(2)
        else:
            found.append({"model": str(model), **bench_json.bench(result)})
            codes.append(_code(result, max_ratio))
            if not as_json:
                show(text.as_text(result))
    if as_json:
        show_json({"benches": found})
    else:
        show(many.benched(found))
    return max(codes, default=0)


def _code(result: Bench, max_ratio: float | None) -> int:
    if any(one.problem for one in result.timed):
        return 2
    slow = max_ratio is not None and any(one.ratio is not None and one.ratio.ratio > max_ratio for one in result.timed)
    return 1 if slow else 0


class NothingToCompareError(UsageError):
    """Nothing in the model fuses, no candidate is given, and no profile is asked for."""


def _fused(model: Path, folder: Path, options: FuseOptions, say: Callable[[str], None]) -> list[Path]:
    """The result of `fuse`, in a temporary folder; [] if it does not change the model. Raises UsageError if it writes nothing."""
    from onnx_subgraph.language.library import load_patterns
    from onnx_subgraph.pipeline import fuse

    output = folder / f"{model.stem}.fused.onnx"
    result = fuse(model, output, load_patterns(), options, say)
    if result.output is None:
        raise UsageError(f"{model}: fuse writes no model ({result.verdict.verdict})", hint=f"onnx-subgraph fuse {model}")
    return [] if result.unchanged else [result.output]


def _sizes(values: Sequence[tuple[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, size in values:
        if found.setdefault(name, size) != size:
            raise UsageError(f"--dim gives two sizes for {name!r}", hint="give each dimension once")
    return found
