"""Fuses every graph of a corpus of real models and writes `benchmarks/reach.md`: what was found of what the networks contain.

    python benchmarks/reach.py CORPUS [--models 'bert*'] [--jobs 2]

CORPUS is a folder with `manifest.json`, `truth.json`, `materialize.py`, `feeds.py` and graphs NAME.onnx without weights. Each
model gets weights in a temporary folder, is fused in a child process, counted, loaded in plain onnxruntime, and compared with the
original at the sizes and on the feeds of the manifest. The verification of `fuse` takes no part in that.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import onnx
import onnxruntime
import units
import workers
from reach_page import TITLES, Row, page
from scripts import load_script
from written import complaint_of_checker, relative_error

CORES = min(4, os.cpu_count() or 1)
"""Threads of onnxruntime in `fuse`."""
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from onnx_subgraph.errors import OnnxSubgraphError  # noqa: E402
from onnx_subgraph.language.library import load_patterns  # noqa: E402
from onnx_subgraph.options import Options  # noqa: E402
from onnx_subgraph.pipeline import FuseResult, fuse  # noqa: E402


@dataclass(frozen=True)
class Task:
    """One model of the corpus. cache: a folder of runnable models to use and fill, or None. written: folder of fused models."""

    corpus: Path
    name: str
    cache: Path | None
    written: Path | None = None


def measure(task: Task) -> Row:
    """Fuse one model of the corpus and count its units."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = _runnable(task, Path(folder)), load_patterns()
        output = (task.written or Path(folder)) / f"{task.name}.fused.onnx"
        begun = time.process_time()
        try:
            result = fuse(source, output, library, Options())
        except OnnxSubgraphError as error:
            seconds = time.process_time() - begun
            return Row(task.name, "refused", seconds, reasons=(error.message.replace(f"{source.parent}/", ""),))
        seconds = time.process_time() - begun
        original = onnx.load(source, load_external_data=False)
        written = original if result.output is None else onnx.load(result.output, load_external_data=False)
        found, expected, notes = _counts(task, original, written, result)
        error, problem = (float("nan"), "") if result.output is None else _compare(task, source, result.output)
        reasons = (r.replace(f"{source.parent}/", "").replace(f"{folder}/", "") for r in _reasons(result, found, expected))
        return Row(
            name=task.name,
            verdict=result.verdict.verdict,
            seconds=seconds,
            before=result.nodes_before,
            after=result.nodes_after,
            opsets=(result.opset_before, result.opset_after),
            found=found,
            expected=expected,
            error=error,
            problem=problem,
            invalid="" if result.output is None else complaint_of_checker(source, result.output),
            strength=result.verdict.strength,
            notes=notes,
            reasons=tuple(reasons),
            rewrites=dict(Counter(r.pattern for r in result.rewrites)),
            half=any(tensor.data_type == onnx.TensorProto.FLOAT16 for tensor in original.graph.initializer),
        )


def _runnable(task: Task, folder: Path) -> Path:
    """A path to the model with its weights, from the cache if it has one."""
    cached = None if task.cache is None else task.cache / f"{task.name}.onnx"
    if cached is not None and cached.exists():
        return cached
    materialize = load_script(task.corpus / "materialize.py")
    path = (folder if cached is None else cached.parent) / f"{task.name}.onnx"
    model, size = materialize.materialize(str(task.corpus / path.name))
    materialize.save(model, size, str(path))
    return path


def _counts(
    task: Task, original: onnx.ModelProto, written: onnx.ModelProto, result: FuseResult
) -> tuple[dict[str, int], dict[str, int], tuple[str, ...]]:
    """Units found and units expected. A graph may have fewer than its network: then these are expected, and a note says so."""
    truth, spelled, count = _truth(task), units.spelled(original), units.count(written)
    wanted = {unit: truth.get(unit, 0) for unit in units.UNITS}
    wanted["gelu"] = truth.get("gelu_erf", 0) + truth.get("F.gelu", 0)
    wanted["silu"] = max(truth.get("silu", 0), truth.get("F.silu", 0))
    wanted["relu"] = truth.get("relu", 0) + truth.get("relu6", 0)
    wanted["attention"] = truth.get("attention", 0) + truth.get("softmax", 0)
    notes = []
    for unit in ("gelu", "silu", "relu"):
        if spelled[unit] < wanted[unit]:
            has = f"{spelled[unit]} behind a convolution" if unit == "relu" else f"{spelled[unit]}: equal calls were merged"
            notes.append(f"the network calls {TITLES[unit]} {wanted[unit]} times, the graph has {has}")
            wanted[unit] = spelled[unit]
    found = {unit: count[unit] for unit in units.UNITS}
    found["batch_norm"] = max(0, wanted["batch_norm"] - count["batch_norm_left"])
    for rewrite in result.rewrites:
        unit = units.unit_of_pattern(rewrite.pattern)
        if unit in ("layer_norm", "rms_norm") and not rewrite.added:
            found[unit] += 1
            notes.append(f"a {TITLES[unit]} of constants was folded into a constant")
    return found, wanted, tuple(notes)


def _truth(task: Task) -> Mapping[str, int]:
    """The units of the model's network. A converted model (`bert_l4_eager_fp16conv`) has those of its source network."""
    every = json.loads((task.corpus / "truth.json").read_text(encoding="utf-8"))
    base = task.name.partition(".")[0]
    while base and base not in every:
        base = base.rpartition("_")[0]
    return dict(every.get(base, {}))


def _compare(task: Task, original: Path, written: Path) -> tuple[float, str]:
    """The largest relative difference on the manifest's feeds, or onnxruntime's error if it does not run."""
    feeds = load_script(task.corpus / "feeds.py").feeds(task.name)
    plain = onnxruntime.SessionOptions()
    plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        candidate = onnxruntime.InferenceSession(str(written), providers=["CPUExecutionProvider"])
        found = candidate.run(None, feeds)
    except Exception as error:  # onnxruntime has one class of errors for each status
        return float("nan"), f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
    del candidate
    reference = onnxruntime.InferenceSession(str(original), plain, providers=["CPUExecutionProvider"]).run(None, feeds)
    return max((relative_error(a, b) for a, b in zip(found, reference, strict=True)), default=0.0), ""


def _reasons(result: FuseResult, found: Mapping[str, int], expected: Mapping[str, int]) -> Iterable[str]:
    """Why too few of a unit were found, for each such unit: from the result's skips, or else its furthest near miss."""
    if result.verdict.verdict != "equivalent":
        worst = result.verdict.worst
        where = "" if worst is None else f" ({worst.output}: {worst.error:.3g} over {worst.bound:.3g} {worst.problem})"
        yield f"{result.verdict.verdict}: {result.verdict.reason}{where}"
    for unit in units.UNITS:
        if found[unit] >= expected[unit]:
            continue
        skips = Counter(s.reason for s in result.skipped if units.unit_of_pattern(s.pattern) == unit)
        misses = [m for m in result.near_misses if units.unit_of_pattern(m.pattern) == unit]
        if skips:
            reason, times = skips.most_common(1)[0]
            yield f"{TITLES[unit]}: {reason} ({times}×)"
        elif misses:
            miss = max(misses, key=lambda m: m.matched)
            yield f"{TITLES[unit]}: {miss.pattern} at {miss.node}: expected {miss.expected}, found {miss.found}"
        else:
            yield f"{TITLES[unit]}: no candidate"


def _write(path: Path, rows: list[Row], failures: Mapping[str, str]) -> None:
    path.write_text(page(sorted(rows, key=lambda r: r.name), failures, CORES), encoding="utf-8")


def main() -> None:
    """Fuse the corpus and write the page; exit 1 if a model failed or a written model is wrong."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("corpus", type=Path)
    arguments.add_argument("--models", default="*", help="a glob over the names of the models")
    arguments.add_argument("--jobs", type=int, default=1)
    arguments.add_argument("--limit", type=float, default=600, help="seconds for one model")
    arguments.add_argument("--cache", type=Path, help="a folder of runnable models, filled as needed; needs some 15 GB")
    arguments.add_argument("--written", type=Path, help="a folder to keep the written models in; needs as much again")
    arguments.add_argument("--rows", type=Path, help="a folder that keeps the results; models with a result are not run again")
    arguments.add_argument("-o", "--output", type=Path, default=HERE / "reach.md")
    given = arguments.parse_args()
    names = fnmatch.filter(sorted(json.loads((given.corpus / "manifest.json").read_text(encoding="utf-8"))), given.models)
    if not names:
        arguments.error(f"the corpus has no model {given.models!r}")
    rows: list[Row] = []
    failures: dict[str, str] = {}
    kept = {path.stem: Row(**json.loads(path.read_text("utf-8"))) for path in given.rows.glob("*.json")} if given.rows else {}
    rows += [kept[name] for name in names if name in kept]
    tasks = [Task(given.corpus.resolve(), name, given.cache, given.written) for name in names if name not in kept]
    outcomes = workers.run(measure, tasks, jobs=given.jobs, limit=given.limit, fresh=True)
    for number, outcome in enumerate(outcomes, 1):
        row = outcome.result
        if row is None:
            said = outcome.failure.replace(f"{HERE.parent}/", "").replace(f"{tempfile.gettempdir()}/", "")
            failures[outcome.task.name] = said
        else:
            rows.append(row)
            if given.rows is not None:
                given.rows.mkdir(parents=True, exist_ok=True)
                (given.rows / f"{row.name}.json").write_text(json.dumps(asdict(row), indent=1), "utf-8")
        said = outcome.failure.strip().splitlines()[-1] if row is None else f"{row.verdict} {row.seconds:.1f} s {row.problem}"
        width = shutil.get_terminal_size().columns - 1
        print(f"{number}/{len(tasks)} {outcome.task.name}: {said}"[:width], file=sys.stderr, flush=True)
        _write(given.output, rows, failures)  # an interrupted run keeps its results
    _write(given.output, rows, failures)
    print(f"{given.output}: {len(rows)} models, {len(failures)} failures")
    sys.exit(bool(failures) or any(r.problem or r.error > 0.02 for r in rows))


if __name__ == "__main__":
    main()
