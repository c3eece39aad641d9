"""The library of kernels of our own: where it is, what it is built with, and what it says of itself.

Its source is C, in the folder kernels/ of a checkout and inside the package of a wheel. The wheels for Linux hold it compiled.
Elsewhere `path()` builds it when it is first asked for, with the system's compiler or that of the package ziglang, and keeps it
in the user's cache. Nothing is built or loaded before somebody asks.
"""

from __future__ import annotations

from onnx_subgraph.kernels.library import Description, copy, describe, path

__all__ = ["Description", "copy", "describe", "path"]
