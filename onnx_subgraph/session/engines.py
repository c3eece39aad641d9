"""Sessions of engines, for a prepared model or one that was written with engines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from onnx_subgraph.files.carried import carried_functions
from onnx_subgraph.late import late_imports
from onnx_subgraph.operators.names import ENGINE, OWN_DOMAIN
from onnx_subgraph.paths import several
from onnx_subgraph.session.prepare import Prepared
from onnx_subgraph.session.settings import SessionSettings

if TYPE_CHECKING:
    from onnx_subgraph.engine.session import EngineSession

COMPILED = "compiled"
"""The folder beside a cached model with the regions that its backends compiled."""


def engines_of(prepared: Prepared, settings: SessionSettings) -> EngineSession | None:
    """The session of a prepared model's engines; None if it has none. Raises OnnxSubgraphError if a backend is missing."""
    if prepared.path is None or not holds_engines(prepared):
        return None
    compiled = None if prepared.temporary is not None else prepared.path.parent / COMPILED
    return open_engines(prepared.path, settings, compiled=compiled)


def holds_engines(prepared: Prepared) -> bool:
    """Whether a prepared model has engines: its own, or those that its source was written with."""
    return prepared.path is not None and (prepared.engines > 0 or has_engines(prepared.path))


def has_engines(path: Path) -> bool:
    """Whether the model in a file was written with engines."""
    return (OWN_DOMAIN, ENGINE) in carried_functions(path)


def open_engines(
    path: Path, settings: SessionSettings, weights: Path | None = None, compiled: Path | None = None
) -> EngineSession:
    """A session of engines that never waits for a backend: onnxruntime runs what is not compiled yet."""
    with late_imports():
        from onnx_subgraph.engine.session import EngineSession
        from onnx_subgraph.engine.settings import EngineSettings
    engines = EngineSettings(
        isolated=settings.isolated, patience=0.0, deadline=settings.deadline, check=settings.check, folder=compiled
    )
    return EngineSession(path, settings=engines, weights=weights, libraries=several(settings.libraries), required=True)
