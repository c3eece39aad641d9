"""`onnx-subgraph kernels --compile`: a user's library, built with the compiler for our kernels."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from onnx_subgraph.kernels.compilers import compilers
from tests.own_operators.conftest import EXAMPLE, Run


@pytest.fixture(autouse=True)
def compiler() -> None:
    if next(compilers(), None) is None:
        pytest.skip("there is no C compiler here")


def test_the_library_exports_the_function_that_onnxruntime_needs(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "my_ops.so"
    told = run("kernels", "--compile", EXAMPLE / "my_ops.c", "-o", target)
    assert (told.code, told.out) == (0, f"built {target}\n")
    assert ctypes.CDLL(str(target)).RegisterCustomOps


def test_several_files_make_one_library(run: Run, tmp_path: Path) -> None:
    (tmp_path / "one.c").write_text("int one(void) { return 1; }\n", encoding="utf-8")
    two = 'int one(void);\n__attribute__((visibility("default"))) int two(void) { return 2 * one(); }\n'
    (tmp_path / "two.c").write_text(two, encoding="utf-8")
    target = tmp_path / "both.so"
    told = run("kernels", "--compile", tmp_path / "one.c", "--compile", tmp_path / "two.c", "-o", target, "--json")
    assert (told.code, told.json) == (0, {"library": str(target)})
    assert ctypes.CDLL(str(target)).two() == 2


def test_compiler_errors_are_shown_and_the_old_library_stays(run: Run, tmp_path: Path) -> None:
    source, target = tmp_path / "wrong.c", tmp_path / "mine.so"
    source.write_text("int answer(void) { return forty_two; }\n", encoding="utf-8")
    target.write_bytes(b"old")
    told = run("kernels", "--compile", source, "-o", target)
    assert told.code == 2 and "wrong.c:1" in told.err and "forty_two" in told.err
    assert target.read_bytes() == b"old" and sorted(tmp_path.iterdir()) == sorted([source, target])


@pytest.mark.parametrize("words", [("--compile", EXAMPLE / "my_ops.c"), ("-o", "my_ops.so")])
def test_the_two_options_go_together(run: Run, words: tuple[object, ...]) -> None:
    told = run("kernels", *words)
    assert told.code == 2 and "--compile and -o go together" in told.err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_only_a_regular_file_is_written(run: Run, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    told = run("kernels", "--compile", EXAMPLE / "my_ops.c", "-o", pipe)
    assert told.code == 2 and "is not a regular file" in told.err
    assert pipe.is_fifo()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--copy", ""), "the path is empty"),
        (("--compile", EXAMPLE / "my_ops.c", "-o", "my_ops.so", "--copy", "here"), "--compile and --copy exclude each other"),
        (("--compile", EXAMPLE / "my_ops.c", "-o", "missing/my_ops.so"), "there is no folder missing"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    run: Run, words: tuple[object, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = run("kernels", *words)
    assert told.code == 2 and said in told.err
