"""Measures the latency of partitioned models against plain onnxruntime and against the backend used directly.

    python benchmarks/engines.py MODEL... [--rounds 40] [--threads 1] [--page benchmarks/engines.md]

All variants run in one process, in turn in each round, on inputs that verification draws:

* *direct*: OpenVINO's own API on the model file, with the shapes of the inputs;
* *whole*: an `EngineSession` of the model that `partition --backend openvino` writes;
* *pieces*: the same without operators that most networks have, so that onnxruntime runs between several engines;
* *all pieces*: the same with `--gain inf`, so that every region is an engine, whatever it costs.

A ratio below 1 is faster than onnxruntime. With one thread the time is processor time, which other processes do not change. All
outputs are compared with those of plain onnxruntime. Needs the extra `openvino`.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnxruntime
import openvino
from rows import tell

from onnx_subgraph.backends.onnxruntime import OnnxRuntime
from onnx_subgraph.backends.openvino import OpenVino
from onnx_subgraph.engine.session import EngineSession
from onnx_subgraph.files.models import load
from onnx_subgraph.inputs.feeds import draw_feeds, required_inputs
from onnx_subgraph.inputs.sizes import assignments, symbols
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.partitioning.options import PartitionOptions
from onnx_subgraph.partitioning.partition import partition
from onnx_subgraph.partitioning.worth import RegionLimits

DENIED = ("Softmax", "Sigmoid", "HardSigmoid", "MaxPool", "GlobalAveragePool", "ReduceMean", "Relu6")
"""Operators that *pieces* leaves to onnxruntime. Every model here has one of them."""
SIZE = 64
"""The size of a free dimension other than the batch, if the model runs with it."""

SECONDS, MOST_ROUNDS = 20.0, 200
"""A quick model runs more rounds than asked: as many as fit into this many seconds, up to a maximum."""

Feeds = dict[str, np.ndarray]


def feeds_of(path: Path) -> Feeds:
    """Inputs for the model: batch 1 and `SIZE` for other free dimensions, or else the first sizes that it runs with."""
    model = load(path)
    infer_shapes(model)
    plain = onnxruntime.InferenceSession(path)
    inputs = required_inputs(model)
    usual = {name: 1 if role == "batch" else SIZE for name, role in symbols(inputs).items()}
    for sizes in (usual, *assignments(inputs, {})):
        try:
            feeds = draw_feeds(model, sizes, 0)
            plain.run(None, feeds)
        except Exception:  # the model does not run at these sizes; try the next
            continue
        return dict(feeds)
    raise SystemExit(f"{path}: it runs on none of the feeds that were tried")


def direct(path: Path, feeds: Feeds, config: dict[str, object]) -> Callable[[], list[np.ndarray]]:
    """OpenVINO, used as in its documentation."""
    core = openvino.Core()
    model = core.read_model(path)
    model.reshape({name: list(array.shape) for name, array in feeds.items()})
    request = core.compile_model(model, "CPU", config).create_infer_request()
    given = {name: array.view(np.dtype(array.dtype.name)) for name, array in feeds.items()}
    return lambda: list(request.infer(given).values())


def row(path: Path, rounds: int, threads: int, folder: Path) -> str:
    """One line of the table."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    config: dict[str, object] = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": threads,
    }
    feeds = feeds_of(path)
    plain = onnxruntime.InferenceSession(path, options)
    variants: dict[str, Callable[[], list[np.ndarray]]] = {
        "plain": lambda: plain.run(None, feeds),
        "direct": direct(path, feeds, config),
    }
    engines = []
    ways = {"whole": RegionLimits(), "pieces": RegionLimits(deny=DENIED), "all": RegionLimits(deny=DENIED, gain=math.inf)}
    for name, limits in ways.items():
        given = {name: array.shape for name, array in feeds.items()}
        made = partition(path, folder / f"{name}.onnx", PartitionOptions("openvino", limits, verify=False, shapes=given))
        backend, between = OpenVino(config=config), OnnxRuntime(options=lambda: _options(threads))
        session = EngineSession(folder / f"{name}.onnx", backends={"openvino": backend}, plain=between)
        variants[name] = lambda session=session: session.run(None, feeds)  # type: ignore[misc]
        engines.append(str(len(made.engines)))
    expected = [np.asarray(array, np.float64) for array in variants["plain"]()]
    for name, run in variants.items():
        for ours, theirs in zip(run(), expected, strict=True):
            scale = max(1.0, float(np.abs(theirs).max()))
            assert np.abs(ours - theirs).max() <= 2e-3 * scale, f"{path.stem}: {name} computes something else"
    least = min(_once(run) for run in variants.values())
    rounds = max(rounds, min(MOST_ROUNDS, int(SECONDS / (2 * len(variants) * least))))
    seconds = timed(variants, rounds, time.process_time if threads == 1 else time.perf_counter)
    cells = [ratio(seconds[name], seconds["plain"]) for name in ("direct", "whole", "pieces", "all")]
    cells.append(ratio(seconds["whole"], seconds["direct"]))
    shapes = ", ".join(sorted({f"{array.dtype}{list(array.shape)}" for array in feeds.values()}))
    plain_ms = f"{statistics.median(seconds['plain']) * 1e3:.3g}"
    return f"| {path.stem} | {shapes} | {' / '.join(engines)} | {plain_ms} | {' | '.join(cells)} |"


def timed(variants: dict[str, Callable[[], list[np.ndarray]]], rounds: int, clock: Callable[[], float]) -> dict[str, list[float]]:
    """Seconds of every run. In each round all variants run in turn, each twice; the second run counts."""
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, run in variants.items():
            run()  # not timed: the caches still hold the data of the others
            begun = clock()
            run()
            seconds[name].append(clock() - begun)
    return seconds


def _once(run: Callable[[], list[np.ndarray]]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """The median of the ratios of the rounds, with the first and the ninth decile."""
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    low, *_, high = statistics.quantiles(ratios, n=10)
    return f"{statistics.median(ratios):.2f} ({low:.2f} to {high:.2f})"


def _options(threads: int) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return options


HEAD = """# Partitioned models beside plain onnxruntime and OpenVINO

Made by `python benchmarks/engines.py MODEL…`. Numbers are ratios of a run's seconds to plain onnxruntime {onnxruntime} with all
its optimisations: the median of {rounds} to {most} rounds in which all take turns (with the first and the ninth decile),
{threads} thread, float32. Below 1 is faster. *direct* is OpenVINO {openvino} by its own API. An `EngineSession` runs the others:
*whole* is the model that `partition --backend openvino` writes, *pieces* is the same with
`--deny {denied}`,
*all pieces* adds `--gain inf`, which partitions every region at any cost. The last column is the time of *whole* divided by that
of *direct*. The latency of static schedules is in [static.md](static.md).

| model | inputs | engines whole / pieces / all | plain ms | direct | whole | pieces | all pieces | whole to direct |
|---|---|---:|---:|---:|---:|---:|---:|---:|
"""


def main() -> None:
    """Measure, print, and write the page if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--page", type=Path)
    arguments = parser.parse_args()
    head = HEAD.format(
        rounds=arguments.rounds,
        threads=arguments.threads,
        most=MOST_ROUNDS,
        onnxruntime=onnxruntime.__version__,
        openvino=openvino.__version__.split("-")[0],
        denied=",".join(DENIED),
    )
    with tempfile.TemporaryDirectory() as folder:
        tell(head, (row(model, arguments.rounds, arguments.threads, Path(folder)) for model in arguments.models), arguments.page)


if __name__ == "__main__":
    main()
