"""Commands of pages as a shell runs them, but `onnx-subgraph` in this process, where the libraries are loaded already."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from onnx_subgraph.cli import main

SYNTAX = frozenset("|<>;&*?$`~#()[]{}")
"""What a shell gives a meaning. A command that has any of it is left to a shell."""


def typed(command: str, folder: Path, environment: dict[str, str], capfd: pytest.CaptureFixture[str]) -> str:
    """What a command, or several with `&&`, prints to standard output in `folder`. Raises AssertionError where one fails."""
    return "".join(_printed(part, folder, environment, capfd) for part in command.split(" && "))


def _printed(command: str, folder: Path, environment: dict[str, str], capfd: pytest.CaptureFixture[str]) -> str:
    words = shlex.split(command)
    if words[0] != "onnx-subgraph" or words[1] == "run" or SYNTAX & set(command):  # `run` puts another program in its place
        done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=folder, env=environment, timeout=300)
        code, out, err = done.returncode, done.stdout, done.stderr
    else:
        code, out, err = _here(words[1:], folder, environment, capfd)
    assert code == 0, f"$ {command}\n{out}{err}"
    return out


def _here(words: list[str], folder: Path, environment: dict[str, str], capfd: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in os.environ.keys() - environment.keys():
            patch.delenv(name)
        for name, value in environment.items():
            patch.setenv(name, value)
        capfd.readouterr()
        code = main(words)
    return code, *capfd.readouterr()
