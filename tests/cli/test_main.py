"""Laws of the command line as a whole.

Every outcome has exit code 0, 1 or 2 and a message without a traceback. Commands that should be fast import no heavy library.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from onnx_subgraph import __version__
from onnx_subgraph.cli import COMMANDS
from onnx_subgraph.errors import PatternError, Span
from tests.cli.conftest import ROOT, Run

HEAVY = ("onnx", "onnx_ir", "onnxruntime", "onnx_shape_inference", "sympy", "numpy")


def imported_after(*arguments: str) -> list[str]:
    """The heavy libraries that a command line has imported when it ends."""
    code = (
        "import sys; from onnx_subgraph.cli import main; "
        f"print(main({list(arguments)!r}), *[m for m in {HEAVY!r} if m in sys.modules], sep=chr(10), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    code_line, *modules = done.stderr.splitlines()
    assert code_line == "0"
    return modules


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], *([command, "--help"] for command in COMMANDS), ["list-patterns"], ["list-patterns", "--json"]],
    ids=" ".join,
)
def test_fast_commands_import_no_heavy_library(arguments: list[str]) -> None:
    """Imports take most of the time. Unlike the time, they do not depend on the machine."""
    assert imported_after(*arguments) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_and_option_has_help(run: Run, command: str) -> None:
    import click

    from onnx_subgraph.cli import commands

    assert run(command, "--help").code == 0
    context = click.Context(commands)
    made = commands.get_command(context, command)
    assert made is not None
    for parameter in made.params:
        assert isinstance(parameter, click.Argument) or parameter.help, f"{command}: {parameter.name} has no help"


def test_version(run: Run) -> None:
    assert run("--version").out.strip() == f"onnx-subgraph {__version__}"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fuze"], "No such command 'fuze'. Did you mean 'fuse'?"),
        (["list-pattern"], "No such command 'list-pattern'. Did you mean 'list-patterns'?"),
        (["xyzzy"], "No such command 'xyzzy'.\n"),
        (["fuse", "m.onnx", "--provder", "x"], "Did you mean"),
        (["fuse", "m.onnx", "--skip", "gelu,geluu"], "did you mean `gelu`?"),
        (["list-patterns", "geluu"], "did you mean `gelu`?"),
        (["test-patterns", "geluu"], "did you mean `gelu`?"),
        (["fuse"], "Missing argument 'MODEL...'"),
        (["fuse", "m.onnx", "--target", "cuda"], "'cuda' is not one of"),
        (["fuse", "m.onnx", "-j", "0"], "'-j' / '--jobs': 0 is not in the range"),
        (["fuse", "m.onnx", "--rtol", "-1"], "--rtol"),
        (["fuse", "m.onnx", "--opset", "later"], "neither auto, keep, nor the number of an opset"),
        (["fuse", "m.onnx", "--shape", "x:1x2"], "write for example input_ids=1x128"),
        (["fuse", "m.onnx", "--shape", "x=1xn"], "write for example input_ids=1x128"),
        (["fuse", "m.onnx", "--shape", "x=1", "--shape", "x=2"], "two shapes for the input 'x'"),
        (["fuse", "m.onnx", "--inputs", "missing.npz"], "'missing.npz' does not exist"),
        (["fuse", "m.onnx", "--patterns", "missing"], "'missing' does not exist"),
        (["fuse", "m.onnx", "--only", "no-such-pattern"], "there is no pattern `no-such-pattern`"),
        (["fuse", "m.onnx", "--optimise"], "No such option"),
        (["fuse", "m.onnx", "--report", "missing/r.html"], "there is no folder missing"),
        (["fuse", "a.onnx", "b.onnx", "-o", "c.onnx"], "use --output-dir"),
        (["fuse", "a.onnx", "-o", "c.onnx", "--output-dir", "d"], "exclude each other"),
        (["fuse", "a.onnx", "-o", "./a.onnx"], "name another file"),
        (["fuse", "a.onnx", "--output-dir", "."], "name another file"),
        (["fuse", "x/a.onnx", "y/a.onnx", "--output-dir", "d"], "would both be written"),
        (["fuse", "a.onnx", "-o", "."], "use --output-dir ."),
        (["list-patterns", "no-such-pattern"], "there is no pattern `no-such-pattern`"),
        (["explain", "m.onnx", "no-such-pattern"], "there is no pattern `no-such-pattern`"),
        (["test-patterns", "no-such-pattern"], "there is no pattern `no-such-pattern`"),
        (["test-patterns", "my_unit.yaml"], "a file or folder is given as `--patterns my_unit.yaml`"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_in_the_options_are_named(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.code == 2
    assert words in result.err
    assert "Traceback" not in result.err
    assert result.out == ""
    assert list(tmp_path.iterdir()) == []


def fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def headers(_: object) -> None:
        raise error

    monkeypatch.setattr("onnx_subgraph.language.library.headers", headers)


def test_an_error_of_the_user_is_shown_with_its_place(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    span = Span("p/gelu.yaml", 3, 7, 4, "match: Gelo(x)")
    fail_with(monkeypatch, PatternError("unknown operator Gelo", span=span, hint="did you mean Gelu?"))
    result = run("list-patterns")
    assert result.code == 2
    assert result.err == (
        "Error: p/gelu.yaml:3:7: unknown operator Gelo\n3 | match: Gelo(x)\n  |       ^^^^\nhint: did you mean Gelu?\n"
    )


def test_a_bug_is_one_line_with_how_to_report_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(monkeypatch, KeyError("lost"))
    result = run("list-patterns")
    assert result.code == 2
    assert result.err.startswith("Error: KeyError: 'lost'\nThis is a bug in onnx-subgraph.")
    assert "ONNX_SUBGRAPH_DEBUG=1" in result.err
    assert "Traceback" not in result.err


def test_the_traceback_of_a_bug_can_be_shown(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNX_SUBGRAPH_DEBUG", "1")
    fail_with(monkeypatch, KeyError("lost"))
    assert "Traceback" in run("list-patterns").err


SMALLER = "give smaller sizes with --shape, or run it on a machine with more memory"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (PermissionError(13, "Permission denied", "out.onnx"), "Error: out.onnx: Permission denied\n"),
        (OSError(28, "No space left on device"), "Error: No space left on device\n"),
        (
            MemoryError(),
            f"Error: this machine has not enough memory for the model and its inputs\nhint: {SMALLER}\n",
        ),
        (KeyboardInterrupt(), "Interrupted: nothing more was written.\n"),
    ],
    ids=["permission", "disk full", "memory", "interrupt"],
)
def test_an_error_of_the_operating_system_has_no_traceback(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException, words: str
) -> None:
    fail_with(monkeypatch, error)
    result = run("list-patterns")
    assert result.code == 2
    assert result.err.lstrip("\n") == words


@pytest.mark.parametrize("arguments", [["list-patterns"], ["list-patterns", "--json"], ["--help"]], ids=" ".join)
def test_a_closed_pipe_gives_no_message(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "onnx_subgraph", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 2


def test_cli_py_runs_from_a_checkout(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, ROOT / "cli.py", "--version"], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"onnx-subgraph {__version__}\n")


def test_cli_py_names_the_missing_packages(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", ROOT / "cli.py", "--version"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 2
    assert "is not installed here" in done.stderr
    assert "Traceback" not in done.stderr


def test_output_has_no_colour_outside_a_terminal(run_process: Run) -> None:
    assert "\x1b" not in run_process("list-patterns").out
    assert "\x1b" not in run_process("list-patterns", NO_COLOR="1").out


@pytest.mark.parametrize(
    ("words", "answers"),
    [
        ("onnx-subgraph fu", ["fuse"]),
        ("onnx-subgraph fuse --pre", ["--prefer"]),
        ("onnx-subgraph fuse --only gelu,mi", ["gelu,mish"]),
        ("onnx-subgraph list-patterns mis", ["mish"]),
        ("onnx-subgraph explain m.onnx mis", ["mish"]),
    ],
)
def test_a_shell_completes_commands_options_and_patterns(run_process: Run, words: str, answers: list[str]) -> None:
    position = str(len(words.split()) - 1)
    result = run_process(COMP_WORDS=words, COMP_CWORD=position, _ONNX_SUBGRAPH_COMPLETE="bash_complete")
    assert (result.code, result.err) == (0, "")
    assert [line.split(",", 1)[1] for line in result.out.splitlines()] == answers
