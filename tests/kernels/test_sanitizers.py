"""No kernel reads or writes beyond its tensors, or does what C leaves undefined."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from onnx_subgraph.errors import KernelError
from onnx_subgraph.kernels.build import compile_objects, source_folder
from onnx_subgraph.kernels.compilers import Compiler, compilers

SANITIZED = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
DRIVER = Path(__file__).with_name("driver.c")


def sanitizing(folder: Path) -> Compiler:
    """A compiler of this machine that has the sanitizers."""
    (folder / "empty.c").write_text("int main(void) { return 0; }\n")
    for compiler in compilers():
        command = [*compiler.command, *compiler.flags, *SANITIZED, str(folder / "empty.c"), "-o", str(folder / "empty")]
        if subprocess.run(command, capture_output=True).returncode == 0 and subprocess.run([folder / "empty"]).returncode == 0:
            return compiler
    pytest.skip("no C compiler of this machine has the address sanitizer")


def test_the_sanitizers_find_nothing(tmp_path: Path) -> None:
    compiler = sanitizing(tmp_path)
    try:
        objects = compile_objects(compiler, tmp_path, SANITIZED, only=("isa.c", "kernels.c"))
    except KernelError as failure:
        pytest.fail(str(failure))
    program = tmp_path / "driver"
    sources = [f"-I{source_folder()}", str(DRIVER), *map(str, objects)]
    subprocess.run([*compiler.command, *compiler.flags, "-std=c11", *SANITIZED, *sources, "-o", str(program), "-lm"], check=True)
    environment = os.environ | {"ASAN_OPTIONS": "detect_leaks=1", "UBSAN_OPTIONS": "print_stacktrace=1"}
    done = subprocess.run([program], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr[:4000]
    assert int(done.stdout.split()[0]) > 300


def test_the_sanitizers_would_find_something(tmp_path: Path) -> None:
    """A driver whose tensors end early is caught, so that silence says something."""
    compiler = sanitizing(tmp_path)
    body = "float *p = malloc(n * 4); float v = p[n]; free(p); return v > 0 && !words;"
    (tmp_path / "wrong.c").write_text(f"#include <stdlib.h>\nint main(int n, char **words) {{ {body} }}\n")
    command = [*compiler.command, *compiler.flags, *SANITIZED, str(tmp_path / "wrong.c"), "-o", str(tmp_path / "wrong")]
    subprocess.run(command, check=True)
    done = subprocess.run([tmp_path / "wrong"], capture_output=True, text=True)
    assert done.returncode != 0 and "heap-buffer-overflow" in done.stderr
