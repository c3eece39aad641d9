"""Measures the latency of static schedules against plain onnxruntime, as ratios.

    python benchmarks/static.py MODEL... [--runs 40] [--threads 1] [--size seq=1]... [--page benchmarks/static.md]

All variants run in one process, in turn in each round, on inputs that `fuse` draws; `--size` sets a dimension. *fused* is the
general model of `onnx_subgraph.InferenceSession`, *static* the schedule of a `StaticSession`, *replay* the same with
`reuse_buffers=True` and its input arrays filled in place. A ratio below 1 is faster than onnxruntime with all optimisations. With
one thread the time is processor time, which other processes do not change. All outputs are compared.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
from rows import tell

from onnx_subgraph import InferenceSession, SessionSettings, StaticSession
from onnx_subgraph.files.models import load
from onnx_subgraph.inputs.feeds import draw_feeds, required_inputs
from onnx_subgraph.inputs.sizes import assignments
from onnx_subgraph.model.shapes import infer_shapes

VARIANTS = ("fused", "static", "replay")

SECONDS, MOST_RUNS = 8.0, 400
"""A quick model runs more rounds than asked: as many as fit into this many seconds, up to a maximum."""


def feeds_of(path: Path, said: dict[str, int]) -> dict[str, np.ndarray]:
    """Inputs at the first sizes that the model runs with. said: dimension → required size."""
    model = load(path)
    infer_shapes(model)
    plain = onnxruntime.InferenceSession(path)
    for sizes in assignments(required_inputs(model), {}):
        feeds = draw_feeds(model, {**sizes, **said}, 0)
        try:
            plain.run(None, feeds)
        except Exception:  # the model does not run at these sizes; try the next
            continue
        return feeds
    raise SystemExit(f"{path}: it runs on none of the feeds that were tried")


def row(path: Path, runs: int, threads: int, cache: Path, skip: tuple[str, ...], said: dict[str, int]) -> str:
    """One line of the table."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    settings = SessionSettings(cache=cache, strict=True, verify=False, skip=skip)
    feeds = feeds_of(path, said)
    plain = onnxruntime.InferenceSession(path, options)
    fused = InferenceSession(path, options, settings=settings)
    static = StaticSession(path, options, settings=settings)
    replay = StaticSession(path, options, settings=settings, reuse_buffers=True)
    for session in (static, replay):
        assert session.warm(feeds), session.schedules()
    try:
        buffers = replay.buffers(feeds)
        for name, array in feeds.items():
            buffers[name][...] = array
    except Exception:  # an output whose shape is not known before the run
        buffers = feeds
    variants: dict[str, Callable[[], list[np.ndarray]]] = {
        "plain": lambda: plain.run(None, feeds),
        "fused": lambda: fused.run(None, feeds),
        "static": lambda: static.run(None, feeds),
        "replay": lambda: replay.run(None, buffers),
    }
    expected = [np.asarray(array, np.float64) for array in variants["plain"]()]
    for name, run in variants.items():
        for ours, theirs in zip(run(), expected, strict=True):
            scale = max(1.0, float(np.abs(theirs).max()))
            assert np.abs(ours - theirs).max() <= 2e-3 * scale, f"{path.stem}: {name} computes something else"
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    clock = time.perf_counter if threads > 1 else time.process_time
    begun = time.perf_counter()
    while len(seconds["plain"]) < runs or (time.perf_counter() - begun < SECONDS and len(seconds["plain"]) < MOST_RUNS):
        for name, run in variants.items():
            run()  # not timed: the caches still hold the data of the others
            at = clock()
            run()
            seconds[name].append(clock() - at)
    cells = []
    for name in VARIANTS:
        ratios = [one / other for one, other in zip(seconds[name], seconds["plain"], strict=True)]
        low, *_, high = statistics.quantiles(ratios, n=10)
        cells.append(f"{statistics.median(ratios):.2f} ({low:.2f} to {high:.2f})")
    shapes = ", ".join(sorted({f"{array.dtype}{list(array.shape)}" for array in feeds.values()}))
    return f"| {path.stem} | {shapes} | {statistics.median(seconds['plain']) * 1e3:.3g} | {' | '.join(cells)} |"


HEAD = """# Static schedules beside plain onnxruntime

Made by `python benchmarks/static.py MODEL…`. Numbers are ratios of a run's seconds to plain onnxruntime {version} with all its
optimisations: the median of {runs} to {most} rounds in which all take turns (with the first and the ninth decile), {threads}
thread. Below 1 is faster. *fused* is the general model of `InferenceSession`, *static* the schedule of a `StaticSession`,
*replay* the same with reused buffers. Times of one thread are processor time. Models with a cache of keys and values run one
token after 63, `--size seq=1 --size past=63 --size batch=1`.{skipped}

| model | inputs | plain ms | fused | static | replay |
|---|---|---:|---:|---:|---:|
"""


def main() -> None:
    """Measure, print, and write the page if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--skip", default="", help="patterns to leave out, separated by commas")
    parser.add_argument("--size", action="append", default=[], metavar="NAME=SIZE")
    parser.add_argument("--page", type=Path)
    arguments = parser.parse_args()
    skip = tuple(filter(None, arguments.skip.split(",")))
    said = {name: int(size) for name, _, size in (one.partition("=") for one in arguments.size)}
    skipped = f" Without the patterns {', '.join(skip)}." if skip else ""
    head = HEAD.format(
        runs=arguments.runs, most=MOST_RUNS, threads=arguments.threads, version=onnxruntime.__version__, skipped=skipped
    )
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(os.environ.get("ONNX_SUBGRAPH_CACHE", folder))
        lines = (row(model, arguments.runs, arguments.threads, cache, skip, said) for model in arguments.models)
        tell(head, lines, arguments.page)


if __name__ == "__main__":
    main()
