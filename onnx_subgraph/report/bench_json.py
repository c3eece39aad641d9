"""The measurements of `bench` as JSON."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnx_subgraph.timing import Bench, Timed
    from onnx_subgraph.timing.profile import Part

Object = dict[str, Any]


def bench(bench: Bench) -> Object:
    """The JSON of `bench --json`, also part of `fuse --bench --json`."""
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
        "difference": one.difference if one.difference is None or math.isfinite(one.difference) else None,
    }
    if one.profile is not None:
        kinds = ("operators", "modules", "patterns", "uncovered")
        facts["profile"] = {kind: [_part(part) for part in getattr(one.profile, kind)] for kind in kinds}
    return facts


def _part(part: Part) -> Object:
    return {"name": part.name, "share": part.share, "ms": part.milliseconds, "nodes": part.count}
