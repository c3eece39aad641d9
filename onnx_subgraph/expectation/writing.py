"""Write an expectation file from results: the results satisfy it, and the next export must satisfy it too.

Counts are exact. Numbers that may improve have a bound (`at most`) with some slack: sizes are rounded up, and the tolerance is
the power of ten above the measured bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from onnx_subgraph.expectation.check import NONE, number_text, places
from onnx_subgraph.expectation.reading import UNITS
from onnx_subgraph.language.dump import yaml_text
from onnx_subgraph.matching.match import NearMiss
from onnx_subgraph.paths import short_names
from onnx_subgraph.result import FuseResult
from onnx_subgraph.rewriting.rewrite import Rewrite
from onnx_subgraph.verification.verdict import Verdict

HEAD = "# What `onnx-subgraph fuse` is expected to give: checked with --expect, made with --write-expect.\n"


def expectation_text(results: Sequence[tuple[FuseResult, Sequence[NearMiss]]]) -> str:
    """The expectation file that `results` satisfy. Each result comes with its near misses to report."""
    sections = short_names(result.model for result, _ in results)
    return HEAD + yaml_text({"models": {sections[result.model]: _section(result, told) for result, told in results}})


def _section(result: FuseResult, told: Sequence[NearMiss]) -> dict[str, Any]:
    by_pattern: dict[str, list[Rewrite]] = {}
    for rewrite in result.rewrites:
        by_pattern.setdefault(rewrite.pattern, []).append(rewrite)
    near = {pattern: len(places(told, pattern)) for pattern in sorted({miss.pattern for miss in told})}
    section: dict[str, Any] = {
        "fusions": {pattern: _fusions(sites) for pattern, sites in by_pattern.items()},
        "near-misses": {pattern: f"at most {count}" for pattern, count in near.items()},
        "nodes": f"at most {result.nodes_after}",
    }
    if result.size is not None:
        section["size"] = f"at most {_rounded_up(result.size)}"
    if result.verdict.verdict == "equivalent":
        section["providers"] = list(result.providers)
        section |= tolerance_of(result.verdict)
    return section


def _fusions(sites: Sequence[Rewrite]) -> int | dict[str, Any]:
    """The count, and the floating attributes if there are any: no other trace in the graph shows a changed ε."""
    attributes = _real_numbers([dict(site.attributes) for site in sites])
    return {"count": len(sites), "attributes": attributes} if attributes else len(sites)


def _real_numbers(sites: Sequence[Mapping[str, object]]) -> dict[str, Any]:
    """Name → the number that all sites have, or else the list of numbers, with `none` where a site has none."""
    found: dict[str, dict[float | str, None]] = {}
    for name in dict.fromkeys(name for one in sites for name in one):
        values = [one.get(name) for one in sites]
        numbers = {float(number_text(v)) for v in values if isinstance(v, float) and math.isfinite(v)}
        found[name] = dict.fromkeys([*sorted(numbers), *([NONE] if numbers and None in values else [])])
    return {name: next(iter(seen)) if len(seen) == 1 else list(seen) for name, seen in found.items() if seen}


def tolerance_of(verdict: Verdict) -> dict[str, float]:
    """The power of ten above the largest measured bound; empty where there is none."""
    bound = max((run.bound for run in verdict.runs if math.isfinite(run.bound)), default=0.0)
    return {"tolerance": float(f"1e{math.ceil(math.log10(bound))}")} if bound > 0 else {}


def _rounded_up(size: int) -> str:
    """`size` bytes, rounded up to two digits: `440 MB`."""
    unit, factor = next(((u, f) for u, f in reversed(UNITS.items()) if size >= f), ("B", 1))
    digits = len(str(size)) - 2
    rounded = -(-size // 10**digits) * 10**digits if digits > 0 else size
    return f"{rounded / factor:g} {unit}"
