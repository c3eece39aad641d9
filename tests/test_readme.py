"""README.md and the pages in docs are executed: console blocks print what they show, Python runs, patterns load.

A block after `<!-- run -->` is executed, one after `<!-- pattern -->` is loaded as a pattern file. Machine-dependent text (times,
the last digits of an error) is not compared. `python tests/test_readme.py` rewrites the output of all console blocks.
"""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
COMMAND_LINE = ROOT / "docs" / "command-line.md"
CATALOGUE = ROOT / "docs" / "catalogue.py"
PAGES = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")), ROOT / "benchmarks" / "README.md")

CONSOLE = re.compile(r"(?<=<!-- run -->\n```console\n)(.*?)(?=```\n)", re.DOTALL)
PYTHON = re.compile(r"(?<=<!-- run -->\n```python\n)(.*?)(?=```\n)", re.DOTALL)
FENCED = re.compile(r"(?ms)^ *```.*?^ *```$")
PATTERN = re.compile(r"(?<=<!-- pattern -->\n```yaml\n)(.*?)(?=```\n)", re.DOTALL)

VOLATILE = (
    (re.compile(r"(?m)^((?:seconds|time) +).*$"), r"\1…"),
    (re.compile(r"(?m)^( +worst: \S+ differs by ).*$"), r"\1…"),
    (re.compile(r"(?m)^( +largest error: )\S+ of the bound, in .*$"), r"\1…"),
    (re.compile(r"(?m)^\d.*: -v lists them, (`onnx-subgraph explain \S+` says why)$"), r"…: -v lists them, \1"),
    (re.compile(re.escape(f"{ROOT}/")), ""),
)
"""What another machine, another release of onnxruntime, or every pattern that is added prints otherwise."""


def stable(output: str) -> str:
    """`output` without machine-dependent text and trailing empty lines."""
    for expression, replacement in VOLATILE:
        output = expression.sub(replacement, output)
    return output.rstrip("\n") + "\n"


def commands(block: str) -> list[str]:
    return [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")]


def visit(folder: Path) -> dict[str, str]:
    """Make `folder` look like a checkout with the package installed. Returns the environment for commands run in it."""
    for name in ("sample_models", "patterns", "tests", "docs"):
        (folder / name).symlink_to(ROOT / name)
    binaries = folder / ".bin"
    binaries.mkdir()
    for name, words in (("python", f'"{sys.executable}"'), ("onnx-subgraph", f'"{sys.executable}" "{ROOT / "cli.py"}"')):
        (binaries / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
        (binaries / name).chmod(0o755)
    path = os.pathsep.join([str(binaries), os.environ["PATH"]])
    kept = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "FORCE_COLOR"}}
    return {**kept, "PATH": path, "PYTHONPATH": str(ROOT), "ONNX_SUBGRAPH_CACHE": str(folder / ".cache")}


Shell = Callable[[str, dict[str, str]], str]
"""Runs a command in an environment, and returns what it prints."""


def transcript(block: str, folder: Path, shell: Shell) -> str:
    """The terminal's text after the commands of `block` are typed in a fresh checkout."""
    environment = visit(folder)
    text = "".join(f"$ {command}\n{shell(command, environment).rstrip()}\n" for command in commands(block))
    return text.replace(f"{ROOT}/", "")


def blocks(kind: re.Pattern[str]) -> list[str]:
    return [block for page in PAGES for block in kind.findall(page.read_text(encoding="utf-8"))]


@pytest.mark.skipif(os.name != "posix", reason="the README's commands are for a POSIX shell")
@pytest.mark.parametrize("block", blocks(CONSOLE), ids=lambda b: commands(b)[0])
def test_a_console_block_gives_what_it_shows(
    block: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.shell import typed

    monkeypatch.setattr("onnx_subgraph.pipeline.BENCH_BUDGET", 0.0)  # times are not compared
    shown = transcript(block, tmp_path, lambda command, environment: typed(command, tmp_path, environment, capfd))
    assert stable(shown) == stable(block), "`python tests/test_readme.py` writes the output again"


@pytest.mark.parametrize("block", blocks(PYTHON), ids=lambda b: b.split("import ")[1].split()[0])
def test_the_python_runs(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in visit(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "program.py"
    program.write_text(block, encoding="utf-8")
    runpy.run_path(str(program), run_name="__main__")


@pytest.mark.parametrize("block", blocks(PATTERN), ids=lambda block: block.partition("\n")[0].split("/")[-1].split(".")[0])
def test_the_pattern_loads(block: str, tmp_path: Path) -> None:
    from onnx_subgraph import load_patterns

    name = re.match(r"# (\S+\.yaml)", block)
    assert name is not None, "the first line of the example names its file"
    file = tmp_path / name.group(1)
    file.parent.mkdir(parents=True)
    file.write_text(block, encoding="utf-8")
    assert [pattern.id for pattern in load_patterns([file]).patterns][-1] == file.stem.replace("_", "-")


def test_the_catalogue_is_current() -> None:
    script = runpy.run_path(str(CATALOGUE))
    for name, page in (("patterns.md", script["page"]()), ("operators.md", script["operators_page"]())):
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == page, "`python docs/catalogue.py` writes it again"


def test_the_readme_is_read_in_a_few_minutes() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 150


PROSE = [
    page
    for page in sorted(
        (*ROOT.glob("*.md"), *(p for d in ("docs", "kernels", "sample_models", "benchmarks") for p in (ROOT / d).rglob("*.md")))
    )
    if not page.with_suffix(".py").exists() or page.parent.name != "benchmarks"  # a script of this name generates the page
]


@pytest.mark.parametrize("page", PROSE, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_prose_is_at_most_120_columns_wide(page: Path) -> None:
    """Tables, code, and a line that is one long word such as a link may be wider."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    prose = (line for line in text.splitlines() if not line.startswith(("|", "    ", "<!--")))
    assert [line for line in prose if len(line) > 120 and len(line.split()) > 1] == []


def test_the_index_has_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    assert {f"({page.name})" for page in (ROOT / "docs").glob("*.md")} - {"(README.md)"} <= set(
        re.findall(r"\([\w-]+\.md\)", index)
    )


def test_all_options_are_in_the_synopsis() -> None:
    """The synopsis in docs/command-line.md and `--help` are the same list of options."""
    import click

    from onnx_subgraph.cli import COMMANDS, commands

    text = COMMAND_LINE.read_text(encoding="utf-8")
    for name in COMMANDS:
        found = re.search(rf"(?m)^onnx-subgraph {name} (.*\n(?: .*\n)*)", text)
        assert found is not None, f"{name} is not in the synopsis"
        command = commands.get_command(click.Context(commands), name)
        assert command is not None
        offered = {option.opts[0] for option in command.params if isinstance(option, click.Option)} - {"--help"}
        assert set(re.findall(r"(?<!\S)\[?(--?[a-z][a-z-]*)", found.group(1))) >= offered, name


def test_relative_links_lead_somewhere() -> None:
    for page in PAGES:
        prose = re.sub(r"```.*?```|`[^`\n]*`(?!\])", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", prose):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_what_depends_on_the_machine_is_left_out() -> None:
    text = "seconds  1.9 (load 0.2)\n         worst: y differs by 1e-7 of 2e-7 allowed at [0] (seed 0)\n\n"
    assert stable(text) == "seconds  …\n         worst: y differs by …\n"
    assert stable(stable(text)) == stable(text)


def write_again() -> None:
    """Write the current output of the commands into the console blocks of all pages."""

    def current(block: re.Match[str]) -> str:
        with tempfile.TemporaryDirectory() as folder:

            def shell(command: str, environment: dict[str, str]) -> str:
                run = partial(subprocess.run, shell=True, stdout=subprocess.PIPE, text=True, check=True)
                return run(command, cwd=folder, env=environment).stdout

            return transcript(block.group(), Path(folder), shell)

    for page in PAGES:
        page.write_text(CONSOLE.sub(current, page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write_again()
