"""Backends by name: those that come with the package, those that other packages register, and files that declare one.

A package registers a class under a name with the entry point group `onnx_subgraph.backends`. Nothing is imported before it is
asked for by its name.
"""

from __future__ import annotations

import importlib
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from onnx_subgraph.backends.backend import Backend
from onnx_subgraph.backends.declared import Declared
from onnx_subgraph.errors import UsageError
from onnx_subgraph.language.capability import read_capability

GROUP = "onnx_subgraph.backends"
"""The entry point group."""

SHIPPED = {
    "onnxruntime": "onnx_subgraph.backends.onnxruntime:OnnxRuntime",
    "openvino": "onnx_subgraph.backends.openvino:OpenVino",
    "reference": "onnx_subgraph.backends.reference:Reference",
}
"""Name → module and class, as in an entry point."""


def backend_names() -> tuple[str, ...]:
    """The names that `find_backend` knows: those of the package, then those of other packages."""
    others = sorted({point.name for point in entry_points(group=GROUP)} - SHIPPED.keys())
    return (*SHIPPED, *others)


def find_backend(name: str) -> Backend:
    """The backend of that name, or the one that the file `name` declares (`*.yaml`), made now.

    name: with options of the backend's own behind a colon, as in `openvino:GPU`.
    Raises UsageError where there is none or a library that it needs is missing, PatternError for a mistake in a file.
    """
    if not name.endswith((".yaml", ".yml")):
        return _registered(name)
    capability = read_capability(Path(name))
    return Declared(capability, _registered(capability.runs))


def _registered(name: str) -> Backend:
    points = {point.name: point for point in entry_points(group=GROUP)}
    points |= {known: EntryPoint(known, place, GROUP) for known, place in SHIPPED.items()}
    registered, _, options = name.partition(":")
    if registered not in points:
        hint = "install the package that registers it, or give a .yaml file that declares one"
        raise UsageError(f"there is no backend {registered}; there are {', '.join(backend_names())}", hint=hint)
    made = _made(points[registered], options)
    made.name = name  # which its engines ask for
    return made


def _made(point: EntryPoint, options: str) -> Backend:
    try:
        kind = getattr(importlib.import_module(point.module), point.attr)
        made = kind.configured(options) if options else kind()
    except UsageError:
        raise
    except Exception as error:  # somebody else's code
        raise UsageError(
            f"backend {point.name} can't be loaded from {point.value}: {error}", hint="reinstall the package that brings it"
        ) from error
    if not isinstance(made, Backend):
        raise UsageError(
            f"backend {point.name}: {point.value} is no Backend", hint="derive it from onnx_subgraph.backends.backend.Backend"
        )
    return made
