"""The command line: a group that imports each command on use, and `main`, which turns every outcome into an exit code.

Exit codes: 0 is yes; 1 is no (not equivalent, a pattern failed its proof); 2 is could not tell (usage, unreadable model, bad
pattern, ^C). The answer goes to standard output, progress and errors to standard error. Nothing here imports onnx or onnxruntime
at module level, so that `--help` and `list-patterns` answer in under 0.3 s.
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

from onnx_subgraph import __version__
from onnx_subgraph.cli.interrupt import check, interrupts, was_interrupted
from onnx_subgraph.cli.streams import naming
from onnx_subgraph.collection import seldom
from onnx_subgraph.errors import OnnxSubgraphError
from onnx_subgraph.late import late_imports

COMMANDS = (
    *("fuse", "list-patterns", "explain", "verify", "bench", "specialize", "test-patterns"),
    *("mine", "new-pattern", "init"),
    *("partition", "inline", "run", "hook", "kernels"),
)
"""In the order of the help text. Each command is a function in the module of the same name, with `_` for `-`."""


class LazyGroup(click.Group):
    """A group that imports a command when it is run, not when the group is made."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, in the order of the help text."""
        return list(COMMANDS)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the arguments name. Raises click.UsageError with the nearest name if there is none."""
        from onnx_subgraph.language.spelling import nearest

        try:
            name, command, rest = super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = nearest(args[0], COMMANDS)
            if near is not None and args[0] not in COMMANDS and "Did you mean" not in error.message:
                raise click.UsageError(f"{error.message} Did you mean '{near}'?", ctx) from None
            raise
        if name is not None and command is not None and not ctx.resilient_parsing and not ctx.params["no_settings"]:
            ctx.default_map = {name: self.defaults(ctx, name, command, rest)}
        return name, command, rest

    def defaults(self, ctx: click.Context, name: str, command: click.Command, words: Sequence[str]) -> dict[str, Any]:
        """The defaults of the command's options from the project's settings. words: the rest of the command line."""
        from onnx_subgraph.cli.settings import SETTINGS, defaults_of, given, settings_file

        named = ctx.params["settings"]
        path = named or settings_file(Path.cwd())
        if path is None:
            return {}
        ctx.meta[SETTINGS] = path
        stronger = given(ctx, name, command, words)
        return defaults_of(
            path, command, name, COMMANDS, lambda other: self.get_command(ctx, other), stronger, named=named is not None
        )

    def invoke(self, ctx: click.Context) -> Any:
        """Runs a command. Errors call standard input and output `-`, and name the settings file that a bad value came from."""
        try:
            return super().invoke(ctx)
        except click.BadParameter as error:
            from onnx_subgraph.cli.settings import source_of

            name = "" if error.param is None else str(error.param.name)
            if error.ctx is not None and (source := source_of(error.ctx, name)) is not None:
                message = f"{error.message.removesuffix('.')}, in {source}."
                raise click.BadParameter(message, error.ctx, error.param, error.param_hint) from None
            raise
        except OnnxSubgraphError as error:
            error.message = naming()(error.message)
            raise

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now; None if there is none."""
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
    help="The settings file of the project.",
)
@click.option("--no-settings", is_flag=True, help="Ignore the settings file.")
def commands(settings: Path | None, no_settings: bool) -> None:
    """Finds subgraphs of ONNX models that have a fused form, replaces them, and checks that the model still computes the same."""
    if settings is not None and no_settings:
        raise click.UsageError("--settings and --no-settings exclude each other; leave one out")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line on `arguments` (`sys.argv[1:]` by default) and gives its exit code: 0, 1 or 2. Raises nothing.

    If native code that was given up is still running, and this is the command line of the process, the process ends here.
    """
    code = _run(arguments)
    deadline = sys.modules.get("onnx_subgraph.deadline")  # if no command imported it, there was no time limit
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
            check()
    except BaseException as error:
        return _failed(error)
    return int(code)


def _failed(error: BaseException) -> int:
    """Prints what went wrong, and returns the exit code: 2, or 0 if nothing did."""
    match error:
        case SystemExit(code=0 | None):  # shell completion exits this way
            return 0
        case BrokenPipeError() | SystemExit():
            # click answers a closed pipe with SystemExit(1) in places that it handles itself. Here 1 means "no".
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
    """Makes the streams write characters that they can't encode as escapes: a path may have any bytes, a pipe any encoding."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _leave_reader() -> None:
    """The reader of our output is gone (`| head`): prevents Python's error message when it flushes at exit."""
    with contextlib.suppress(OSError):  # standard output is not a file of the system: nothing will be flushed
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
