"""Our library of kernels: locate it, build it, and describe it.

The C sources are in the folder kernels/ of a checkout, and inside the package of a wheel. The wheels for Linux contain the
compiled library. Elsewhere `path()` builds it on first use, with the system's compiler or that of the package ziglang, and keeps
it in the user's cache. Nothing is built or loaded before the first use.
"""

from __future__ import annotations

from onnx_subgraph.kernels.library import Description, copy, describe, path

__all__ = ["Description", "copy", "describe", "path"]
