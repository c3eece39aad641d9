"""Which part may be coarse: the stated error is the measured one, and a stricter accuracy allows less."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnx_subgraph import EngineSession, Options, load_patterns
from onnx_subgraph.partitioning.options import PartitionOptions
from onnx_subgraph.partitioning.partition import partition
from onnx_subgraph.partitioning.worth import MEASURED
from onnx_subgraph.tuning import tune
from onnx_subgraph.tuning.engines import fuse_with_engines
from onnx_subgraph.tuning.parts import MARGIN, Part, Parts
from onnx_subgraph.verification.reference import Reference
from onnx_subgraph.verification.rounding import Truth
from tests.tuning.rough import PRODUCTS, STEP, chain, prefer_coarse, register

LIBRARY = load_patterns()


@pytest.fixture(autouse=True)
def rough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the backend `rough`."""
    register(monkeypatch)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Products in sequence."""
    return chain(tmp_path_factory.mktemp("network") / "network.onnx")


def within(network: Path, accuracy: float) -> Part | None:
    return Parts(Truth(Reference(network)), network, "rough:coarse", "rough").within(accuracy, lambda stage: None)


def test_a_stricter_accuracy_allows_less_and_none_in_the_end(network: Path) -> None:
    parts = [within(network, accuracy) for accuracy in (1e-1, 8e-3, 3e-3, 1e-4)]
    sizes = [0 if part is None else part.nodes for part in parts]
    assert sizes[0] == PRODUCTS and sizes[-1] == 0 and 0 < sizes[2] < sizes[1] < PRODUCTS
    assert all(a >= b for a, b in pairwise(sizes))


def test_the_error_is_that_of_the_products_in_the_part(network: Path) -> None:
    part = within(network, 6e-3)
    assert part is not None and part.of == PRODUCTS and part.error <= MARGIN * 6e-3
    assert part.error == pytest.approx(STEP * part.nodes, rel=1e-2)
    numbers = [int(name.removeprefix("x")) for name in part.results]
    assert numbers == list(range(numbers[0], numbers[0] + part.nodes)), "the part is not consecutive"


@pytest.mark.parametrize("coarsest", [0, 2, PRODUCTS - 2])
def test_the_part_is_the_longest_without_the_product_that_is_too_coarse(
    coarsest: int, network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Parts, "_error", lambda parts, start, end: 1.0 if start <= coarsest < end else 0.0)
    part = within(network, 1e-3)
    longest = max(range(coarsest), range(coarsest + 1, PRODUCTS), key=len)
    assert part is not None and part.nodes == len(part.results) == len(longest)


def test_engines_of_both_forms_make_up_the_model(network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer_coarse(monkeypatch)
    options = Options(accuracy=6e-3)
    found = tune(network, LIBRARY, options, 0.0, backends=["rough"])
    assert found.backend == "rough:coarse;rough" and found.results
    result = fuse_with_engines(network, tmp_path / "out.onnx", LIBRARY, options, found)
    assert result.output is not None and result.verdict.verdict == "equivalent" and result.engines is not None
    assert result.engines.nodes == PRODUCTS and result.engines.count > 1
    assert any("rough" in run.provider for run in result.verdict.runs), "the verdict is that of the model without engines"
    x = np.ones((2, 32), np.float32)
    (exact,), (mine,) = (EngineSession(path).run(None, {"x0": x}) for path in (network, result.output))
    assert 0 < np.abs(mine - exact).max() / np.abs(exact).max() <= 6e-3


def test_the_whole_model_is_coarse_if_the_accuracy_allows_it(network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer_coarse(monkeypatch)
    found = tune(network, LIBRARY, Options(accuracy=2e-2), 0.0, backends=["rough"])
    assert (found.backend, found.results) == ("rough:coarse", None)


@pytest.mark.parametrize(("accuracy", "engines"), [(1e-3, 1), (5e-4, 0)])
def test_a_result_inside_may_be_four_times_as_far_off_as_an_output(accuracy: float, engines: int, tmp_path: Path) -> None:
    """The engine is 2e-3 too large, and the quotient hides it."""
    path = tmp_path / "m.onnx"
    text = """<ir_version: 10, opset_import: ["" : 20]> g (float[rows, 32] x0) => (float[rows, 32] y) {
      x1 = MatMul (x0, w0) x2 = MatMul (x1, w1) size = ReduceL2 (x2) y = Div (x2, size)
    }"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(onnx.load(chain(tmp_path / "chain.onnx")).graph.initializer[:2])
    onnx.save(model, path)
    options = PartitionOptions("rough:coarse", MEASURED, accuracy=accuracy, results={"rough:coarse": ("x1", "x2")})
    assert len(partition(path, None, options).engines) == engines
