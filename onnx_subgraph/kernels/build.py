"""Build the library: compile each source, kernels.c once for each instruction set, and link all objects.

The file's name contains a hash of everything that goes into it (sources, compiler, flags), so a changed source or compiler gives
another file, and a hash of the file: one that was cut off would end the process that loads it. One process builds it, and others
wait. It is moved into place when it is complete, so a file system without locks does no harm.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from onnx_subgraph import temporary
from onnx_subgraph.errors import KernelError
from onnx_subgraph.kernels.compilers import COMMON, Compiler, compilers, instruction_sets, nothing_found

KERNELS = "kernels.c"
"""The source that is compiled for each instruction set."""
SECONDS = 300.0
"""The time limit of a compiler for one file."""

HINT = "pip install 'onnx-subgraph[kernels]', which contains one, or install GCC or Clang, or name one in CC"

_SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
_WORDS = 2000
"""The most characters of a compiler's message that are shown."""


def source_folder() -> Path:
    """The folder of the C sources: inside the package in a wheel, beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "kernels" / "source", package.parent / "kernels"):
        if (folder / KERNELS).is_file():
            return folder
    raise KernelError("the sources of the kernels are not there", hint="install onnx-subgraph again")


def compiled() -> Path | None:
    """The compiled library in the package, as in the wheels for Linux; None where there is none."""
    library = Path(__file__).with_name("compiled") / f"onnx_subgraph_kernels{_SUFFIX}"
    return library if library.is_file() else None


def build(folder: Path) -> Path:
    """The library in `folder`, built if it is not there. Raises KernelError with the messages of all compilers."""
    failures = []
    for compiler in compilers():
        stem = f"onnx_subgraph_kernels-{_key(compiler)}"
        try:
            if (target := _kept(folder, stem)) is not None:
                return target
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with temporary.alone(folder):
                if (target := _kept(folder, stem)) is None:
                    temporary.sweep_once(folder)
                    new = temporary.beside(folder / f"{stem}{_SUFFIX}")
                    with temporary.held(new):
                        compile_library(compiler, new)
                        check_loads(new)
                        target = folder / f"{stem}-{_digest(new)}{_SUFFIX}"
                        new.replace(target)
        except KernelError as failure:
            failures.append(failure.message)
        except OSError as failure:
            message = f"the library of kernels can't be written: {failure}"
            raise KernelError(message, hint="set XDG_CACHE_HOME to another folder") from None
        else:
            return target
    message = "\n".join(["the library of kernels can't be built: no C compiler compiles it", *failures])
    if not failures:
        message = f"the library of kernels can't be built: {nothing_found()}"
    raise KernelError(message, hint=HINT)


def check_loads(library: Path) -> None:
    """Load a library in another process, which it may end. Raises KernelError where that fails."""
    code = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).onnx_subgraph_isa"
    try:
        done = subprocess.run([sys.executable, "-c", code, str(library)], capture_output=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.SubprocessError):
        return  # there is no such process: the program may hold an interpreter of its own
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        message = f"the library that the compiler made does not load: {''.join(said) or f'exit code {done.returncode}'}"
        raise KernelError(message, hint="name another compiler in CC")


def _kept(folder: Path, stem: str) -> Path | None:
    """The complete library of this stem in a folder; None if there is none."""
    found = sorted(folder.glob(f"{stem}-*{_SUFFIX}"))
    return next((path for path in found if path.is_file() and path.stem == f"{stem}-{_digest(path)}"), None)


def _digest(library: Path) -> str:
    return hashlib.sha256(library.read_bytes()).hexdigest()[:16]


def compile_library(compiler: Compiler, target: Path, extra: Sequence[str] = ()) -> None:
    """Compile the sources with this compiler into `target`. extra: more flags. Raises KernelError."""
    shared = ("-shared",) if sys.platform == "win32" else ("-shared", "-fPIC")
    with temporary.folder() as scratch:
        objects = compile_objects(compiler, scratch, (*shared[1:], *extra))
        made = scratch / target.name
        _link([*compiler.command, *compiler.flags, *shared, *extra], made, objects)
        target.write_bytes(made.read_bytes())


def compile_sources(sources: Sequence[Path], target: Path) -> None:
    """Compile a user's C sources into `target` with the first compiler that succeeds. The sources can include `ort.h`.

    Raises KernelError with the messages of all compilers.
    """
    shared = ("-shared",) if sys.platform == "win32" else ("-shared", "-fPIC")
    failures = []
    for compiler in compilers():
        with temporary.folder() as scratch:
            made = scratch / target.name
            command = [*compiler.command, *compiler.flags, *COMMON, *shared, f"-I{source_folder()}"]
            try:
                _link(command, made, sources)
                new = temporary.beside(target)  # not in place: a process may have the old one loaded
                with temporary.held(new):
                    new.write_bytes(made.read_bytes())
                    new.replace(target)
            except KernelError as failure:
                failures.append(failure.message)
            except OSError as failure:
                raise KernelError(
                    f"{target}: can't be written: {failure.strerror or failure}", hint="choose another folder"
                ) from None
            else:
                return
    message = "no C compiler compiles it" if failures else nothing_found()
    raise KernelError("\n".join([f"{target} can't be built: {message}", *failures]), hint=None if failures else HINT)


def compile_objects(compiler: Compiler, folder: Path, extra: Sequence[str] = (), only: Sequence[str] = ()) -> list[Path]:
    """Compile the sources, or `only` some of them, to object files in `folder`. Raises KernelError."""
    commands = {}
    for source in sorted(source_folder().glob("*.c")):
        if only and source.name not in only:
            continue
        variants = instruction_sets(compiler.processor) if source.name == KERNELS else {"": ()}
        for name, flags in variants.items():
            made = folder / f"{source.stem}{name}.o"
            named = [f"-DISA={name}"] if name else []
            commands[made] = [
                *compiler.command,
                *compiler.flags,
                *COMMON,
                *flags,
                *extra,
                *named,
                "-c",
                str(source),
                "-o",
                str(made),
            ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(_run, commands.values()))
    return list(commands)


def _key(compiler: Compiler) -> str:
    digest = hashlib.sha256()
    told = (
        compiler.processor,
        sys.platform,
        *compiler.command,
        compiler.name,
        *compiler.flags,
        *COMMON,
        repr(instruction_sets(compiler.processor)),
    )
    digest.update("\0".join(told).encode())
    for source in sorted(source_folder().glob("*.[ch]")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:16]


def _link(command: Sequence[str], made: Path, parts: Sequence[Path]) -> None:
    """Make a library of sources or objects. Raises KernelError, also for a compiler that succeeds and writes nothing."""
    _run([*command, "-o", str(made), *map(str, parts), "-lm"], made)


def _run(command: Sequence[str], made: Path | None = None) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=SECONDS, check=False)
    except (OSError, subprocess.SubprocessError) as failure:
        raise KernelError(f"{command[0]}: {failure}") from None
    if done.returncode or (made is not None and not made.is_file()):
        said = (done.stderr or done.stdout)[:_WORDS].rstrip() or f"it wrote nothing, exit code {done.returncode}"
        raise KernelError(f"{' '.join(command)}\n{said}")
