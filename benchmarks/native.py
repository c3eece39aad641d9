"""Measures models: original, fused for onnxruntime, and fused for our library of kernels. Writes `benchmarks/native.md`.

    python benchmarks/native.py CORPUS [--models 'bert*'] [--budget 20] [--threads 1 2] [--rows DIR] [--write [FILE]]

All variants of a model run in turn in one process, in onnxruntime with all optimisations and the same number of threads: the
original, the fused model, and the native model with the library, without it, and with products rounded to bfloat16; also
OpenVINO, if it is installed. The process sees the newest instruction set of this processor or an older one, and so do all
libraries in it. Where the system cannot hide instruction sets, only our library is limited. A ratio is a model's time over the
original's, so lower is better, with the minimum and maximum over five parts of the run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import older_processor
import onnx
import onnxruntime
from native_page import Row, Setting, page
from roofline import Spent, spent
from rows import kept_row
from taking_turns import QUANTILE, open_session, quartiles, seconds_of_runs
from tasks import Task, feeds_of, runnable, tasks

from onnx_subgraph import Options, fuse, kernels, load_patterns
from onnx_subgraph.evaluator.truth import UnknownError, evaluate
from onnx_subgraph.kernels.library import ISA

PAGE = Path(__file__).with_name("native.md")
MODELS = (
    "bert_l4_sdpa.ts14",
    "clip_text.dyn18",
    "distilbert.dyn18",
    "gpt2.dyn18",
    "llama.dyn18",
    "minilm_sentence.dyn18",
    "qwen2.dyn18",
    "swin_tiny.dyn18",
    "t5_small_encoder.dyn18",
    "whisper_tiny_encoder.dyn18",
)
BY_OPERATOR = ("bert_l4_sdpa.ts14", "swin_tiny.dyn18", "whisper_tiny_encoder.dyn18")
"""The models whose time is listed by operator."""


class OpenVino:
    """A model in OpenVINO, called like a session of onnxruntime. precision: "f32", or "" for OpenVINO's choice."""

    def __init__(self, path: Path, threads: int, precision: str) -> None:
        import openvino

        said = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": "1", "PERFORMANCE_HINT": "LATENCY"}
        said |= {"INFERENCE_PRECISION_HINT": precision} if precision else {}
        self._model = openvino.Core().compile_model(str(path), "CPU", said)
        self._request = self._model.create_infer_request()

    def run(self, _: None, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The outputs."""
        self._request.infer(feeds, share_inputs=True)
        return [self._request.get_tensor(output).data for output in self._model.outputs]


def make(task: Task, folder: Path) -> dict[str, Any]:
    """Make the models of a task, its feeds and its float64 outputs in `folder`. Returns what `measure` needs to time them."""
    original = runnable(task, folder)
    ways = {
        "onnxruntime": Options(target="onnxruntime", verify=False),
        "native": Options(target="native", verify=False),
        "rounded": Options(target="native", numerics="bf16", verify=False),
    }
    library = load_patterns()
    results = {name: fuse(original, folder / f"{name}.onnx", library, options) for name, options in ways.items()}
    feeds = feeds_of(original, task)
    np.savez(folder / "feeds.npz", **feeds)
    try:
        np.savez(folder / "truth.npz", *evaluate(onnx.load(original), feeds).values())
    except UnknownError as why:
        print(f"{task.name}: {why}", file=sys.stderr)
    operators = {op: n for op, n in results["native"].operators_after.items() if op.startswith("onnx_subgraph.")}
    return {"name": task.name, "folder": str(folder), "original": str(original), "operators": operators, "budget": task.budget}


def measure(made: Mapping[str, Any], threads: int) -> Row:
    """Time the models of a task in turn in this process, with the instruction sets that it sees."""
    folder, original = Path(made["folder"]), Path(made["original"])
    with np.load(folder / "feeds.npz") as data:
        feeds = dict(data)
    native = folder / "native.onnx"
    sessions: dict[str, Any] = {
        "original": open_session(original, threads),
        "onnxruntime": open_session(folder / "onnxruntime.onnx", threads),
        "by definition": open_session(native, threads),
        "kernels": open_session(native, threads, (kernels.path(),)),
        "kernels, bf16": open_session(folder / "rounded.onnx", threads, (kernels.path(),)),
    }
    others = {"OpenVINO, float32": "f32", "OpenVINO": ""} if made["best"] else {}
    for name, precision in others.items():
        try:
            sessions[name] = OpenVino(original, threads, precision)
        except Exception as why:  # it is not installed, or does not read the model
            print(f"{made['name']}: {name}: {str(why).splitlines()[0]}", file=sys.stderr)
    truth = _truth(folder)
    errors = {name: _error(session.run(None, feeds), truth) for name, session in sessions.items()} if truth else {}
    times = seconds_of_runs(sessions, feeds, made["budget"], threads)
    ratios = {name: quartiles(times[name], times["original"]) for name in times if name != "original"}
    return Row(made["name"], float(np.quantile(times["original"], QUANTILE)) * 1e3, ratios, made["operators"], errors)


def _truth(folder: Path) -> list[np.ndarray]:
    if not (folder / "truth.npz").exists():
        return []
    with np.load(folder / "truth.npz") as data:
        return [data[name] for name in data.files]


def _error(found: list[Any], truth: list[np.ndarray]) -> float:
    """The largest difference of an output from float64, relative to the largest magnitude of that output."""
    pairs = [(a, b) for a, b in zip(found, truth, strict=True) if b.dtype.kind == "f" and b.size]
    return max(float(np.abs(a.astype("f8") - b).max() / max(np.abs(b).max(), 1e-30)) for a, b in pairs)


def seen(setting: Setting, made: list[dict[str, Any]], *, profile: bool) -> Iterator[dict[str, Any]]:
    """The measurements of a process that sees the processor of a setting."""
    environment = older_processor.environment(setting.isa) if setting.hidden else {**os.environ, ISA: setting.isa}
    assert environment is not None
    made = [{**one, "best": setting.isa == kernels.describe().here[-1]} for one in made]
    command = [sys.executable, __file__, "--child", json.dumps({"threads": setting.threads, "made": made, "profile": profile})]
    with subprocess.Popen(command, env=dict(environment), stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        yield from map(json.loads, child.stdout)


def child(asked: Mapping[str, Any]) -> None:
    """Measure and print a line for each model."""
    for made in asked["made"]:
        if not asked["profile"]:
            print(json.dumps(asdict(measure(made, asked["threads"]))), flush=True)
            continue
        with np.load(Path(made["folder"]) / "feeds.npz") as data:
            feeds = dict(data)
        rows = spent(Path(made["folder"]) / "native.onnx", feeds, kernels.path())
        print(json.dumps({"name": made["name"], "spent": [asdict(row) for row in rows]}), flush=True)


def settings(threads: list[int]) -> list[Setting]:
    """All settings, the best instruction set first. The baseline is measured on one thread only.

    What can't be hidden from onnxruntime is left out, but for the sets in which onnxruntime's float32 kernels are the same.
    """
    isas = [isa for isa in kernels.describe().here[::-1] if isa != "amx" or kernels.describe().used == isa]
    hidden = {isa: older_processor.environment(isa) is not None for isa in isas}
    isas = [isa for isa in isas if hidden[isa] or isa.startswith("avx512")]
    return [Setting(isa, n, hidden[isa]) for isa in isas for n in threads if isa != "baseline" or n == 1 or len(isas) == 1]


def _kept(name: str, setting: Setting) -> str:
    return f"{name}.{setting.isa}.{setting.threads}.json"


def main() -> None:
    """Time the models."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models_or_corpus", type=Path, nargs="*", metavar="CORPUS")
    parser.add_argument("--models", default="*", help="a glob over the names of the corpus, in place of the usual ones")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds of timing for one model and setting")
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, len(os.sched_getaffinity(0))}))
    parser.add_argument("--cache", type=Path, help="a folder of runnable models, filled as needed")
    parser.add_argument("--rows", type=Path, help="a folder that keeps the results; models with a result are not measured again")
    parser.add_argument("--write", type=Path, nargs="?", const=PAGE, metavar="FILE", help="write the page, native.md or another")
    parser.add_argument("--child", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.child)
        return
    with tempfile.TemporaryDirectory() as folder:
        made = []
        for task in tasks(given.models_or_corpus, names=given.models, budget=given.budget, threads=1, cache=given.cache):
            if given.models != "*" or task.name in MODELS:
                (home := Path(folder) / task.name).mkdir()
                made.append(make(task, home))
        keep = given.rows or Path(folder)
        keep.mkdir(parents=True, exist_ok=True)
        every = settings(sorted({1, *given.threads, len(os.sched_getaffinity(0))}))
        for setting in settings(given.threads):
            missing = [one for one in made if not (keep / _kept(one["name"], setting)).exists()]
            for row in seen(setting, missing, profile=False):
                (keep / _kept(row["name"], setting)).write_text(json.dumps(row), encoding="utf-8")
                print(setting, json.dumps(row), flush=True)
        found = {setting: [keep / _kept(one["name"], setting) for one in made] for setting in every}
        rows = {
            setting: [kept_row(Row, path) for path in paths if path.exists()]
            for setting, paths in found.items()
            if any(path.exists() for path in paths)
        }
        best = settings([1])[0]
        told = [one for one in made if one["name"] in BY_OPERATOR]
        by_operator = {one["name"]: [Spent(**row) for row in one["spent"]] for one in seen(best, told, profile=True)}
    print(text := page(rows, by_operator, onnxruntime.__version__))
    if given.write:
        given.write.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
