"""`-` for standard input and output, `-q` and `-v`: what is written to which stream."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnx_subgraph.cli import main
from tests.cli.conftest import ROOT, Run


@dataclass(frozen=True)
class Piped:
    """The result of a command in a pipe."""

    code: int
    out: bytes
    err: str


@pytest.fixture
def piped(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Piped]:
    """Run the command line in this process, with a pipe as standard input."""

    def here(*arguments: object, given: bytes = b"") -> Piped:
        reading, writing = os.pipe()
        with os.fdopen(writing, "wb") as end:
            end.write(given)
        with os.fdopen(reading) as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            capfdbinary.readouterr()
            code = main([str(argument) for argument in arguments])
        captured = capfdbinary.readouterr()
        return Piped(code, captured.out, captured.err.decode())

    return here


def test_a_shell_pipes_a_model_through(gelu: Path) -> None:
    """In a process of its own, with pipes as its streams."""
    command = [sys.executable, "-m", "onnx_subgraph", "fuse", "-", "-o", "-"]
    done = subprocess.run(command, input=gelu.read_bytes(), capture_output=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert [node.op_type for node in onnx.load_from_string(done.stdout).graph.node] == ["Gelu"]
    assert done.stderr.startswith(b"- \xe2\x86\x92 -")


@pytest.mark.parametrize(
    ("command", "operators"),
    [
        (["fuse", "-"], ["Gelu"]),
        (["specialize", "-", "--shape", "x=2x8"], ["Gelu"]),
        (["partition", "-", "--backend", "onnxruntime", "--gain", "inf"], ["Engine"]),
        (["inline", "-"], ["Div", "Erf", "Add", "Mul", "Mul"]),
    ],
    ids=lambda value: value[0],
)
def test_a_model_goes_through_a_pipe(piped: Callable[..., Piped], gelu: Path, command: list[str], operators: list[str]) -> None:
    done = piped(*command, "-o", "-", given=gelu.read_bytes())
    assert done.code == 0, done.err
    assert [node.op_type for node in onnx.load_from_string(done.out).graph.node] == operators
    assert done.err.startswith("- → -")
    assert "stdin" not in done.err and "stdout" not in done.err


def test_the_report_names_a_model_from_a_pipe_by_a_dash(piped: Callable[..., Piped], gelu: Path, tmp_path: Path) -> None:
    done = piped("fuse", "-", "-o", tmp_path / "out.onnx", "--json", given=gelu.read_bytes())
    assert done.code == 0
    assert b'"model": "-"' in done.out
    assert piped("verify", "-", tmp_path / "out.onnx", given=gelu.read_bytes()).out.startswith(b"reference  -\n")
    assert piped("explain", "-", given=gelu.read_bytes()).out.startswith(b"-\n")


def test_input_that_is_not_a_model_is_one_message(piped: Callable[..., Piped], gelu: Path) -> None:
    assert piped("fuse", "-", "-o", "-", given=b"").err == "Error: -: is empty\nhint: export or download the model again\n"
    assert piped("explain", "-", given=b"no model").err.startswith("Error: -: is a text file, not an ONNX model\n")
    done = piped("fuse", "-", given=gelu.read_bytes())
    assert (done.code, done.out) == (2, b"")
    assert done.err == "Error: a model from standard input has no folder to write to\nhint: name the output: -o FILE, or -o -\n"
    assert piped("fuse", "-", "--dry-run", given=gelu.read_bytes()).code == 0


def test_a_model_that_is_not_written_is_not_sent(piped: Callable[..., Piped]) -> None:
    data = ROOT / "tests" / "cli" / "data"
    done = piped("fuse", data / "rounded_gelu.onnx", "-o", "-", "--expect", data / "rounded_gelu.yaml")
    assert (done.code, done.out) == (1, b"")
    assert "expectations  0 of 1 met" in done.err


@pytest.mark.parametrize("activation", ["HardSwish", "Abs"], ids=["fused", "copied"])
def test_a_model_of_several_files_is_not_sent(piped: Callable[..., Piped], tmp_path: Path, activation: str) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[N, 2] x) => (float[N, 2] y)
        <float three = {{3.0}}> {{ m = MatMul(x, w) y = {activation} (m) }}"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((2, 2), np.float32), "w"))
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="w.data", size_threshold=0)
    done = piped("fuse", tmp_path / "m.onnx", "-o", "-", "--opset", "18" if activation == "HardSwish" else "keep")
    assert (done.code, done.out) == (2, b"")
    assert "Error: the model has external data, which can't go to standard output" in done.err


QUIET = (["fuse"], ["verify"], ["partition", "--backend", "reference"], ["inline"], ["specialize", "--shape", "x=2x8"])


@pytest.mark.parametrize("command", QUIET, ids=lambda command: command[0])
def test_quiet_prints_nothing_on_success(run: Run, gelu: Path, command: list[str]) -> None:
    result = run(*command, gelu, *([gelu] if command == ["verify"] else []), "-q")
    assert (result.code, result.out, result.err) == (0, "", "")


def test_quiet_prints_what_is_wrong(run: Run, gelu: Path, plain: Path) -> None:
    result = run("verify", gelu, plain, "--quiet")
    assert result.code == 1 and "different" in result.out
    assert run("fuse", gelu, "-q", "--json").json["verification"]["verdict"] == "equivalent"
    assert "there is no such file" in run("fuse", gelu.with_name("no.onnx"), "-q").err


def test_verbose_prints_a_line_for_each_stage(run: Run, gelu: Path) -> None:
    result = run("fuse", gelu, "-v")
    stages = [line.split(": ")[-1] for line in result.err.splitlines()]
    assert result.code == 0
    assert [stage for stage in stages if stage in ("load", "find", "verify", "write")][:1] == ["load"]
    assert {"load", "find", "rewrite", "verify", "write"} <= set(stages)
    assert "verdict  equivalent" in result.out


def test_quiet_and_verbose_exclude_each_other(run: Run, gelu: Path) -> None:
    result = run("fuse", gelu, "-q", "-v")
    assert (result.code, result.out) == (2, "")
    assert "--quiet and --verbose exclude each other" in result.err
