"""The names of backends, and where each comes from. Only the standard library is imported here, and no backend."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from onnx_subgraph.errors import UsageError

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
    """Whether a name is that of a file that declares a backend."""
    return name.endswith((".yaml", ".yml"))


def registered(name: str) -> EntryPoint:
    """Where the backend of that name is, with or without options behind a colon. Raises UsageError where there is none."""
    points = {point.name: point for point in entry_points(group=GROUP)}
    points |= {known: EntryPoint(known, place, GROUP) for known, place in SHIPPED.items()}
    stem = name.partition(":")[0]
    if stem not in points:
        hint = "install the package that registers it, or give a .yaml file that declares one"
        raise UsageError(f"there is no backend {stem}; there are {', '.join(backend_names())}", hint=hint)
    return points[stem]


def names_in(text: str) -> tuple[str, ...]:
    """The names in a setting: several with a `;` between them, in the order in which they are asked."""
    return tuple(name.strip() for name in text.split(";") if name.strip())


def check_backends(text: str) -> None:
    """Raises UsageError where one of the names is that of no backend, or of a file that is not there."""
    for name in names_in(text):
        if not is_file_name(name):
            registered(name)
        elif not Path(name).is_file():
            raise UsageError(f"{name}: there is no such file", hint="name a file that declares a backend, or a backend")
