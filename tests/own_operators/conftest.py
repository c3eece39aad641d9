"""A pack with a library of custom operators, built as docs/own-operators.md describes, and models that use it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from onnx_subgraph.kernels.build import compile_sources
from onnx_subgraph.kernels.compilers import compilers
from tests.cli.conftest import Run, run, save

__all__ = ["Run", "run", "save"]

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "own_operators"
WEIGHTS = "float[4,1,3,3] w = {" + ", ".join(["0.5", "-0.25", "1", "0.1", "-1", "0.75"] * 6) + "}"
NUMBERS = (
    "float[4] scale = {1, 2, 3, 0.5}, float[4] shift = {0, 1, -1, 2}, "
    "float[4] mean = {0.5, 0, 1, -1}, float[4] var = {1, 2, 0.5, 1}"
)
CONV_BN = f"""
<ir_version: 8, opset_import: ["" : 17]>
net (float[batch,1,8,8] x) => (float[batch,4,4,4] y) <{WEIGHTS}, {NUMBERS}>
{{
  [conv] c = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (x, w)
  [norm] n = BatchNormalization (c, scale, shift, mean, var)
  [relu] y = Relu (n)
}}
"""
HOLDS_ONE = f"""
<ir_version: 8, opset_import: ["" : 17, "com.mylib" : 1]>
net (float[batch,1,8,8] x) => (y)
<{WEIGHTS}, {NUMBERS}, float half = {{0.5}}, float one = {{1}}, float root = {{1.4142135}}>
{{
  [mine] c = com.mylib.ConvBN <strides = [2, 2], pads = [1, 1, 1, 1]> (x, w, scale, shift, mean, var)
  d = Div (c, root)  e = Erf (d)  f = Add (e, one)  g = Mul (c, f)  y = Mul (g, half)
}}
"""
"""A model that needs the library: its operator, and behind it a GELU, which is found where the type of what it reads is known."""


def built(target: Path, change: tuple[str, str] = ("", "")) -> Path:
    """The library of the example, with a change in its source."""
    if next(compilers(), None) is None:
        pytest.skip("there is no C compiler here")
    text = (EXAMPLE / "my_ops.c").read_text(encoding="utf-8")
    assert change[0] in text
    source = target.with_suffix(".c")
    source.write_text(text.replace(*change), encoding="utf-8")
    compile_sources([source], target)
    return target


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library with `com.mylib::ConvBN`."""
    return built(tmp_path_factory.mktemp("library") / "my_ops.so")


@pytest.fixture(scope="session")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same library with an error: it subtracts the shift."""
    return built(tmp_path_factory.mktemp("wrong") / "my_ops.so", ("+ in[SHIFT]", "- in[SHIFT]"))


@pytest.fixture
def pack(library: Path, tmp_path: Path) -> Path:
    """The pack of the example, with its library."""
    folder = tmp_path / "my_pack"
    shutil.copytree(EXAMPLE, folder)
    shutil.copy(library, folder / "my_ops.so")
    return folder
