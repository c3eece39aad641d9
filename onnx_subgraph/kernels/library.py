"""The file of the library of kernels, and its description of itself and of this processor."""

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
"""The environment variable that limits the instruction set."""
FILE = "onnx_subgraph_kernels"
"""The name of a copied library, without its suffix."""


@dataclass(frozen=True, slots=True)
class Description:
    """The library's description.

    path: its file. here: the instruction sets of this processor for which it has kernels, the lowest first. used: the one that a
    new session would use. operators: their names, in the domain onnx_subgraph.
    """

    path: Path
    here: tuple[str, ...]
    used: str
    operators: tuple[str, ...]


@cache
def path() -> Path:
    """The library of kernels, for `SessionOptions.register_custom_ops_library`.

    It is the one in the package. If there is none, or if CC names a compiler, it is built on first use. Raises KernelError, with
    a next step, if it is missing and no compiler can build it.
    """
    came = None if os.environ.get("CC") else compiled()
    return came or build(cache_folder() / "kernels")


def describe() -> Description:
    """Load the library and read its description. Raises KernelError."""
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
    """The results of a library function for 0, 1, 2 and so on, up to NULL."""
    index = 0
    while (word := function(index)) is not None:
        yield word.decode()
        index += 1


def copy(folder: Path) -> Path:
    """Copy the library into a folder, for deployment. Returns the path of the copy. Raises KernelError."""
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
