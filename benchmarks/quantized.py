"""Fuses quantized models, times them, and writes `benchmarks/quantized.md`.

    python benchmarks/quantized.py CORPUS|MODEL.onnx… [--models 'bert*'] [--budget 10] [--cache DIR] [--rows DIR] [--write]

onnxruntime's quantizer makes each model in two ways: dynamic (int8 weights, activations quantized in each run), and static in the
QDQ format (scales from two sets of drawn feeds). `fuse` writes each for onnxruntime's kernels and for ours. For QDQ also the
other order: the float32 model is fused with `--target standard`, then quantized. All run in turn on the same feeds. Needs
`pip install sympy`, which onnxruntime's quantizer imports.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from rows import kept_row
from tasks import Task, feeds_of, runnable, tasks
from tuning import processor

from onnx_subgraph import Options, fuse, load_patterns
from onnx_subgraph.errors import OnnxSubgraphError
from onnx_subgraph.timing.runtimes import Setting, open_runner
from onnx_subgraph.timing.turns import Ratio, ratio, take_turns
from onnx_subgraph.verification.sessions import Failure

PAGE = Path(__file__).with_name("quantized.md")
MODELS = (
    "bert_l4_sdpa.ts14",
    "distilbert.dyn18",
    "minilm_sentence.dyn18",
    "mobilenet_v2.dyn18",
    "resnet50.dyn18",
    "swin_tiny.dyn18",
    "whisper_tiny_encoder.dyn18",
)
CONVOLUTIONAL = ("mobilenet_v2.dyn18", "resnet50.dyn18")
TARGETS = {"onnxruntime": "onnxruntime", "native": "kernels"}
"""Target → the runtime of its models."""
PREFACE = """\
# Quantized models

Made by `python benchmarks/quantized.py CORPUS --write` with onnxruntime {version} on
{processor}, with the default number of threads.

onnxruntime's quantizer made each model from a float32 one. *dynamic*: int8 weights, and activations quantized in each
run. *QDQ*: a QuantizeLinear and a DequantizeLinear around each operator. *fused first*: `fuse --target standard`, then
the quantizer. A time is divided by that of the quantized model, with the least and most of five parts of the run. The
last column, *to float32*, is the time of the quantized model divided by the float32 model's.

Dynamically quantized models gain from `fuse` as they are. In a QDQ model the quantizer's operators stand between those
of LayerNorm, GELU and attention: **fuse first, then quantize.** Convolutions are slower where they are quantized
dynamically, so only transformers are.
"""


@dataclass(frozen=True)
class Row:
    """One quantized model. nodes: before and after. verdicts: target → verdict. ratios: target → time; and of "float32"."""

    name: str
    way: str
    milliseconds: float
    nodes: tuple[int, int]
    verdicts: Mapping[str, str]
    ratios: Mapping[str, Ratio]


def quantized(original: Path, way: str, path: Path, feeds: Mapping[str, Any]) -> None:
    """Write the model in one quantized form. feeds: for the calibration, beside the same feeds halved."""
    from onnxruntime import quantization

    if way == "dynamic":
        quantization.quantize_dynamic(original, path)
        return
    draws = iter([feeds, {name: array / 2 if array.dtype.kind == "f" else array for name, array in feeds.items()}])

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> Mapping[str, Any] | None:
            return next(draws, None)

    kinds = {"activation_type": quantization.QuantType.QUInt8, "weight_type": quantization.QuantType.QInt8}
    quantization.quantize_static(original, path, Reader(), quant_format=quantization.QuantFormat.QDQ, per_channel=True, **kinds)


def measured(task: Task, way: str, folder: Path) -> Row:
    """Quantize, fuse and time one model."""
    original, source = runnable(task, folder), folder / f"{way}.onnx"
    feeds = feeds_of(original, task)
    quantized(original, way, source, feeds)
    np.savez(folder / "feeds.npz", **feeds)
    library = load_patterns()
    runners = {
        "quantized": open_runner(source, "onnxruntime", Setting()),
        "float32": open_runner(original, "onnxruntime", Setting()),
    }
    verdicts = {}
    after = 0
    if way == "QDQ":
        fuse(original, folder / "fused.onnx", library, Options(target="standard"))
        quantized(folder / "fused.onnx", way, folder / "first.onnx", feeds)
        runners["first"] = open_runner(folder / "first.onnx", "onnxruntime", Setting())
    for target, runtime in TARGETS.items():
        made = folder / f"{way}.{target}.onnx"
        result = fuse(source, made, library, Options(target=target, inputs=folder / "feeds.npz"))
        verdicts[target] = result.verdict.verdict
        if result.output is not None:
            runners[target] = open_runner(made, runtime, Setting())
            after = after or len(onnx.load(made, load_external_data=False).graph.node)
    opened = {name: one for name, one in runners.items() if not isinstance(one, Failure)}
    times = take_turns({name: _run(one.run, feeds) for name, one in opened.items()}, task.budget)
    ratios = {name: ratio(times[name], times["quantized"]) for name in times if name != "quantized"}
    if "float32" in ratios:
        ratios["float32"] = ratio(times["quantized"], times["float32"])
    nodes = (len(onnx.load(source, load_external_data=False).graph.node), after)
    return Row(task.name, way, float(np.median(times["quantized"])) * 1e3, nodes, verdicts, ratios)


def _run(run: Callable[[Mapping[str, Any]], object], feeds: Mapping[str, Any]) -> Callable[[], object]:
    return lambda: run(feeds)


def page(rows: list[Row]) -> str:
    """The page."""
    columns = (*TARGETS, "first", "float32")
    lines = [
        PREFACE.format(version=onnxruntime.__version__, processor=processor()),
        "| model | quantized | ms | nodes | verdicts | onnxruntime's kernels | our kernels | fused first | to float32 |",
        "|---|---|---:|---:|---|---|---|---|---|",
    ]
    for row in rows:
        shown = [f"{r.ratio:.3f} ({r.least:.2f}–{r.most:.2f})" if (r := row.ratios.get(name)) else "–" for name in columns]
        verdicts = ", ".join(dict.fromkeys(row.verdicts.values()))
        nodes = f"{row.nodes[0]} → {row.nodes[1] or row.nodes[0]}"
        lines.append(f"| {row.name} | {row.way} | {row.milliseconds:.3g} | {nodes} | {verdicts} | {' | '.join(shown)} |")
    for way in ("dynamic", "QDQ"):
        some = [row for row in rows if row.way == way]
        means = " | ".join(_mean(some, name) for name in columns)
        lines.append(f"| geometric mean | {way} | | | | {means} |")
    return "\n".join(lines) + "\n"


def _mean(rows: list[Row], name: str) -> str:
    found = [row.ratios[name].ratio for row in rows if name in row.ratios]
    return f"**{math.exp(sum(map(math.log, found)) / len(found)):.3f}**" if found else "–"


def _rows(given: argparse.Namespace, keep: Path) -> Iterator[Row]:
    """The rows of all models; those in `keep` are not measured again."""
    for task in tasks(given.models_or_corpus, names=given.models, budget=given.budget, cache=given.cache):
        if task.corpus is not None and task.name not in MODELS:
            continue
        for way in ("dynamic", "QDQ")[task.name in CONVOLUTIONAL :]:
            kept = keep / f"{task.name}.{way}.json"
            if not kept.exists():
                with tempfile.TemporaryDirectory() as folder:
                    try:
                        row = measured(task, way, Path(folder))
                    except OnnxSubgraphError as why:
                        print(f"{task.name}, {way}: {why}", file=sys.stderr)
                        continue
                kept.write_text(json.dumps(asdict(row)), encoding="utf-8")
            yield kept_row(Row, kept)


def main() -> None:
    """Quantize, fuse and time the models."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("models_or_corpus", type=Path, nargs="+", metavar="CORPUS|MODEL.onnx")
    arguments.add_argument("--models", default="*", help="a glob over the names of the corpus")
    arguments.add_argument("--budget", type=float, default=10.0, help="seconds of timing for one model")
    arguments.add_argument("--cache", type=Path, help="a folder that keeps the models of a corpus with their weights")
    arguments.add_argument("--rows", type=Path, help="a folder that keeps what was measured, which is not measured again")
    arguments.add_argument("--write", action="store_true", help="write the page")
    given = arguments.parse_args()
    logging.disable(logging.CRITICAL)  # the quantizer says a lot
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        keep = given.rows or Path(folder)
        keep.mkdir(parents=True, exist_ok=True)
        for row in _rows(given, keep):
            rows.append(row)
            print(row, flush=True)
    text = page(rows)
    print(text)
    if given.write:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
