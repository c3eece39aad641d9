"""Results as JSON objects, for programs. README.md documents them; keys are added, not renamed or removed.

Every function gives plain dictionaries, lists, strings, numbers and None. A number that JSON can't hold (an infinite error) is
None, and the `problem` beside it says why.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnx_subgraph.report import bench_json, grouping
from onnx_subgraph.report.notices import gaps
from onnx_subgraph.report.reasons import reasons

if TYPE_CHECKING:
    from onnx_subgraph.errors import Span
    from onnx_subgraph.expectation.check import Check
    from onnx_subgraph.language.header import Header
    from onnx_subgraph.proving import Proof
    from onnx_subgraph.result import FuseResult
    from onnx_subgraph.verification.blame import Undone
    from onnx_subgraph.verification.own import OwnWork
    from onnx_subgraph.verification.site import SiteCheck
    from onnx_subgraph.verification.verdict import Placement, Rounding, Run, Verdict

Object = dict[str, Any]


def fusion(result: FuseResult) -> Object:
    """The JSON of `fuse --json` for one model."""
    why = reasons(result)
    return {
        "model": str(result.model),
        "output": None if result.output is None else str(result.output),
        "unchanged": result.unchanged,
        "nodes": {"before": result.nodes_before, "after": result.nodes_after},
        "opset": {"before": result.opset_before, "after": result.opset_after},
        "target": result.target,
        "providers": list(result.providers),
        **({"marked": [asdict(one) for one in result.marked]} if result.marked else {}),
        **({"fixed": {name: list(shape) for name, shape in result.fixed.items()}} if result.fixed else {}),
        "assumed": [_assumed(provider) for provider in result.assumed],
        **_found(result),
        "reasons": [{"reason": reason.sentence, "change": reason.change} for reason in (why.told if why is not None else ())],
        "undone": [_undone(undone) for undone in result.undone],
        "sites": [_site(check) for check in result.sites],
        "onnxruntime": [_own(work) for work in result.own],
        "verification": verdict(result.verdict),
        "seconds": {stage: round(seconds, 6) for stage, seconds in result.seconds.items()},
        **({"libraries": [str(path) for path in result.libraries]} if result.libraries else {}),
        **{key: asdict(found) for key, found in (("tuning", result.tuning), ("engines", result.engines)) if found is not None},
        **({"bench": bench_json.bench(result.bench)} if result.bench is not None else {}),
    }


def expectations(checks: Sequence[Check]) -> list[Object]:
    """The part of `fuse --json --expect` for one model: each expectation, met or not, with what was found."""
    return [
        {
            "what": check.what,
            "expected": check.expected,
            "found": check.found,
            "met": check.met,
            "place": _place(check.span),
            "reasons": list(check.reasons),
        }
        for check in checks
    ]


def failure(model: Path, message: str) -> Object:
    """The JSON of `fuse --json` for a model that could not be fused."""
    return {"model": str(model), "output": None, "error": message}


def explanation(result: FuseResult) -> Object:
    """The JSON of `explain --json`."""
    return {
        "model": str(result.model),
        "nodes": result.nodes_before,
        "opset": result.opset_before,
        "target": result.target,
        "providers": list(result.providers),
        **_found(result),
    }


def verdict(verdict: Verdict) -> Object:
    """The verdict and every run behind it."""
    return {
        "verdict": verdict.verdict,
        "strength": verdict.strength,
        "reason": verdict.reason,
        "runs": [_run(run) for run in verdict.runs],
        "placements": [_placement(placement) for placement in verdict.placements],
        "outputs": [asdict(showing) | {"power": _number(showing.power)} for showing in verdict.showings],
        "random": list(verdict.random),
        "coverage": None if verdict.coverage is None else asdict(verdict.coverage),
        "also": list(verdict.also),
        "roundings": [_rounding(one) for one in verdict.roundings],
    }


def _rounding(one: Rounding) -> Object:
    return {"output": one.output, "kernels": _number(one.kernels), "onnxruntime": _number(one.onnxruntime)}


def header(header: Header) -> Object:
    """The JSON of `list-patterns --json` for one pattern."""
    return {
        "id": header.id,
        "group": header.group,
        "summary": header.summary,
        "targets": list(header.targets),
        "file": str(header.file),
        "from": header.origin,
    }


def proof(proof: Proof) -> Object:
    """The JSON of `test-patterns --json` for one pattern."""
    return {
        "pattern": proof.pattern,
        "cases": proof.cases,
        "failures": list(proof.failures),
        "targets": dict(proof.targets),
        "unproved": dict(proof.unproved),
        "notes": list(proof.notes),
    }


def _found(result: FuseResult) -> Object:
    return {
        "fusions": [
            {
                "pattern": group.pattern,
                "op": group.op,
                "count": len(group.sites),
                "function": group.body,
                "assumes": sorted(group.assumes),
                "sites": [{"node": site.node, "replaces": list(site.replaces)} for site in group.sites],
            }
            for group in grouping.fusions(result.rewrites)
        ],
        "near_misses": [
            {
                "pattern": group.pattern,
                "place": _place(group.span),
                "expected": group.expected,
                "found": group.found,
                "change": group.change,
                "matched": group.matched,
                "count": len(group.nodes),
                "nodes": list(group.nodes),
            }
            for group in grouping.nearly_matched(result.near_misses)
        ],
        "skipped": [
            {
                "pattern": group.pattern,
                "reason": group.reason,
                "change": group.change,
                "opset": group.opset,
                "count": len(group.nodes),
                "nodes": list(group.nodes),
            }
            for group in grouping.skipped(result.skipped)
        ],
        "overridable": {"initializers": list(result.overridable.names), "readers": result.overridable.readers},
        **{
            name: [asdict(one) for one in some]
            for name, some in (("flushed", result.flushed), ("unflushed", result.unflushed))
            if some
        },
        **{
            name: [{"operator": r.operator, "loop": r.loop, "nodes": r.nodes, "assumes": sorted(r.rewrite.assumes)} for r in some]
            for name, some in (("recurrent", result.recurrent), ("unrecurrent", result.unrecurrent))
            if some
        },
        **{
            name: asdict(counts)
            for name, counts in (("simplified", result.simplified), ("unsimplified", result.unsimplified))
            if counts
        },
        **({"made_constant": list(result.made_constant)} if result.made_constant else {}),
        "gaps": [
            {
                "operator": group.first.operator,
                "reason": group.first.reason,
                "change": group.first.change,
                "count": len(group.places),
                "nodes": list(group.places),
                "behind": len(group.behind),
                "patterns": list(group.patterns),
            }
            for group in gaps(result)
        ],
        "bugs": [
            {
                "pattern": group.pattern,
                "error": group.bug.error,
                "traceback": group.bug.trace,
                "count": len(group.nodes),
                "nodes": list(group.nodes),
            }
            for group in grouping.skipped(result.skipped)
            if group.bug is not None
        ],
    }


def _own(work: OwnWork) -> Object:
    return {
        "provider": work.provider,
        "nodes": {"original": work.nodes_original, "fused": work.nodes_fused},
        "fusions": [{"op": own.op, "output": own.value, "fate": own.fate, "by": own.by} for own in work.own],
        "sites": [
            {"pattern": s.rewrite.pattern, "op": s.rewrite.op, "node": s.rewrite.node, "by_itself": s.op, "inside": s.inside}
            for s in work.sites
        ],
        "problem": work.failure,
    }


def _assumed(provider: str) -> Object:
    # Not at the top: `list-patterns --json` should answer without importing onnx.
    from onnx_subgraph.rewriting.assumed import table_of

    return {"provider": provider, "onnxruntime": table_of(provider).onnxruntime, "verdict": "not-run"}


def _undone(undone: Undone) -> Object:
    return {
        "pattern": undone.rewrite.pattern,
        "op": undone.rewrite.op,
        "node": undone.rewrite.root,
        "replaces": list(undone.rewrite.replaces),
        "found": undone.found,
        "provider": undone.provider,
        "output": undone.output,
        **{name: _number(getattr(undone, name)) for name in ("error", "bound", "original")},
        **{name: getattr(undone, name) for name in ("problem", "instead", "drawn")},
    }


def _site(check: SiteCheck) -> Object:
    found = check.accuracy
    return {
        "pattern": check.rewrite.pattern,
        "op": check.rewrite.op,
        "node": check.rewrite.node,
        "root": check.rewrite.root,
        "provider": check.provider,
        "output": check.result,
        "holds": None if found is None else found.holds,
        "against": check.against,
        "values": check.values,
        "like": check.like,
        "error": None if found is None else _number(found.fused),
        "original": None if found is None else _number(found.unfused),
        "bound": None if found is None else _number(found.bound),
        "problem": check.unknown if found is None else found.problem,
    }


def _place(span: Span | None) -> Object | None:
    return {"file": span.file, "line": span.line, "column": span.column, "text": span.text.strip()} if span is not None else None


def _run(run: Run) -> Object:
    return {
        "provider": run.provider,
        "optimised": run.optimised,
        "sizes": {name: int(size) for name, size in run.sizes.items()},
        "seed": run.seed,
        "output": run.output,
        "equal": bool(run.equal),
        "error": _number(run.error),
        "bound": _number(run.bound),
        "worst": [int(index) for index in run.worst],
        "problem": run.problem,
        "jumps": run.jumps,
    }


def _placement(placement: Placement) -> Object:
    return {
        "provider": placement.provider,
        "taken": [{"node": node.name, "op": node.op} for node in placement.taken],
        "fallen": [{"node": node.name, "op": node.op, "provider": node.provider} for node in placement.fallen],
    }


def _number(value: float | None) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None
