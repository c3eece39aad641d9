"""Laws of the command line as a process: what it sets for itself, and what it leaves as the user has set it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from onnx_subgraph.cli.idle import IDLE, SOON
from tests.cli.conftest import ROOT


def ended(**environment: str) -> list[str]:
    """The time limit of OpenBLAS's idle threads in a process of the command line, and the objects frozen at its end."""
    code = (
        "import gc, os, sys\nfrom onnx_subgraph.__main__ import main\nsys.argv = ['onnx-subgraph', '--version']\n"
        f"code = main()\nprint(code, os.environ['{IDLE}'], gc.get_freeze_count() > 0, file=sys.stderr)"
    )
    kept = {name: value for name, value in os.environ.items() if name != IDLE}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=kept | environment)
    return done.stderr.split()


def test_idle_threads_of_numpy_sleep_soon() -> None:
    assert ended()[:2] == ["0", SOON]


def test_the_user_decides_when_idle_threads_sleep() -> None:
    assert ended(**{IDLE: "26"})[:2] == ["0", "26"]


@pytest.mark.parametrize("given", [{}, {IDLE: "24"}])
def test_a_program_that_we_run_has_the_environment_of_the_user(given: dict[str, str], tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"import os; print(os.environ.get('{IDLE}'))", encoding="utf-8")
    kept = {name: value for name, value in os.environ.items() if name != IDLE}
    command = [sys.executable, "-m", "onnx_subgraph", "run", program]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=kept | given)
    assert done.stdout.strip() == given.get(IDLE, "None")


def test_the_last_collections_traverse_nothing() -> None:
    assert ended()[2] == "True"
