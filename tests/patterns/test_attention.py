"""Attention is found in every spelling, becomes one operator, and computes the same."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser
import pytest

from onnx_subgraph.language.library import Library, load_patterns
from onnx_subgraph.pipeline import Options, fuse
from tests.patterns.spellings_attention import Spelling, spellings

SPELLINGS = tuple(spellings())


@pytest.fixture(scope="module")
def library() -> Library:
    return load_patterns()


def test_no_two_spellings_are_the_same_graph() -> None:
    assert len({s.model for s in SPELLINGS}) == len(SPELLINGS)


@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda s: f"{s.family}: {s.name}")
def test_the_spelling_becomes_one_operator(spelling: Spelling, library: Library, tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(spelling.model), model)
    result = fuse(model, tmp_path / "fused.onnx", library, Options(prefer="fusion"))
    misses = "\n".join(f"{m.pattern}: {m.expected}, found {m.found} at {m.node}" for m in result.near_misses)
    refusals = "\n".join(f"{s.pattern}: {s.reason}" for s in result.skipped)
    assert sum(result.operators_after.get(o, 0) for o in spelling.operators) == 1, f"{spelling.model}\n{misses}\n{refusals}"
    assert "Softmax" not in result.operators_after
    assert (result.verdict.verdict, result.verdict.strength) == ("equivalent", "kernel")
