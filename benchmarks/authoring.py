"""Mines units that no pattern knows, writes patterns for them, proves these, and fuses the exports of both exporters.

    pip install torch onnxscript
    python benchmarks/authoring.py [--only 'snake*'] [--write]

`unknown_units.py` has the modules. TorchScript and dynamo export each network with symbolic batch and length. For each export
the page shows the rank of the unit in the results of `mine`, whether the pattern that `new-pattern` writes proves without a
change, and in how many of the three places `fuse` finds it, in this export and in the other exporter's. Then `new-pattern`
writes a pattern for an instance of each built-in pattern. The last table has the processor time of `mine` on graphs of 100,000
nodes.
"""

from __future__ import annotations

import argparse
import fnmatch
import logging
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import onnx
import onnx_ir as ir

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from matching import dense, exports  # noqa: E402

from onnx_subgraph.authoring.author import Authored, new_pattern  # noqa: E402
from onnx_subgraph.authoring.choosing import Chosen  # noqa: E402
from onnx_subgraph.errors import OnnxSubgraphError  # noqa: E402
from onnx_subgraph.language.library import load_patterns  # noqa: E402
from onnx_subgraph.mining.mine import Unit, mine  # noqa: E402
from onnx_subgraph.options import Options  # noqa: E402
from onnx_subgraph.pipeline import fuse  # noqa: E402
from onnx_subgraph.proving.instance import build  # noqa: E402
from onnx_subgraph.proving.spelling import LATEST, Spelling, UnbuildableError  # noqa: E402
from onnx_subgraph.regions.marks import paths  # noqa: E402

EXPORTERS = ("TorchScript", "dynamo")
NODES = 100_000
LIBRARY = load_patterns()


@dataclass(frozen=True)
class Row:
    """The result for one unit in one exporter's model. found: exporter → number of fused places, and the verdict."""

    name: str
    exporter: str
    rank: int
    times: int
    proof: str
    found: dict[str, tuple[int, str]]
    formula: str


def exported(name: str, exporter: str, path: Path) -> None:
    """Export the network of one unit to a file."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    import torch
    from unknown_units import WIDTH, Network

    torch.manual_seed(0)
    network, x = Network(name).eval(), torch.randn(2, 16, WIDTH)
    if exporter == "dynamo":
        axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("seq")}
        options = {"dynamo": True, "dynamic_shapes": (axes,), "opset_version": 18, "external_data": False, "verbose": False}
    else:
        options = {"dynamo": False, "dynamic_axes": {"x": {0: "batch", 1: "seq"}}, "opset_version": 17}
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        torch.onnx.export(network, (x,), str(path), input_names=["x"], output_names=["y"], **options)


def rank_of(units: Iterable[Unit]) -> tuple[int, int]:
    """The rank of the first unit whose places lie in the module `unit`, and their number; (0, 0) if there is none."""
    for rank, unit in enumerate(units, start=1):
        inside = [one for one in unit.occurrences if any("unit" in p.split(".") for n in one.nodes for p in paths(n))]
        if inside:
            return rank, len(inside)
    return 0, 0


def measured(name: str, models: dict[str, Path], exporter: str, folder: Path) -> Row:
    """Mine one model, write the pattern of its unit, and fuse all models with it."""
    rank, times = rank_of(mine([models[exporter]], LIBRARY).units)
    if not rank:
        return Row(name, exporter, 0, 0, "", {}, "")
    file = folder / exporter.lower() / f"{name.replace('-', '_')}.yaml"
    file.parent.mkdir(exist_ok=True)
    made = new_pattern([models[exporter]], Chosen(mined=rank), name, file, LIBRARY)
    file.write_text(made.text, encoding="utf-8")
    library, found = load_patterns([file]), {}
    for other, model in models.items():
        result = fuse(model, folder / "out.onnx", library, Options(target="function", only=(name,)))
        found[other] = (len(result.rewrites), result.verdict.verdict)
    failures = len(made.proof.failures)
    return Row(name, exporter, rank, times, f"{failures} failures" if failures else "holds", found, made.formula)


def again(folder: Path) -> dict[str, str]:
    """Built-in pattern → what went wrong when `new-pattern` wrote a pattern from an instance of it, or ""."""
    answers: dict[str, str] = {}
    for pattern in LIBRARY.patterns:
        if not pattern.is_formula:
            continue
        try:
            try:
                instance = build(pattern, Spelling())
            except UnbuildableError:
                instance = build(pattern, replace(Spelling(), opset=LATEST))
            path = folder / f"{pattern.id}.onnx"
            onnx.save(instance.proto, path)
            names = tuple(node.name for node in instance.proto.graph.node if node.op_type != "Constant")
            answers[pattern.id] = _wrong(new_pattern([path], Chosen(nodes=names), "again", folder / "again.yaml", LIBRARY))
        except (OnnxSubgraphError, UnbuildableError) as error:
            answers[pattern.id] = str(error).splitlines()[0]
    return answers


def _wrong(made: Authored) -> str:
    if made.proof.failures:
        return made.proof.failures[0].split(";")[0].split("again.yaml:")[-1]
    return "" if made.holds else "proved, but the instance is not found"


def cost(made: ir.Model, path: Path) -> tuple[float, dict[str, float], int]:
    """Seconds of processor time that `mine` takes on a graph, the seconds of each stage, and the number of units it finds."""
    ir.save(made, path)
    begun = time.process_time()
    mined = mine([path], LIBRARY)
    taken, whole = time.process_time() - begun, sum(mined.seconds.values())
    return taken, {stage: taken * seconds / whole for stage, seconds in mined.seconds.items()}, len(mined.units)


def page(rows: list[Row], trips: dict[str, str], costs: dict[str, tuple[float, dict[str, float], int]]) -> str:
    """The page."""
    first = sum(row.rank == 1 for row in rows)
    proved = sum(row.proof == "holds" for row in rows)
    whole = sum(all(row.found.get(e) == (row.times, "equivalent") for e in EXPORTERS) for row in rows)
    good = sum(not why for why in trips.values())
    lines = [
        "# From a model to a pattern",
        "",
        f"Made by `python benchmarks/authoring.py --write` with torch {version('torch')} and",
        f"onnxruntime {version('onnxruntime')}: networks of three layers, each with a unit that no pattern",
        "of the catalogue covers.",
        "",
        f"**`mine` ranks the unit first in {first} of {len(rows)} exports. {proved} of {len(rows)} patterns are proved as",
        f"`new-pattern` writes them. With {whole} of them `fuse` finds every place in the models of both exporters.**",
        "",
        "*places* counts the mined places, one or more in each layer. *found* counts the fusions in TorchScript's and in",
        "dynamo's model.",
        "",
        "| unit | exporter | rank | places | proof | found | verdict | formula |",
        "|---|---|---:|---:|---|---|---|---|",
    ]
    for row in rows:
        found = ", ".join(str(count) for count, _ in row.found.values())
        verdicts = ", ".join(dict.fromkeys(verdict for _, verdict in row.found.values()))
        formula = row.formula.replace("\n", "; ").replace("|", "\\|")
        cells = (row.name, row.exporter, str(row.rank), str(row.times), row.proof, found, verdicts, f"`{formula}`")
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "## Round trip",
        "",
        f"From an instance of each of {len(trips)} built-in patterns, a new pattern was written. {good} of them are proved and",
        "match the instance. The others:",
        "",
        "| pattern | why not |",
        "|---|---|",
        *(f"| {name} | {why.replace('|', ' ')} |" for name, why in trips.items() if why),
        "",
        "## Cost",
        "",
        "Processor time of `mine` in seconds: reading the file and inferring its shapes, matching the catalogue, and",
        "mining the other nodes.",
        "",
        "| graph | nodes | units | together | reading | matching | mining |",
        "|---|---:|---:|---:|---:|---:|---:|",
        *(
            f"| {name} | {NODES:,} | {units} | {taken:.1f} | {parts['load']:.1f} | {parts['find']:.1f} | {parts['mine']:.1f} |"
            for name, (taken, parts, units) in costs.items()
        ),
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure all, print the page, and write it with --write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*", help="a glob over the names of the units")
    parser.add_argument("--write", action="store_true", help="write authoring.md")
    options = parser.parse_args()
    from unknown_units import UNITS

    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for unit in (unit for unit in UNITS if fnmatch.fnmatch(unit, options.only)):
            models = {exporter: folder / f"{unit}.{exporter}.onnx" for exporter in EXPORTERS}
            for exporter, path in models.items():
                exported(unit, exporter, path)
            for exporter in EXPORTERS:
                rows.append(measured(unit, models, exporter, folder))
                print(rows[-1], file=sys.stderr, flush=True)
        whole = options.only == "*"
        trips = again(folder) if whole else {}
        graphs = {"sample models, side by side": exports, "fusions alone": dense} if whole else {}
        costs = {title: cost(make(NODES), folder / "large.onnx") for title, make in graphs.items()}
    text = page(rows, trips, costs)
    print(text)
    if options.write:
        (HERE / "authoring.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
