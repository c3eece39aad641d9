"""Fuses published models with trained weights and writes `benchmarks/real_models.md`: what is fused, checked and gained.

    python benchmarks/real_models.py FOLDER SOURCES [--models 'ppocr*'] [--rows DIR] [--jobs 2] [--budget 5] [--peers PYTHON]

FOLDER has the models, NAME.onnx. SOURCES has `models.json`, which maps NAME to the model's source (`registry`, `package`,
`version`) and inputs, and `feeds.py`, whose `feeds(entry, session, seed)` draws feeds for an entry.

A child process fuses each model with default options. Then this file compares the written model with the original, and fuses the
model again with renamed symbolic dimensions. When all models are fused, they are timed one after the other: the original, the
written model, the results of other tools (PYTHON is an interpreter that has them, see `peers.py`), and the original in OpenVINO
if it is installed, all in turn. Where weights are inputs as well, the result of `--constant-initializers` is timed too. The
original is timed twice, which shows the noise. The time of convolutions, products and recurrences in the written model is
measured as well: no fusion makes them faster.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import workers
from dimensions import SPELLINGS, renamed
from peers import peer_command
from products import seconds_of_products
from real_models_page import CONSTANT, OPENVINO, OURS, PEERS, Fused, Latency, Row, Undone, Variant, is_off, page, told
from scripts import load_script
from taking_turns import ratio, seconds_of_ways
from written import complaint_of_checker, relative_error

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from onnx_subgraph.errors import OnnxSubgraphError  # noqa: E402
from onnx_subgraph.evaluator.truth import UnknownError, evaluate  # noqa: E402
from onnx_subgraph.language.library import Library, load_patterns  # noqa: E402
from onnx_subgraph.options import Options  # noqa: E402
from onnx_subgraph.pipeline import FuseResult, fuse  # noqa: E402
from onnx_subgraph.timing.runtimes import Runner, Setting, open_runner, try_once  # noqa: E402
from onnx_subgraph.verification.sessions import Failure  # noqa: E402

SEEDS = (101, 102, 103)
"""Seeds of the feeds on which the written model is compared with the original."""
NEAR, COARSE = 1e-2, 0.5
"""Allowed errors of other tools' models, and of OpenVINO with fewer bits, as shares of an output's magnitude."""
PATIENCE = 300
"""Seconds that a peer may take for a model."""


@dataclass(frozen=True)
class Task:
    """One model. written: the path of the fused one. budget: seconds of timing. peers: their interpreter."""

    name: str
    model: Path
    sources: Path
    entry: Mapping[str, Any]
    written: Path
    budget: float
    threads: int
    peers: Path | None = None

    @property
    def fastest(self) -> Path:
        """The model that a user of `fuse` runs."""
        return self.written if self.written.exists() else self.model


def measure(task: Task) -> Fused:
    """Fuse a model, and compare the written one with the original."""
    library = load_patterns()
    result = fuse(task.model, task.written, library, Options())
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    groups = {pattern.id: pattern.group for pattern in library.patterns}
    error, own, problem = _compared(task, result.output)
    return Fused(
        opsets=(result.opset_before, result.opset_after),
        nodes=(result.nodes_before, result.nodes_after),
        patterns=dict(Counter(r.pattern for r in result.rewrites)),
        groups=dict(Counter(groups[r.pattern] for r in result.rewrites)),
        undone=[Undone(u.rewrite.pattern, u.rewrite.root, u.found, u.error, u.bound, u.problem) for u in result.undone],
        verdict=result.verdict.verdict,
        strength=result.verdict.strength if result.rewrites else "",
        reason=result.verdict.reason,
        seconds=dict(result.seconds),
        megabytes=megabytes,
        error=error,
        own=own,
        problem=problem or complaint_of_checker(task.model, task.written),
        skipped=dict(Counter(f"{s.pattern}: {s.reason}" for s in result.skipped)),
        variants=_variants(task, library),
    )


def _compared(task: Task, written: Path | None) -> tuple[float, float, str]:
    """The largest relative differences of the written model and of the optimised original to the original without optimisation.

    If the first is too large, both are distances from a float64 evaluation, if there is one: of the written model, and of the
    original without optimisation. written: None if nothing was written. The third value is onnxruntime's error, or "".
    """
    plain, optimised = onnxruntime.SessionOptions(), onnxruntime.SessionOptions()
    plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    draw = load_script(task.sources / "feeds.py").feeds
    reference = _session(task.model, plain)
    feeds = [draw(task.entry, reference, seed) for seed in SEEDS]
    expected = [reference.run(None, drawn) for drawn in feeds]
    own = _error([_session(task.model, optimised).run(None, drawn) for drawn in feeds], expected)
    if written is None:
        return float("nan"), own, "nothing was written"
    found = []
    for options in (plain, optimised):
        try:
            session = _session(written, options)
            found.append([session.run(None, drawn) for drawn in feeds])
        except Exception as failure:  # onnxruntime has one class of errors for each status
            return float("nan"), own, f"{type(failure).__name__}: {str(failure).splitlines()[0][:200]}"
    error = max(_error(one, expected) for one in found)
    if not is_off(error, own):
        return error, own, ""
    try:
        truth = [[*evaluate(onnx.load(task.model), drawn).values()] for drawn in feeds]
    except UnknownError:
        return error, own, ""
    return max(_error(one, truth) for one in found), _error(expected, truth), ""


def _session(path: Path, options: onnxruntime.SessionOptions) -> onnxruntime.InferenceSession:
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _error(found: Sequence[Sequence[Any]], expected: Sequence[Sequence[Any]]) -> float:
    """The largest relative error of an output over all draws of feeds. Outputs that are not numeric do not count."""
    error = 0.0
    for some, others in zip(zip(*found, strict=True), zip(*expected, strict=True), strict=True):  # an output in all draws
        if getattr(others[0], "dtype", np.dtype(object)).kind not in "fiub":
            continue
        if [a.shape for a in some] != [b.shape for b in others]:
            return float("inf")
        error = max(error, relative_error(np.concatenate([*map(np.ravel, some)]), np.concatenate([*map(np.ravel, others)])))
    return error


def _variants(task: Task, library: Library) -> dict[str, Variant]:
    """What is fused under each other name of the symbolic dimensions; empty if there are none."""
    found: dict[str, Variant] = {}
    with tempfile.TemporaryDirectory() as folder:
        for spelling in SPELLINGS:
            path = Path(folder) / "renamed.onnx"
            model = renamed(onnx.load(task.model), spelling)
            if model is None:
                return {}
            onnx.save(model, path)
            try:
                found[spelling] = _variant(fuse(path, None, library, Options(verify=False)))
            except OnnxSubgraphError as error:
                found[spelling] = Variant(0, {}, error.message.replace(f"{folder}/", ""))
        found["as published"] = _variant(fuse(task.model, None, library, Options(verify=False)))
    return found


def _variant(result: FuseResult) -> Variant:
    return Variant(result.nodes_after, dict(Counter(r.pattern for r in result.rewrites)))


def timed(task: Task) -> Latency:
    """Time the original twice and all models made from it, in turn. A model that fails or computes something else is left out."""
    setting = Setting(threads=task.threads)
    with tempfile.TemporaryDirectory() as folder:
        paths, failures = {OURS: task.fastest}, {}
        for peer in PEERS if task.peers is not None else ():
            made = Path(folder) / f"{peer}.onnx"
            said = _made(peer_command(task.peers, peer, task.model, str(made), False, {}), task)
            paths, failures = (paths, failures | {peer: said}) if said else (paths | {peer: made}, failures)
        if fuse(task.model, None, load_patterns(), Options(verify=False)).overridable.names:
            paths[CONSTANT] = Path(folder) / "constant.onnx"
            fuse(task.model, paths[CONSTANT], load_patterns(), Options(constant_initializers=True))
        original = open_runner(task.model, "onnxruntime", setting)
        assert isinstance(original, Runner) and original.session is not None
        feeds = load_script(task.sources / "feeds.py").feeds(task.entry, original.session.handle, SEEDS[0])
        opened = {name: open_runner(path, "onnxruntime", setting) for name, path in paths.items()}
        opened |= {name: open_runner(task.model, runtime, setting) for name, runtime in OPENVINO.items()}
        runners = {"original": original, "again": open_runner(task.model, "onnxruntime", setting)}
        expected = try_once(original, feeds)
        most = dict.fromkeys(PEERS, NEAR) | dict.fromkeys(OPENVINO, COARSE)  # ours was compared with the original before
        for name, runner in opened.items():
            found = runner if isinstance(runner, Failure) else try_once(runner, feeds)
            problem = found.message if isinstance(found, Failure) else _other(found, expected, most.get(name, math.inf))
            failures, runners = (failures | {name: problem}, runners) if problem else (failures, runners | {name: runner})
        products = seconds_of_products(task.fastest, feeds, task.threads)
        times = seconds_of_ways({name: partial(runner.run, feeds) for name, runner in runners.items()}, task.budget, task.threads)
    failures = {name: problem.replace(f"{folder}/", "") for name, problem in failures.items()}
    milliseconds = {name: float(np.median(times[name])) * 1e3 for name in ("original", OURS)}
    ratios = {name: ratio(times[name], times["original"]) for name in times if name != "original"}
    share = min(1.0, products * 1e3 / milliseconds[OURS])
    return Latency(milliseconds["original"], ratios, failures, share, len(times["original"]), task.threads)


def _made(command: Sequence[str], task: Task) -> str:
    """The error of a peer's process, or "" if it makes the model."""
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, cwd=task.model.parent, check=False)
    except subprocess.TimeoutExpired:
        return f"not done after {PATIENCE} s"
    return "" if ended.returncode == 0 else (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1][:200]


def _other(found: Mapping[str, Any], expected: Mapping[str, Any] | Failure, most: float) -> str:
    """What is wrong with the outputs, or "". A model that computes something else is not timed."""
    assert not isinstance(expected, Failure), expected
    some, others = [[one[name] for name in expected if name in found] for one in (found, expected)]
    error = _error([some], [others]) if len(some) == len(expected) else float("inf")
    return f"an output is {error:.1g} off" if error > most else ""


def _kept(path: Path, read: Callable[[Mapping[str, Any]], Any]) -> Any:
    return read(json.loads(path.read_text("utf-8"))) if path.exists() else None


def _run(given: argparse.Namespace, tasks: Sequence[Task], folder: Path) -> list[Row]:
    """All rows. Results in the folder are not measured again. Timed models take turns, whatever `--jobs` is."""
    kept = {task.name: _kept(folder / f"{task.name}.fused.json", Fused.read) for task in tasks}
    failures: dict[str, str] = {}
    waiting = [task for task in tasks if kept[task.name] is None]
    for outcome in workers.run(measure, waiting, jobs=given.jobs, limit=given.limit, fresh=True):
        name = outcome.task.name
        failures |= {} if outcome.result is not None else {name: _without_paths(outcome.failure, given.models_folder)}
        if outcome.result is not None:
            kept[name] = outcome.result
            (folder / f"{name}.fused.json").write_text(json.dumps(asdict(outcome.result), indent=1), "utf-8")
        print(told(name, outcome.result, outcome.failure), file=sys.stderr, flush=True)
    times = {task.name: _kept(folder / f"{task.name}.latency.json", Latency.read) for task in tasks}
    untimed = [task for task in tasks if times[task.name] is None and kept[task.name]]
    for outcome in workers.run(timed, untimed if given.budget else [], limit=given.limit, fresh=True):
        name, times[outcome.task.name] = outcome.task.name, outcome.result
        failures |= {} if outcome.result is not None else {name: _without_paths(outcome.failure, given.models_folder)}
        if outcome.result is not None:
            (folder / f"{name}.latency.json").write_text(json.dumps(asdict(outcome.result), indent=1), "utf-8")
        print(f"{name} {outcome.result or outcome.failure.strip()[-200:]}", file=sys.stderr, flush=True)
    sources = {t.name: f"{t.entry['registry']} {t.entry['package']} {t.entry['version']}" for t in tasks}
    return [Row(t.name, sources[t.name], kept[t.name], times[t.name], failures.get(t.name, "")) for t in tasks]


def _without_paths(failure: str, models: Path) -> str:
    """A traceback without what depends on the machine."""
    return failure.replace(f"{HERE.parent}/", "").replace(f"{models.resolve()}/", "").replace(f"{tempfile.gettempdir()}/", "")


def main() -> None:
    """Measure the models and write the page; exit 1 if one failed, is wrong, or depends on the names of dimensions."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("models_folder", type=Path, metavar="FOLDER")
    arguments.add_argument("sources", type=Path, metavar="SOURCES")
    arguments.add_argument("--models", default="*", help="a glob over the names of the models")
    arguments.add_argument("--jobs", type=int, default=1, help="models fused at a time; timing is one model after the other")
    arguments.add_argument("--limit", type=float, default=600, help="seconds for one model")
    arguments.add_argument("--budget", type=float, default=5, help="seconds of timing for one model; 0: no timing")
    arguments.add_argument("--threads", type=int, default=1, help="threads of a timed session")
    arguments.add_argument("--peers", type=Path, metavar="PYTHON", help="the interpreter of an environment with the other tools")
    arguments.add_argument(
        "--rows",
        type=Path,
        help="a folder that keeps the written models and what was measured, which is not measured again; "
        "without its *.latency.json only the times are",
    )
    arguments.add_argument("-o", "--output", type=Path, default=HERE / "real_models.md")
    given = arguments.parse_args()
    entries = json.loads((given.sources / "models.json").read_text(encoding="utf-8"))
    names = [n for n in fnmatch.filter(sorted(entries), given.models) if (given.models_folder / f"{n}.onnx").exists()]
    with tempfile.TemporaryDirectory() as temporary:
        folder = (given.rows or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        models, sources = given.models_folder.resolve(), given.sources.resolve()
        settings = (given.budget, given.threads, given.peers)
        tasks = [Task(n, models / f"{n}.onnx", sources, entries[n], folder / f"{n}.onnx", *settings) for n in names]
        rows = _run(given, tasks, folder)
    given.output.write_text(page(rows, onnxruntime.__version__, os.cpu_count() or 1), encoding="utf-8")
    print(f"{given.output}: {len(rows)} models, {sum(row.is_at_fault for row in rows)} with a fault")
    sys.exit(any(row.is_at_fault for row in rows))


if __name__ == "__main__":
    main()
