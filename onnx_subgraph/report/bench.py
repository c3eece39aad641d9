"""The output of `bench`, for a person: latencies as ratios with their spread, and profiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from onnx_subgraph.report.table import Rows, grid
from onnx_subgraph.report.wording import conditions, milliseconds, ratio_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType
    from rich.table import Table

    from onnx_subgraph.timing import Bench, Ratio, Timed
    from onnx_subgraph.timing.profile import Part, Profile

LONGEST = 10
"""How many parts of a profile are shown; `--json` has all."""


def as_text(bench: Bench) -> RenderableType:
    """The models in the given order, each compared with the first."""
    parts: list[RenderableType] = [_facts(bench), "", _table(bench)]
    parts += [Text(f"{_name(one, bench)}: {one.problem}", "red") for one in bench.timed if one.problem]
    for one in bench.timed:
        if one.profile is not None:
            parts += ["", Text(f"Where the time of {_name(one, bench)} goes", "bold"), *_profile(one.profile)]
    return Group(*parts, "")


def _facts(bench: Bench) -> Table:
    facts = grid()
    options = bench.options
    facts.add_row("measured", conditions(bench))
    facts.add_row("by", f"onnxruntime {bench.onnxruntime} on {options.provider}")
    runs = sum(len(one.seconds) for one in bench.timed)
    facts.add_row("runs", f"{runs} in {sum(sum(one.seconds) for one in bench.timed):.1f} s, the models in turn")
    return facts


def _table(bench: Bench) -> Rows:
    numbers = ("time", "p50 ms", "p90 ms", "runs/s", "memory", "opens in", "difference")
    rows = Rows("model", *numbers, head=len(numbers) + 1, right=numbers)
    for one in bench.timed:
        if one.problem:
            continue
        rows.add(
            _name(one, bench),
            "1" if one.ratio is None else Text(ratio_text(one.ratio), _style(one.ratio)),
            milliseconds(one.quantile(0.5)),
            milliseconds(one.quantile(0.9)),
            f"{one.throughput:.3g}" if one.throughput < 1000 else f"{one.throughput:.0f}",
            "–" if one.memory is None else f"{one.memory / 1e6:.0f} MB",
            f"{one.opening:.2f} s",
            "–" if one.difference is None else f"{one.difference:.1g}",
        )
    return rows


def _name(one: Timed, bench: Bench) -> str:
    several = len(bench.options.runtimes) > 1
    alike = len({other.model.name for other in bench.timed}) < len({other.model for other in bench.timed})
    name = str(one.model) if alike else one.model.name
    return f"{name} in {one.runtime}" if several else name


def _style(ratio: Ratio) -> str:
    """Green or red if the whole spread is on one side of 1."""
    return "green" if max(ratio.ratio, ratio.most) < 1 else "red" if min(ratio.ratio, ratio.least) > 1 else ""


def _profile(profile: Profile) -> list[RenderableType]:
    tables: list[RenderableType] = ["", _parts("operator", profile.operators), "", _parts("module", profile.modules)]
    if not profile.patterns:
        return tables[1:]
    plain = max(0.0, 1 - sum(part.share for part in (*profile.patterns, *profile.uncovered)))
    facts = grid()
    facts.add_row("in fusions", _shares(profile.patterns))
    facts.add_row("in products and convolutions", f"{plain:.0%}")
    facts.add_row("in what no pattern wrote", _shares(profile.uncovered))
    return [facts, *tables]


def _shares(parts: Sequence[Part]) -> str:
    named = ", ".join(f"{part.name} {part.share:.0%}" for part in parts[:4] if part.share >= 0.005)
    return f"{sum(part.share for part in parts):.0%}" + (f": {named}" if named else "")


def _parts(kind: str, parts: Sequence[Part]) -> Rows:
    rows = Rows(kind, "share", "ms", "nodes", head=4, right=("share", "ms", "nodes"))
    for part in parts[:LONGEST]:
        rows.add(part.name, f"{part.share:.1%}", f"{part.milliseconds:.3g}", str(part.count))
    if rest := parts[LONGEST:]:
        nodes, milliseconds = sum(part.count for part in rest), sum(part.milliseconds for part in rest)
        rows.add(f"{len(rest)} more", f"{sum(part.share for part in rest):.1%}", f"{milliseconds:.3g}", str(nodes))
    return rows
