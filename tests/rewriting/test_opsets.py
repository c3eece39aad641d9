"""The opsets at which a model is fused: an attempt ends as soon as a later opset is known to be better."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onnx_subgraph import Options, fuse, load_patterns
from onnx_subgraph.rewriting import rounds
from tests.verification.planted import LATE, layers, patterns


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The opset of the model at each search for patterns."""
    opsets: list[int] = []
    find = rounds.find

    def noted(model: Any, *given: Any, **options: Any) -> Any:
        opsets.append(model.opset_imports[""])
        return find(model, *given, **options)

    monkeypatch.setattr(rounds, "find", noted)
    return opsets


def test_an_opset_is_abandoned_after_the_round_that_asks_for_a_later_one(tmp_path: Path, searched: list[int]) -> None:
    model = layers(tmp_path / "m.onnx", [1e-5] * 2)
    options = Options(target="standard", only=("gelu", "layer-normalization"), dry_run=True)
    result = fuse(model, None, load_patterns(), options)
    assert result.opset_after == 20 and [r.op for r in result.rewrites].count("LayerNormalization") == 2
    assert searched.count(17) == 1 and searched.count(20) > 1


def test_an_abandoned_opset_continues_where_the_later_one_fails(tmp_path: Path, searched: list[int]) -> None:
    model, packs = layers(tmp_path / "m.onnx", [1e-5] * 2), (patterns(tmp_path, LATE),)
    options = Options(target="standard", only=("late-gelu", "layer-normalization"), dry_run=True)
    result = fuse(model, None, load_patterns(packs), options)
    assert result.opset_after == 17 and [r.op for r in result.rewrites] == ["LayerNormalization"] * 2
    assert searched.count(17) > 2, "once to find what is wanted, and then to the end"
