"""Measures what verdicts rest on and which planted errors are caught, and writes `benchmarks/evidence.md`.

    python benchmarks/evidence.py FOLDER|MODEL... [--models 'bert*'] [--rows DIR] [--jobs 2]

Each model is fused with default options. Then an error is planted in the fused model, at a fusion chosen at random: its result is
multiplied by 1 + δ, for δ from 1e-1 to 1e-6. The error is caught if the check of this fusion alone fails, or if an output of the
model differs. If a FOLDER has a `materialize.py`, it gives the graphs their weights.
"""

from __future__ import annotations

import argparse
import dataclasses
import fnmatch
import json
import random
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir
import onnxruntime
import workers
from rows import page_path
from scripts import load_script

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from onnx_subgraph.files.models import load  # noqa: E402
from onnx_subgraph.language.library import load_patterns  # noqa: E402
from onnx_subgraph.model.shapes import infer_shapes  # noqa: E402
from onnx_subgraph.options import Options  # noqa: E402
from onnx_subgraph.pipeline import fuse  # noqa: E402
from onnx_subgraph.rewriting import costs  # noqa: E402
from onnx_subgraph.rewriting.loadability import Loadability  # noqa: E402
from onnx_subgraph.rewriting.rounds import Rewriter  # noqa: E402
from onnx_subgraph.verification import planting  # noqa: E402
from onnx_subgraph.verification.planting import plant  # noqa: E402
from onnx_subgraph.verification.reference import Reference  # noqa: E402
from onnx_subgraph.verification.site import check_sites  # noqa: E402
from onnx_subgraph.verification.trial import CPU  # noqa: E402

ERRORS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
LARGEST = 1.5e9
"""Outputs of models larger than this many bytes are not compared for each planted error."""
PREFACE = """\
# On what verdicts rest

Made by `python benchmarks/evidence.py FOLDER…` with onnxruntime {version}.

**{models} models, {fusions} fusions.** {kernel} ran in a kernel, {body} by their definition; {alone} were reached by no run.
At their sites, {float64} were compared with float64 ({drawn} on drawn values) and {unfused} with the unfused result;
{outputs} were checked by the outputs only. The comparisons at sites take {share:.0%} of the time of `fuse`.

In each of {tried} models, an error of δ was planted at one site: its results are multiplied by 1 + δ.

| δ | caught | at the site | in an output only |
|---|---|---|---|"""
LEGEND = """\
*Shown* counts fusions: compared at the site with float64 / with the unfused result / checked by the outputs only. *Drawn*
counts those compared on drawn values. *Power* is the smallest error that the outputs show if all their elements have it, as a
share of their spread. *Blind* counts outputs that can show nothing. *Caught* is the smallest δ that was caught at a site of the
named pattern.

| model | verdict | ran: kernel, body, alone | shown | drawn | undone | outputs, blind | power | caught | at a site of |
|---|---|---|---|---|---|---|---|---|---|"""


@dataclass(frozen=True)
class Row:
    """One model. coverage: see `Verdict`. power: the smallest error that the outputs show, as a share of their spread, or None.

    blind: outputs that show nothing. planted: the pattern of the site. caught: δ → "site" or "output", "" if it was not seen.
    """

    name: str
    verdict: str
    coverage: dict[str, int] | None
    undone: int
    outputs: int
    blind: list[str]
    power: float | None
    random: list[str]
    seconds: dict[str, float]
    planted: str = ""
    caught: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """A model. materialize: the script that gives it its weights, or None."""

    model: Path
    materialize: Path | None


def measure(task: Task) -> Row:
    """Fuse a model and plant errors in it."""
    with tempfile.TemporaryDirectory() as folder:
        model = task.model
        if task.materialize is not None:
            script = load_script(task.materialize)
            model = Path(folder) / task.model.name
            script.save(*script.materialize(str(task.model)), str(model))
        result = fuse(model, None, load_patterns(), Options(dry_run=True))
        verdict = result.verdict
        row = Row(
            task.model.stem,
            verdict.verdict,
            None if verdict.coverage is None else asdict(verdict.coverage),
            len(result.undone),
            len(verdict.showings),
            [f"{s.output}: {s.blind}" for s in verdict.showings if s.blind],
            max((s.power for s in verdict.showings if s.power is not None), default=None),
            list(verdict.random),
            dict(result.seconds),
        )
        if not result.rewrites or verdict.verdict != "equivalent":
            return row
        pattern, caught = planted(model)
        return dataclasses.replace(row, planted=pattern, caught=caught)


def planted(model: Path) -> tuple[str, dict[str, str]]:
    """The pattern of the site with planted errors, and where each error was seen. The model keeps its opset."""
    options = Options()
    base = load(model)
    infer_shapes(base)
    patterns = load_patterns().selected(options.target, options.only, options.skip)
    rewriter = Rewriter(patterns, options.target, [Loadability(CPU)], costs=costs.measured(), recording=True)
    reference = Reference(model)
    fused = rewriter(base)
    cuttings = [c for c in fused.cuttings if all(v.dtype in FLOATS and v.producer() for v in c.after.graph.outputs)]
    if not cuttings:
        return "", {}
    chosen = random.Random(zlib.crc32(model.stem.encode())).choice(cuttings)
    earlier = fused.cuttings[: fused.cuttings.index(chosen)]
    later = [one for one in (fused.products, fused.model) if one is not None]
    caught = {}
    for error in ERRORS:
        wrong = dataclasses.replace(chosen, after=chosen.after.clone())
        for value in list(wrong.after.graph.outputs):
            plant(wrong.after.graph, value, error, within=True)
        (check,) = check_sites(base, model, [wrong], CPU, reference.cases(CPU), earlier=earlier, later=later)
        seen = "site" if check.wrong else ""
        if not seen and model.stat().st_size < LARGEST:
            other = planting.planted(fused.model, {now for _, now in chosen.results}, error)
            seen = "output" if other is not None and reference.verdict(other).verdict == "different" else ""
        caught[f"{error:g}"] = seen
    return chosen.rewrite.pattern, caught


def tasks_of(sources: Sequence[Path], glob: str) -> Iterator[Task]:
    """The named models, and the models in the named folders."""
    for source in sources:
        script = source / "materialize.py"
        for model in [source] if source.is_file() else sorted(source.glob("*.onnx")):
            if fnmatch.fnmatch(model.stem, glob):
                yield Task(model.resolve(), script.resolve() if source.is_dir() and script.exists() else None)


def page(rows: Sequence[Row], failures: dict[str, str]) -> str:
    """The rows as Markdown."""
    fused = [row for row in rows if row.coverage is not None]
    total = {key: sum((row.coverage or {}).get(key, 0) for row in fused) for key in (fused[0].coverage or {})} if fused else {}
    tried = [row for row in rows if row.caught]
    sites, whole = sum(row.seconds.get("sites", 0) for row in rows), sum(sum(row.seconds.values()) for row in rows)
    lines = [
        PREFACE.format(
            version=onnxruntime.__version__,
            models=len(rows),
            fusions=sum(total.get(key, 0) for key in ("kernel", "body", "alone")),
            tried=len(tried),
            share=sites / max(whole, 1e-9),
            **{key: total.get(key, 0) for key in ("kernel", "body", "alone", "float64", "unfused", "outputs", "drawn")},
        ),
        *(f"| {e:g} | {sum(_seen(tried, e))} | {_seen(tried, e)[0]} | {_seen(tried, e)[1]} |" for e in ERRORS),
        "",
        LEGEND,
        *map(_line, rows),
    ]
    blind = [f"* {row.name}: {'; '.join(row.blind[:3])}" for row in rows if row.blind]
    lines += ["", "Outputs that can show nothing:", "", *blind] if blind else []
    lines += ["", "Failed:", "", *(f"* {name}: {why}" for name, why in failures.items())] if failures else []
    return "\n".join(lines) + "\n"


def _seen(rows: Sequence[Row], error: float) -> tuple[int, int]:
    """The number of models in which an error was seen at the site, and in an output only."""
    found = [row.caught[f"{error:g}"] for row in rows]
    return found.count("site"), found.count("output")


def _line(row: Row) -> str:
    c: dict[str, Any] = row.coverage or {}
    smallest = next((f"{e:g}" for e in reversed(ERRORS) if row.caught.get(f"{e:g}")), "none" if row.caught else "–")
    cells = (
        row.name,
        row.verdict,
        f"{c['kernel']}, {c['body']}, {c['alone']}" if c else "–",
        f"{c['float64']} / {c['unfused']} / {c['outputs']}" if c else "–",
        str(c.get("drawn", "–")),
        str(row.undone),
        f"{row.outputs}, {len(row.blind)}" if row.outputs else "–",
        "–" if row.power is None else f"{row.power:.0e}",
        smallest,
        row.planted,
    )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Measure the models and write the page; exit 1 if an error of 1e-3 was missed or a model failed."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("sources", type=Path, nargs="+", metavar="FOLDER|MODEL")
    arguments.add_argument("--models", default="*", help="a glob over the names of the models")
    arguments.add_argument("--jobs", type=int, default=1)
    arguments.add_argument("--limit", type=float, default=600, help="seconds for one model")
    arguments.add_argument(
        "--rows", type=Path, help="a folder that keeps the results; models with a result are not measured again"
    )
    arguments.add_argument("-o", "--output", type=Path, help="the page; the page of a part of the models goes into build/")
    given = arguments.parse_args()
    output = page_path(given.output, "evidence.md", given.models)
    tasks = list(tasks_of(given.sources, given.models))
    rows: dict[str, Row] = {}
    failures: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.rows or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for task in tasks:
            if (path := folder / f"{task.model.stem}.json").exists():
                rows[task.model.stem] = Row(**json.loads(path.read_text("utf-8")))
        waiting = [task for task in tasks if task.model.stem not in rows]
        for outcome in workers.run(measure, waiting, jobs=given.jobs, limit=given.limit, fresh=True):
            name = outcome.task.model.stem
            if outcome.result is None:
                failures[name] = outcome.failure.strip().splitlines()[-1]
            else:
                rows[name] = outcome.result
                (folder / f"{name}.json").write_text(json.dumps(asdict(outcome.result), indent=1), "utf-8")
            print(name, failures.get(name) or _line(rows[name]), file=sys.stderr, flush=True)
    ordered = [rows[task.model.stem] for task in tasks if task.model.stem in rows]
    output.write_text(page(ordered, failures), encoding="utf-8")
    missed = [row.name for row in ordered if row.caught and not all(row.caught[f"{e:g}"] for e in ERRORS[:3])]
    print(f"{output}: {len(ordered)} models; an error of 1e-3 or more was missed in {len(missed)}: {', '.join(missed)}")
    sys.exit(bool(missed or failures))


if __name__ == "__main__":
    main()
