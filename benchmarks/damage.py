"""Runs the command line on damaged models and pattern files. Each run must end with an exit code and at most one message.

    python benchmarks/damage.py [--files 2000] [--seed 0] [--jobs 2]
    python benchmarks/damage.py --seed 0 --file 4711             repeat one file

The files are made from the sample models and the built-in patterns: bytes are flipped, cut or repeated, fields of the protobuf
are changed, or words of the YAML are replaced. A worker has 60 seconds and 8 GiB of address space for a file.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random

import workers

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from tests.soundness import damage  # noqa: E402

SECONDS, BYTES = 60.0, 8 << 30


@dataclass(frozen=True)
class Task:
    """One damaged file. keep: the folder to keep it in, or None."""

    seed: int
    number: int
    keep: Path | None = None


@dataclass(frozen=True)
class Row:
    """The exit code, the beginning of the message, and what is wrong with the answer."""

    number: int
    code: int
    message: str
    fault: str | None


def measure(task: Task) -> Row:
    """Make one file and run the tool on it."""
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    random = Random(f"{task.seed}/{task.number}")
    with tempfile.TemporaryDirectory() as name:
        folder = task.keep or Path(name)
        given = list(damage.arguments(random, folder))
        before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        answered = damage.answer(given)
        fault = damage.fault(answered, folder)
        if fault is None and any(p.read_bytes() != content for p, content in before.items()):
            fault = "the input was changed"
    kind = given[0] if "--patterns" not in given else "a pattern"
    return Row(task.number, answered.code, f"{kind}: {_gist(answered)}", fault)


def _gist(answered: damage.Answer) -> str:
    return "" if answered.code == 0 else "refused" if answered.code == 2 else "different"


def main() -> int:
    """Run; return 1 if an answer is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=2000, metavar="N", help="how many files (2000)")
    parser.add_argument("--seed", type=int, default=0, help="another seed makes other files (0)")
    parser.add_argument("--file", type=int, metavar="NUMBER", help="this file only; it is kept in build/damage")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes (2)")
    arguments = parser.parse_args()
    keep = None
    numbers = range(arguments.files)
    if arguments.file is not None:
        keep = Path("build/damage")
        keep.mkdir(parents=True, exist_ok=True)
        numbers = range(arguments.file, arguments.file + 1)
    answers: Counter[str] = Counter()
    faults = 0
    tasks = [Task(arguments.seed, n, keep) for n in numbers]
    for outcome in workers.run(measure, tasks, jobs=arguments.jobs, limit=SECONDS):
        row = outcome.result
        problem = outcome.failure if row is None else row.fault
        answers["no answer" if row is None else f"exit code {row.code}, {row.message}"] += 1
        if problem:
            faults += 1
            print(f"file {outcome.task.number}: {problem}")
            print(f"  again: python benchmarks/damage.py --seed {arguments.seed} --file {outcome.task.number}", flush=True)
    for text, count in sorted(answers.items()):
        print(f"{count:6d}  {text}")
    print(f"{len(tasks)} files, {faults} wrong answers")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
