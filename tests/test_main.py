"""Laws of the command line as a process."""

from __future__ import annotations

import subprocess
import sys

from tests.cli.conftest import ROOT


def test_the_last_collections_traverse_nothing() -> None:
    code = (
        "import gc, sys\nfrom onnx_subgraph.__main__ import main\nsys.argv = ['onnx-subgraph', '--version']\n"
        "print(main(), gc.get_freeze_count() > 0, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stderr.split() == ["0", "True"]
