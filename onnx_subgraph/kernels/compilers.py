"""Find the C compilers of this machine, with their commands and flags."""

from __future__ import annotations

import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from onnx_subgraph.errors import KernelError

COMMON = ("-std=c11", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fvisibility=hidden")
"""A product and a sum are contracted where the processor has an instruction for both; no other flag may change a result."""

_AVX2 = ("-mavx2", "-mfma", "-mf16c")
_AVX512 = (*_AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl")
_X86 = {
    "baseline": (),
    "avx2": _AVX2,
    "avx512": _AVX512,
    "avx512_bf16": (*_AVX512, "-mavx512bf16"),
    "amx": (*_AVX512, "-mavx512bf16", "-mamx-tile", "-mamx-bf16"),
}


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C compiler. command: to run it. name: its version line. flags: those that only this compiler needs.

    processor: the target, as `platform.machine` names it.
    """

    command: tuple[str, ...]
    name: str
    flags: tuple[str, ...] = ()
    processor: str = platform.machine()


def instruction_sets(processor: str = platform.machine()) -> Mapping[str, Sequence[str]]:
    """The instruction sets for which the kernels are compiled on such a processor, as in kernels/isa.c, with their flags."""
    return _X86 if processor.lower() in {"x86_64", "amd64"} else {"baseline": ()}


def compilers(environment: Mapping[str, str] = os.environ) -> Iterator[Compiler]:
    """The compilers that run: the one in CC, or else those of the system, then the one of the package ziglang.

    Raises KernelError if CC has a quotation mark without its end.
    """
    try:
        named = shlex.split(environment.get("CC", ""))
    except ValueError as error:
        raise KernelError(f"CC is no command: {error}", hint="CC=gcc, or unset it") from None
    commands = [named] if named else [["cc"], ["gcc"], ["clang"]]
    for command in commands:
        where = shutil.which(command[0], path=environment.get("PATH"))
        if where is not None and (name := _version([where, *command[1:]])) is not None:
            yield Compiler((where, *command[1:]), name)
    if not named and importlib.util.find_spec("ziglang") is not None:
        command = [sys.executable, "-m", "ziglang", "cc"]
        if (name := _version(command)) is not None:
            # By default it would compile for the processor of this machine.
            yield Compiler(tuple(command), f"zig: {name}", ("-mcpu=baseline",))


def nothing_found(environment: Mapping[str, str] = os.environ) -> str:
    """Why there is no compiler, in words."""
    named = environment.get("CC", "").strip()
    return f"the C compiler in CC, {named}, does not run" if named else "there is no C compiler"


def _version(command: Sequence[str]) -> str | None:
    """The first line that a compiler prints for --version; None where it does not run."""
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, errors="replace", timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return next(iter(done.stdout.splitlines()), "")
