"""`onnx-subgraph kernels`: builds, describes and copies the library of kernels."""

from __future__ import annotations

from pathlib import Path

import click

from onnx_subgraph.cli.options import json_option
from onnx_subgraph.cli.streams import WrittenPath
from onnx_subgraph.cli.written import check_writable, check_written
from onnx_subgraph.errors import UsageError


@click.command(short_help="Show the library of kernels, copy it, or build your own.")
@click.option(
    "--copy",
    "folder",
    type=WrittenPath(file_okay=False),
    metavar="DIR",
    help="Copy the library into DIR, to deploy it with a model.",
)
@click.option(
    "--compile",
    "sources",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    metavar="FILE.c",
    help="Build your own library of custom operators, with the same compiler and kernels/ort.h. May be repeated.",
)
@click.option(
    "-o",
    "--output",
    type=WrittenPath(dir_okay=False),
    metavar="LIBRARY",
    help="The library that --compile writes.",
)
@json_option
def kernels(folder: Path | None, sources: tuple[Path, ...], output: Path | None, as_json: bool) -> int:
    """Show where the library of kernels is, its operators and instruction sets, and the instruction set that is used here.

    The first use builds it, with the system's C compiler or the one of the package ziglang. A session loads it with
    SessionOptions.register_custom_ops_library(path). ONNX_SUBGRAPH_ISA=baseline|avx2|avx512 limits the instruction set, amx
    enables AMX. Operators that are not faster than onnxruntime's are left out; ONNX_SUBGRAPH_KERNELS=all includes them.
    """
    from onnx_subgraph import kernels as room
    from onnx_subgraph.cli.terminal import show_json, show_text

    if bool(sources) != (output is not None):
        raise UsageError("--compile and -o go together", hint="onnx-subgraph kernels --compile my_ops.c -o my_ops.so")
    if output is not None:
        if folder is not None:
            raise UsageError("--compile and --copy exclude each other", hint="call the command twice")
        check_written()
        check_writable("--output", output)
        from onnx_subgraph.kernels.build import compile_sources

        compile_sources(sources, output)
        show_json({"library": str(output)}) if as_json else show_text(f"built {output}")
        return 0
    known = room.describe()
    copied = None if folder is None else room.copy(folder)
    if as_json:
        answer: dict[str, object] = {"path": str(known.path), "isas": list(known.here), "isa": known.used}
        answer |= {"operators": list(known.operators)} | ({} if copied is None else {"copied": str(copied)})
        show_json(answer)
        return 0
    lines = [
        f"library           {known.path}",
        f"instruction sets  {', '.join(known.here)}; {known.used} is used",
        f"operators         {', '.join(known.operators)}",
    ]
    show_text("\n".join([*lines, *([] if copied is None else [f"copied to         {copied}"])]))
    return 0
