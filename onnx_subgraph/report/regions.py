"""The results of `partition` and `inline`, for a person and as JSON: the engines, the other regions, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from onnx_subgraph.report import json
from onnx_subgraph.report.table import Rows, grid
from onnx_subgraph.report.verdicts import verdict_text
from onnx_subgraph.report.wording import count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from onnx_subgraph.partitioning.choice import MadeEngine, RefusedRegion, Unsupported
    from onnx_subgraph.partitioning.inline import InlineResult
    from onnx_subgraph.partitioning.partition import PartitionResult
    from onnx_subgraph.partitioning.worth import Cost

    _Told = MadeEngine | RefusedRegion | Unsupported

OPERATORS = 3
"""The most operators to name for an engine."""


def as_text(result: PartitionResult, *, verbose: bool = False) -> RenderableType:
    """The result for one model. verbose: all comparisons, and the time of each stage."""
    heading = Text.assemble((str(result.model), "bold"))
    if result.output is None:
        heading.append(": nothing written")
    else:
        heading.append(" → ").append(str(result.output), "bold")
        heading.append(" (no engine: an unchanged copy)" if result.unchanged else "")
    facts = grid()
    facts.add_row("nodes", f"{result.nodes_before} → {result.nodes_after}, {count(len(result.engines), 'engine')}")
    facts.add_row("backend", result.backend)
    facts.add_row("verdict", verdict_text(result.verdict, brief=not verbose))
    if verbose:
        stages = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in result.seconds.items())
        facts.add_row("seconds", f"{sum(result.seconds.values()):.2f} ({stages})")
    parts: list[RenderableType] = [heading, facts]
    groups: tuple[Sequence[_Told], ...] = (result.engines, result.refused, result.unsupported)
    several = len({one.backend for group in groups for one in group}) > 1
    if result.engines:
        parts += ["", _engines(result.engines, several=several)]
    if result.refused:
        parts += ["", Text("Regions left as they are", "bold"), _refused(result.refused, several=several)]
    if result.unsupported:
        parts += ["", Text("In no region", "bold"), _unsupported(result.unsupported, several=several)]
    return Group(*parts, "")


def as_json(result: PartitionResult) -> json.Object:
    """The JSON of `partition --json`."""
    return {
        "model": str(result.model),
        "output": None if result.output is None else str(result.output),
        "unchanged": result.unchanged,
        "backend": result.backend,
        "nodes": {"before": result.nodes_before, "after": result.nodes_after},
        "engines": [
            {
                "node": engine.node,
                "key": engine.key,
                "backend": engine.backend,
                "operators": dict(engine.operators),
                "replaces": list(engine.replaces),
                "bytes": _bytes(engine.cost),
            }
            for engine in result.engines
        ],
        "refused": [
            {
                "node": region.node,
                "nodes": region.cost.nodes,
                "reason": region.reason,
                "failed": region.failed,
                "backend": region.backend,
                "bytes": _bytes(region.cost),
            }
            for region in result.refused
        ],
        "unsupported": [
            {
                "operator": group.operator,
                "reason": group.reason,
                "count": len(group.nodes),
                "nodes": list(group.nodes),
                "backend": group.backend,
            }
            for group in result.unsupported
        ],
        "verification": json.verdict(result.verdict),
        "seconds": {stage: round(seconds, 6) for stage, seconds in result.seconds.items()},
    }


def inlined_text(result: InlineResult) -> str:
    """The result for one model, in a line."""
    if not result.calls:
        return f"{result.model} → {result.output} (nothing to inline: an unchanged copy)"
    return (
        f"{result.model} → {result.output}: {count(result.calls, 'call')} inlined, "
        f"{result.nodes_before} → {count(result.nodes_after, 'node')}"
    )


def inlined_json(result: InlineResult) -> json.Object:
    """The JSON of `inline --json`."""
    return {
        "model": str(result.model),
        "output": str(result.output),
        "unchanged": not result.calls,
        "calls": result.calls,
        "nodes": {"before": result.nodes_before, "after": result.nodes_after},
    }


def _bytes(cost: Cost) -> json.Object:
    return {"in": cost.inputs, "out": cost.outputs, "touched": cost.touched}


def _engines(engines: tuple[MadeEngine, ...], *, several: bool) -> Rows:
    """Equal regions in one row: the layers of a network. several: there are several backends, so each row names its own."""
    by = ("backend",) if several else ()
    columns = ("engines", "nodes", "bytes in", "bytes out", *by, "operators", "first node")
    table = Rows(*columns, head=4, right=("engines", "nodes"))
    groups: dict[tuple[str, str], list[MadeEngine]] = {}
    for engine in engines:
        groups.setdefault((engine.backend, engine.key), []).append(engine)
    for members in groups.values():
        first = members[0]
        table.add(
            str(len(members)),
            str(first.cost.nodes),
            _size(first.cost.inputs),
            _size(first.cost.outputs),
            *([first.backend] if several else []),
            _operators(first.operators),
            first.node,
        )
    return table


def _refused(regions: tuple[RefusedRegion, ...], *, several: bool) -> Rows:
    table = Rows("count", "nodes", "why", "first node", head=2, right=("count", "nodes"))
    groups: dict[str, list[RefusedRegion]] = {}
    for region in regions:
        groups.setdefault(_by(region, several), []).append(region)
    for reason, members in groups.items():
        sizes = sorted({region.cost.nodes for region in members})
        table.add(str(len(members)), "–".join(map(str, dict.fromkeys((sizes[0], sizes[-1])))), reason, members[0].node)
    return table


def _unsupported(groups: tuple[Unsupported, ...], *, several: bool) -> Rows:
    table = Rows("operator", "count", "why", "first node", head=2, right=("count",))
    for group in groups:
        table.add(group.operator, str(len(group.nodes)), _by(group, several), group.nodes[0])
    return table


def _by(one: RefusedRegion | Unsupported, several: bool) -> str:
    return f"{one.backend}: {one.reason}" if several else one.reason


def _operators(operators: Mapping[str, int]) -> str:
    shown = ", ".join(f"{number} {name}" for name, number in list(operators.items())[:OPERATORS])
    return f"{shown}, …" if len(operators) > OPERATORS else shown


def _size(number: float) -> str:
    for unit in ("B", "KB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"
