"""Products by AMX: with the processor's instructions, or with AVX512_BF16 and C functions that stand in for
them.

The code around these instructions is the same: how operands are split, packed and cut into tiles, and how the remaining rows are
computed.
"""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest

from onnx_subgraph import kernels
from onnx_subgraph.kernels.build import compile_library, source_folder
from onnx_subgraph.kernels.compilers import COMMON, compilers, instruction_sets
from onnx_subgraph.kernels.library import ISA
from tests.kernels import test_linear as laws
from tests.kernels.conftest import drawn, kept, node, opened

EMULATED = ("-DAMX_EMULATED", f"-I{Path(__file__).parent}")
NUMERICS = list(laws.UNITS)


@pytest.fixture(scope="module", params=["emulated", "real"])
def amx(request: pytest.FixtureRequest, library: Path) -> Path:
    """The library as it is, or with C functions in place of AMX's instructions."""
    if request.param == "emulated":
        return emulated()
    if "amx" not in kernels.describe().here:
        pytest.skip("this processor has no AMX")
    return library


def emulated() -> Path:
    """A library with C functions in place of AMX's instructions."""
    if "avx512_bf16" not in kernels.describe().here:
        pytest.skip("this processor has no AVX512_BF16, which is around the operations of AMX")
    compiler, flags = next(compilers()), (*EMULATED, "-DNO_INLINING", "-Og")
    return kept(compiler, flags, lambda target: compile_library(compiler, target, flags))


@pytest.mark.parametrize("numerics", NUMERICS)
def test_operands_are_rounded_no_further_than_the_node_allows(amx: Path, numerics: str) -> None:
    laws.test_operands_are_rounded_no_further_than_the_node_allows(amx, "amx", numerics)


@pytest.mark.parametrize("constant", [True, False], ids=["constant", "computed"])
def test_linear_is_its_definition(amx: Path, constant: bool) -> None:
    laws.test_linear_is_its_definition(amx, "amx", constant)


@pytest.mark.parametrize("numerics", NUMERICS)
@pytest.mark.parametrize("rows", [8, 16, 33, 150])
def test_results_are_the_same_bit_by_bit(amx: Path, rows: int, numerics: str) -> None:
    laws.test_results_are_the_same_bit_by_bit(amx, "amx", rows, numerics)


@pytest.mark.parametrize(("numerics", "most"), [("float32", None), ("bf16x3", 63), ("bf16", 2)])
def test_tiles_compute_rows_where_they_are_faster(amx: Path, numerics: str, most: int | None) -> None:
    """Their rounding differs from that of AVX-512. most: the most rows without tiles; None: float32 never takes tiles."""
    model = f'Linear <numerics = "{numerics}"> (x, w)'
    for rows in (1, *((80,) if most is None else (most, most + 1))):
        arrays = laws.feeds((rows,), 1100, 50, set(), 3)
        with_amx, without = (opened(node(model, arrays), amx, isa)(arrays)[0] for isa in ("amx", "avx512"))
        assert (with_amx != without).any() == (most is not None and rows > most)


SPECIAL = [np.nan, np.inf, -np.inf, 3.4e38, -3.4e38]
"""What is no sum of bfloat16 numbers: the largest float32 are rounded to infinity."""


@pytest.mark.parametrize("numerics", NUMERICS)
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "computed"])
@pytest.mark.parametrize("where", ["x", "w"])
def test_values_beyond_bfloat16_are_computed_without_tiles(amx: Path, where: str, constant: bool, numerics: str) -> None:
    """Split into bfloat16 parts, an infinity would have a zero part, and zero times infinity is NaN.

    Other elements are unchanged.
    """
    for special in SPECIAL:
        arrays = {"x": drawn(1, 70, 1200), "w": drawn(2, 1200, 37)}
        arrays[where][(7, 1100) if where == "x" else (1100, 7)] = special
        stored = {"w": arrays["w"]} if constant else {}
        inputs = {name: array for name, array in arrays.items() if name not in stored}
        (result,) = opened(node(f'Linear <numerics = "{numerics}"> (x, w)', inputs, constants=stored), amx, "amx")(inputs)
        with np.errstate(invalid="ignore", over="ignore"):
            expected = arrays["x"].astype(np.float64) @ arrays["w"].astype(np.float64)
        np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
        np.testing.assert_allclose(result, expected, rtol=0.02, atol=0.3)


def test_it_compiles_for_processors_with_amx(library: Path, tmp_path: Path) -> None:
    """Every compiler of this machine compiles the intrinsics; without AMX they can't be run.

    A compiler with two names counts once. The library itself shows that the inlined form compiles.
    """
    flags = instruction_sets().get("amx")
    if flags is None:
        pytest.skip("AMX is of x86-64")
    for name, compiler in {compiler.name.partition(" ")[2]: compiler for compiler in compilers()}.items():
        made = tmp_path / "amx.o"
        forms = [*COMMON, *flags, "-O0", "-DNO_INLINING", "-DISA=amx"]
        command = [*compiler.command, *compiler.flags, *forms, "-c", str(source_folder() / "kernels.c")]
        done = subprocess.run([*command, "-o", str(made)], capture_output=True, text=True)
        assert done.returncode == 0, f"{name}: {done.stderr[:4000]}"
        made.unlink()


def test_amx_is_used_unless_another_word_is_set(amx: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = ctypes.CDLL(str(amx)).onnx_subgraph_isa
    chosen.restype = ctypes.c_char_p
    for word, isas in (("", (b"amx",)), ("avx512", (b"avx512",)), ("avx2", (b"avx2",)), ("amx", (b"amx",))):
        monkeypatch.setenv(ISA, word)
        assert chosen() in isas
