"""Run the command line in this process or in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import pytest

from onnx_subgraph.cli import main
from tests.forked import Forked

ROOT = Path(__file__).parents[2]

GELU = """
<ir_version: 8, opset_import: ["" : 17]>
gelu (float[batch, 8] x) => (float[batch, 8] y)
<float half = {0.5}, float one = {1.0}, float root = {1.4142135}>
{
  scaled = Div (x, root)
  erf = Erf (scaled)
  sum = Add (erf, one)
  product = Mul (x, sum)
  y = Mul (product, half)
}
"""
PLAIN = """
<ir_version: 8, opset_import: ["" : 17]>
plain (float[batch, 8] x) => (float[batch, 8] y) { y = Abs (x) }
"""


@dataclass(frozen=True)
class Result:
    """The result of a command line."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A separate cache for each test, because runs record there what they have done."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("ONNX_SUBGRAPH_CACHE", str(folder))
    return folder


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in this process and record both output streams."""

    def here(*arguments: object) -> Result:
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        return Result(code, captured.out, captured.err)

    return here


@pytest.fixture
def run_process() -> Run:
    """Run the command line in a process of its own, as a shell would."""

    def there(*arguments: object, **environment: str) -> Result:
        done = subprocess.run(
            [sys.executable, "-m", "onnx_subgraph", *map(str, arguments)],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={**os.environ, **environment},
            timeout=300,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    return there


def forked(code: str, *arguments: object, folder: Path, **environment: str) -> Result:
    """Run `code` as a program in a fork.

    folder: an empty folder for the program.
    """
    program = folder / "program.py"
    program.write_text(code, encoding="utf-8")
    with Forked([str(program), *map(str, arguments)], {**os.environ, **environment}) as process:
        out, err = process.communicate(300)
    assert process.returncode is not None
    return Result(process.returncode, out, err)


@pytest.fixture
def gelu(tmp_path: Path) -> Path:
    """A model with one GELU, written as basic operators."""
    return save(GELU, tmp_path / "gelu.onnx")


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A model without anything to fuse."""
    return save(PLAIN, tmp_path / "plain.onnx")


def save(text: str, path: Path) -> Path:
    onnx.save(onnx.parser.parse_model(text), path)
    return path
