"""Products of pairs of bfloat16, by AVX512_BF16 or AMX, round only the operands of Linear and Attention, and not a few rows."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest

from onnx_subgraph import kernels
from onnx_subgraph.kernels.library import ISA
from tests.kernels import test_amx as amx_laws
from tests.kernels.conftest import drawn, node, opened

NAME = "avx512_bf16"


class Here(NamedTuple):
    """A library, and its instruction set that multiplies pairs."""

    library: Path
    isa: str


@pytest.fixture(scope="module", params=[NAME, "amx"])
def here(request: pytest.FixtureRequest, library: Path) -> Here:
    """The library on a processor with these instructions. Without AMX, C functions stand in for it."""
    if request.param in kernels.describe().here:
        return Here(library, request.param)
    if request.param == "amx":
        return Here(amx_laws.emulated(), "amx")
    pytest.skip("this processor has no AVX512_BF16")


def product(here: Here, arrays: dict[str, np.ndarray], isa: str = "") -> np.ndarray:
    (result,) = opened(node('Linear <numerics = "bf16"> (x, w)', arrays), here.library, isa or here.isa)(arrays)
    return result


@pytest.mark.parametrize("rows", [3, 8, 15, 40, 150])
@pytest.mark.parametrize("depth", [1, 31, 513, 1100])
def test_the_product_is_that_of_the_rounded_operands(here: Here, rows: int, depth: int) -> None:
    """A product of two bfloat16 is exact in float32, so the remaining error is that of the sum."""
    arrays = {"x": drawn(1, rows, depth), "w": drawn(2, depth, 50)}
    x, w = (array.astype(ml_dtypes.bfloat16).astype(np.float64) for array in arrays.values())
    allowed = 2.0**-21 * (np.abs(x) @ np.abs(w)) + 1e-30
    assert (np.abs(product(here, arrays) - x @ w) <= allowed).all()
    if depth > 1:
        assert (product(here, arrays) != product(here, arrays, "avx512")).any(), "its rows are rounded, AVX-512's are not"


@pytest.mark.parametrize("rows", [1, 2])
def test_few_rows_are_not_rounded(here: Here, rows: int) -> None:
    arrays = {"x": drawn(1, rows, 1101), "w": drawn(2, 1101, 50)}
    np.testing.assert_array_equal(product(here, arrays), product(here, arrays, "avx512"))


@pytest.mark.parametrize("where", ["x", "w"])
def test_values_beyond_bfloat16_are_computed_without_rounding_rows(here: Here, where: str) -> None:
    for special in amx_laws.SPECIAL:
        arrays = {"x": drawn(1, 40, 1200), "w": drawn(2, 1200, 37)}
        arrays[where][(7, 1100) if where == "x" else (1100, 7)] = special
        with np.errstate(invalid="ignore", over="ignore"):
            expected = arrays["x"].astype(np.float64) @ arrays["w"].astype(np.float64)
        result = product(here, arrays)
        np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
        np.testing.assert_allclose(result, expected, rtol=0.02, atol=0.3)


def attended(here: Here, arrays: dict[str, np.ndarray], numerics: str = "bf16", threads: int = 1) -> np.ndarray:
    call = f'Attention <scale = 0.25, heads = 4, repeats = 2, numerics = "{numerics}"> ({", ".join(arrays)})'
    (result,) = opened(node(call, arrays), here.library, here.isa, threads)(arrays)
    return result


def operands(length: int, keys: int, size: int, wide: int) -> dict[str, np.ndarray]:
    return {"query": drawn(1, 1, 4, length, size), "key": drawn(2, 1, 2, keys, size), "value": drawn(3, 1, 2, keys, wide)}


@pytest.mark.parametrize("length", [2, 15, 300])
@pytest.mark.parametrize("keys", [1, 2, 33, 255, 257, 600])
@pytest.mark.parametrize(("size", "wide"), [(64, 64), (1, 1), (31, 33), (300, 17)])
def test_attention_rounds_its_operands_and_nothing_else(here: Here, length: int, keys: int, size: int, wide: int) -> None:
    """Scores of rounded operands are exact except for the sum. Rounded weights change a result by 2⁻⁸ of the values at most."""
    arrays = operands(length, keys, size, wide)
    rounded = {name: array.astype(ml_dtypes.bfloat16).astype(np.float32) for name, array in arrays.items()}
    query, value = rounded["query"].astype("f8") * 0.25, np.repeat(rounded["value"].astype("f8"), 2, axis=1)  # 1 / 4 is exact
    scores = query @ np.repeat(rounded["key"].astype("f8"), 2, axis=1).swapaxes(2, 3)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    expected = (weights / weights.sum(axis=-1, keepdims=True)) @ value
    result = attended(here, arrays)
    assert np.abs(result - expected).max() <= 2.0**-8 * np.abs(value).max()
    if size > 1 and keys > 2:
        assert (result != attended(here, arrays, "float32")).any(), "nothing was rounded"
        exact = attended(here, rounded, "float32")
        assert np.abs(exact - expected).max() < 1e-5


def test_attention_of_one_row_and_of_other_numerics_is_not_rounded(here: Here) -> None:
    for length, numerics in ((1, "bf16"), (9, "bf16x3")):
        arrays = operands(length, 70, 64, 64)
        np.testing.assert_array_equal(attended(here, arrays, numerics), attended(here, arrays, "float32"))


def test_rounded_attention_is_the_same_on_all_numbers_of_threads(here: Here) -> None:
    arrays = operands(700, 530, 64, 64)
    np.testing.assert_array_equal(attended(here, arrays), attended(here, arrays, threads=2))


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan, 3.4e38, -3.4e38])
def test_rounded_attention_keeps_special_values(here: Here, special: float) -> None:
    """A finite value stays finite, whatever its size; NaN and infinity reach the rows that read them."""
    arrays = operands(20, 40, 16, 16)
    arrays["value"][0, 0, 7, 3] = special
    with np.errstate(invalid="ignore", over="ignore"):
        exact, result = attended(here, arrays, "float32"), attended(here, arrays)
    np.testing.assert_array_equal(np.isnan(result), np.isnan(exact))
    np.testing.assert_array_equal(np.isinf(result), np.isinf(exact))
    np.testing.assert_allclose(result, exact, rtol=0.02, atol=0.03)


def test_masked_keys_have_no_weight_in_rounded_attention(here: Here) -> None:
    arrays = operands(9, 300, 16, 24)
    mask = np.zeros((1, 1, 9, 300), np.float32)
    mask[0, 0, 1], mask[0, 0, 2, :290], mask[0, 0, 3, 1:] = -np.inf, -np.inf, -np.inf
    result, exact = (attended(here, arrays | {"mask": mask}, word) for word in ("bf16", "float32"))
    assert np.isnan(result[0, :, 1]).all() and np.isnan(exact[0, :, 1]).all()
    kept = np.delete(np.arange(9), 1)
    np.testing.assert_allclose(result[:, :, kept], exact[:, :, kept], rtol=0, atol=0.02)
    np.testing.assert_allclose(result[0, :, 3], np.repeat(arrays["value"][0, :, 0], 2, axis=0), rtol=2.0**-8)


def test_it_is_the_default_only_where_it_is_faster(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if NAME not in kernels.describe().here:
        pytest.skip("this processor has no AVX512_BF16")
    chosen = ctypes.CDLL(str(library)).onnx_subgraph_isa
    chosen.restype = ctypes.c_char_p
    pays = re.search("AuthenticAMD", Path("/proc/cpuinfo").read_text(encoding="utf-8")) is not None
    best = "amx" if "amx" in kernels.describe().here else NAME if pays else "avx512"
    for word, isa in (("", best), ("avx512", "avx512"), (NAME, NAME)):
        monkeypatch.setenv(ISA, word)
        assert chosen().decode() == isa
