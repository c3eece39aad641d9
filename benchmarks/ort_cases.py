"""Fuses onnxruntime's own fusion tests and writes `benchmarks/ort_cases.md`: what is found, what is left alone, and why.

    python benchmarks/ort_cases.py CASES [--jobs 2] [--only ID-GLOB]

CASES is a folder with `cases.json` and `models/`. Each case is fused in a child process, and then compared with the original by
this file alone: plain onnxruntime on the feeds of the case, without optimisation for the original, with and without for the fused
model.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import case_check
import equivalents
import numpy as np
import onnx
import onnxruntime
import units
import untidy
import workers
from rows import page_path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from onnx_subgraph.errors import OnnxSubgraphError  # noqa: E402
from onnx_subgraph.language.library import load_patterns  # noqa: E402
from onnx_subgraph.language.pattern import Pattern  # noqa: E402
from onnx_subgraph.language.term import Apply, walk  # noqa: E402
from onnx_subgraph.options import Options  # noqa: E402
from onnx_subgraph.pipeline import FuseResult, fuse  # noqa: E402

SETTLED = ("found", "refused correctly", "unchanged", "changed, equal", "not in this release")
OUTCOMES = (*SETTLED, "refused with a message", "missed", "wrong", "invalid", "traceback", "fused, must not")
PREFACE = """\
# onnxruntime's fusion cases

Made by `python benchmarks/ort_cases.py CASES` with onnxruntime {version} in {seconds:.0f} s. Rows are the kinds of upstream's
test cases (*not runnable*: onnxruntime does not run the original, so nothing is verified), columns are the outcomes here.
*Found*: the operators that upstream expects, or equivalent ones. *Changed, equal*: something was fused, and the outputs are
equal to the original's. For a negative that is `wrong_or_invalid_if_fused`, it was not the forbidden fusion.

**{cases} cases; {faults} are wrong, invalid, wrongly fused or end with a traceback.**"""
FAULTS = ("wrong", "invalid", "traceback", "fused, must not")
_LIBRARY: list[Any] = []


@dataclass(frozen=True)
class Task:
    """One case: its folder and its entry of cases.json."""

    folder: Path
    case: Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """The result of one case: its outcome (one of OUTCOMES), the reason, and what was fused.

    untidy: the ways in which the file is untidy.
    """

    identifier: str
    outcome: str
    reason: str = ""
    seconds: float = 0.0
    before: int = 0
    after: int = 0
    patterns: Mapping[str, int] = field(default_factory=dict)
    untidy: Sequence[str] = ()


def measure(task: Task) -> Row:
    """Fuse one case and classify the result."""
    if not _LIBRARY:
        _LIBRARY.append(load_patterns())
    case, source = task.case, task.folder / task.case["file"]
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "fused.onnx"
        started = time.perf_counter()
        try:
            result = fuse(source, output, _LIBRARY[0], _options(case, Path(folder)))
        except OnnxSubgraphError as error:
            outcome = "missed" if case["kind"] == "positive" else "refused with a message"
            reason = f"refused: {error.message}".replace(f"{task.folder}/", "")
            return Row(case["id"], outcome, reason, time.perf_counter() - started, untidy=untidy.ways(onnx.load(source)))
        seconds = time.perf_counter() - started
        patterns = Counter(r.pattern for r in result.rewrites)
        outcome, reason = _classify(case, source, result)
    reason = reason.replace(f"{task.folder}/", "").replace(f"{folder}/", "")
    ways = untidy.ways(onnx.load(source))
    return Row(case["id"], outcome, reason, seconds, result.nodes_before, result.nodes_after, patterns, ways)


def _options(case: Mapping[str, Any], folder: Path) -> Options:
    """Options that fuse everything, including slower fusions."""
    return Options(prefer="fusion", verify=case["runnable"], inputs=_inputs(case, folder))


def _inputs(case: Mapping[str, Any], folder: Path) -> Path | None:
    """The case's feeds as a file, if an input needs one certain value (such as the shape of a Reshape)."""
    if all(spec.get("value") is None for spec in case.get("feeds") or ()):
        return None
    path = folder / "feeds.npz"
    np.savez(path, **dict(case_check.feeds(case["feeds"], 0)))
    return path


def _classify(case: Mapping[str, Any], source: Path, result: FuseResult) -> tuple[str, str]:
    original = onnx.load(source)
    if result.output is not None and not result.unchanged:
        fault = case_check.fault(case, source, result.output)
        if fault:
            return fault
    written = original if result.output is None else onnx.load(result.output)
    have, had = units.operators(written), units.operators(original)
    forbidden = [op for op in case["must_not_fuse"] if have[op] > had[op]]
    words = f"{', '.join(forbidden)}; upstream declines: {case['reason']}" if forbidden else ""
    sound = equivalents.SOUND.get(case["id"])
    if sound is not None:
        words = sound
    elif forbidden and case.get("severity") == "wrong_or_invalid_if_fused":
        return "fused, must not", words
    if case["kind"] != "positive":
        if result.rewrites and result.output is not None:
            return "changed, equal", words
        return ("refused correctly" if case["kind"] == "negative" else "unchanged"), ""
    missing = equivalents.missing(case["fused"], have, had, written)
    if not missing:
        return "found", words
    later = [f"{op}: {equivalents.LATER[op]}" for op in missing if op in equivalents.LATER]
    if len(later) == len(missing):
        return "not in this release", "; ".join(later)
    now = [op for op in missing if op not in equivalents.LATER]
    why = equivalents.REASONS.get(case["id"]) or _why(result, now)
    return "missed", "; ".join([*(f"{op} ×{missing[op]}" for op in now), why, *later])


def _why(result: FuseResult, lacking: Sequence[str]) -> str:
    """Why it was not fused, from the result: the verdict, or a skip or the furthest near miss of a pattern for it."""
    if result.output is None:
        worst = result.verdict.worst
        where = "" if worst is None else f": {worst.output} {worst.error:.3g} > {worst.bound:.3g} {worst.problem}"
        return f"nothing written, verification says {result.verdict.verdict} {result.verdict.reason}{where}"
    about = {p.id for p in _LIBRARY[0].patterns if not _offered(p).isdisjoint(equivalents.alternatives(lacking))}
    if not about:
        return "no pattern offers it"
    skips = [s for s in result.skipped if s.pattern in about]
    if skips:
        return "; ".join(dict.fromkeys(f"{s.pattern} at {s.node}: {s.reason}" for s in skips[:2]))
    misses = [m for m in result.near_misses if m.pattern in about]
    if misses:
        miss = max(misses, key=lambda m: m.matched)
        return f"{miss.pattern} at {miss.node or miss.anchor}: expected {miss.expected}, found {miss.found}"
    return f"no candidate for {', '.join(sorted(about))}"


def _offered(pattern: Pattern) -> set[str]:
    """The operators in the replacements of a pattern."""
    terms = (t for block in pattern.replace.values() for a in block for t in walk(a.term))
    return {str(operator) for term in terms if isinstance(term, Apply) for operator in term.operators}


def report(rows: Mapping[str, Row], cases: Sequence[Mapping[str, Any]], seconds: float) -> str:
    """The page: a table of outcomes by kind, then every case that needs an explanation."""
    kinds = list(dict.fromkeys(_kind(c) for c in cases))
    outcomes = [o for o in OUTCOMES if any(r.outcome == o for r in rows.values())]
    grid = Counter((_kind(c), rows[c["id"]].outcome) for c in cases)
    faults = sum(r.outcome in FAULTS for r in rows.values())
    lines = [
        *PREFACE.format(version=onnxruntime.__version__, seconds=seconds, cases=len(rows), faults=faults).splitlines(),
        "",
        "| kind | cases | " + " | ".join(outcomes) + " |",
        "|---" * (2 + len(outcomes)) + "|",
    ]
    for kind in kinds:
        total = sum(_kind(c) == kind for c in cases)
        lines.append(f"| {kind} | {total} | " + " | ".join(str(grid[kind, o] or "") for o in outcomes) + " |")
    lines += _untidy(list(rows.values()))
    sections: tuple[tuple[str, Sequence[Mapping[str, Any]]], ...] = (
        ("Faults", [c for c in cases if rows[c["id"]].outcome in FAULTS]),
        ("Positives that are not found", [c for c in cases if c["kind"] == "positive" and rows[c["id"]].outcome == "missed"]),
        ("Positives for a later release", [c for c in cases if rows[c["id"]].outcome == "not in this release"]),
        ("Negatives in which something was fused, with equal outputs", [
            c for c in cases if c["kind"] == "negative" and rows[c["id"]].outcome == "changed, equal"
        ]),
        ("Refused with a message", [c for c in cases if rows[c["id"]].outcome == "refused with a message"]),
    )  # fmt: skip
    for title, chosen in sections:
        if chosen:
            lines += ["", f"## {title} ({len(chosen)})", "", "| case | expected | outcome | reason |", "|---|---|---|---|"]
            lines += [_line(c, rows[c["id"]]) for c in chosen]
    return "\n".join(lines) + "\n"


def _untidy(rows: Sequence[Row]) -> list[str]:
    """A table of the ways in which files are untidy, and of their outcomes."""
    refused = ("refused with a message", "traceback")
    lines = [
        "",
        "onnxruntime loads these untidy files.",
        "",
        "| untidy | cases | read here | something fused |",
        "|---|---|---|---|",
    ]
    for way in untidy.WAYS:
        cases = [r for r in rows if way in r.untidy]
        read = [r for r in cases if r.outcome not in refused and not r.reason.startswith("refused")]
        lines.append(f"| {way} | {len(cases)} | {len(read)} | {sum(bool(r.patterns) for r in read)} |")
    return lines


def _kind(case: Mapping[str, Any]) -> str:
    severity = case.get("severity") if case["kind"] == "negative" else None
    return f"{case['kind']}{f', {severity}' if severity else ''}{'' if case['runnable'] else ', not runnable'}"


def _line(case: Mapping[str, Any], row: Row) -> str:
    expected = ", ".join(f"{op} ×{n}" for op, n in case["fused"].items()) or "no " + ", ".join(case["must_not_fuse"])
    expected += f" ({case['severity']})" if case["kind"] == "negative" else ""
    fused = ", ".join(f"{p} ×{n}" for p, n in row.patterns.items())
    words = "; ".join(w for w in (row.reason, fused and f"fused: {fused}") if w).replace("|", "\\|").replace("\n", " ")
    return f"| {case['id']} | {expected} | {row.outcome} | {words[:600]} |"


def main() -> None:
    """Run all cases and write the page; exit 1 if there is a fault."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("cases", type=Path)
    arguments.add_argument("--only", default="*", help="a glob over the ids of the cases")
    arguments.add_argument("--jobs", type=int, default=2)
    arguments.add_argument("--limit", type=float, default=60, help="seconds for one case")
    arguments.add_argument("-o", "--output", type=Path, help="the page; the page of a part of the cases goes into build/")
    given = arguments.parse_args()
    output = page_path(given.output, "ort_cases.md", given.only)
    every = json.loads((given.cases / "cases.json").read_text(encoding="utf-8"))["cases"]
    cases = [c for c in every if fnmatch.fnmatch(c["id"], given.only)]
    started = time.perf_counter()
    rows: dict[str, Row] = {}
    for outcome in workers.run(measure, [Task(given.cases.resolve(), c) for c in cases], jobs=given.jobs, limit=given.limit):
        identifier = outcome.task.case["id"]
        row = outcome.result or Row(
            identifier, "traceback", " ".join(outcome.failure.strip().splitlines()[-3:]).replace(str(HERE.parent), ".")
        )
        rows[identifier] = row
        if row.outcome in FAULTS:
            print(f"{identifier}: {row.outcome}: {row.reason}", file=sys.stderr, flush=True)
    output.write_text(report(rows, cases, time.perf_counter() - started), encoding="utf-8")
    print(f"{output}: {dict(Counter(r.outcome for r in rows.values()))} in {time.perf_counter() - started:.0f} s")
    sys.exit(any(r.outcome in FAULTS for r in rows.values()))


if __name__ == "__main__":
    main()
