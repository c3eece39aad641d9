"""Holds each command to what it promises, on random graphs with planted patterns and traps.

    python benchmarks/commands.py [--graphs 2000] [--seed 0] [--jobs 2] [--law NAME] [--write]
    python benchmarks/commands.py --seed 0 --law mine --graph 17     repeat one graph

The graphs are those of `soundness.py`, and the laws are in `tests/soundness/laws.py`. Each graph is tried with one law, in turn,
or with the one that is named. A broken law is printed, and its model is saved. `--write` writes `benchmarks/commands.md`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import workers

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from tests.soundness import judge, laws, trial  # noqa: E402
from tests.soundness.laws import LAWS, Held  # noqa: E402

LIMIT = 120.0
"""Seconds for one graph; a graph that takes longer breaks its law."""
BLOCK = 10
"""Graphs that a worker takes at a time."""
INTRODUCTION = """
Every command runs as a user runs it, on random graphs: well-typed, of opsets 11 to 24, with planted instances of patterns and
with traps, as in [soundness.md](soundness.md). Models that a command writes are judged without the project's own verification:
by onnx's checker, by onnxruntime without optimisation, and by onnx's evaluator in float64. A command must not end with an
internal error, its exit code must be one that it documents, and its JSON must be valid for the schema.
"""


@dataclass(frozen=True)
class Task:
    """Graphs of one campaign by their numbers, each with its law."""

    seed: int
    tries: tuple[tuple[int, str], ...]
    findings: Path


@dataclass(frozen=True)
class Row:
    """What came of one graph and one law."""

    number: int
    law: str
    held: Held


def measure(task: Task) -> list[Row]:
    """Try some graphs."""
    return [Row(number, law, _tried(task, number, law)) for number, law in task.tries]


def _tried(task: Task, number: int, law: str) -> Held:
    case = trial.drawn(task.seed, number)
    if judge.problem(case.model) is not None:
        return Held()
    with tempfile.TemporaryDirectory(prefix="onnx-subgraph-laws-") as folder:
        os.environ["ONNX_SUBGRAPH_CACHE"] = str(Path(folder, "cache"))
        held = laws.held(law, case, Path(folder))
    if held.broken:
        task.findings.mkdir(parents=True, exist_ok=True)
        saved = task.findings / f"{law.replace(' ', '_')}-{task.seed}-{number}.onnx"
        saved.write_bytes(case.model.SerializeToString(deterministic=True))
    return held


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    """The rows in the order of the graphs."""
    names = [arguments.law] if arguments.law else list(LAWS)
    numbers = range(arguments.graphs) if arguments.graph is None else [arguments.graph]
    tries = [(number, names[number % len(names)]) for number in numbers]
    blocks = [Task(arguments.seed, tuple(tries[at : at + BLOCK]), arguments.findings) for at in range(0, len(tries), BLOCK)]
    for outcome in workers.run(measure, blocks, jobs=arguments.jobs, limit=LIMIT * BLOCK / 4):
        if outcome.result is None:
            number, law = outcome.task.tries[0]
            yield Row(number, law, Held(broken=f"here or at one of the next {BLOCK - 1} graphs: {outcome.failure}"))
        else:
            yield from outcome.result


def page(found: list[Row], arguments: argparse.Namespace) -> str:
    """The figures as Markdown."""
    tried = Counter(row.law for row in found)
    broken = Counter(row.law for row in found if row.held.broken)
    seen = {law: Counter(row.held.seen for row in found if row.law == law and row.held.seen) for law in LAWS}
    versions = ", ".join(f"{name} {version(name)}" for name in ("onnxruntime", "onnx", "onnx-ir", "numpy"))
    lines = [
        "# What the commands promise",
        "",
        f"`python benchmarks/commands.py --graphs {arguments.graphs} --seed {arguments.seed} --write`",
        "",
        *INTRODUCTION.strip().splitlines(),
        "",
        f"With {versions}.",
        "",
        "| law | graphs | of these | broken |",
        "|---|---:|---|---:|",
    ]
    for law, holds in LAWS.items():
        of_these = ", ".join(f"{count} {words}" for words, count in sorted(seen[law].items())) or "none to see it"
        first = (holds.__doc__ or "").strip()
        lines.append(f"| {first} | {tried[law]} | {of_these} | {broken[law]} |")
    return "\n".join([*lines, ""])


def main() -> int:
    """Try the laws; return 1 if one is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=2000, metavar="N", help="number of graphs (2000)")
    parser.add_argument("--seed", type=int, default=0, help="another seed is another campaign (0)")
    parser.add_argument("--graph", type=int, metavar="NUMBER", help="this graph only; needs --law")
    parser.add_argument("--law", choices=list(LAWS), help="this law only")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes (2)")
    parser.add_argument("--findings", type=Path, default=Path("build/laws"), metavar="DIR", help="where models are saved")
    parser.add_argument("--write", action="store_true", help="write benchmarks/commands.md")
    arguments = parser.parse_args()
    if arguments.graph is not None and not arguments.law:
        parser.error("--graph needs --law")
    found: list[Row] = []
    for row in rows(arguments):
        found.append(row)
        if row.held.broken:
            print(f"graph {row.number}: {row.law}: {row.held.broken}")
            print(
                f"  again: python benchmarks/commands.py --seed {arguments.seed} --law '{row.law}' --graph {row.number}",
                flush=True,
            )
    text = page(found, arguments)
    print(text)
    if arguments.write:
        (HERE / "commands.md").write_text(text, encoding="utf-8")
    return 1 if any(row.held.broken for row in found) else 0


if __name__ == "__main__":
    sys.exit(main())
