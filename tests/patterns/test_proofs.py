"""Every pattern file proves: each spelling of its formula fuses and is right, each mutant is left alone or is right."""

from __future__ import annotations

import pytest

from onnx_subgraph.language.library import load_patterns
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.proving import prove
from tests.patterns.cases import FOLDER, with_cases

PATTERNS = load_patterns().patterns


@pytest.mark.parametrize("pattern", PATTERNS, ids=[p.id for p in PATTERNS])
def test_a_pattern_is_proved(pattern: Pattern, thorough: bool) -> None:
    """Without `--thorough`, each alternative occurs in some model; if these are too few, each pair of alternatives."""
    proof = prove(with_cases(pattern), pairs=thorough)
    if proof.failures and not thorough:
        proof = prove(with_cases(pattern))
    assert not proof.failures, "\n".join(proof.failures)
    assert proof.cases > 0 and any(proof.targets.values())
    if pattern.raised is not None:
        assert proof.targets["function"], "its operator was never proved by itself"


def test_every_case_file_belongs_to_a_pattern() -> None:
    """The models of a file without a pattern would never be tested."""
    files = {file.stem.replace("_", "-") for file in FOLDER.iterdir()}
    assert files == {p.id for p in PATTERNS if with_cases(p) is not p}
