"""Backends by name: those of the package, those that other packages register, and files that declare one.

A package registers a class with the entry point group `onnx_subgraph.backends`. A backend is imported only when its name is used.
"""

from __future__ import annotations

import importlib
from importlib.metadata import EntryPoint
from pathlib import Path

from onnx_subgraph.backends.backend import Backend
from onnx_subgraph.backends.declared import Declared
from onnx_subgraph.backends.names import is_file_name, registered
from onnx_subgraph.errors import UsageError
from onnx_subgraph.language.capability import read_capability


def find_backend(name: str) -> Backend:
    """A new backend of that name, or the one that the file `name` declares (`*.yaml`).

    name: with the backend's options after a colon, as in `openvino:GPU`. Raises UsageError if there is none or a library is
    missing, PatternError for a mistake in a file.
    """
    if not is_file_name(name):
        return _registered(name)
    capability = read_capability(Path(name))
    return Declared(capability, _registered(capability.runs))


def _registered(name: str) -> Backend:
    made = _made(registered(name), name.partition(":")[2])
    made.name = name  # the name that its engines use
    return made


def _made(point: EntryPoint, options: str) -> Backend:
    try:
        kind = getattr(importlib.import_module(point.module), point.attr)
        made = kind.configured(options) if options else kind()
    except UsageError:
        raise
    except Exception as error:  # other code may raise anything
        raise UsageError(
            f"backend {point.name} can't be loaded from {point.value}: {error}", hint="reinstall the package that brings it"
        ) from error
    if not isinstance(made, Backend):
        raise UsageError(
            f"backend {point.name}: {point.value} is no Backend", hint="derive it from onnx_subgraph.backends.backend.Backend"
        )
    return made
