"""The library of kernels, loaded into the options of a session."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from weakref import WeakSet

from onnx_subgraph import kernels
from onnx_subgraph.errors import KernelError, OnnxSubgraphWarning
from onnx_subgraph.kernels.marked import is_marked
from onnx_subgraph.session.providers import CPU, providers_here

_HAVE_IT: WeakSet[Any] = WeakSet()
"""Options that already have the library; onnxruntime takes it once."""
_NEEDS_IT = (
    b'\x08\x08:Z\n3\n\x01x\x12\x01y"\tLayerNorm*\x11\n\x07epsilon\x15\x00\x00\x80?\xa0\x01\x01:\ronnx_subgraph\x12\x01g'
    b"Z\x0f\n\x01x\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01B\x11\n\r"
    b"onnx_subgraph\x10\x01"
)
"""A model that loads only with the library: one node, `y = onnx_subgraph.LayerNorm <epsilon = 1.0> (x)`."""


def with_kernels(options: Any) -> Any:
    """Session options with our kernels: those given, or new ones. Raises KernelError if no library is there and loads."""
    from onnxruntime import SessionOptions

    options = SessionOptions() if options is None else options
    if options not in _HAVE_IT and not _has_it(options):
        library = kernels.describe().path
        try:
            options.register_custom_ops_library(str(library))
        except Exception as error:  # onnxruntime's exceptions have no common base class below Exception
            message = f"{library}: onnxruntime does not load it: {str(error).splitlines()[0]}"
            raise KernelError(message, hint="remove the file, so that it is built again") from None
    _HAVE_IT.add(options)
    return options


def with_kernels_for(model: Path | bytes, options: Any, providers: Sequence[Any] | None) -> Any:
    """Session options for this model: with our kernels if it was written for them and runs on the CPU.

    providers: as onnxruntime takes them. A CPU kernel would take precedence over a definition that another provider runs.
    """
    if providers_here(providers)[0] != CPU:
        return options
    try:
        return with_kernels(options) if is_marked(model) else options
    except OSError:
        return options  # onnxruntime reports in its own words that it can't be read
    except KernelError as error:
        message = f"the model runs by its definitions, without our kernels: {error.message}"
        warnings.warn(message, OnnxSubgraphWarning, stacklevel=2)
        return options


def _has_it(options: Any) -> bool:
    """Whether a program has loaded the library into its options itself; onnxruntime does not tell."""
    from onnx_subgraph.verification.sessions import plain_session_class

    said = options.enable_profiling, options.optimized_model_filepath, options.log_severity_level
    options.enable_profiling, options.optimized_model_filepath, options.log_severity_level = False, "", 4
    try:
        plain_session_class()(_NEEDS_IT, options, providers=["CPUExecutionProvider"])
    except Exception:  # onnxruntime's exceptions have no common base class below Exception
        return False
    finally:
        options.enable_profiling, options.optimized_model_filepath, options.log_severity_level = said
    return True
