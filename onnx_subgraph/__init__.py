"""Finds subgraphs of ONNX models that have a fused form, replaces them, and checks that the model still computes the same.

The public API is what `__all__` names; everything else may change. Names are loaded at first use, because onnx and onnxruntime
take most of a second to import and `onnx-subgraph --help` needs neither.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from onnx_subgraph.late import late_imports

if TYPE_CHECKING:
    from onnx_subgraph.backends.backend import Backend
    from onnx_subgraph.engine.session import EngineSession
    from onnx_subgraph.engine.settings import EngineSettings
    from onnx_subgraph.errors import (
        EngineError,
        KernelError,
        ModelError,
        OnnxSubgraphError,
        OnnxSubgraphWarning,
        PatternError,
        SessionError,
        UsageError,
    )
    from onnx_subgraph.explaining import explain
    from onnx_subgraph.language.library import Library, load_patterns
    from onnx_subgraph.matching.find import find
    from onnx_subgraph.options import Options
    from onnx_subgraph.partitioning.inline import inline
    from onnx_subgraph.partitioning.options import PartitionOptions
    from onnx_subgraph.partitioning.partition import PartitionResult, partition
    from onnx_subgraph.partitioning.worth import RegionLimits
    from onnx_subgraph.pipeline import fuse
    from onnx_subgraph.regions.region import Region
    from onnx_subgraph.regions.selector import NewNode, Review, region_pattern
    from onnx_subgraph.result import FuseResult
    from onnx_subgraph.session.inference import InferenceSession
    from onnx_subgraph.session.record import Limits
    from onnx_subgraph.session.settings import SessionSettings
    from onnx_subgraph.session.static import StaticSession
    from onnx_subgraph.timing.bench import Bench, BenchOptions, bench
    from onnx_subgraph.verification.verify import verify

__version__ = "0.2.0"

__all__ = [
    "Backend",
    "Bench",
    "BenchOptions",
    "EngineError",
    "EngineSession",
    "EngineSettings",
    "FuseResult",
    "InferenceSession",
    "KernelError",
    "Library",
    "Limits",
    "ModelError",
    "NewNode",
    "OnnxSubgraphError",
    "OnnxSubgraphWarning",
    "Options",
    "PartitionOptions",
    "PartitionResult",
    "PatternError",
    "Region",
    "RegionLimits",
    "Review",
    "SessionError",
    "SessionSettings",
    "StaticSession",
    "UsageError",
    "__version__",
    "bench",
    "explain",
    "find",
    "fuse",
    "inline",
    "load_patterns",
    "partition",
    "region_pattern",
    "verify",
]

_HOMES = {
    "Backend": "backends.backend",
    "Bench": "timing.bench",
    "BenchOptions": "timing.bench",
    "bench": "timing.bench",
    "EngineError": "errors",
    "KernelError": "errors",
    "EngineSession": "engine.session",
    "EngineSettings": "engine.engine",
    "FuseResult": "result",
    "InferenceSession": "session.inference",
    "Library": "language.library",
    "Limits": "session.record",
    "ModelError": "errors",
    "NewNode": "regions.selector",
    "OnnxSubgraphError": "errors",
    "OnnxSubgraphWarning": "errors",
    "Options": "options",
    "PartitionOptions": "partitioning.options",
    "PartitionResult": "partitioning.partition",
    "PatternError": "errors",
    "Region": "regions.region",
    "RegionLimits": "partitioning.worth",
    "Review": "regions.selector",
    "SessionError": "errors",
    "SessionSettings": "session.settings",
    "StaticSession": "session.static",
    "UsageError": "errors",
    "explain": "explaining",
    "find": "matching.find",
    "fuse": "pipeline",
    "inline": "partitioning.inline",
    "load_patterns": "language.library",
    "partition": "partitioning.partition",
    "region_pattern": "regions.selector",
    "verify": "verification.verify",
}
"""Public name → the module that it lives in."""


def __getattr__(name: str) -> object:
    """The public name, imported from its module at first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with late_imports():
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """The public names, those not loaded yet among them."""
    return sorted({*globals(), *__all__})
