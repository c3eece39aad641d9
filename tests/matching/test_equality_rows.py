"""The table of equalities: both sides of every row compute the same, and both match the same pattern."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from onnx_subgraph.evaluator.truth import evaluate
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.matching.equalities import Equality, equalities
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.proving.instance import build
from onnx_subgraph.proving.spelling import Spelling
from tests.matching.graphs import matches, model, pattern

ROWS = {f"{row.called}={row.formula}": row for row in equalities() if row.left}
SYNONYMS = {f"{row.formula}={row.called}": row for row in equalities() if not row.left}
DOCS = Path(__file__).resolve().parents[2] / "docs"
NUMBERS = {"b": -0.5, "c": 1.5}
rows = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
synonyms = pytest.mark.parametrize("row", SYNONYMS.values(), ids=SYNONYMS)


def inputs(row: Equality) -> list[str]:
    return [name for name in "abc" if name in row.called.rpartition("(")[2] or f"{name}," in row.called]


def computed(row: Equality, side: str, values: dict[str, np.ndarray]) -> np.ndarray:
    """The result of one side for float64 values."""
    declared = ", ".join(f"double{list(row.sizes)} {name}" for name in values)
    constants = row.constants.replace("float ", "double ")
    weights = f" <{constants}>" if constants else ""
    text = f'<ir_version: 8, opset_import: ["" : 18]>\ng ({declared}) => (double{list(row.sizes)} z){weights} {{ {side} }}'
    return np.asarray(ReferenceEvaluator(onnx.parser.parse_model(text)).run(None, values)[0])


@rows
@given(data=st.data())
def test_both_sides_compute_the_same(row: Equality, data: st.DataObject) -> None:
    """In float64, on random values for which all operators are defined."""
    elements = st.lists(st.floats(0.25, 4), min_size=9, max_size=9)
    values = {name: np.array(data.draw(elements)).reshape(row.sizes) for name in inputs(row)}
    np.testing.assert_allclose(computed(row, row.left, values), computed(row, row.right, values), rtol=1e-12)


@rows
@pytest.mark.parametrize("side", ["left", "right"])
def test_both_sides_match_the_pattern(row: Equality, side: str) -> None:
    example = ", ".join(f'{name}: "float32{list(row.sizes)}"' for name in inputs(row))
    probe = pattern(f"y = Erf({row.formula})", f"y = Sum({', '.join(inputs(row))})", example=f"{{{example}}}")
    declared = ", ".join(f"float{list(row.sizes)} {name}" for name in inputs(row))
    graph = model(f"{getattr(row, side)} y = Erf(z)", inputs=declared, constants=row.constants)
    assert matches(probe, graph) == 1


def built(row: Equality, formula: str, *, dtype: str = "float32") -> onnx.ModelProto:
    """The model of a pattern with this formula, one side of a row."""
    return build(probe(formula), Spelling({}, dtype=dtype, opset=24)).proto


def probe(formula: str) -> Pattern:
    """A pattern with this formula, one side of a row."""
    formula = formula.replace("**rest", "axes=[-1]")
    numbers = {name: number for name, number in NUMBERS.items() if re.search(rf"\b{name}\b", formula)}
    example = ", ".join(['a: "float32[3, 4]"', *(f"{name}: {number}" for name, number in numbers.items())])
    return pattern(f"y = {formula}", f"y = Sum({', '.join(['a', *numbers])})", example=f"{{{example}}}")


@synonyms
@given(data=st.data())
def test_both_sides_of_a_synonym_compute_the_same(row: Equality, data: st.DataObject) -> None:
    """In float64, on random values, some of them negative."""
    elements = st.lists(st.floats(-4, 4), min_size=12, max_size=12)
    feeds = {"a": np.array(data.draw(elements)).reshape(3, 4)}
    left, right = (evaluate(built(row, side, dtype="float64"), feeds) for side in (row.formula, row.called))
    for one, other in zip(left.values(), right.values(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@synonyms
def test_both_sides_of_a_synonym_match_the_pattern(row: Equality) -> None:
    for side in (row.formula, row.called):
        graph = ir.from_proto(built(row, side))
        infer_shapes(graph)
        assert matches(probe(row.formula), graph) == 1, side


@pytest.mark.parametrize(("low", "high", "count"), [(-1, 6, 1), (6, 6, 1), (6, -1, 0)])
def test_the_condition_of_a_synonym_is_checked(low: float, high: float, count: int) -> None:
    """Max(Min(x, high), low) is not Clip if low exceeds high."""
    graph = model("m = Min(x, high) y = Max(m, low)", constants=f"float low = {{{low}}}, float high = {{{high}}}")
    assert matches(probe("Clip(a, min=b, max=c)"), graph) == count


def test_a_bound_for_each_channel_is_not_a_scalar() -> None:
    weights = "float[8] low = {0, 0, 0, 0, 0, 0, 0, 1}, float high = {6}"
    assert matches(probe("Clip(a, min=b, max=c)"), model("m = Max(x, low) y = Min(m, high)", constants=weights)) == 0


def test_the_page_of_the_language_is_current() -> None:
    spec = importlib.util.spec_from_file_location("equalities_page", DOCS / "equalities.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text(encoding="utf-8") == module.page(), "`python docs/equalities.py` writes it again"
