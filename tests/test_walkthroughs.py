"""Tutorial pages: their commands run in the order of the page and print the lines shown. `…` stands for any text."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from onnx_subgraph.kernels.compilers import compilers
from tests.shell import typed
from tests.test_readme import visit

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ("tutorial.md", "own-operators.md")
CONSOLE = re.compile(r"(?<=```console\n)(.*?)(?=```\n)", re.DOTALL)


def steps(page: str) -> list[tuple[str, list[str]]]:
    """Each command, with the lines of its output that the page shows."""
    text = (DOCS / page).read_text(encoding="utf-8")
    lines = [line for block in CONSOLE.findall(text) for line in block.splitlines()]
    found: list[tuple[str, list[str]]] = []
    for line in lines:
        if line.startswith("$ "):
            found.append((line.removeprefix("$ "), []))
        else:
            found[-1][1].append(line)
    return found


@pytest.mark.skipif(os.name != "posix", reason="the commands are for a POSIX shell")
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_print_what_the_page_shows(page: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    if next(compilers(), None) is None and "--compile" in (DOCS / page).read_text(encoding="utf-8"):
        pytest.skip("there is no C compiler here")
    environment = visit(tmp_path)
    assert len(steps(page)) > 3
    for command, shown in steps(page):
        printed = typed(command, tmp_path, environment, capfd)
        for line in shown:
            wanted = re.compile("^" + ".*".join(map(re.escape, line.split("…"))) + "$", re.MULTILINE)
            assert wanted.search(printed), f"$ {command} does not print {line!r}:\n{printed}"


def test_the_tutorial_is_short() -> None:
    assert len((DOCS / "tutorial.md").read_text(encoding="utf-8").splitlines()) < 150
