"""docs/older-systems.md: the command of every row runs in a fresh checkout, succeeds and prints what the row says."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from onnx_subgraph.cli import main
from tests.test_readme import visit

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "older-systems.md"

ROW = re.compile(r"(?m)^\| (?P<there>.*?) ?\| (?P<here>.+?) \| `(?P<command>[^`]+)` \| `(?P<says>[^`]+)` \|$")
COMMANDS: dict[str, list[str]] = {}
"""Command → what it prints according to its rows."""
ROWS = list(ROW.finditer(PAGE.read_text(encoding="utf-8")))
for match in ROWS:
    COMMANDS.setdefault(match["command"], []).append(match["says"])


def test_every_row_is_tested() -> None:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert len(ROWS) == len([line for line in lines if not line.startswith("| there")]) > 15


@pytest.mark.skipif(os.name != "posix", reason="the commands are for a POSIX shell")
@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_prints_what_its_rows_say(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "openvino" in command and importlib.util.find_spec("openvino") is None:
        pytest.skip("the extra openvino is not installed")
    environment = visit(tmp_path)
    parts = [shlex.split(part) for part in command.split(" && ")]
    if all(part[0] == "onnx-subgraph" and part[1] != "run" for part in parts):  # in this process: the libraries are loaded once
        monkeypatch.chdir(tmp_path)
        for part in parts:
            assert main(part[1:]) == 0, part
            assert "-o" not in part or (tmp_path / part[part.index("-o") + 1]).is_file()
        said = capsys.readouterr().out
    else:
        strict = {**environment, "ONNX_SUBGRAPH_STRICT": "1"}
        done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=tmp_path, env=strict, timeout=300)
        assert done.returncode == 0, done.stderr
        said = done.stdout
    for words in COMMANDS[command]:
        assert words in said
