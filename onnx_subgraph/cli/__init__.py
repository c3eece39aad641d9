"""The command line: a group that loads a command when it is asked for, and `main`, which turns every outcome into an exit code.

0 is yes, 1 is no (not equivalent, a pattern failed its proof), 2 is could not tell (usage, unreadable model, bad pattern, ^C).
Standard output carries the answer, standard error progress and errors. Nothing here imports onnx or onnxruntime at module
level, because `--help` and `list-patterns` answer in under 0.3 s.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from onnx_subgraph import __version__
from onnx_subgraph.cli.interrupt import interrupts, was_interrupted
from onnx_subgraph.cli.late import late_imports
from onnx_subgraph.cli.streams import naming
from onnx_subgraph.collection import seldom
from onnx_subgraph.errors import OnnxSubgraphError

COMMANDS = (
    *("fuse", "list-patterns", "explain", "verify", "bench", "specialize", "test-patterns"),
    *("mine", "new-pattern", "init"),
    *("partition", "inline", "run", "hook", "kernels"),
)
"""In the order of the help text. A command lives in the module of its name, with `_` for `-`, as the function of that name."""


SETTINGS = "onnx_subgraph.settings"
"""Where the context has the file of settings."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are run, not when the group is made."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, in the order of the help text."""
        return list(COMMANDS)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the arguments name. Raises click.UsageError, with the nearest name, where there is none."""
        from onnx_subgraph.language.spelling import nearest

        try:
            name, command, rest = super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = nearest(args[0], COMMANDS)
            if near is not None and args[0] not in COMMANDS and "Did you mean" not in error.message:
                raise click.UsageError(f"{error.message} Did you mean '{near}'?", ctx) from None
            raise
        if name is not None and command is not None and not ctx.resilient_parsing and not ctx.params["no_settings"]:
            ctx.default_map = {name: self.defaults(ctx, name, command)}
        return name, command, rest

    def defaults(self, ctx: click.Context, name: str, command: click.Command) -> dict[str, Any]:
        """What the settings of the project say of the options of a command."""
        from onnx_subgraph.cli.settings import defaults_of, settings_file

        given = ctx.params["settings"]
        path = given or settings_file(Path.cwd())
        if path is None:
            return {}
        ctx.meta[SETTINGS] = path
        return defaults_of(path, command, name, COMMANDS, lambda other: self.get_command(ctx, other), named=given is not None)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs a command. What it raises calls standard input and output by `-`, and says of a value that a file has it."""
        try:
            return super().invoke(ctx)
        except click.BadParameter as error:
            name = "" if error.param is None else str(error.param.name)
            if error.ctx is not None and error.ctx.get_parameter_source(name) is ParameterSource.DEFAULT_MAP:
                message = f"{error.message.removesuffix('.')}, in {ctx.meta[SETTINGS]}."
                raise click.BadParameter(message, error.ctx, error.param, error.param_hint) from None
            raise
        except OnnxSubgraphError as error:
            error.message = naming()(error.message)
            raise

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now; None where there is none."""
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        command = getattr(importlib.import_module(f"onnx_subgraph.cli.{name}"), name)
        assert isinstance(command, click.Command)
        return command


@click.command(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True, "max_content_width": 110},
    epilog=(
        "Exit codes: 0 yes; 1 no (not equivalent, not as expected, a proof failed); "
        "2 could not tell (usage, unreadable model, bad pattern, out of time)."
    ),
)
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.option(
    "--settings",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    show_default="onnx-subgraph.toml, or [tool.onnx-subgraph] in pyproject.toml, here or in a folder above",
    help="The file with the settings of the project.",
)
@click.option("--no-settings", is_flag=True, help="Heed no file of settings.")
def commands(settings: Path | None, no_settings: bool) -> None:
    """Finds subgraphs of ONNX models that have a fused form, replaces them, and checks that the model still computes the same."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line on `arguments` (`sys.argv[1:]` by default) and gives its exit code: 0, 1 or 2. Raises nothing.

    Where it is the command line of the process, and native code still runs that was given up, the process ends here.
    """
    code = _run(arguments)
    deadline = sys.modules.get("onnx_subgraph.deadline")  # where no command imported it, there was no limit
    if arguments is None and deadline is not None and deadline.abandoned():
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
    return code


def _run(arguments: Sequence[str] | None) -> int:
    _print_anything()
    try:
        with interrupts(), seldom(), late_imports():
            code = commands.main(arguments, prog_name="onnx-subgraph", standalone_mode=False) or 0
            sys.stdout.flush()
    except BaseException as error:
        return _failed(error)
    return int(code)


def _failed(error: BaseException) -> int:
    """Says what went wrong, and gives the exit code: 2, could not tell, where anything did."""
    match error:
        case SystemExit(code=0 | None):  # what a shell asks for to complete a command
            return 0
        case BrokenPipeError() | SystemExit():
            # SystemExit is click's answer to a closed pipe in places that it handles itself. It would be 1, which here says "no".
            _leave_reader()
        case _ if was_interrupted() or isinstance(error, click.Abort | KeyboardInterrupt):
            click.echo("Interrupted: nothing more was written.", err=True)
        case click.ClickException():
            error.show()
        case _:
            from onnx_subgraph.cli.failure import describe

            click.echo(f"Error: {describe(error)}", err=True)
    return 2


def _print_anything() -> None:
    """Has characters that a stream can't encode written as their numbers: a path may have any bytes, a pipe any encoding."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _leave_reader() -> None:
    """Whoever read our output is gone (`| head`): keeps Python from complaining at its own last flush."""
    with contextlib.suppress(OSError):  # where standard output is no file of the system, nothing will be flushed
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
