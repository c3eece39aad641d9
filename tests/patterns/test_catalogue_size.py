"""No pattern has an alternative that the language already makes equal to another one."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from onnx_subgraph.language.library import load_patterns
from tests.matching.graphs import pattern


@pytest.fixture(scope="module")
def catalogue() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "catalogue_size.py"
    spec = importlib.util.spec_from_file_location("catalogue_size", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_pattern_has_a_needless_alternative(catalogue: ModuleType) -> None:
    assert [pair for one in load_patterns().patterns for pair in catalogue.needless(one)] == []


@pytest.mark.parametrize(
    ("formula", "why"),
    [
        ("Erf(x + z) | Erf(z + x)", "another order"),
        ("Erf(x) + Exp(z) | Erf(x)", ""),
        ("Erf(x) + z | Erf(x)", "an optional operand"),
        ("Conv(x, z, w) | Conv(x, z)", "an optional operand"),
        ("Sigmoid(x) | 1 / (1 + Exp(-x))", "a synonym"),
        ("0.5 * x * (1 + Erf(z)) | x * (0.5 + 0.5 * Erf(z))", "a synonym"),
        ("0.3 * x * (1 + Erf(z)) | x * (0.3 + 0.3 * Erf(z))", ""),
        ("Erf(x) | Exp(x)", ""),
    ],
)
def test_needless_alternatives_are_found(catalogue: ModuleType, formula: str, why: str) -> None:
    names = [name for name in ("x", "z", "w") if name in formula.replace("Exp", "")]
    example = ", ".join(f'{name}: "float32[2, 3, 4, 4]"' for name in names)
    found = list(catalogue.needless(pattern(f"y = {formula}", f"y = Sum({', '.join(names)})", example=f"{{{example}}}")))
    assert [pair.rpartition(": ")[2] for pair in found] == ([why] if why else [])
