"""Options that several commands share, and the functions that read their values.

An option means the same in every command, so it is defined once, here. click names the option whose value can't be read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from onnx_subgraph.cli.finite import Finite
from onnx_subgraph.errors import UsageError

Command = TypeVar("Command", bound=Callable[..., Any])


def identifiers(text: str) -> tuple[str, ...]:
    """Pattern ids, separated by commas: `gelu,layer-normalization`."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def complete_ids(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The pattern ids for shell completion; in a list `a,b,c` the last one is completed."""
    from onnx_subgraph.language.library import headers

    before, comma, last = incomplete.rpartition(",")
    given = context.params.get("patterns") or ()
    return [f"{before}{comma}{header.id}" for header in headers(given) if header.id.startswith(last)]


def ids_option(name: str, text: str) -> Callable[[Command], Command]:
    """An option that takes pattern ids, separated by commas, and may be repeated. text: its help."""
    return click.option(name, type=identifiers, shell_complete=complete_ids, multiple=True, metavar="ID,…", help=text)


def input_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """An input's name and its shape from `input_ids=1x128`; a scalar is `step=`. Raises click.BadParameter."""
    name, equals, sizes = text.rpartition("=")
    parts = sizes.split("x") if sizes else []
    if not equals or not name or not all(part.isdecimal() for part in parts):
        raise click.BadParameter(f"{text!r} is no INPUT=SHAPE; write for example input_ids=1x128")
    if "0" in (part.lstrip("0") or "0" for part in parts):
        raise click.BadParameter(f"{text!r} holds no element, and nothing can be compared on it; give sizes of 1 and more")
    return name, tuple(map(int, parts))


def dimension_size(text: str) -> tuple[str, int]:
    """A dimension's name and its size from `seq=128`. Raises click.BadParameter."""
    name, equals, size = text.rpartition("=")
    if not equals or not name or not size.isdecimal() or not int(size):
        raise click.BadParameter(f"{text!r} is no NAME=SIZE; write for example seq=128")
    return name, int(size)


def feeds_file(context: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    """`path`, if it can be an .npz file, which is a zip archive. Raises click.BadParameter otherwise."""
    import zipfile

    if path is not None and not zipfile.is_zipfile(path):
        raise click.BadParameter(f"{str(path)!r} is no .npz file; write it with numpy.savez, one array an input")
    return path


def opset_choice(text: str) -> str:
    """`auto`, `keep`, or the number of an opset, in digits. Raises click.BadParameter."""
    if text in {"auto", "keep"} or (text.isdecimal() and int(text) > 0):
        return text
    raise click.BadParameter(f"{text!r} is neither auto, keep, nor the number of an opset; write for example 21")


def shapes(values: Iterable[tuple[str, tuple[int, ...]]]) -> dict[str, tuple[int, ...]]:
    """Input → shape from the values of `--shape`. Raises UsageError if an input has two shapes."""
    result: dict[str, tuple[int, ...]] = {}
    for name, shape in values:
        if result.setdefault(name, shape) != shape:
            raise UsageError(f"--shape gives two shapes for the input {name!r}", hint="give each input once")
    return result


def flat(values: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """The ids of an option that takes several and may be repeated."""
    return tuple(part for value in values for part in value)


class PatternsPath(click.Path):
    """A file or folder of patterns, or the name of an installed pack, which stands for its folder."""

    def __init__(self) -> None:
        super().__init__(exists=True, path_type=Path)

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """The path as a `Path`. Raises click.BadParameter if there is nothing of that name."""
        from onnx_subgraph.language.installed import with_names_resolved

        (path,) = with_names_resolved(value)
        return super().convert(path, param, ctx)


def patterns_option(command: Command) -> Command:
    """`--patterns`: folders or files of patterns, or names of packs; they come before the built-in ones."""
    return click.option(
        "--patterns",
        "patterns",
        type=PatternsPath(),
        multiple=True,
        metavar="PATH",
        help="A folder or file of patterns, or the name of an installed pack, to use before the built-in ones. May be repeated.",
    )(command)


def libraries_option(command: Command) -> Command:
    """`--custom-op-library`: libraries of custom operators, for every session of onnxruntime."""
    return click.option(
        "--custom-op-library",
        "libraries",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        multiple=True,
        metavar="PATH",
        help="A library of custom operators, loaded wherever a model is run. May be repeated. Only libraries named here"
        " or in the pack.yaml of --patterns are loaded.",
    )(command)


def json_option(command: Command) -> Command:
    """`--json`: the output as one JSON object."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a report.")(command)


def provider_option(command: Command) -> Command:
    """`--provider`: execution providers of onnxruntime."""
    return click.option(
        "--provider",
        "providers",
        multiple=True,
        default=("CPUExecutionProvider",),
        metavar="EP",
        help="An execution provider for the model. May be repeated; each is verified separately.",
    )(command)


def constant_initializers_option(command: Command) -> Command:
    """`--constant-initializers`: treat weights that are graph inputs as constants."""
    return click.option(
        "--constant-initializers",
        is_flag=True,
        help="Remove initializers from the graph's inputs: they become constants, and no run can override them.",
    )(command)


def beside_options(command: Command) -> Command:
    """Changes to a model besides the fusions: `--constant-initializers`, `--keep-subnormals`, …"""
    for option in (
        click.option(
            "--keep-loops",
            is_flag=True,
            help="Keep Loops that are recurrent networks, such as tf2onnx's for Keras. By default they become LSTM, GRU or RNN.",
        ),
        click.option(
            "--no-simplify",
            is_flag=True,
            help="Keep nodes with known results: arithmetic on known dimensions, Ifs of one branch, Reshapes and Casts that"
            " change nothing.",
        ),
        click.option(
            "--keep-subnormals",
            is_flag=True,
            help="Keep subnormal weights (below 1.2e-38 in float32). By default they become zeros, because they make "
            "products slow.",
        ),
        constant_initializers_option,
    ):
        command = option(command)
    return command


def _verbosity(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if not value:
        return
    if context.meta.setdefault(VERBOSITY, parameter.name) != parameter.name:
        raise click.UsageError("--quiet and --verbose exclude each other; leave one out")


def verbose_option(command: Command) -> Command:
    """`--verbose`: print progress as lines."""
    return click.option(
        "-v",
        "--verbose",
        is_flag=True,
        expose_value=False,
        callback=_verbosity,
        help="Print each stage, and report in detail.",
    )(command)


def quiet_option(command: Command) -> Command:
    """`--quiet`: no report if all is well."""
    return click.option(
        "-q", "--quiet", is_flag=True, expose_value=False, callback=_verbosity, help="Print no report if all is well."
    )(command)


def target_option(command: Command) -> Command:
    """`--target`: the operators that fusions become."""
    return click.option(
        "--target",
        type=click.Choice(["onnxruntime", "standard", "native", "function"]),
        default="onnxruntime",
        help="The operators to fuse into: onnxruntime's, the ONNX standard's, those of the library of kernels (native),"
        " or functions in the model.",
    )(command)


def numerics_option(command: Command) -> Command:
    """`--numerics`: the precision to which kernels of our library may round."""
    return click.option(
        "--numerics",
        type=click.Choice(["float32", "bf16x3", "bf16"]),
        default="float32",
        help="With --target native: the precision to which products may round their operands: no rounding "
        "(float32), 16 bits (bf16x3) or 8 (bf16). The report has the error of each output.",
    )(command)


def prefer_option(command: Command) -> Command:
    """`--prefer`: what to do with a fusion that was measured to be slower than the unfused graph."""
    return click.option(
        "--prefer",
        type=click.Choice(["speed", "fusion"]),
        default="speed",
        help="Leave out fusions that were measured to be slower on a provider (speed), or fuse everything possible (fusion).",
    )(command)


VERBOSITY = "onnx_subgraph.verbosity"
"""Key in `Context.meta`: "quiet" or "verbose", if the user chose one."""
LESS_TIME = "--no-verify and --only leave work out, --shape verifies on smaller inputs, --time-limit gives more time"
"""The hint when `fuse` ran out of time."""


def time_limit_option(command: Command) -> Command:
    """`--time-limit`: the longest time for one model."""
    return click.option(
        "--time-limit",
        type=Finite(min=0),
        default=3600,
        metavar="SECONDS",
        help="Stop work on a model after this time: nothing is written, exit code 2. 0 for no limit.",
    )(command)


def feeds_options(command: Command) -> Command:
    """`--rtol`, `--atol`, `--seed`, `--shape` and `--inputs`: the inputs and bounds of a comparison of two models."""
    for option in reversed(
        (
            click.option(
                "--rtol",
                type=Finite(min=0),
                metavar="X",
                show_default="the model's own measured noise",
                help="Allowed difference, relative to the reference's value.",
            ),
            click.option(
                "--atol",
                type=Finite(min=0),
                metavar="X",
                show_default="the model's own measured noise",
                help="Allowed difference, absolute.",
            ),
            click.option("--seed", type=click.IntRange(min=0), default=0, metavar="N", help="Seed of the inputs that are drawn."),
            click.option(
                "--shape",
                "shape",
                type=input_shape,
                multiple=True,
                metavar="INPUT=1x128",
                help="The shape of an input. May be repeated.",
            ),
            click.option(
                "--inputs",
                type=click.Path(exists=True, dir_okay=False, path_type=Path),
                callback=feeds_file,
                metavar="FEEDS.npz",
                help="Inputs to compare on, by name, in a NumPy .npz file.",
            ),
        )
    ):
        command = option(command)
    return command


def fix_overflows_option(command: Command) -> Command:
    """`--fix-overflows`: a number in place of the original's NaN or infinity is no difference."""
    text = "Accept numbers where the original overflows to NaN or infinity."
    return click.option("--fix-overflows", is_flag=True, help=text)(command)
