"""Large values are cropped: the part that is left still shows errors, and sizes that a site names are not changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest

from onnx_subgraph import Options, fuse, load_patterns
from onnx_subgraph.rewriting.cutting import Cutting
from onnx_subgraph.rewriting.rewrite import Place, Rewrite
from onnx_subgraph.verification import site as sites
from onnx_subgraph.verification.cropping import SIZES, crops
from onnx_subgraph.verification.holding import Holding
from tests.verification.models import write
from tests.verification.planted import GELU, patterns

LARGE_GELU = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2, 270, 250] x) => (float[2, 270, 250] y) <float root = {1.4142135}, float one = {1.0}, float half = {0.5}> {
  r = Div (x, root)
  e = Erf (r)
  a = Add (e, one)
  p = Mul (x, a)
  y = Mul (p, half)
}
"""
HIDDEN = (
    LARGE_GELU.replace("250] y)", "250] z)")
    .replace("half = {0.5}", "half = {0.5}, float large = {1000000}")
    .replace("\n}", " z = Add (y, large) }")
)
"""A GELU whose last digits the model loses."""
MASKED = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2, 1500] x, float[1, 1500] m) => (y) { s = Add (x, m) y = Softmax (s) }
"""
UNMASKED = MASKED.replace("s = Add (x, m) y = Softmax (s)", "y = Softmax (x)")
RESHAPED = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2, 1500, 384] x, int64[3] s) => (y) <int64[4] heads = {2, -1, 6, 64}> { h = Reshape (x, heads) y = Reshape (h, s) }
"""
FIXED = RESHAPED.replace("2, -1, 6, 64", "2, 1500, 6, 64")


@pytest.fixture(autouse=True)
def _large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a megabyte counts as large, to save time."""
    monkeypatch.setattr(sites, "LARGE", 1 << 19)


def cutting(before: str, after: str) -> Cutting:
    first, second = (ir.from_proto(onnx.parser.parse_model(text)) for text in (before, after))
    return Cutting(Rewrite("", "", "", (), 0, root="y", place=Place("", "", ("y",))), first, second, (("y", "y"),))


def sizes_held(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of elements on which each site is checked, from now on."""
    sizes: list[int] = []
    on = Holding.on

    def counted(self: Holding, values: Any) -> Any:
        sizes.append(sum(np.asarray(array).size for array in values.values()))
        return on(self, values)

    monkeypatch.setattr(Holding, "on", counted)
    return sizes


def test_a_large_site_is_checked_on_a_part_of_its_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = sizes_held(monkeypatch)
    model = write(tmp_path / "m.onnx", LARGE_GELU)
    (check,) = fuse(model, None, load_patterns(), Options(only=("gelu",), dry_run=True)).rewrites
    assert check.pattern == "gelu" and sizes and max(sizes) <= 2 * SIZES[0] * SIZES[1]


UNFIT = {
    "it does not run on its type": np.ones((2, 60, 250)),
    "its numbers are tiny": np.linspace(0, 1e-4, 30000, dtype=np.float32).reshape(2, 60, 250),
    "its results are zero": np.linspace(-200, -100, 30000, dtype=np.float32).reshape(2, 60, 250),
}


@pytest.mark.parametrize("array", UNFIT.values(), ids=UNFIT)
def test_if_the_part_proves_nothing_all_values_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, array: np.ndarray
) -> None:
    def unfit(_: Cutting, values: Any) -> Any:
        yield dict.fromkeys(values, array)

    monkeypatch.setattr(sites, "crops", unfit)
    sizes = sizes_held(monkeypatch)
    result = fuse(write(tmp_path / "m.onnx", LARGE_GELU), None, load_patterns(), Options(only=("gelu",), dry_run=True))
    assert result.rewrites and result.verdict.verdict == "equivalent"
    assert [size for size in sizes if size >= 2 * 270 * 250] and not result.undone


def test_a_wrong_fusion_of_large_values_is_undone(tmp_path: Path) -> None:
    """No output of the model shows it, so the part of the values must."""
    model, pack = write(tmp_path / "m.onnx", HIDDEN), patterns(tmp_path, GELU)
    (undone,) = fuse(model, None, load_patterns([pack]), Options(only=("sloppy-gelu",), dry_run=True)).undone
    assert undone.found == "site"


@pytest.mark.parametrize("hidden", [1.0, 0.05])
def test_a_mask_of_late_elements_is_not_cropped_away(hidden: float) -> None:
    """A replacement that ignores the mask is found, although the first elements are not masked."""
    x, mask = np.random.default_rng(0).normal(size=(2, 1500)).astype(np.float32), np.zeros((1, 1500), np.float32)
    mask[:, int(1500 * (1 - hidden)) :: 3] = -5.0
    site = cutting(MASKED, UNMASKED)
    (part,) = crops(site, {"x": x, "m": mask})
    held = Holding(site, "CPUExecutionProvider").on(part)
    assert part["x"].shape == (2, SIZES[0]) and part["m"].shape == (1, SIZES[0])
    assert held.accuracy is not None and not held.accuracy.holds


def test_a_computed_shape_gets_the_cropped_sizes() -> None:
    site = cutting(RESHAPED, RESHAPED)
    values = {"x": np.ones((2, 1500, 384), np.float32), "s": np.array([2, 1500, 384])}
    both, largest = crops(site, values)
    assert both["x"].shape == (2, SIZES[0], SIZES[1]) and both["s"].tolist() == [2, SIZES[0], SIZES[1]]
    assert largest["x"].shape == (2, SIZES[0], 384) and largest["s"].tolist() == [2, SIZES[0], 384]
    assert Holding(site, "CPUExecutionProvider").on(largest).shows


@pytest.mark.parametrize(("before", "after"), [(FIXED, FIXED), (FIXED, RESHAPED), (RESHAPED, FIXED)])
def test_a_size_in_a_constant_is_not_cropped(before: str, after: str) -> None:
    values = {"x": np.ones((2, 1500, 384), np.float32), "s": np.array([2, 1500, 384])}
    assert [part["x"].shape for part in crops(cutting(before, after), values)] == [(2, 1500, SIZES[0])]
    assert not list(crops(cutting(MASKED, MASKED), {"x": np.ones((2, 40), np.float32), "m": np.ones((1, 40), np.float32)}))


def test_a_new_size_is_no_other_size() -> None:
    values = {"x": np.ones((SIZES[0], 1500), np.float32), "m": np.ones((1, 1500), np.float32)}
    assert [part["x"].shape for part in crops(cutting(MASKED, UNMASKED), values)] == [(SIZES[0], SIZES[1])]


def test_many_whole_numbers_are_no_shape() -> None:
    """They are cropped as other values are, and stay what they are."""
    values = {"x": np.ones((2, 1500), np.float32), "m": np.full(1500, 1500)}
    (part,) = crops(cutting(MASKED, MASKED), values)
    assert part["m"].tolist() == [1500] * SIZES[0]
