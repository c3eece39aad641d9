"""No kernel reads or writes outside its tensors or has undefined behaviour."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from onnx_subgraph import kernels
from onnx_subgraph.errors import KernelError
from onnx_subgraph.kernels.build import compile_objects, source_folder
from onnx_subgraph.kernels.compilers import Compiler, compilers
from tests.kernels.conftest import kept
from tests.kernels.test_amx import EMULATED

SANITIZED = (
    "-Og",
    "-g1",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
    "-DNO_INLINING",
)
DRIVER = Path(__file__).with_name("driver.c")


WRONG = """#include <stdlib.h>
int main(int count, char **words) {
    float *numbers = malloc(count * sizeof(float)), beyond = numbers[count];
    free(numbers);
    return beyond > 0 && !words;
}
"""


def sanitizing(folder: Path) -> Compiler:
    """A compiler of this machine whose sanitizers find errors. Some compilers accept the flags and do nothing."""
    (folder / "wrong.c").write_text(WRONG)
    for compiler in compilers():
        command = [*compiler.command, *compiler.flags, *SANITIZED, str(folder / "wrong.c"), "-o", str(folder / "wrong")]
        if subprocess.run(command, capture_output=True).returncode == 0:
            done = subprocess.run([folder / "wrong"], capture_output=True, text=True)
            if done.returncode != 0 and "heap-buffer-overflow" in done.stderr:
                return compiler
    pytest.skip("no C compiler of this machine has the address sanitizer")


@pytest.mark.parametrize("emulated", [EMULATED, ()], ids=["emulated", "real"])
def test_the_sanitizers_find_nothing(tmp_path: Path, emulated: tuple[str, ...], thorough: bool) -> None:
    """With AMX's instructions where the processor has them, else with C functions in their place; with `--thorough` with both."""
    has_amx = "amx" in kernels.describe().here
    if not emulated and not has_amx:
        pytest.skip("this processor has no AMX, and without AMX both are the same")
    if emulated and has_amx and not thorough:
        pytest.skip("this processor has AMX: --thorough runs it")
    compiler = sanitizing(tmp_path)

    def build(program: Path) -> None:
        objects = compile_objects(compiler, tmp_path, (*SANITIZED, *emulated), only=("isa.c", "kernels.c"))
        sources = [f"-I{source_folder()}", str(DRIVER), *map(str, objects)]
        subprocess.run([*compiler.command, *compiler.flags, "-std=c11", *SANITIZED, *sources, "-o", program, "-lm"], check=True)

    try:
        program = kept(compiler, (*SANITIZED, *emulated), build)
    except KernelError as failure:
        pytest.fail(str(failure))
    environment = os.environ | {"ASAN_OPTIONS": "detect_leaks=1", "UBSAN_OPTIONS": "print_stacktrace=1"}
    done = subprocess.run([program], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr[:4000]
    assert int(done.stdout.split()[0]) > 300
