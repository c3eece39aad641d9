"""Prints everything that `find` finds in models, one JSON list a line, to compare two checkouts with diff.

    python benchmarks/matches.py MODEL… > matches.txt

A line has the model, the kind (a match, part of a match, a near miss, or an abandoned search), and all that is known about it. A
faster or smaller matcher prints the same lines.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from onnx_subgraph.files.models import load
from onnx_subgraph.language.library import load_patterns
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.language.term import walk
from onnx_subgraph.matching.find import find
from onnx_subgraph.matching.match import Match, NearMiss
from onnx_subgraph.model.shapes import infer_shapes


def said(binding: Any) -> str:
    """The value of a name: a graph value by its name, an array by a digest."""
    if isinstance(binding, ir.Value):
        return f"%{binding.name}"
    if isinstance(binding, np.ndarray):
        return f"{binding.dtype}{binding.shape} {hashlib.sha256(binding.tobytes()).hexdigest()[:12]}"
    if isinstance(binding, ir.Attr):
        return f"{binding.name}={binding.value}"
    return repr(binding)


def chosen(match: Match) -> list[tuple[int, int]]:
    """The alternatives that matched, each by its position in the pattern."""
    position: dict[int, int] = {}
    for assignment in match.pattern.match:
        for term in walk(assignment.term):
            position.setdefault(id(term), len(position))
    return sorted((position.get(key, -1), index) for key, index in match.chosen.items())


def described(match: Match) -> list[Any]:
    """A match with all its fields."""
    return [
        match.pattern.id,
        [f"{node.name} {node.outputs[0].name}" for node in match.nodes],
        {name: said(binding) for name, binding in match.bindings.items()},
        {name: sorted(map(said, rest.values())) for name, rest in match.rest.items()},
        {name: said(root) for name, root in match.roots.items()},
        chosen(match),
        [(said(value), said(other)) for value, other in match.doubles.items()],
    ]


def told(miss: NearMiss) -> dict[str, Any]:
    """A near miss with all its fields. Its place in the pattern file is a line number, without the path of the file."""
    span = miss.span
    return {**asdict(miss), "kind": miss.kind.name, "span": None if span is None else (span.line, span.column, span.text)}


def dump(path: Path, patterns: tuple[Pattern, ...]) -> None:
    """Print the matches and near misses of one model."""
    made = load(path)
    infer_shapes(made)
    found = find(made, patterns)
    lines: list[tuple[str, Any]] = [("match", described(match)) for match in found.matches]
    lines += [("part", described(part)) for part in found.parts]
    lines += [("given up", asdict(place)) for place in found.given_up]
    lines += [("near miss", told(miss)) for miss in found.near_misses]
    for line in lines:
        print(json.dumps([path.name, *line]))


def main() -> None:
    """Print the matches and near misses of all models."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("models", type=Path, nargs="+", metavar="MODEL")
    patterns = tuple(load_patterns().patterns)
    for path in arguments.parse_args().models:
        dump(path, patterns)


if __name__ == "__main__":
    main()
