"""The library of kernels as a file, and what it says of itself and of this processor."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from onnx_subgraph import temporary
from onnx_subgraph.errors import KernelError
from onnx_subgraph.kernels.build import build, compiled
from onnx_subgraph.paths import cache_folder

ISA = "ONNX_SUBGRAPH_ISA"
"""The environment variable that caps the instruction set."""
FILE = "onnx_subgraph_kernels"
"""The name of the library where it is copied to, without its suffix."""


@dataclass(frozen=True, slots=True)
class Description:
    """path: the library's. here: the instruction sets of this processor that it has kernels for, from the least on. used: the one
    that a session made now would use. operators: their names, in the domain onnx_subgraph.
    """

    path: Path
    here: tuple[str, ...]
    used: str
    operators: tuple[str, ...]


@cache
def path() -> Path:
    """The library of kernels, for `SessionOptions.register_custom_ops_library`.

    It is the one that came with the package. Where there is none, or CC names a compiler, it is built when it is first asked for.
    Raises KernelError where it is not there and no compiler is, with what to do.
    """
    came = None if os.environ.get("CC") else compiled()
    return came or build(cache_folder() / "kernels")


def describe() -> Description:
    """What the library says of itself. Loads it. Raises KernelError."""
    where = path()
    try:
        library = ctypes.CDLL(str(where))
        used, here, operator = library.onnx_subgraph_isa, library.onnx_subgraph_isa_here, library.onnx_subgraph_operator
    except (OSError, AttributeError) as failure:
        raise KernelError(f"{where}: can't be loaded: {failure}", hint="remove the file, so that it is built again") from None
    for function in (used, here, operator):
        function.restype = ctypes.c_char_p
    word = used()
    if word is None:
        raise KernelError(
            f"{ISA} is {os.environ.get(ISA)!r}", hint="choose one of baseline, avx2, avx512, avx512_bf16, amx, or leave it out"
        )
    return Description(where, tuple(_words(here)), word.decode(), tuple(_words(operator)))


def _words(function: Callable[[int], bytes | None]) -> Iterator[str]:
    """What a function of the library gives for 0, 1, 2 and so on, up to NULL."""
    index = 0
    while (word := function(index)) is not None:
        yield word.decode()
        index += 1


def copy(folder: Path) -> Path:
    """Copies the library into a folder, for a deployment, and gives the copy's path. Raises KernelError."""
    source = path()
    target = folder / f"{FILE}{source.suffix}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        new = temporary.beside(target)  # not in place: a process may have the old one loaded
        with temporary.held(new):
            new.write_bytes(source.read_bytes())
            new.replace(target)
    except OSError as failure:
        raise KernelError(f"{target}: can't be written: {failure.strerror or failure}", hint="choose another folder") from None
    return target
