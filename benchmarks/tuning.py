"""Tunes models within an accuracy, times the results beside OpenVINO, and writes `benchmarks/tuning.md`.

    python benchmarks/tuning.py CORPUS|MODEL.onnx… [--accuracy 1e-2] [--budget 30] [--cache DIR] [--rows DIR] [--write]
    python benchmarks/tuning.py MODEL.onnx… --sources SOURCES … [--write]

For each model `tune` chooses among fusions, our kernels with rounded products, and engines of OpenVINO in float32 and in the
processor's narrower type, at the sizes that the corpus names, or at the usual ones. Then four ways run in turn: the original in
onnxruntime, the tuned model, and the original in OpenVINO, in float32 and as it comes. Errors are those of the outputs against a
float64 evaluation. Of a corpus the ten transformers of `native.py` are taken.

SOURCES is that of `real_models.py`; then the page is `tuned_real_models.md`. A model that can't be evaluated in float64 is tuned
in float32.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from native import MODELS
from rows import kept_row
from scripts import load_script
from tasks import Task, feeds_of, runnable, tasks

from onnx_subgraph import Options, fuse, kernels, load_patterns
from onnx_subgraph.errors import OnnxSubgraphError, UsageError
from onnx_subgraph.evaluator.truth import UnknownError, evaluate
from onnx_subgraph.language.library import Library
from onnx_subgraph.options import in_this_way
from onnx_subgraph.timing.runtimes import Setting, open_runner, try_once
from onnx_subgraph.timing.tuning import Tuning, machine
from onnx_subgraph.timing.turns import Ratio, ratio, take_turns
from onnx_subgraph.tuning import tune
from onnx_subgraph.tuning.engines import fuse_with_engines
from onnx_subgraph.verification.sessions import Failure

PAGE = Path(__file__).with_name("tuning.md")
PAGE_OF_REAL_MODELS = Path(__file__).with_name("tuned_real_models.md")
WAYS = ("tuned", "kernels, bf16", "OpenVINO, float32", "OpenVINO")
ERRORS = ("original", "tuned", "kernels, bf16", "OpenVINO")

PREFACE = """\
# Tuned within an accuracy

Made by `python benchmarks/tuning.py {arguments} --write` with onnxruntime {version} on
{processor}, with the default number of threads.

Products are rounded, and an engine rounds, only if every output stays within {accuracy:g} of a float64 evaluation, as
a share of its largest element.

Ratios are times divided by the original's in onnxruntime, with the least and most of five parts of the run. *Kernels,
bf16* is `fuse --target native --numerics bf16`. OpenVINO runs the original, in float32 or in the precision that it
chooses. Errors are differences from float64, also of the original in onnxruntime.
"""
REAL = """\
The models are the {number} of [real_models.md](real_models.md) whose feeds are numbers, on one set of feeds for
each. Those that can't be evaluated in float64, where nothing is said of errors, were tuned in float32. All were
fused with `--constant-initializers`. Not timed: {failed}.

Three limits hold most of the time: convolutions and products in float32 run near the processor's peak in onnxruntime
and OpenVINO alike (*bound* in real_models.md); OpenVINO's bfloat16 is farther than {accuracy:g} from float64 on most
detectors, and then only a part of the model, if any, may be computed in it (`openvino:bf16;openvino`); and an engine is
not taken where no output can show its error, as in a detector that finds nothing on these feeds.
"""


@dataclass(frozen=True)
class Row:
    """The result for one model. ratios, errors: of each of `WAYS`, and errors of the original."""

    name: str
    milliseconds: float
    chosen: str
    ratios: Mapping[str, Ratio]
    errors: Mapping[str, float]


def drawn(original: Path, task: Task, sources: Path | None) -> Mapping[str, Any]:
    """Feeds of a model: of SOURCES, or of the corpus, or as verification draws them."""
    if sources is None:
        return feeds_of(original, task)
    entry = json.loads((sources / "models.json").read_text(encoding="utf-8"))[task.name]
    session = onnxruntime.InferenceSession(original, providers=["CPUExecutionProvider"])
    feeds: Mapping[str, Any] = load_script(sources / "feeds.py").feeds(entry, session, 0)
    if any(array.dtype.hasobject for array in feeds.values()):
        raise UsageError("its feeds are texts, which --inputs does not take")
    return feeds


def tuned(original: Path, library: Library, options: Options, budget: float) -> tuple[Tuning, Options]:
    """What `tune` finds, and the options that it was found with: without an accuracy where none can be promised."""
    tell = lambda stage: print(f"  {stage}", file=sys.stderr)  # noqa: E731
    try:
        return tune(original, library, options, budget, tell, ["openvino"]), options
    except UsageError as why:
        print(f"{original}: {why}", file=sys.stderr)
        options = replace(options, accuracy=None)
        return tune(original, library, options, budget, tell, ["openvino"]), options


def measured(task: Task, accuracy: float, budget: float, sources: Path | None) -> Row:
    """Tune one model and time it."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        original = runnable(task, folder)
        feeds = drawn(original, task, sources)
        np.savez(folder / "feeds.npz", **feeds)
        library = load_patterns()
        constants = sources is not None
        options = Options(target="native", accuracy=accuracy, inputs=folder / "feeds.npz", constant_initializers=constants)
        found, options = tuned(original, library, options, budget)
        made = folder / "tuned.onnx"
        result = fuse_with_engines(original, made, library, in_this_way(options, found), found)
        if result.output is None:
            raise UsageError(f"what was tuned is {result.verdict.verdict}: {result.verdict.reason}")
        rounded = folder / "rounded.onnx"
        fuse(original, rounded, library, replace(options, numerics="bf16", accuracy=None, verify=False))
        runtime = "engines" if found.backend else "kernels" if found.target == "native" else "onnxruntime"
        opened = {
            "original": open_runner(original, "onnxruntime", Setting()),
            "tuned": open_runner(made, runtime, Setting()),
            "kernels, bf16": open_runner(rounded, "kernels", Setting()),
            "OpenVINO, float32": open_runner(original, "openvino-f32", Setting()),
            "OpenVINO": open_runner(original, "openvino", Setting()),
        }
        runners = {name: one for name, one in opened.items() if not isinstance(one, Failure)}
        errors = dict(_errors(original, feeds, {name: try_once(one, feeds) for name, one in runners.items()}))
        times = take_turns({name: lambda one=one: one.run(feeds) for name, one in runners.items()}, budget)
        ratios = {name: ratio(times[name], times["original"]) for name in times if name != "original"}
        return Row(task.name, float(np.median(times["original"])) * 1e3, chosen(found), ratios, errors)


def chosen(found: Tuning) -> str:
    """The chosen way as text."""
    if found.backend:
        return found.backend
    rounded = "" if found.rounded is None else f", {found.numerics} in {len(found.rounded)} products"
    return f"{found.target}{rounded}" if found.whole is not None else "not changed"


def _errors(original: Path, feeds: Mapping[str, Any], outputs: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The largest difference of an output from float64, relative to its largest element; none without a float64 evaluation."""
    try:
        truth = evaluate(onnx.load(original), feeds)
    except UnknownError as why:
        print(f"{original}: {why}", file=sys.stderr)
        return
    for name, found in outputs.items():
        if not isinstance(found, Failure):
            floats = {key: exact for key, exact in truth.items() if exact.dtype.kind == "f" and exact.size}
            yield (
                name,
                max(float(np.abs(found[k].astype("f8") - e).max() / max(np.abs(e).max(), 1e-30)) for k, e in floats.items()),
            )


def processor() -> str:
    """The machine of the page, as text."""
    return f"{os.cpu_count()} cores of an {machine('CPUExecutionProvider')['processor']} ({kernels.describe().used})"


def mean(rows: Sequence[Row], name: str) -> str:
    """The geometric mean of the ratios."""
    found = [row.ratios[name].ratio for row in rows if name in row.ratios]
    return f"{math.exp(sum(map(math.log, found)) / len(found)):.3f}" if found else "–"


def page(rows: Sequence[Row], accuracy: float, failed: Mapping[str, str], *, real: bool) -> str:
    """The page."""
    not_timed = "; ".join(f"{name} ({why})" for name, why in failed.items()) or "none"
    lines = [
        PREFACE.format(
            arguments="MODEL.onnx… --sources SOURCES" if real else "CORPUS",
            version=onnxruntime.__version__,
            processor=processor(),
            accuracy=accuracy,
        ),
        *([REAL.format(number=len(rows), failed=not_timed, accuracy=accuracy)] if real else []),
        f"| model | ms | chosen | {' | '.join(WAYS)} | error: {' | '.join(ERRORS)} |",
        f"|---|---:|---|{'---|' * len(WAYS)}{'---:|' * len(ERRORS)}",
    ]
    for row in rows:
        shown = [f"{r.ratio:.3f} ({r.least:.2f}–{r.most:.2f})" if (r := row.ratios.get(name)) else "–" for name in WAYS]
        wrong = [f"{row.errors[name]:.1e}" if name in row.errors else "–" for name in ERRORS]
        lines.append(f"| {row.name} | {row.milliseconds:.3g} | {row.chosen} | {' | '.join(shown)} | {' | '.join(wrong)} |")
    lines.append(f"| geometric mean | | | {' | '.join(f'**{mean(rows, name)}**' for name in WAYS)} | | | | |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Tune and time the models."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("models_or_corpus", type=Path, nargs="+", metavar="CORPUS|MODEL.onnx")
    arguments.add_argument("--models", default="*", help="a glob over the names of the corpus")
    arguments.add_argument("--accuracy", type=float, default=1e-2)
    arguments.add_argument("--budget", type=float, default=30.0, help="seconds of running for tuning, and again for timing")
    arguments.add_argument("--cache", type=Path, help="a folder that keeps the models of a corpus with their weights")
    arguments.add_argument("--sources", type=Path, help="the folder with models.json and feeds.py of the models")
    arguments.add_argument("--rows", type=Path, help="a folder that keeps what was measured, which is not measured again")
    arguments.add_argument("--write", action="store_true", help="write the page")
    given = arguments.parse_args()
    rows, failed = [], {}
    with tempfile.TemporaryDirectory() as folder:
        keep = given.rows or Path(folder)
        keep.mkdir(parents=True, exist_ok=True)
        for task in tasks(given.models_or_corpus, names=given.models, budget=given.budget, cache=given.cache):
            kept = keep / f"{task.name}.json"
            if task.corpus is not None and task.name not in MODELS:
                continue
            try:
                if not kept.exists():
                    row = measured(task, given.accuracy, given.budget, given.sources)
                    kept.write_text(json.dumps(asdict(row)), encoding="utf-8")
                rows.append(kept_row(Row, kept))
                print(rows[-1], flush=True)
            except OnnxSubgraphError as why:
                failed[task.name] = str(why).splitlines()[0]
                print(f"{task.name}: {why}", flush=True)
    text = page(rows, given.accuracy, failed, real=given.sources is not None)
    print(text)
    if given.write:
        (PAGE if given.sources is None else PAGE_OF_REAL_MODELS).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
