"""The C compilers of this machine, as commands, and what they are told."""

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

COMMON = ("-std=c11", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fvisibility=hidden")
"""Products and sums are contracted where the processor does both at once; nothing else may change a result."""

_AVX2 = ("-mavx2", "-mfma", "-mf16c")
_AVX512 = (*_AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl")
_X86 = {
    "baseline": (),
    "avx2": _AVX2,
    "avx512": _AVX512,
    "avx512_bf16": (*_AVX512, "-mavx512bf16"),
    "amx": (*_AVX512, "-mamx-tile", "-mamx-bf16"),
}


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C compiler. command: what runs it. name: what it says of itself. flags: what it alone has to be told.

    processor: what it compiles for, as `platform.machine` names it.
    """

    command: tuple[str, ...]
    name: str
    flags: tuple[str, ...] = ()
    processor: str = platform.machine()


def instruction_sets(processor: str = platform.machine()) -> Mapping[str, Sequence[str]]:
    """The instruction sets that the kernels are compiled for on such a processor, as in kernels/isa.c, with their flags."""
    return _X86 if processor.lower() in {"x86_64", "amd64"} else {"baseline": ()}


def compilers(environment: Mapping[str, str] = os.environ) -> Iterator[Compiler]:
    """The compilers that can be run: the one that CC names, or else those of the system and that of the package ziglang."""
    named = shlex.split(environment.get("CC", ""))
    commands = [named] if named else [["cc"], ["gcc"], ["clang"]]
    for command in commands:
        where = shutil.which(command[0], path=environment.get("PATH"))
        if where is not None and (name := _version([where, *command[1:]])) is not None:
            yield Compiler((where, *command[1:]), name)
    if not named and importlib.util.find_spec("ziglang") is not None:
        command = [sys.executable, "-m", "ziglang", "cc"]
        if (name := _version(command)) is not None:
            # Without the flag it compiles for this very processor.
            yield Compiler(tuple(command), f"zig: {name}", ("-mcpu=baseline",))


def _version(command: Sequence[str]) -> str | None:
    """The first line of what a compiler says of itself; None where it does not run."""
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return next(iter(done.stdout.splitlines()), "")
