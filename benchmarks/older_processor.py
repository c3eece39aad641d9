"""The environment of a process that sees an older processor, so that all libraries choose code for that one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from onnx_subgraph import kernels
from onnx_subgraph.kernels.compilers import compilers
from onnx_subgraph.kernels.library import ISA

SOURCE = Path(__file__).with_suffix(".c")
VARIABLE = "OLDER_PROCESSOR"


def environment(isa: str) -> Mapping[str, str] | None:
    """The environment of a process that sees `isa` as the best instruction set; None if that is not possible."""
    best = kernels.describe().here[-1]
    if isa == best:
        return {**os.environ, ISA: isa}
    library = _built()
    if library is None:
        return None
    made = {**os.environ, "LD_PRELOAD": str(library), VARIABLE: isa, ISA: isa}
    asked = [sys.executable, "-c", "from onnx_subgraph import kernels; print(kernels.describe().here[-1])"]
    ran = subprocess.run(asked, env=made, capture_output=True, text=True, check=False)
    return made if ran.stdout.split() == [isa] else None


@cache
def _built() -> Path | None:
    """The library to preload; None if it does not compile, as on other systems and processors."""
    library = Path(mkdtemp()) / "older_processor.so"
    for compiler in compilers():
        command = [*compiler.command, "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE)]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return library
    return None
