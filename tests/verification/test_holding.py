"""The values on which a fusion is checked: consistent values, tiny ones, and errors below the rounding of one element."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_subgraph import FuseResult, Options, fuse, load_patterns
from onnx_subgraph.report.blame import sentence
from onnx_subgraph.verification.site import SiteCheck, check_sites
from onnx_subgraph.verification.systematic import gain, kernel_gain, parts
from tests.verification.models import write
from tests.verification.planted import GELU, patterns

SCALED = """
id: scaled-linear
summary: A linear layer with a factor, folded into the weight
match: |
  y = MatMul(x, w) * s
where:
  - w.is_constant and s.is_constant
  - x.dtype in [float16, float32]
replace:
  standard: y = MatMul(x, w * s {more})
example: {{x: "float32[2, 8]", w: "float32[8, 4] constant", s: "float32[4] constant"}}
"""
WIDE = 64


def scaled(folder: Path, weights: np.ndarray, scale: np.ndarray, more: str = "") -> FuseResult:
    """A fused float16 model with a factor after a linear layer. more: additional changes that the pattern makes to the weight."""
    text = f"""
    <ir_version: 8, opset_import: ["" : 17]> g (float16[n, {len(weights)}] x) => (float16[n, {weights.shape[1]}] y) {{
      m = MatMul (x, w) y = Mul (m, s)
    }}
    """
    model = write(folder / "m.onnx", text, w=weights.astype(np.float16), s=scale.astype(np.float16))
    pack = patterns(folder, SCALED.format(more=more))
    return fuse(model, None, load_patterns([pack]), Options(only=("scaled-linear",), dry_run=True))


def random_weights(rows: int, columns: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal((rows, columns)) / np.sqrt(rows)


@pytest.mark.parametrize("error", [1e-3, -1e-3, 6e-4])
def test_a_common_error_is_found_below_the_rounding_of_folded_weights_in_float16(tmp_path: Path, error: float) -> None:
    scale = 1 + np.random.default_rng(1).random(WIDE)
    result = scaled(tmp_path, random_weights(WIDE, WIDE), scale, f"* {1 + error}")
    assert [(one.rewrite.pattern, one.found) for one in result.undone] == [("scaled-linear", "site")]


@pytest.mark.parametrize(
    ("weights", "scale"),
    [
        pytest.param(random_weights(WIDE, WIDE), 1 + np.random.default_rng(1).random(WIDE), id="many numbers"),
        pytest.param(np.ones((WIDE, WIDE)) * 1.1, np.ones(WIDE) * 1.3, id="all roundings are one"),
        pytest.param(np.ones((WIDE, WIDE)) * 1.0996, np.ones(WIDE) * 1.1406, id="and a large one"),
        pytest.param(random_weights(8, 1), np.asarray([1.3]), id="few numbers"),
        pytest.param(np.diag([1e3, *np.full(WIDE - 1, 1e-2)]), np.full(WIDE, 1.3), id="one number matters"),
        pytest.param(np.random.default_rng(5).choice((0.7, -0.3), (WIDE, WIDE)), np.full(WIDE, 1.3), id="a table of two numbers"),
    ],
)
def test_the_rounding_of_folding_is_no_error(tmp_path: Path, weights: np.ndarray, scale: np.ndarray) -> None:
    """Roundings in the same direction give the result a common factor too."""
    result = scaled(tmp_path, weights, scale)
    assert len(result.rewrites) == 1, [sentence(one) for one in result.undone]


@given(st.integers(1, 300), st.integers(0, 2**32 - 1), st.sampled_from((0.0, 1.0, 30.0)))
def test_a_result_that_is_rounded_once_has_no_common_error(count: int, seed: int, offset: float) -> None:
    exact = np.random.default_rng(seed).standard_normal(count) + offset
    fused, unfused = exact.astype(np.float16), (exact.astype(np.float16) * np.float16(1.0)).astype(np.float64)
    for part in parts(exact, fused.astype(np.float64)):
        assert abs(gain(fused.astype(np.float64), exact, part)) <= kernel_gain(unfused, exact, part, "float16")


@given(st.integers(16, 300), st.integers(0, 2**32 - 1), st.sampled_from((6e-3, -6e-3, 2e-2)))
def test_a_kernel_with_a_large_common_error_is_wrong(count: int, seed: int, error: float) -> None:
    """Six units in the last place of float16, common to all elements. With fewer than thirty elements, four are not enough."""
    exact = np.random.default_rng(seed).standard_normal(count)
    rounded, off = (values.astype(np.float16).astype(np.float64) for values in (exact, exact * (1 + error)))
    everything = np.ones(count, bool)
    assert abs(gain(off, exact, everything)) > kernel_gain(rounded, exact, everything, "float16")


def test_the_gain_of_a_factor_is_its_excess_over_one() -> None:
    exact = np.linspace(-3, 3, 24)
    (part,) = parts(exact)
    assert gain(exact * 1.01, exact, part) == pytest.approx(0.01)
    assert gain(np.zeros(24), np.zeros(24), part) == 0.0


@pytest.mark.parametrize(
    ("body", "pattern"),
    [
        (
            """
            a = Constant <value = float16[4] {46123, 15524, 46801, 48097}> ()
            b = Constant <value = float16[4] {48218, 48378, 14460, 14723}> ()
            s = Mul (a, b)  y = Mul (s, x)
            """,
            "scale-scale",
        ),
        (
            """
            w = Constant <value = float16[4, 3] {47766, 16173, 47786, 45932, 12465, 13235, 14928, 45637, 14786, 48537, 12041,
              44307}> ()
            b = Constant <value = float16[3] {48218, 48378, 14460}> ()
            k = Constant <value = float16[3] {43742, 15200, 14405}> ()
            s = Constant <value = float16[3] {46807, 11606, 16348}> ()
            m = Constant <value = float16[3] {11472, 14184, 48713}> ()
            v = Constant <value = float16[3] {15185, 16163, 14879}> ()
            g = Gemm (x, w, b)  y = BatchNormalization (g, k, s, m, v)
            """,
            "batch-normalization-after",
        ),
    ],
)
def test_the_rounding_of_folding_in_a_function_is_no_error(tmp_path: Path, body: str, pattern: str) -> None:
    """A function has no initializers: folded constants are in Constant nodes."""
    text = f"""
    <ir_version: 8, opset_import: ["" : 17, "local" : 1]>
    g (float16[2, 4] x) => (float16[a, b] y) {{ y = local.f (x) }}
    <domain: "local", opset_import: ["" : 17]> f (x) => (y) {{ {body} }}
    """
    result = fuse(write(tmp_path / "m.onnx", text), None, load_patterns(), Options(only=(pattern,), dry_run=True))
    assert len(result.rewrites) == 1, [sentence(one) for one in result.undone]


def test_two_forms_of_one_value_are_not_drawn_independently(tmp_path: Path) -> None:
    """The replaced nodes read `a` and `t`. The replacement relies on `t` being equal to `a`."""
    text = """
    <ir_version: 10, opset_import: ["" : 21]> g (float[4, 4] a, float[4] c, bool yes) => (float[4, 4] y) {
      y = If (yes) <else_branch = e () => (float[4, 4] z) { z = Neg (a) },
                    then_branch = t () => (float[4, 4] s) {
                      t = Transpose <perm = [0, 1]> (a)
                      u = Transpose <perm = [1, 0]> (a)
                      s = Gemm (t, u, c) }>
    }
    """
    result = fuse(write(tmp_path / "m.onnx", text), None, load_patterns(), Options(only=("gemm-transpose",), dry_run=True))
    assert [rewrite.pattern for rewrite in result.rewrites] == ["gemm-transpose"], [sentence(one) for one in result.undone]


def test_a_padding_inside_the_fused_convolution_is_checked_with_it(tmp_path: Path) -> None:
    """The values are so large that smaller ones are drawn. The fused operator reads the value before the padding."""
    text = """
    <ir_version: 8, opset_import: ["" : 13]> g (float[n, 4, 320, 320] x) => (float[n, 4, 320, 320] y)
    <int64[8] none = {0, 0, 0, 0, 0, 0, 0, 0}> { r = Abs (x) p = Pad (r, none) c = Conv (p, w) y = Relu (c) }
    """
    weights = np.random.default_rng(0).standard_normal((4, 4, 1, 1)).astype(np.float32)
    result = fuse(write(tmp_path / "m.onnx", text, w=weights), None, load_patterns(), Options(dry_run=True))
    coverage = result.verdict.coverage
    assert result.rewrites and coverage is not None and (coverage.outputs, coverage.float64) == (0, len(result.rewrites))


TINY = """
<ir_version: 8, opset_import: ["" : 17]> g (float[n, 8] x) => (float[n, 8] y)
<float tiny = {1e-8}, float root = {1.4142135}, float one = {1.0}, float half = {0.5}> {
  s = Mul (x, tiny)  r = Div (s, root)  f = Erf (r)  a = Add (f, one)  h = Mul (s, half)  y = Mul (h, a)
}
"""


ONE_NUMBER = TINY.replace("s = Mul (x, tiny)", "e = IsNaN (x)  s = Where (e, x, number)").replace("float tiny", "float number")


@pytest.mark.parametrize("text", [TINY, ONE_NUMBER.replace("1e-8", "0.06")], ids=["tiny", "one number"])
def test_other_values_are_drawn_where_the_model_has_only_tiny_numbers_or_one_number(tmp_path: Path, text: str) -> None:
    """At tiny numbers GELU and its approximation are both x/2. At the single number, the two happen to be equal."""
    model = write(tmp_path / "m.onnx", text)
    result = fuse(model, None, load_patterns([patterns(tmp_path, GELU)]), Options(only=("sloppy-gelu",), dry_run=True))
    assert [one.rewrite.pattern for one in result.undone] == ["sloppy-gelu"]
    right = fuse(model, None, load_patterns(), Options(only=("gelu",), dry_run=True))
    assert len(right.rewrites) == 1 and right.verdict.coverage is not None and right.verdict.coverage.drawn == 1


HIDING = """
<ir_version: 8, opset_import: ["" : 20]> g (float[n, 8] x) => (float[n, 8] y, float[n, 8] z)
<float root = {{1.4142135}}, float one = {{1.0}}, float half = {{0.5}}> {{
  r = Div (x, root)  f = Erf (r)  a = Add (f, one)  h = Mul (x, half)  g = Mul (h, a)  y = {end} (g)  z = Neg (x)
}}
"""


@pytest.mark.parametrize(("end", "kept"), [("Neg", True), ("Sign", False)])
def test_a_fusion_that_only_outputs_can_check_stays_only_if_they_would_show_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, kept: bool
) -> None:
    """Here the fusion can't be checked alone, so an error is planted at it. Sign hides the error from the outputs."""

    def unknown(*arguments: object, **options: object) -> tuple[SiteCheck, ...]:
        checks = check_sites(*arguments, **options)  # type: ignore[arg-type]
        return tuple(replace(check, accuracy=None, unknown="nobody knows") for check in checks)

    monkeypatch.setattr("onnx_subgraph.settling.check_sites", unknown)
    model = write(tmp_path / "m.onnx", HIDING.format(end=end))
    result = fuse(model, None, load_patterns(), Options(only=("gelu",), dry_run=True))
    assert bool(result.rewrites) is kept
    said = "nobody knows, and the outputs do not show an error that is planted there"
    assert kept or [(one.found, one.problem) for one in result.undone] == [("nowhere", said)]


def test_other_sizes_are_drawn_if_only_the_fused_operator_refuses_some(tmp_path: Path) -> None:
    """The batches may have any size, so they might broadcast, which Attention does not allow."""
    text = """
    <ir_version: 10, opset_import: ["" : 23]>
    g (float[?, 4, 6, 4] q, float[?, 2, 6, 4] k, float[?, 1, 6, 6] mask, float[?, 2, 6, 4] v, bool yes) => (float[a, b, c, d] y)
    <float half = {0.5}, int64[5] split = {-1, 1, 2, 6, 4}, int64[5] twice = {1, 2, 1, 1, 1}, int64[4] heads = {-1, 4, 6, 4}> {
      y = If (yes) <else_branch = e () => (float[?, 4, 6, 4] z) { z = Neg (q) },
                    then_branch = t () => (float[?, 4, 6, 4] w) {
                      k5 = Reshape (k, split)  kk = Expand (k5, twice)  ks = Reshape (kk, heads)
                      v5 = Reshape (v, split)  vv = Expand (v5, twice)  vs = Reshape (vv, heads)
                      turned = Transpose <perm = [0, 1, 3, 2]> (ks)
                      s = MatMul (q, turned)  m = Mul (s, half)  added = Add (m, mask)
                      p = Softmax <axis = -1> (added)  w = MatMul (p, vs) }>
    }
    """
    model = write(tmp_path / "m.onnx", text)
    only = ("multi-head-attention",)
    shapes = {"q": (2, 4, 6, 4), "k": (2, 2, 6, 4), "v": (2, 2, 6, 4), "mask": (2, 1, 6, 6)}  # the model runs on equal ones
    result = fuse(
        model, None, load_patterns(), Options(only=only, dry_run=True, target="standard", prefer="fusion", shapes=shapes)
    )
    assert [rewrite.op for rewrite in result.rewrites] == ["Attention"], [sentence(one) for one in result.undone]
