"""Products by AVX512_BF16 round only the operands to bfloat16. Few rows and values beyond bfloat16 are not rounded."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from onnx_subgraph import kernels
from onnx_subgraph.kernels.library import ISA
from tests.kernels import test_amx as amx_laws
from tests.kernels.conftest import drawn, node, opened

NAME = "avx512_bf16"


@pytest.fixture(scope="module")
def here(library: Path) -> Path:
    """The library, on a processor with these instructions."""
    if NAME not in kernels.describe().here:
        pytest.skip("this processor has no AVX512_BF16")
    return library


def product(library: Path, isa: str, arrays: dict[str, np.ndarray]) -> np.ndarray:
    (result,) = opened(node('Linear <numerics = "bf16"> (x, w)', arrays), library, isa)(arrays)
    return result


@pytest.mark.parametrize("rows", [3, 8, 15, 40, 150])
@pytest.mark.parametrize("depth", [1, 31, 513, 1100])
def test_the_product_is_that_of_the_rounded_operands(here: Path, rows: int, depth: int) -> None:
    """A product of two bfloat16 is exact in float32, so the remaining error is that of the sum."""
    arrays = {"x": drawn(1, rows, depth), "w": drawn(2, depth, 50)}
    x, w = (array.astype(ml_dtypes.bfloat16).astype(np.float64) for array in arrays.values())
    allowed = 2.0**-21 * (np.abs(x) @ np.abs(w)) + 1e-30
    assert (np.abs(product(here, NAME, arrays) - x @ w) <= allowed).all()
    if depth > 1:
        assert (product(here, NAME, arrays) != product(here, "avx512", arrays)).any(), "its rows are rounded, AVX-512's are not"


@pytest.mark.parametrize("rows", [1, 2])
def test_few_rows_are_not_rounded(here: Path, rows: int) -> None:
    arrays = {"x": drawn(1, rows, 1101), "w": drawn(2, 1101, 50)}
    np.testing.assert_array_equal(product(here, NAME, arrays), product(here, "avx512", arrays))


@pytest.mark.parametrize("where", ["x", "w"])
def test_values_beyond_bfloat16_are_computed_without_rounding_rows(here: Path, where: str) -> None:
    for special in amx_laws.SPECIAL:
        arrays = {"x": drawn(1, 40, 1200), "w": drawn(2, 1200, 37)}
        arrays[where][(7, 1100) if where == "x" else (1100, 7)] = special
        with np.errstate(invalid="ignore", over="ignore"):
            expected = arrays["x"].astype(np.float64) @ arrays["w"].astype(np.float64)
        result = product(here, NAME, arrays)
        np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
        np.testing.assert_allclose(result, expected, rtol=0.02, atol=0.3)


def test_it_is_the_default_only_where_it_is_faster(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = ctypes.CDLL(str(here)).onnx_subgraph_isa
    chosen.restype = ctypes.c_char_p
    pays = re.search("AuthenticAMD", Path("/proc/cpuinfo").read_text(encoding="utf-8")) is not None
    for word, isa in (("", NAME if pays else "avx512"), ("avx512", "avx512"), (NAME, NAME)):
        monkeypatch.setenv(ISA, word)
        assert chosen().decode() == isa
