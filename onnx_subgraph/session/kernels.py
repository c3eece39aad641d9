"""The library of kernels, loaded into the options of a session."""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

from onnx_subgraph import kernels

_HAVE_IT: WeakSet[Any] = WeakSet()
"""The options that have the library; onnxruntime takes it once."""


def with_kernels(options: Any) -> Any:
    """Options for a session that has our kernels: those given, or new ones. Raises KernelError where there is no library."""
    from onnxruntime import SessionOptions

    options = SessionOptions() if options is None else options
    if options not in _HAVE_IT:
        options.register_custom_ops_library(str(kernels.path()))
        _HAVE_IT.add(options)
    return options
