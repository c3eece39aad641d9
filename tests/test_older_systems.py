"""docs/older-systems.md: the command of every row runs in a fresh checkout, succeeds and prints what the row says."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

import pytest

from tests.shell import typed
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
def test_the_command_prints_what_its_rows_say(command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    if "openvino" in command and importlib.util.find_spec("openvino") is None:
        pytest.skip("the extra openvino is not installed")
    said = typed(command, tmp_path, {**visit(tmp_path), "ONNX_SUBGRAPH_STRICT": "1"}, capfd)
    assert all((tmp_path / name).is_file() for name in re.findall(r" -o (\S+)", command))
    for words in COMMANDS[command]:
        assert words in said
