"""Any binding of onnxruntime can load the library: a C program does, and so do builds by hand as in kernels/README.md."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from onnx_subgraph.kernels.compilers import compilers
from tests.kernels.conftest import drawn, node, opened

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(sys.platform != "linux", reason="the program is linked with onnxruntime as its wheel for Linux has it")
def test_a_c_program_runs_a_model_with_the_library_and_without(library: Path, tmp_path: Path) -> None:
    (shared,) = (Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.*")
    compiler = next(compilers())
    program, include = tmp_path / "kernels", Path(__file__).parent / "include"
    source = ROOT / "docs" / "examples" / "kernels.c"
    command = [*compiler.command, "-std=c11", "-Wall", "-Wextra", f"-I{include}", str(source), str(shared)]
    subprocess.run([*command, "-o", str(program)], check=True)
    (tmp_path / shared.name.partition(".so.")[0]).with_suffix(".so.1").symlink_to(shared)  # the name that the library reports
    model = node("Linear (x, w)", {"x": np.zeros((2, 3))}, constants={"w": np.full((3, 4), 2.0, np.float32)})
    text = '<domain: "onnx_subgraph", opset_import: ["" : 20]> Linear (x, w) => (y) { p = MatMul(x, w) y = Neg(p) }'
    model.functions.append(onnx.parser.parse_function(text))
    onnx.save(model, tmp_path / "model.onnx")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"LD_LIBRARY_PATH": str(tmp_path)}
        return subprocess.run([program, "model.onnx", *words], capture_output=True, text=True, cwd=tmp_path, env=environment)

    assert run(str(library), "x", "y", "2", "3").stdout == "6\n"
    assert run("", "x", "y", "2", "3").stdout == "-6\n", "without the library the function runs"
    wrong = run(str(library), "x", "y", "2", "5")
    assert wrong.returncode == 1 and "INVALID_ARGUMENT" not in wrong.stdout and "x is [2, 5] and w [3, 4]" in wrong.stderr


@pytest.mark.skipif(platform.machine() != "x86_64" or sys.platform != "linux", reason="the commands are for Linux on x86-64")
def test_the_commands_of_the_readme_build_the_library(library: Path, tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("there is no cc")
    (commands,) = re.findall(r"```sh\n(.*?)```", (ROOT / "kernels" / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    for source in (ROOT / "kernels").glob("*.[ch]"):
        shutil.copy(source, tmp_path)
    assert "-O3" in commands
    subprocess.run(["sh", "-e", "-c", commands.replace("-O3", "-O0 -DNO_INLINING")], check=True, cwd=tmp_path)  # much faster
    arrays = {"x": drawn(0, 7, 30), "w": drawn(1, 30, 40)}
    model = node("Linear (x, w)", arrays)
    by_hand, built = (opened(model, file)(arrays)[0] for file in (tmp_path / "onnx_subgraph_kernels.so", library))
    np.testing.assert_allclose(by_hand, built, rtol=0, atol=1e-5)
