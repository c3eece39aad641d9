"""Which products may be rounded: the stated error is the measured one, and a stricter accuracy never allows more products."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from onnx_subgraph import Options, fuse, kernels, load_patterns
from onnx_subgraph.files.models import load
from onnx_subgraph.kernels.compilers import compilers
from onnx_subgraph.rewriting.numerics import ATTRIBUTE, products
from onnx_subgraph.tuning.precision import MARGIN, Precision, Rounded
from onnx_subgraph.verification.reference import Reference
from onnx_subgraph.verification.rounding import Truth

pytestmark = pytest.mark.skipif(next(compilers(), None) is None, reason="there is no C compiler here")
LIBRARY = load_patterns()
PRODUCTS = 4


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four products in sequence, the last one of large numbers."""
    lines = [f"m{i} = MatMul (x{i}, w{i}) a{i} = Add (m{i}, b{i}) x{i + 1} = Relu (a{i})" for i in range(PRODUCTS)]
    text = f'<ir_version: 10, opset_import: ["" : 20]> g (float[rows, 32] x0) => (float[rows, 32] x4) {{ {" ".join(lines)} }}'
    model, random = onnx.parser.parse_model(text), np.random.default_rng(0)
    for i in range(PRODUCTS):
        for name, shape in ((f"w{i}", (32, 32)), (f"b{i}", (32,))):
            values = (random.standard_normal(shape) / 5).astype(np.float32)
            model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    path = tmp_path_factory.mktemp("network") / "network.onnx"
    onnx.save(model, path)
    return path


@pytest.fixture(scope="module")
def precision(network: Path) -> Precision:
    """The precision of that network, fused for our kernels."""
    fused = network.with_name("fused.onnx")
    fuse(network, fused, LIBRARY, Options(target="native"))
    return Precision(Truth(Reference(network)), load(fused), network.parent, kernels.describe())


def within(precision: Precision, accuracy: float) -> list[Rounded]:
    return precision.within(accuracy, lambda stage: None)


def test_a_stricter_accuracy_never_allows_more_products(precision: Precision) -> None:
    allowed, (whole,) = [], within(precision, 1.0)
    for accuracy in (whole.error * share for share in (4.0, 2.0, 1.8, 1.5, 1.0, 1e-6)):
        found = within(precision, accuracy)
        assert all(one.error <= MARGIN * accuracy and len(one.results) <= one.of == PRODUCTS for one in found)
        allowed.append(sum(len(one.results) for one in found if one.numerics == "bf16"))
    assert allowed == sorted(allowed, reverse=True)
    assert (allowed[0], allowed[-1]) == (PRODUCTS, 0) and set(allowed) - {0, PRODUCTS}, "some accuracy allows some of them"


@pytest.mark.parametrize(("most", "first"), [(128, "large"), (1, "last")])
def test_the_products_come_first_whose_errors_are_small_for_their_weights(
    most: int, first: str, precision: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many products none is tried alone, and the last come first."""
    errors = {"large": 0.3, "small": 0.2, "last": 0.3}
    monkeypatch.setattr("onnx_subgraph.tuning.precision.MOST_PRODUCTS", most)
    monkeypatch.setattr(precision, "_weights", {"large": 1000, "small": 10, "last": 10})
    monkeypatch.setattr(precision, "_error", lambda numerics, results: sum(errors[name] for name in results))
    assert {one.results for one in within(precision, 0.35 / MARGIN)} == {(first,)}


def test_the_coarsest_numerics_that_all_products_allow_is_used(precision: Precision) -> None:
    assert [one.numerics for one in within(precision, 1.0)] == ["bf16"]
    assert [one.numerics for one in within(precision, 1e-4)] == ["bf16x3"]


def test_only_the_named_products_are_rounded_and_the_error_is_as_stated(
    network: Path, precision: Precision, tmp_path: Path
) -> None:
    accuracy = 1.5 * within(precision, 1.0)[0].error
    some = next(one for one in within(precision, accuracy) if one.numerics == "bf16")
    assert 0 < len(some.results) < PRODUCTS
    options = Options(target="native", numerics="bf16", rounded=some.results, accuracy=accuracy)
    result = fuse(network, tmp_path / "out.onnx", LIBRARY, options)
    (rounding,) = result.verdict.roundings
    assert result.output is not None and rounding.kernels == pytest.approx(some.error)
    rounded = {node.outputs[0].name for node in products(load(tmp_path / "out.onnx")) if ATTRIBUTE in node.attributes}
    assert rounded == set(some.results)


def test_a_model_beyond_the_accuracy_is_not_written(network: Path, tmp_path: Path) -> None:
    result = fuse(network, tmp_path / "out.onnx", LIBRARY, Options(target="native", numerics="bf16", accuracy=1e-5))
    assert (result.verdict.verdict, result.output) == ("different", None) and not result.undone
    assert result.verdict.worst is not None and "--accuracy allows 1.0e-05" in result.verdict.worst.problem
