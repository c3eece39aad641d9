"""Types and shapes of unknown operators are found by running the model; a size is kept only if runs support it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from onnx_subgraph.files.models import load
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.verification.found_shapes import find_shapes, of_unknown_operators
from onnx_subgraph.verification.libraries import with_libraries
from onnx_subgraph.verification.reference import Reference
from onnx_subgraph.verification.sessions import Failure
from onnx_subgraph.verification.trial import CPU
from tests.own_operators.conftest import HOLDS_ONE, save


def found(text: str, library: Path, tmp_path: Path, **options: object) -> ir.Value:
    """The result of the unknown operator after its shape was found."""
    path = save(text, tmp_path / "model.onnx")
    model = load(path)
    infer_shapes(model)
    (value,) = of_unknown_operators(model)
    with with_libraries([library]):
        find_shapes(model, path, CPU, Reference(path, **options).cases(CPU))  # type: ignore[arg-type]
    return value


def is_open(dim: int | ir.SymbolicDim) -> bool:
    """Whether a dimension is unknown, whatever name inference gives it."""
    return isinstance(dim, ir.SymbolicDim) and (dim.value is None or dim.value.startswith("_d"))


def test_a_dimension_that_follows_an_input_gets_its_name(library: Path, tmp_path: Path) -> None:
    value = found(HOLDS_ONE, library, tmp_path)
    assert (value.dtype, str(value.shape)) == (ir.DataType.FLOAT, "[batch,4,4,4]")


def test_a_dimension_that_equals_no_input_dimension_stays_unknown(library: Path, tmp_path: Path) -> None:
    """Half of the height, rounded up, is not a dimension of an input."""
    value = found(HOLDS_ONE.replace("float[batch,1,8,8]", "float[1,1,height,8]"), library, tmp_path)
    assert value.shape is not None
    assert (value.shape[0], value.shape[1], value.shape[3]) == (1, 4, 4)
    assert is_open(value.shape[2])


@pytest.mark.parametrize("batch", ["batch", "2"])
def test_one_run_shows_the_rank_but_no_size(batch: str, library: Path, tmp_path: Path) -> None:
    """Also with fixed input sizes: the output's size may depend on the input's values."""
    feeds = tmp_path / "feeds.npz"
    np.savez(feeds, x=np.ones((2, 1, 8, 8), np.float32))
    value = found(HOLDS_ONE.replace("[batch,", f"[{batch},"), library, tmp_path, inputs=feeds)
    assert value.dtype == ir.DataType.FLOAT and value.shape is not None
    assert len(value.shape) == 4 and all(map(is_open, value.shape))


def test_a_model_that_does_not_run_stays_as_it_is(tmp_path: Path) -> None:
    model = load(save(HOLDS_ONE, tmp_path / "model.onnx"))
    infer_shapes(model)
    (value,) = of_unknown_operators(model)
    find_shapes(model, tmp_path / "model.onnx", CPU, Failure("it does not run"))
    assert value.shape is None


@pytest.mark.parametrize("domain", ["com.microsoft", "onnx_subgraph", ""])
def test_known_operators_are_not_run(domain: str) -> None:
    model = ir.from_onnx_text(
        f'<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1, "onnx_subgraph" : 1]> '
        f"g (float[2] x) => (y) {{ y = {domain + '.' if domain else ''}Unheard (x) }}"
    )
    assert of_unknown_operators(model) == []
