"""The error that proofs allow, and which errors they find."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

from onnx_subgraph.proving import comparison
from onnx_subgraph.proving.comparison import Exact, NotRunError, difference, distance, planted

EXACT = np.linspace(-3, 3, 24).reshape(4, 6)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rounding_is_allowed_and_a_thousand_times_it_is_not(dtype: type) -> None:
    fused = EXACT.astype(dtype)
    assert distance(fused, fused, EXACT) is None
    off = fused + np.asarray(3000 * np.finfo(dtype).eps, dtype)
    assert distance(off, fused, EXACT) is not None


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64, np.bool_])
def test_a_planted_error_is_found(dtype: type) -> None:
    exact = (EXACT > 0) if dtype is np.bool_ else EXACT.astype(np.int64) if dtype is np.int64 else EXACT
    fused = exact.astype(dtype)
    assert distance(fused, fused, exact) is None and distance(planted(fused), fused, exact) is not None
    assert (fused == exact.astype(dtype)).all(), "the output itself stays"


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64])
def test_a_planted_error_is_found_in_saturated_integers(dtype: type) -> None:
    """An increment wraps: 255 + 1 + 255 is 255 again in uint8, and numpy warns."""
    for extreme in (np.iinfo(dtype).max, np.iinfo(dtype).min):
        fused = np.full(3, extreme, dtype)
        assert distance(planted(fused), fused, fused) is not None


def test_integers_of_the_unfused_model_are_right_and_others_are_not() -> None:
    """Of values that are equal in float32, TopK takes the first one; the truth may be the second one."""
    truth, unfused = np.asarray([2, 1]), np.asarray([1, 2])
    assert distance(unfused.copy(), unfused, truth) is None and distance(truth, unfused, truth) is None
    assert distance(planted(unfused), unfused, truth) is not None
    assert distance(np.asarray([1, 1]), unfused, truth) is not None


def test_a_float64_may_lose_what_a_float32_attribute_loses_and_nothing_more() -> None:
    off = EXACT * (1 + 2.0**-25)
    assert distance(off, EXACT, EXACT) is not None
    assert distance(off, EXACT, EXACT, stored=True) is None
    assert distance(EXACT * (1 + 2.0**-20), EXACT, EXACT, stored=True) is not None


def test_another_shape_another_type_and_a_nan_are_found() -> None:
    fused = EXACT.astype(np.float32)
    assert "shape" in str(distance(fused[None], fused, EXACT))
    assert "float16" in str(distance(EXACT.astype(np.float16), fused, EXACT))
    assert distance(np.full_like(fused, np.nan), fused, EXACT) is not None


RELU = """<ir_version: 8, opset_import: ["": 18]> g (float[2] x) => (float[2] y) { y = Relu(x) }"""


def test_a_comparison_that_finds_nothing_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.asarray([1.0, -1.0], np.float32)
    model = onnx.parser.parse_model(RELU)
    exact = Exact(model, {"x": x}, {"y": np.maximum(x, 0).astype(np.float64)})
    assert difference(exact, model) is None
    monkeypatch.setattr(comparison, "distance", lambda *_, **__: None)
    assert "planted" in str(difference(exact, model))


def test_models_that_never_ran_prove_nothing() -> None:
    model = onnx.parser.parse_model(RELU.replace("Relu", "Nonesuch"))
    exact = Exact(model, {"x": np.ones(2, np.float32)}, {"y": np.ones(2)})
    with pytest.raises(NotRunError):
        difference(exact, model)
    runs = Exact(onnx.parser.parse_model(RELU), exact.feeds, exact.truth)
    assert "onnxruntime says" in str(difference(runs, model)), "a fused model that does not run is no proof either"


def test_what_the_last_digit_of_an_input_moves_excuses_an_error_of_that_size_and_nothing_else() -> None:
    x = np.asarray([1.0, -1.0], np.float32)
    model, less, more, half = (
        onnx.parser.parse_model(RELU.replace("float[2] y", f"{kind}[2] y").replace("y = Relu(x)", nodes))
        for kind, nodes in (
            ("float", "y = Relu(x)"),
            ("float", "less = Constant <value_float = 1.01> ()  r = Relu(x)  y = Mul(r, less)"),
            ("float", "more = Constant <value_float = 1.1> ()  r = Relu(x)  y = Mul(r, more)"),
            ("float16", "r = Relu(x)  y = Cast <to = 10> (r)"),
        )
    )
    truth = {"y": np.asarray([1.0, 0.0])}
    alone, beside = (Exact(model, {"x": x}, truth, near) for near in (None, lambda: {"y": np.asarray([1.01, 0.0])}))
    assert difference(alone, less) is not None and difference(beside, less) is None
    assert difference(beside, more) is not None
    assert "float16" in str(difference(beside, half))
