"""Counts the catalogue: its files, patterns, lines of formulas, and needless alternatives.

    python benchmarks/catalogue_size.py [--before COMMIT]

COMMIT is one of this repository. The command then also prints how many patterns the catalogue had there, and in how many of
today's patterns their fusions are: a pattern that was merged into another one is among the ids that this was `formerly`.

Two alternatives of a formula, `p | q`, are needless if one is the other without an optional operand (`b?` says both), with a
synonym of a call, or with its operands in another order. The command exits with 1 if there is one.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from onnx_subgraph.language.library import load_patterns
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.language.term import Apply, Chain, Either, Term, Variable, children, walk
from onnx_subgraph.matching.synonyms import written

ROOT = Path(__file__).resolve().parents[1]


def needless(pattern: Pattern) -> Iterator[str]:
    """The pairs of alternatives in the formula of which one is needless."""
    for line in pattern.match:
        for term in walk(line.term):
            if isinstance(term, Either):
                for one, other in combinations(term.alternatives, 2):
                    if why := _why(one, other):
                        yield f"{pattern.id}: `{one}` | `{other}`: {why}"


def _why(one: Term, other: Term) -> str:
    if _key(one) == _key(other):
        return "another order"
    if any(_key(way) == _key(b) for a, b in ((one, other), (other, one)) if (ways := written(a)) for way in ways.formulas):
        return "a synonym"
    if any(_key(left) == _key(b) for a, b in ((one, other), (other, one)) for left in _without_one(a)):
        return "an optional operand"
    return ""


def _key(term: Term) -> tuple[object, ...]:
    """A key that is equal for terms that differ in the order of operands only."""
    inside = sorted(repr(_key(child)) for child in children(term))
    match term:
        case Chain(operator=operator, items=items):
            return (operator, tuple(sorted((repr(_key(item)), inverse) for item, inverse in items)))
        case Apply(operators=operators, keywords=keywords, rest=rest, capture=capture):
            named = tuple((name, str(value)) for name, value in keywords)
            return (*map(str, operators), tuple(inside), named, rest, capture)
        case _:
            return (str(term),)


def _without_one(term: Term) -> Iterator[Term]:
    """The term without one of its operands that is a name, for each of them."""
    if isinstance(term, Chain):
        for position, (item, _) in enumerate(term.items):
            left = term.items[:position] + term.items[position + 1 :]
            if isinstance(item, Variable) and not left[0][1]:
                yield left[0][0] if len(left) == 1 else Chain(term.operator, left)
    elif isinstance(term, Apply) and term.arguments and isinstance(term.arguments[-1], Variable):
        yield Apply(term.operators, term.arguments[:-1], term.keywords, term.rest, term.capture)


def earlier(commit: str) -> set[str]:
    """The ids of the catalogue's patterns at a commit. Raises SystemExit with git's message where there is none."""
    lines = ["git", "grep", "-hE", "^ *(- )?id: ", commit, "--", "patterns"]
    found = subprocess.run(lines, cwd=ROOT, capture_output=True, text=True, check=False)
    if found.returncode:
        raise SystemExit(found.stderr.strip() or f"{commit}: no patterns")
    return {re.sub(r"^ *(- )?id: *", "", line) for line in found.stdout.splitlines()}


def merged(ids: set[str], patterns: Sequence[Pattern]) -> tuple[set[str], set[str]]:
    """The patterns of today that have the fusions of these ids, and those of the ids that are gone."""
    today = {name: pattern.id for pattern in patterns for name in (pattern.id, *pattern.formerly)}
    return {today[name] for name in ids if name in today}, ids - today.keys()


def main() -> int:
    """Print the counts and the needless alternatives."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--before", metavar="COMMIT", help="compare with the catalogue at this commit")
    before = arguments.parse_args().before
    ids = None if before is None else earlier(before)
    patterns = load_patterns().patterns
    files = Counter(Path(file).parent.name for file in {pattern.file for pattern in patterns})
    lines = Counter[str]()
    for pattern in patterns:
        lines[Path(pattern.file).parent.name] += len(pattern.match.assignments)
    alternatives = sum(len(t.alternatives) for p in patterns for a in p.match for t in walk(a.term) if isinstance(t, Either))
    found = [pair for pattern in patterns for pair in needless(pattern)]
    counts = Counter(Path(pattern.file).parent.name for pattern in patterns)
    for group in sorted(counts):
        print(f"  {group:14} {files[group]:3} files {counts[group]:4} patterns {lines[group]:4} lines of formulas")
    print(f"{files.total()} files, {len(patterns)} patterns, {lines.total()} lines of formulas, {alternatives} alternatives")
    if ids is not None:
        kept, gone = merged(ids, patterns)
        words = ", ".join(sorted(gone)) or "none"
        print(f"{before}: {len(ids)} patterns, whose fusions are in {len(kept)} patterns today; gone: {words}")
    print(f"{len(found)} pairs of alternatives that differ only by an optional operand, a synonym or an order")
    for pair in found:
        print(pair)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
