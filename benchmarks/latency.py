"""Measures the latency of models: original, fused by two other tools, and fused by `fuse`. Writes `benchmarks/latency.md`.

    python benchmarks/latency.py CORPUS [--models 'bert*'] [--budget 20] [--rows DIR] [--cache DIR] [--threads N] [--write]
    python benchmarks/latency.py CORPUS --dims seq=512 …
    python benchmarks/latency.py CORPUS --provider CUDAExecutionProvider …
    python benchmarks/latency.py MODEL.onnx… [--shape INPUT=1x128]…

All four run in turn in one process. Each runs in onnxruntime with all optimisations and the same number of threads, on feeds that
verification draws. With one thread the time is processor time, which other processes do not change. On a GPU the feeds and the
outputs stay in its memory; there, `--jobs` loads several models at once and still times one at a time. The other tools need
packages that the project does not depend on: `pip install onnxscript torch`. Without them their columns are empty.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import logging
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import devices
import numpy as np
import onnxruntime
import workers
from latency_page import Row, page, told
from products import seconds_of_products
from taking_turns import CPU, open_session, ratio, seconds_of_runs
from tasks import Task, feeds_of, runnable, tasks

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from onnx_subgraph.cli.options import input_shape  # noqa: E402
from onnx_subgraph.language.library import load_patterns  # noqa: E402
from onnx_subgraph.options import Options  # noqa: E402
from onnx_subgraph.pipeline import fuse  # noqa: E402

CORES = len(os.sched_getaffinity(0))


def make(task: Task) -> None:
    """Make the models of a task, for timing them later."""
    logging.disable(logging.CRITICAL)  # the optimizer and onnxscript say a lot
    with tempfile.TemporaryDirectory() as folder:
        original = runnable(task, Path(folder))
        for name in MAKERS:
            with contextlib.suppress(Exception):  # the error is kept and appears in the row
                _made(name, original, Path(folder), task)


def measure(task: Task) -> Row:
    """Make the four models, and time them in turn."""
    logging.disable(logging.CRITICAL)  # the optimizer and onnxscript say a lot
    with tempfile.TemporaryDirectory() as folder:
        original = runnable(task, Path(folder))
        paths: dict[str, Path] = {}
        failures: dict[str, str] = {}
        for name in MAKERS:
            try:
                paths[name] = _made(name, original, Path(folder), task)
            except Exception as error:  # another tool may raise any error; its row shows it
                failures[name] = _said(error)
        feeds = feeds_of(original, task)
        sessions = {"original": open_session(original, task.threads, provider=task.provider)}
        expected = sessions["original"].run(None, feeds)
        for name, path in paths.items():
            try:
                candidate = open_session(path, task.threads, provider=task.provider)
                found = candidate.run(None, feeds)
            except Exception as error:
                failures[name] = _said(error)
                continue
            failures |= {name: problem} if (problem := _difference(found, expected)) else {}
            sessions[name] = candidate
        # the profile of a device has the times of launches, not of products
        products = seconds_of_products(original, feeds, task.threads) if task.provider == CPU else 0.0
        with one_at_a_time():
            times = seconds_of_runs(sessions, feeds, task.budget, task.threads)
    return Row(
        name=task.name,
        transformer=bool(task.entry.get("transformer", True)),
        milliseconds=float(np.median(times["original"])) * 1e3,
        products=products * 1e3,
        timings={name: ratio(times["original"], times[name]) for name in times if name != "original"},
        failures=failures,
        runs=len(times["original"]),
        threads=task.threads,
        sizes=", ".join(f"{name} {size}" for name, size in task.dims.items()),
    )


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Within the block no other process of this benchmark times a model."""
    with (Path(tempfile.gettempdir()) / "onnx-subgraph-latency.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _made(name: str, original: Path, folder: Path, task: Task) -> Path:
    """The model that a fuser makes, or made before. Raises its error if it failed."""
    kept = (task.made or folder) / task.name / f"{name}.onnx"
    kept.parent.mkdir(parents=True, exist_ok=True)
    complaint = kept.with_suffix(".txt")
    if complaint.exists():
        raise RuntimeError(complaint.read_text(encoding="utf-8"))
    if not kept.exists():
        try:
            made = MAKERS[name](original, folder / f"{name}.onnx", task)
        except Exception as error:
            complaint.write_text(_said(error), encoding="utf-8")
            raise
        shutil.move(made, kept)
    return kept


def _ours(original: Path, output: Path, task: Task) -> Path:
    result = fuse(original, output, load_patterns(), Options(providers=(task.provider,), verify=False))
    assert result.output is not None
    return result.output


def _transformers_optimizer(original: Path, output: Path, task: Task) -> Path:
    from onnxruntime.transformers.optimizer import optimize_model

    known = task.entry.get("opt") or {}
    made = optimize_model(
        str(original),
        model_type=known.get("model_type", "bert"),
        num_heads=known.get("num_heads", 0),
        hidden_size=known.get("hidden_size", 0),
        use_gpu=task.provider != CPU,
    )
    made.save_model_to_file(str(output), use_external_data_format=False)
    return output


def _onnxscript(original: Path, output: Path, task: Task) -> Path:
    import onnx_ir as ir
    from onnxscript.rewriter.ort_fusions import optimize_for_ort

    made = optimize_for_ort(ir.load(original))
    ir.save(made[0] if isinstance(made, tuple) else made, output)
    return output


MAKERS: Mapping[str, Callable[[Path, Path, Task], Path]] = {
    "optimizer": _transformers_optimizer,
    "onnxscript": _onnxscript,
    "ours": _ours,
}


def _difference(found: Sequence[Any], expected: Sequence[Any]) -> str:
    """What is wrong with the outputs, or "". A rough check that the timed models compute the same."""
    for a, b in zip(found, expected, strict=True):
        if not isinstance(b, np.ndarray) or b.dtype.kind != "f":
            continue
        if a.shape != b.shape:
            return f"an output is {a.shape}, not {b.shape}"
        finite = np.isfinite(a) & np.isfinite(b)
        largest = np.abs(b[finite].astype("f8")).max(initial=0.0)
        error = np.abs(a[finite].astype("f8") - b[finite].astype("f8")).max(initial=0.0) / max(largest, 1e-6)
        if error > 0.05:
            return f"an output is off by {error:.2g} of its largest"
    return ""


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:160]}"


def dimension(text: str) -> tuple[str, int]:
    """`seq=512` as a name and a size."""
    name, _, size = text.partition("=")
    return name, int(size)


def main() -> None:
    """Time the models; exit 1 if one of ours failed."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("models_or_corpus", type=Path, nargs="+", metavar="MODEL.onnx|CORPUS")
    arguments.add_argument("--models", default="*", help="a glob over the names of the corpus")
    arguments.add_argument("--shape", type=input_shape, action="append", default=[], help="INPUT=1x128, for files")
    arguments.add_argument(
        "--dims", type=dimension, action="append", default=[], help="seq=512, for models of the corpus that have it"
    )
    arguments.add_argument("--budget", type=float, default=20, help="seconds of timing for one model")
    arguments.add_argument("--limit", type=float, default=900, help="seconds for one model, everything included")
    arguments.add_argument("--jobs", type=int, default=1, help="models made or loaded at a time; one is timed at a time")
    arguments.add_argument("--threads", type=int, default=CORES)
    arguments.add_argument("--provider", default=CPU, choices=[CPU, *devices.DEVICES], help="an execution provider")
    arguments.add_argument("--cache", type=Path, help="a folder of runnable models, filled as needed; needs some 15 GB")
    arguments.add_argument("--rows", type=Path, help="a folder that keeps the results; models with a result are not run again")
    arguments.add_argument("--made", type=Path, help="a folder that keeps the fused models; a model in it is not fused again")
    arguments.add_argument("--make", action="store_true", help="fill the folder of --made only; time nothing")
    arguments.add_argument("--write", action="store_true", help="write the page with all rows")
    given = arguments.parse_args()
    kept = {p.stem: Row.read(p) for p in sorted(given.rows.glob("*.json"))} if given.rows else {}
    every = tasks(
        given.models_or_corpus,
        names=given.models,
        budget=given.budget,
        threads=given.threads,
        cache=given.cache,
        shapes=given.shape,
        dims=given.dims,
        made=given.made,
        provider=given.provider,
    )
    waiting = [task for task in every if task.kept not in kept]
    if given.make:
        for outcome in workers.run(make, waiting, jobs=given.jobs, limit=given.limit, fresh=True):
            print(outcome.task.name, outcome.failure.strip()[-200:], flush=True)
        return
    for outcome in workers.run(measure, waiting, jobs=given.jobs, limit=given.limit, fresh=True):
        name = outcome.task.kept
        row = outcome.result or Row(name, True, math.nan, 0.0, {}, {"ours": outcome.failure.strip().splitlines()[-1]})
        kept[name] = row
        if given.rows is not None and outcome.result is not None:
            given.rows.mkdir(parents=True, exist_ok=True)
            (given.rows / f"{name}.json").write_text(json.dumps(asdict(row), indent=1), encoding="utf-8")
        print(told(row), flush=True)
    if given.write:
        name = "latency.md" if given.provider == CPU else f"latency_{devices.DEVICES[given.provider]}.md"
        where = "the CPU" if given.provider == CPU else devices.name(given.provider)
        options = "" if given.provider == CPU else f" --provider {given.provider}"
        (HERE / name).write_text(page(list(kept.values()), onnxruntime.__version__, where, options), encoding="utf-8")
    sys.exit(any("ours" in row.failures for row in kept.values()))


if __name__ == "__main__":
    main()
