"""The names of backends, and their origins. This module imports only the standard library, and no backend."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from onnx_subgraph.errors import UsageError
from onnx_subgraph.values import words

GROUP = "onnx_subgraph.backends"
"""The entry point group."""

SHIPPED = {
    "onnxruntime": "onnx_subgraph.backends.onnxruntime:OnnxRuntime",
    "openvino": "onnx_subgraph.backends.openvino:OpenVino",
    "reference": "onnx_subgraph.backends.reference:Reference",
    "static": "onnx_subgraph.backends.static:Static",
}
"""Name → module and class, as in an entry point."""


def backend_names() -> tuple[str, ...]:
    """The names that `find_backend` knows: those of the package, then those of other packages."""
    others = sorted({point.name for point in entry_points(group=GROUP)} - SHIPPED.keys())
    return (*SHIPPED, *others)


def is_file_name(name: str) -> bool:
    """Whether a name is the path of a file that declares a backend."""
    return name.endswith((".yaml", ".yml"))


def registered(name: str) -> EntryPoint:
    """The entry of the backend of that name, with or without options after a colon. Raises UsageError if there is none."""
    points = {point.name: point for point in entry_points(group=GROUP)}
    points |= {known: EntryPoint(known, place, GROUP) for known, place in SHIPPED.items()}
    stem = name.partition(":")[0]
    if stem not in points:
        hint = "install the package that registers it, or give a .yaml file that declares one"
        raise UsageError(f"there is no backend {stem}; there are {', '.join(backend_names())}", hint=hint)
    return points[stem]


def names_in(given: str | Iterable[str]) -> tuple[str, ...]:
    """The names in a setting, a list or separated by `;`, in the order in which the backends are asked."""
    return tuple(name.strip() for name in ";".join(words(given)).split(";") if name.strip())


def check_backends(given: str | Iterable[str]) -> None:
    """Raises UsageError if a name is unknown, or its file does not exist."""
    for name in names_in(given):
        if not is_file_name(name):
            registered(name)
        elif not Path(name).is_file():
            raise UsageError(f"{name}: there is no such file", hint="name a file that declares a backend, or a backend")
