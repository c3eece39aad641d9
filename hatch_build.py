"""Builds wheels: a pure one, or one for Linux that holds the library of kernels, compiled.

`python -m build` makes the pure wheel. `ONNX_SUBGRAPH_WHEEL=x86_64 python -m build --wheel --no-isolation` makes one for that
processor, `aarch64` one for ARM. The package ziglang has a compiler for both, on any machine. CFLAGS adds flags.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROCESSOR = "ONNX_SUBGRAPH_WHEEL"
GLIBC = (2, 17)
"""The oldest version of the GNU C library that the library of kernels runs with: that of manylinux2014."""
LIBRARY = "onnx_subgraph/kernels/compiled/onnx_subgraph_kernels.so"
"""Where `onnx_subgraph.kernels.build` looks for it."""


class KernelsHook(BuildHookInterface):
    """Adds the compiled library where a processor is named."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles the library into a folder of its own, and tags the wheel."""
        processor = os.environ.get(PROCESSOR, "")
        if self.target_name != "wheel" or version != "standard" or not processor:
            return
        if processor not in {"x86_64", "aarch64"}:
            raise ValueError(
                f"{PROCESSOR} is {processor!r}: choose x86_64 or aarch64, or leave it out for a wheel without the library"
            )
        if importlib.util.find_spec("ziglang") is None:
            raise ModuleNotFoundError(
                "the library of kernels is compiled by zig: pip install ziglang, and build with --no-isolation"
            )
        self._folder = tempfile.TemporaryDirectory()
        library = Path(self._folder.name) / Path(LIBRARY).name
        compile_for(processor, library, Path(self.root))
        build_data["force_include"][str(library)] = LIBRARY
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux_{GLIBC[0]}_{GLIBC[1]}_{processor}"


def compile_for(processor: str, library: Path, root: Path) -> None:
    """Writes the library for Linux on such a processor."""
    sys.path.insert(0, str(root))
    try:
        from onnx_subgraph.kernels.build import compile_library
        from onnx_subgraph.kernels.compilers import Compiler
    finally:
        sys.path.remove(str(root))
    target = f"{processor}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}"
    zig = Compiler((sys.executable, "-m", "ziglang", "cc"), "zig", ("-target", target, "-mcpu=baseline"), processor)
    compile_library(zig, library, ("-s", *shlex.split(os.environ.get("CFLAGS", ""))))
