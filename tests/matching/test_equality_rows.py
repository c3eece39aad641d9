"""Every row of the table of equalities holds: both sides compute the same, and both match the same pattern."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from onnx_subgraph.matching.equalities import Equality, equalities
from tests.matching.graphs import matches, model, pattern

ROWS = {row.called: row for row in equalities()}
DOCS = Path(__file__).resolve().parents[2] / "docs"
rows = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)


def inputs(row: Equality) -> list[str]:
    return [name for name in "abc" if name in row.called.rpartition("(")[2] or f"{name}," in row.called]


def computed(row: Equality, side: str, values: dict[str, np.ndarray]) -> np.ndarray:
    """What one side gives for values in float64."""
    declared = ", ".join(f"double[3, 3] {name}" for name in values)
    constants = row.constants.replace("float ", "double ")
    weights = f" <{constants}>" if constants else ""
    text = f'<ir_version: 8, opset_import: ["" : 18]>\ng ({declared}) => (double[3, 3] z){weights} {{ {side} }}'
    return np.asarray(ReferenceEvaluator(onnx.parser.parse_model(text)).run(None, values)[0])


@rows
@given(data=st.data())
def test_both_sides_compute_the_same(row: Equality, data: st.DataObject) -> None:
    """In float64, on drawn values for which all operators are defined."""
    elements = st.lists(st.floats(0.25, 4), min_size=9, max_size=9)
    values = {name: np.array(data.draw(elements)).reshape(3, 3) for name in inputs(row)}
    np.testing.assert_allclose(computed(row, row.left, values), computed(row, row.right, values), rtol=1e-12)


@rows
@pytest.mark.parametrize("side", ["left", "right"])
def test_both_sides_match_the_pattern(row: Equality, side: str) -> None:
    example = ", ".join(f'{name}: "float32[3, 3]"' for name in inputs(row))
    probe = pattern(f"y = Erf({row.formula})", f"y = Sum({', '.join(inputs(row))})", example=f"{{{example}}}")
    declared = ", ".join(f"float[3, 3] {name}" for name in inputs(row))
    graph = model(f"{getattr(row, side)} y = Erf(z)", inputs=declared, constants=row.constants)
    assert matches(probe, graph) == 1


def test_the_page_of_the_language_is_current() -> None:
    spec = importlib.util.spec_from_file_location("equalities_page", DOCS / "equalities.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text(encoding="utf-8") == module.page(), "`python docs/equalities.py` writes it again"
