"""`onnx-subgraph bench`: is the fused model faster? Models side by side, as ratios with their spread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

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


@click.command(short_help="Time models side by side.")
@click.argument("model", type=MODEL)
@click.argument("candidates", metavar="[CANDIDATE]...", nargs=-1, type=MODEL)
@click.option(
    "--runtime",
    "runtimes",
    type=click.Choice(["onnxruntime", "kernels", "engines", "openvino", "openvino-f32"]),
    multiple=True,
    default=("onnxruntime",),
    help="What runs the models: onnxruntime, onnxruntime with our library of kernels, an EngineSession with its engines by their "
    "backends, OpenVINO in the precision that it chooses or in float32. May be repeated.",
)
@click.option("--provider", default="CPUExecutionProvider", metavar="EP", help="The execution provider of onnxruntime.")
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    metavar="N",
    show_default="what the runtime takes by itself",
    help="Threads of each session.",
)
@click.option("--budget", type=click.FloatRange(min=0), default=10.0, metavar="SECONDS", help="How long all run, together.")
@click.option(
    "--dim",
    "sizes",
    type=dimension_size,
    multiple=True,
    metavar="NAME=128",
    help="The size of a symbolic dimension. May be repeated. Without it sizes are one image or text of 128 tokens, or what the "
    "model takes.",
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
    type=click.FloatRange(min=0, min_open=True),
    metavar="X",
    help="Exit code 1 where a CANDIDATE takes more than X times as long as MODEL.",
)
@target_option
@libraries_option
@time_limit_option
@verbose_option
@json_option
def bench(
    model: Path,
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

    Without a CANDIDATE, MODEL is held against what `fuse` would write for --target. Each figure is a median; a ratio is to
    MODEL's own time, with the least and most of parts of the runs behind it. Nothing is verified: `verify` does that.
    """
    from onnx_subgraph import temporary
    from onnx_subgraph.cli.terminal import progress, show, show_json
    from onnx_subgraph.deadline import within
    from onnx_subgraph.options import Options as FuseOptions
    from onnx_subgraph.report import bench as text
    from onnx_subgraph.report import bench_json
    from onnx_subgraph.timing import BenchOptions
    from onnx_subgraph.timing import bench as run

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
    hint = "--budget runs for less time, --time-limit gives more"
    with temporary.folder() as folder, progress() as say:
        fusing = FuseOptions(target=target, providers=(provider,), libraries=libraries)
        models = [model, *(candidates or [_fused(model, folder, fusing, say)])]
        result = within(time_limit, lambda tell: run(models, options, tell), say, hint)
    if as_json:
        show_json(bench_json.bench(result))
    else:
        show(text.as_text(result))
    if any(one.problem for one in result.timed):
        return 2
    slow = max_ratio is not None and any(one.ratio is not None and one.ratio.ratio > max_ratio for one in result.timed)
    return 1 if slow else 0


def _fused(model: Path, folder: Path, options: FuseOptions, say: Callable[[str], None]) -> Path:
    """What `fuse` makes of the model, in a folder that is not kept. Raises UsageError where it makes nothing else of it."""
    from onnx_subgraph.language.library import load_patterns
    from onnx_subgraph.pipeline import fuse

    output = folder / f"{model.stem}.fused.onnx"
    result = fuse(model, output, load_patterns(), options, say)
    if result.output is None:
        raise UsageError(
            f"{model}: what fuse makes of it is not written ({result.verdict.verdict})", hint=f"onnx-subgraph fuse {model}"
        )
    if result.unchanged:
        raise UsageError(f"{model}: nothing in it fuses, and there is nothing to hold it against", hint="name a CANDIDATE")
    return result.output


def _sizes(values: Sequence[tuple[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, size in values:
        if found.setdefault(name, size) != size:
            raise UsageError(f"--dim gives two sizes for {name!r}", hint="give each dimension once")
    return found
