"""Backends by name: those that come with the package, those that other packages register, and files that declare one.

A package registers a class under a name with the entry point group `onnx_subgraph.backends`. Nothing is imported before it is
asked for by its name.
"""

from __future__ import annotations

import importlib
from importlib.metadata import EntryPoint, entry_points

from onnx_subgraph.backends.backend import Backend
from onnx_subgraph.errors import UsageError

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
    """The backend of that name, made now. Raises UsageError where there is none, or a library that it needs is missing."""
    points = {point.name: point for point in entry_points(group=GROUP)}
    points |= {known: EntryPoint(known, place, GROUP) for known, place in SHIPPED.items()}
    if name not in points:
        hint = "it is registered by a package that is not installed here" if "/" not in name else "a file ends in .yaml"
        raise UsageError(f"there is no backend {name}; there are {', '.join(backend_names())}", hint=hint)
    return _made(points[name])


def _made(point: EntryPoint) -> Backend:
    try:
        made = getattr(importlib.import_module(point.module), point.attr)()
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
