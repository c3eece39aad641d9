"""The library of kernels, loaded into the options of a session."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from weakref import WeakSet

from onnx_subgraph import kernels
from onnx_subgraph.errors import KernelError
from onnx_subgraph.model.carried import carried_functions
from onnx_subgraph.operators.names import ENGINE, OWN_DOMAIN

CPU = "CPUExecutionProvider"

_HAVE_IT: WeakSet[Any] = WeakSet()
"""The options that have the library; onnxruntime takes it once."""


def with_kernels_for(source: Path | bytes, options: Any, providers: Sequence[Any] | None) -> Any:
    """Options for a session of a model: with our kernels where it has operators of ours, the CPU runs it, and there is a library.

    Without the library its operators run by their definitions, as everywhere.
    """
    first = next(iter(providers or ()), CPU)
    if (first if isinstance(first, str) else first[0]) != CPU:
        return options  # a kernel of the CPU would be taken before a definition that the provider runs
    try:
        ours = {name for domain, name in carried_functions(source) if domain == OWN_DOMAIN} - {ENGINE}
        return with_kernels(options) if ours else options
    except (OSError, KernelError):
        return options


def with_kernels(options: Any) -> Any:
    """Options for a session that has our kernels: those given, or new ones. Raises KernelError where there is no library."""
    from onnxruntime import SessionOptions

    options = SessionOptions() if options is None else options
    if options not in _HAVE_IT:
        options.register_custom_ops_library(str(kernels.path()))
        _HAVE_IT.add(options)
    return options
