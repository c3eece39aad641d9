"""Every spelling is found: nine families of fusions, a few hundred graphs, one formula for each pattern."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from onnx_subgraph.language.library import Library, load_patterns
from onnx_subgraph.matching.find import find
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.options import Options
from onnx_subgraph.pipeline import fuse
from tests.patterns.spellings import FAMILIES, Spelling, spellings

SPELLINGS = tuple(spellings())
SAMPLE = tuple(s for family in FAMILIES for s in [s for s in SPELLINGS if s.family == family][::17])
"""A few of each family, which are fused end to end."""


@pytest.fixture(scope="module")
def library() -> Library:
    return load_patterns()


def test_there_are_nine_families_and_hundreds_of_spellings() -> None:
    families = Counter(s.family for s in SPELLINGS)
    assert len(families) == 9
    assert len(SPELLINGS) >= 200
    assert min(families.values()) >= 8
    assert len({s.model for s in SPELLINGS}) == len(SPELLINGS), "two spellings are the same graph"


@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda s: f"{s.family}: {s.name}")
def test_the_spelling_is_found_once(spelling: Spelling, library: Library) -> None:
    model = ir.from_proto(onnx.parser.parse_model(spelling.model))
    infer_shapes(model)
    found = find(model, [library.get(spelling.pattern)])
    misses = "\n".join(f"{m.expected}, found {m.found} at {m.node}" for m in found.near_misses)
    assert len(found.matches) == 1, f"{spelling.model}\n{misses}"


@pytest.mark.parametrize("spelling", SAMPLE, ids=lambda s: f"{s.family}: {s.name}")
def test_the_fused_spelling_computes_the_same(spelling: Spelling, library: Library, tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(spelling.model), model)
    result = fuse(model, tmp_path / "fused.onnx", library, Options(prefer="fusion"))
    assert result.verdict.verdict == "equivalent"
    assert spelling.pattern in {r.pattern for r in result.rewrites}, [s.reason for s in result.skipped]
