"""Lists repeated subgraphs that no pattern covers by their share of the time: `mine --profile` over a folder, and each model.

    python benchmarks/mined.py FOLDER [--write]

Writes benchmarks/mined.md. The share of a unit is the most that a pattern for it can save.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from functools import partial
from pathlib import Path
from textwrap import fill

from onnx_subgraph.errors import OnnxSubgraphError
from onnx_subgraph.language.library import load_patterns
from onnx_subgraph.mining.mine import Mined, Unit, mine
from onnx_subgraph.timing.bench import BenchOptions, time_nodes

PAGE = Path(__file__).with_suffix(".md")
SHOWN, WIDTH = 10, 120
BECAME = (
    "Three units became patterns: `residual-gate` (x · z + x, in PP-OCR's detectors), `pooled-maximum` (a maximum with a number "
    "before a max pooling) and `channel-affine` (a · x + b of an image, if no convolution can absorb it). The last is still "
    "listed, since patterns of the group `linear` do not end a unit. At their sites they take 0.62, 0.77 and 0.64 of the time "
    "([operator_costs.md](operator_costs.md)). Most of the rest are features of speech (masked normalization, windows, powers), "
    "for which onnxruntime has no operator."
)


def main() -> None:
    """Mine, measure, and write the page or print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    models = sorted(options.folder.rglob("*.onnx"))
    if not models:
        parser.error(f"{options.folder}: there is no model in it")
    times: dict[Path, dict[str, float]] = {}

    def timed(path: Path) -> dict[str, float]:
        try:
            times[path] = time_nodes(path, BenchOptions(threads=1))
        except OnnxSubgraphError as error:
            print(error)
            times[path] = {}
        return times[path]

    found = mine(models, load_patterns(), profile=timed)
    text = page(found, times)
    if options.write:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text)


def page(found: Mined, times: dict[Path, dict[str, float]]) -> str:
    """The page."""
    whole = {model: sum(own.values()) / 1e3 for model, own in times.items()}
    share = partial(shares, times=times, whole=whole)
    by_model = {unit.key: share(unit) for unit in found.units}
    uncovered: dict[Path, float] = defaultdict(float)
    for own in by_model.values():
        for model, part in own.items():
            uncovered[model] += part
    most = sorted(found.units, key=lambda unit: -sum(by_model[unit.key].values()))[:SHOWN]
    lines = [
        f"# What {len(found.models)} models repeat and no pattern covers",
        "",
        fill(
            f"`python benchmarks/mined.py FOLDER --write`: {found.nodes:,} nodes, of which {found.free:,} are in no pattern and "
            "no product with weights. Times are those of nodes in onnxruntime's profile, on one thread. The share of the time is "
            "an upper bound for the gain of a pattern.",
            WIDTH,
        ),
        "",
        "| unit | places | models | share of the time, mean of all models | most in one model |",
        "|---|---|---|---|---|",
    ]
    for unit in most:
        own = by_model[unit.key]
        model, largest = max(own.items(), key=lambda item: item[1])
        formula = "; ".join(unit.formula.sketch.splitlines()).replace("|", "\\|")
        lines.append(
            f"| `{formula[:100]}{'…' if len(formula) > 100 else ''}` | {unit.times} | {len(own)} "
            f"| {sum(own.values()) / len(found.models):.2%} | {largest:.1%} of {model.stem} |"
        )
    lines += ["", fill(BECAME, WIDTH)]
    ranked = sorted(uncovered.items(), key=lambda item: -item[1])[:SHOWN]
    lines += [
        "",
        f"All units take {sum(uncovered.values()) / len(found.models):.2%} of the time (mean of all models). Largest:",
        "",
        "| model | share of its time in units |",
        "|---|---|",
        *(f"| {model.stem} | {part:.1%} |" for model, part in ranked),
    ]
    return "\n".join(lines) + "\n"


def shares(unit: Unit, times: dict[Path, dict[str, float]], whole: dict[Path, float]) -> dict[Path, float]:
    """The unit's share of the time of each model that contains it."""
    found: dict[Path, float] = defaultdict(float)
    for one in unit.occurrences:
        found[one.model] += one.microseconds(times[one.model]) / 1e3 / whole[one.model] if whole[one.model] else 0.0
    return found


if __name__ == "__main__":
    main()
