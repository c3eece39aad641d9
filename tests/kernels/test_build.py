"""The library is built once, by an available compiler. Without one the error says what to do. Wheels contain its sources."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from onnx_subgraph import kernels
from onnx_subgraph.errors import KernelError
from onnx_subgraph.kernels import build as building
from onnx_subgraph.kernels.compilers import Compiler, compilers
from tests.kernels.conftest import ISAS, drawn, node, opened

ROOT = Path(__file__).parents[2]


@pytest.fixture
def compiler() -> Compiler:
    """The first compiler of this machine."""
    found = next(compilers(), None)
    if found is None:
        pytest.skip("there is no C compiler")
    return found


def no_compilers(monkeypatch: pytest.MonkeyPatch, *there: Compiler) -> None:
    """Let these be the only compilers. What they make is not loaded."""
    monkeypatch.setattr(building, "compilers", lambda: iter(there))
    monkeypatch.setattr(building, "check_loads", lambda library: None)


def test_without_a_compiler_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_compilers(monkeypatch)
    with pytest.raises(KernelError, match="there is no C compiler") as error:
        building.build(tmp_path)
    assert "pip install 'onnx-subgraph[kernels]'" in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_a_compiler_that_fails_is_quoted_and_the_next_one_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import sys; print('I am broken', file=sys.stderr); sys.exit(1)"
    broken = [Compiler((sys.executable, "-c", code), name) for name in ("one", "two")]
    no_compilers(monkeypatch, *broken)
    with pytest.raises(KernelError, match="no C compiler compiles it") as error:
        building.build(tmp_path)
    assert str(error.value).count("isa.c -o") == 2 and "\nI am broken\n" in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_library_is_not_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: Compiler) -> None:
    built = []

    def compile_library(_: Compiler, target: Path) -> None:
        built.append(target)
        target.write_bytes(b"library")

    monkeypatch.setattr(building, "compile_library", compile_library)
    no_compilers(monkeypatch, compiler)
    first = building.build(tmp_path)
    assert first.read_bytes() == b"library" and building.build(tmp_path) == first
    assert len(built) == 1 and sorted(tmp_path.iterdir()) == [first]


def test_of_several_that_build_at_the_same_time_one_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: Compiler
) -> None:
    """Threads stand for processes here: both have a lock of their own."""
    no_compilers(monkeypatch, compiler)
    compiled: list[Path] = []

    def compile_slowly(_: Compiler, target: Path) -> None:
        time.sleep(0.3)
        compiled.append(target)
        target.write_bytes(b"library")

    monkeypatch.setattr(building, "compile_library", compile_slowly)
    with ThreadPoolExecutor(3) as pool:
        built = list(pool.map(building.build, [tmp_path] * 3))
    assert len(compiled) == 1 and len(set(built)) == 1


@pytest.mark.parametrize("cut", [0, 1, 4096])
def test_a_library_that_was_cut_off_is_built_again(
    cut: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: Compiler
) -> None:
    """To load it would end the process, without a message."""
    no_compilers(monkeypatch, compiler)
    monkeypatch.setattr(building, "compile_library", lambda _, target: target.write_bytes(b"library" * 1000))
    first = building.build(tmp_path)
    with first.open("r+b") as file:
        file.truncate(cut)
    assert building.build(tmp_path) == first and len(first.read_bytes()) == 7000


def test_a_library_that_does_not_load_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: Compiler) -> None:
    """As of a compiler that succeeds and writes something else."""
    monkeypatch.setattr(building, "compilers", lambda: iter([compiler]))
    monkeypatch.setattr(building, "compile_library", lambda _, target: target.write_bytes(b"no library"))
    with pytest.raises(KernelError, match=r"the library that the compiler made does not load: .*OSError"):
        building.build(tmp_path)
    assert not list(tmp_path.glob("*.so"))


def test_another_compiler_builds_another_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "compile_library", lambda _, target: target.write_bytes(b""))
    made = []
    for name in ("one", "two"):
        no_compilers(monkeypatch, Compiler(("cc",), name))
        made.append(building.build(tmp_path))
    assert made[0] != made[1]


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: Compiler) -> None:
    no_compilers(monkeypatch, compiler)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(KernelError, match="can't be written"):
        building.build(tmp_path / "file" / "kernels")


def test_a_named_compiler_is_the_only_one_tried() -> None:
    assert list(compilers({"CC": "no-such-compiler --flag"})) == []


def test_a_compiler_that_is_no_command_is_an_error() -> None:
    with pytest.raises(KernelError, match="CC is no command: No closing quotation"):
        list(compilers({"CC": "cc -DNAME='"}))


def test_a_compiler_that_writes_nothing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_compilers(monkeypatch, Compiler((sys.executable, "-c", ""), "silent"))
    with pytest.raises(KernelError, match="it wrote nothing"):
        building.compile_sources([ROOT / "kernels" / "isa.c"], tmp_path / "ops.so")
    assert list(tmp_path.iterdir()) == []


def test_a_version_in_another_encoding_is_read(tmp_path: Path) -> None:
    compiler = tmp_path / "cc"
    compiler.write_bytes(b"#!/bin/sh\nprintf 'gcc 12 \\351\\n'\n")
    compiler.chmod(0o755)
    assert [one.name for one in compilers({"CC": str(compiler)})] == ["gcc 12 \ufffd"]


def test_a_copy_is_a_library_that_runs(library: Path, tmp_path: Path) -> None:
    copied = kernels.copy(tmp_path / "deployed")
    assert kernels.copy(tmp_path / "deployed") == copied and [copied] == list(copied.parent.iterdir())
    arrays = {"x": drawn(0, 2, 3), "w": drawn(1, 3, 4)}
    opened(node("Linear (x, w)", arrays), copied)(arrays)


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    call = [sys.executable, "-m", "onnx_subgraph", "kernels", *arguments]
    return subprocess.run(call, capture_output=True, text=True, cwd=ROOT, env=os.environ | environment)


def test_the_command_prints_what_is_available(library: Path, isa: str, tmp_path: Path) -> None:
    done = command("--json", "--copy", str(tmp_path), ONNX_SUBGRAPH_ISA=isa, ONNX_SUBGRAPH_KERNELS="all")
    said = json.loads(done.stdout)
    assert done.returncode == 0
    assert (said["path"], said["isa"]) == (str(library), isa)
    assert "Linear" in said["operators"] and set(said["isas"]) <= set(ISAS)
    assert Path(said["copied"]).read_bytes() == library.read_bytes()


def test_an_instruction_set_lists_the_operators_that_are_faster_with_it(library: Path, isa: str) -> None:
    faster, every = (
        set(json.loads(command("--json", ONNX_SUBGRAPH_ISA=isa, ONNX_SUBGRAPH_KERNELS=which).stdout)["operators"])
        for which in ("", "all")
    )
    slow = {"Linear", "Attention", "Softmax", "FastGelu", "Swish"}
    assert {"LayerNorm", "Rotary", *slow} <= every and every - faster == (slow if isa == "baseline" else set())


def test_the_command_prints_what_is_wrong(library: Path, tmp_path: Path) -> None:
    done = command(ONNX_SUBGRAPH_ISA="sse9")
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == "Error: ONNX_SUBGRAPH_ISA is 'sse9'\nhint: choose one of baseline, avx2, avx512, avx512_bf16, amx, or leave it out\n"
    )
    done = command(CC="no-such-compiler", XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 2 and "the C compiler in CC, no-such-compiler, does not run" in done.stderr


def test_an_unknown_instruction_set_is_an_error_of_onnxruntime(library: Path) -> None:
    arrays = {"x": drawn(0, 2, 3), "w": drawn(1, 3, 4)}
    with pytest.raises(Exception, match='ONNX_SUBGRAPH_ISA is "sse9"; choose one of baseline, avx2, avx512, avx512_bf16, amx'):
        opened(node("Linear (x, w)", arrays), library, "sse9")


MODEL = """<ir_version: 10, opset_import: ["" : 20, "onnx_subgraph" : 1]>
g (float[m, k] x) => (float[m, n] y, float[m, n] z, float[m, k] t) <float[3, 2] w = {1, 2, 3, 4, 5, -6}> {
  y = onnx_subgraph.Linear:relu <act = "Relu"> (x, w)
  z = onnx_subgraph.Linear <act = "Gelu"> (x, w, "", "", y)
  t = onnx_subgraph.RMSNorm <epsilon = 0.1> (x)
}
<domain: "onnx_subgraph", opset_import: ["" : 20], overload: "relu">
Linear <act> (x, w) => (y) { p = MatMul(x, w) y = Relu(p) }
<domain: "onnx_subgraph", opset_import: ["" : 20]>
Linear <act> (x, w, b, gate, residual) => (y) { p = MatMul(x, w) a = Gelu(p) y = Add(a, residual) }
<domain: "onnx_subgraph", opset_import: ["" : 20]>
RMSNorm <epsilon> (x) => (y) {
  axes = Constant <value_ints = [-1]> ()
  e = Constant <value_float: float = @epsilon> ()
  square = Mul(x, x)
  mean = ReduceMean(square, axes)
  sum = Add(mean, e)
  root = Sqrt(sum)
  y = Div(x, root)
}"""
"""One model for both: attributes on the nodes, and an overload for each body of one name."""


def test_a_model_computes_the_same_with_kernels_and_with_its_functions(library: Path) -> None:
    arrays = {"x": drawn(0, 4, 3)}
    by_functions = onnxruntime.InferenceSession(onnx.parser.parse_model(MODEL).SerializeToString()).run(None, arrays)
    for mine, theirs in zip(opened(MODEL, library)(arrays), by_functions, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("line", ["y = Relu(p)", "y = Add(a, residual)", "y = Div(x, root)"])
def test_the_kernel_has_priority_over_a_function_and_its_overloads(library: Path, line: str) -> None:
    """The function computes something else, which shows that it does not run while the library is loaded."""
    arrays, wrong = {"x": drawn(0, 4, 3)}, line.replace("y =", "right =") + " y = Neg(right)"
    right = opened(MODEL, library)(arrays)
    changed = MODEL.replace(line, wrong)
    for mine, again in zip(opened(changed, library)(arrays), right, strict=True):
        np.testing.assert_array_equal(mine, again)
    by_functions = onnxruntime.InferenceSession(onnx.parser.parse_model(changed).SerializeToString()).run(None, arrays)
    assert any(np.abs(mine - theirs).max() > 0.1 for mine, theirs in zip(right, by_functions, strict=True))
