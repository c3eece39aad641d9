"""Fuses random graphs with planted patterns and traps, and compares each with its original.

    python benchmarks/soundness.py [--graphs 10000] [--seed 0] [--jobs 2] [--time-limit SECONDS] [--write]
    python benchmarks/soundness.py --seed 0 --graph 4711         repeat one graph, with what was found

The same seed and patterns give the same graphs, and the same bytes after fusing. A wrong result is printed and saved, reduced to
the smallest model that shows it. Some runs add wrong patterns; verification must undo these. `--write` writes
`benchmarks/soundness.md`. The generator is in `tests/soundness`. The project's own verification takes no part in the comparison.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from random import Random

import workers

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from tests.soundness import planting, traps, trial  # noqa: E402
from tests.soundness.reduction import reduced  # noqa: E402
from tests.soundness.trial import Finding, Trial  # noqa: E402

LIMIT = 120.0
"""Seconds for one graph; a graph that takes longer is a finding."""
BLOCK = 10
"""Graphs that a worker takes at a time."""
ALARMS = ("false alarm", "doubted")
"""Kinds of findings that need verification."""


INTRODUCTION = """
The campaign makes random well-typed graphs of opsets 11 to 24. Every third free dimension has an odd name (`N:1`, `?`).
Instances of the built-in patterns and traps are planted in the graphs. The library fuses each graph for a random target,
without verification. Other means judge the result: onnx's checker; the inputs and outputs with their types and dimensions;
onnxruntime with optimisation off, on up to three sets of feeds (other values, inverted conditions and overridden weights,
another symbolic size); onnx's reference evaluator in float64. The allowed difference is measured on the original, with noise of
a few units in the last place after every result. Fusing must raise no error, and a second run must find nothing to fuse. Every
fifth graph is fused twice and must give the same bytes. Every tenth is also fused with verification, which must not call a
right model wrong or undo a right rewrite. For the judge, random operators give the same values in both models.

Some traps test verification, so their graphs are always fused with it: random operators that read the result of an instance or
stand beside it; outputs that depend on it little or not at all (times 1e-8, times zero, NaN, a threshold that is never
reached); and wrong patterns, which replace their match by something else. A wrong rewrite is visible in the outputs, or hidden
behind such an output, or in a branch that is not taken or a loop without iterations. Verification must undo it. The digest
covers all fused files.
"""


@dataclass(frozen=True)
class Task:
    """Some graphs of the campaign, by their numbers, and the folder for findings."""

    seed: int
    numbers: range
    findings: Path


@dataclass(frozen=True)
class Row:
    """The result of one graph. nodes: of the model before fusing. saved: the path of the reduced model, if there is a finding."""

    number: int
    trap: str
    places: tuple[str, ...]
    planted: tuple[str, ...]
    fused: tuple[str, ...]
    nodes: int
    judged: int
    left: int
    ways: tuple[str, ...]
    verified: str
    digest: str
    undone: int = 0
    unshown: int = 0
    finding: Finding | None = None
    saved: str = ""


@dataclass
class Sums:
    """The totals of the campaign."""

    graphs: int = 0
    nodes: int = 0
    fused: int = 0
    judged: int = 0
    left: int = 0
    undone: int = 0
    unshown: int = 0
    traps: Counter[str] = field(default_factory=Counter)
    places: Counter[str] = field(default_factory=Counter)
    planted: Counter[str] = field(default_factory=Counter)
    patterns: Counter[str] = field(default_factory=Counter)
    ways: Counter[str] = field(default_factory=Counter)
    verified: Counter[str] = field(default_factory=Counter)
    findings: list[tuple[int, str, str]] = field(default_factory=list)
    digest: str = ""

    def add(self, row: Row) -> None:
        self.graphs += 1
        self.nodes += row.nodes
        self.fused += bool(row.fused)
        self.judged += row.judged
        self.left += row.left
        self.undone += row.undone
        self.unshown += row.unshown
        self.traps.update([row.trap] if row.trap else [])
        self.places.update(row.places)
        self.planted.update(row.planted)
        self.patterns.update(row.fused)
        self.ways.update([" and ".join(row.ways) or "not run"] if row.fused else [])
        self.verified.update([row.verified] if row.verified else [])
        self.digest = hashlib.sha256(f"{self.digest}{row.digest}".encode()).hexdigest()
        if row.finding is not None:
            self.findings.append((row.number, row.finding.kind, row.finding.words))


def measure(task: Task) -> list[Row]:
    """Try some graphs."""
    return [_row(task, number) for number in task.numbers]


def _row(task: Task, number: int) -> Row:
    tried = _tried(task.seed, number)
    saved = ""
    if tried.finding is not None:
        task.findings.mkdir(parents=True, exist_ok=True)
        saved = str(_saved(tried, task.findings / f"{task.seed}-{number}"))
    case = tried.case
    return Row(
        number,
        case.trap,
        tuple(place for _, place in case.planted),
        tuple(pattern for pattern, _ in case.planted),
        tried.patterns,
        sum(1 for _ in case.model.graph.node),
        tried.judged,
        tried.left,
        tried.ways,
        tried.verified,
        tried.digest,
        tried.undone,
        tried.unshown,
        tried.finding,
        saved,
    )


def _tried(seed: int, number: int) -> Trial:
    case = trial.drawn(seed, number)
    verified, repeated = number % trial.VERIFIED == 0, number % trial.REPEATED == 0
    return trial.attempt(case, Random(f"{seed}/{number}/names"), verified=verified, repeated=repeated)


def _saved(tried: Trial, stem: Path) -> Path:
    """Save the smallest model with the finding, its feeds and the finding as files."""
    import numpy as np
    import onnx

    assert tried.finding is not None
    kind, random = tried.finding.kind, Random(0)

    def shows(case: trial.Case) -> bool:
        found = trial.attempt(case, random, verified=kind in ALARMS).finding
        return found is not None and found.kind == kind

    # The model already has the name collision. Only the trap "wrong pattern" changes which patterns there are.
    case = replace(tried.case, trap=tried.case.trap if tried.case.trap == traps.WRONG else "")
    small = reduced(case, shows) if shows(case) else case
    onnx.save(small.model, stem.with_suffix(".onnx"))
    for number, feeds in enumerate(small.feeds):
        np.savez(f"{stem}-{number}.npz", **feeds)
    again = trial.attempt(small, random, verified=kind in ALARMS)
    said = {"target": case.target, "opset": case.opset, "kind": kind, "words": tried.finding.words, "patterns": tried.patterns}
    small_words = again.finding.words if again.finding is not None else ""
    stem.with_suffix(".json").write_text(json.dumps({**said, "reduced": small_words, "fused": again.patterns}, indent=2) + "\n")
    return stem.with_suffix(".onnx")


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    """The rows of the campaign in the order of their numbers, until the time limit."""
    tasks = [
        Task(arguments.seed, range(at, min(at + BLOCK, arguments.graphs)), arguments.findings)
        for at in range(0, arguments.graphs, BLOCK)
    ]
    begun = time.monotonic()
    for outcome in workers.run(measure, tasks, jobs=arguments.jobs, limit=LIMIT * BLOCK / 4):
        if outcome.result is None:
            numbers = outcome.task.numbers
            words = f"one of the graphs {numbers.start} to {numbers.stop - 1}: {outcome.failure}"
            yield Row(numbers.start, "", (), (), (), 0, 0, 0, (), "", "", finding=Finding("campaign", words))
        else:
            yield from outcome.result
        if arguments.time_limit and time.monotonic() - begun > arguments.time_limit:
            return


def page(sums: Sums, arguments: argparse.Namespace) -> str:
    """The figures as Markdown."""
    from onnx_subgraph.language.library import load_patterns

    library = {p.id for p in load_patterns().patterns}
    kinds = Counter(kind for _, kind, _ in sums.findings)
    lines = [
        "# Soundness",
        "",
        f"`python benchmarks/soundness.py --graphs {arguments.graphs} --seed {arguments.seed} --write`",
        "",
        *INTRODUCTION.strip().splitlines(),
        "",
        f"With {_versions()}.",
        "",
        "| | |",
        "|---|---:|",
        f"| graphs | {sums.graphs} |",
        f"| nodes in their main graphs | {sums.nodes} |",
        f"| planted instances | {sum(sums.planted.values())} |",
        f"| different patterns among them, of {len(library)} | {len(set(sums.planted) & library)} |",
        f"| graphs in which something fused | {sums.fused} |",
        f"| rewrites | {sum(sums.patterns.values())} |",
        f"| different patterns among them | {len(set(sums.patterns) & library)} |",
        f"| elements of outputs compared | {sums.judged} |",
        f"| … not judged, because noise alone changes them | {sums.left} |",
        *(
            f"| fused graphs compared by {way.replace(' and the evaluator', ' only, since the evaluator')} | {count} |"
            for way, count in sorted(sums.ways.items())
            if way != "not run"
        ),
        f"| fused graphs that onnxruntime does not run, like their originals | {sums.ways['not run']} |",
        *(f"| verification said {verdict} | {count} |" for verdict, count in sorted(sums.verified.items())),
        f"| **wrong rewrites** | **{kinds['wrong'] + kinds['interface'] + kinds['changed']}** |",
        f"| **invalid models** | **{kinds['invalid']}** |",
        f"| **tracebacks, refusals, crashes** | **{kinds['traceback'] + kinds['refused'] + kinds['campaign']}** |",
        f"| not repeatable, or not idempotent | {kinds['not repeatable'] + kinds['not idempotent']} |",
        f"| false alarms of verification | {kinds['false alarm']} |",
        f"| right rewrites that verification called wrong | {kinds['doubted']} |",
        f"| right rewrites that verification undid, because it could not show them to be right | {sums.unshown} |",
        f"| rewrites of wrong patterns that verification undid | {sums.undone} |",
        f"| **models called equivalent with a rewrite of a wrong pattern** | **{kinds['believed']}** |",
        f"| digest | `{sums.digest[:16]}` |",
        "",
        "| trap | planted in graphs |",
        "|---|---:|",
        *(f"| {name} | {sums.traps[name]} |" for name in traps.TRAPS),
        "",
        "| where instances lie | |",
        "|---|---:|",
        *(f"| {name} | {sums.places[name]} |" for name in planting.PLACES),
        "",
        "Patterns that were planted and never fused: "
        + (", ".join(sorted(set(sums.planted) - set(sums.patterns))) or "none")
        + ".",
        "",
        *(["| graph | found |", "|---:|---|"] if sums.findings else ["Found: nothing."]),
        *(f"| {number} | {kind}: {words.strip().splitlines()[-1]} |" for number, kind, words in sums.findings),
        "",
    ]
    return "\n".join(lines)


def _versions() -> str:
    """The versions that the figures depend on."""
    return ", ".join(f"{name} {version(name)}" for name in ("onnxruntime", "onnx", "onnx-ir", "numpy"))


def main() -> int:
    """Run the campaign; return 1 if it found something."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=10_000, metavar="N", help="number of graphs (10000)")
    parser.add_argument("--seed", type=int, default=0, help="another seed is another campaign (0)")
    parser.add_argument("--graph", type=int, metavar="NUMBER", help="this graph only")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes (2)")
    parser.add_argument("--time-limit", type=float, default=0.0, metavar="SECONDS", help="start no graph after this time")
    parser.add_argument("--findings", type=Path, default=Path("build/soundness"), metavar="DIR", help="where models are saved")
    parser.add_argument("--write", action="store_true", help="write benchmarks/soundness.md")
    arguments = parser.parse_args()
    if arguments.graph is not None:
        return _one(arguments)
    sums, begun = Sums(), time.monotonic()
    for row in rows(arguments):
        sums.add(row)
        if row.finding is not None:
            print(f"graph {row.number}: {row.finding.kind}: {row.finding.words}\n  {row.saved}")
            print(f"  again: python benchmarks/soundness.py --seed {arguments.seed} --graph {row.number}", flush=True)
        if sums.graphs % 500 == 0:
            print(f"{sums.graphs} graphs, {len(sums.findings)} findings, {time.monotonic() - begun:.0f} s", flush=True)
    text = page(sums, arguments)
    print(text)
    if arguments.write:
        (HERE / "soundness.md").write_text(text, encoding="utf-8")
    return 1 if sums.findings else 0


def _one(arguments: argparse.Namespace) -> int:
    row = _row(Task(arguments.seed, range(0), arguments.findings), arguments.graph)
    planted, fused = (", ".join(names) or "nothing" for names in (row.planted, row.fused))
    print(f"graph {row.number}: {row.trap or 'no trap'}; planted {planted}; fused {fused}")
    if row.finding is None:
        print("nothing is wrong")
        return 0
    print(f"{row.finding.kind}: {row.finding.words}\n{row.saved}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
