"""What `bench` measured, for a person and as JSON: latencies as ratios with their spread, and where the time goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from onnx_subgraph.report.json import Object
from onnx_subgraph.report.text import Rows, grid
from onnx_subgraph.report.wording import count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType
    from rich.table import Table

    from onnx_subgraph.timing import Bench, BenchOptions, Ratio, Timed
    from onnx_subgraph.timing.profile import Part, Profile

LONGEST = 10
"""How many parts of a profile are shown; `--json` has all."""


def as_text(bench: Bench) -> RenderableType:
    """The models in the order in which they were given, each against the first."""
    parts: list[RenderableType] = [_facts(bench), "", _table(bench)]
    parts += [Text(f"{_name(one, bench)}: {one.problem}", "red") for one in bench.timed if one.problem]
    for one in bench.timed:
        if one.profile is not None:
            parts += ["", Text(f"Where the time of {_name(one, bench)} goes", "bold"), *_profile(one.profile)]
    return Group(*parts, "")


def line(bench: Bench) -> str:
    """The second model against the first, in a line."""
    first, other = bench.timed
    if other.ratio is None:
        return f"not measured: {other.problem}"
    before, after = (_milliseconds(one.quantile(0.5)) for one in (first, other))
    return f"{_ratio(other.ratio)} of the original's: {before} → {after} ms, {conditions(bench.options, bench.sizes)}"


def conditions(options: BenchOptions, sizes: Mapping[str, int]) -> str:
    """What the figures hold for: sizes and threads."""
    threads = count(options.threads, "thread") if options.threads else "the threads that a session takes by itself"
    at = ", ".join(f"{name} {size}" for name, size in sizes.items()) or (
        "feeds that were given" if options.inputs else "fixed shapes"
    )
    return f"at {at}, {threads}"


def _facts(bench: Bench) -> Table:
    facts = grid()
    options = bench.options
    facts.add_row("measured", conditions(options, bench.sizes))
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
            "1" if one.ratio is None else Text(_ratio(one.ratio), _style(one.ratio)),
            _milliseconds(one.quantile(0.5)),
            _milliseconds(one.quantile(0.9)),
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


def _ratio(ratio: Ratio) -> str:
    return f"{ratio.ratio:.3f} ({ratio.least:.2f}–{ratio.most:.2f})"


def _style(ratio: Ratio) -> str:
    """Green or red where the spread does not reach over 1."""
    return "green" if max(ratio.ratio, ratio.most) < 1 else "red" if min(ratio.ratio, ratio.least) > 1 else ""


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g}" if seconds < 1 else f"{seconds * 1e3:.0f}"


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


def as_json(bench: Bench) -> Object:
    """What `bench --json` prints."""
    options = bench.options
    return {
        "sizes": dict(bench.sizes),
        "provider": options.provider,
        "threads": options.threads or None,
        "onnxruntime": bench.onnxruntime,
        "models": [_timed(one) for one in bench.timed],
    }


def _timed(one: Timed) -> Object:
    facts: Object = {"model": str(one.model), "runtime": one.runtime}
    if one.problem:
        return facts | {"problem": one.problem}
    facts |= {
        "runs": len(one.seconds),
        "p50_ms": one.quantile(0.5) * 1e3,
        "p90_ms": one.quantile(0.9) * 1e3,
        "runs_per_second": one.throughput,
        "ratio": None if one.ratio is None else {"ratio": one.ratio.ratio, "least": one.ratio.least, "most": one.ratio.most},
        "opening_seconds": one.opening,
        "memory_bytes": one.memory,
        "difference": one.difference,
    }
    if one.profile is not None:
        kinds = ("operators", "modules", "patterns", "uncovered")
        facts["profile"] = {kind: [_part(part) for part in getattr(one.profile, kind)] for kind in kinds}
    return facts


def _part(part: Part) -> Object:
    return {"name": part.name, "share": part.share, "ms": part.milliseconds, "nodes": part.count}
