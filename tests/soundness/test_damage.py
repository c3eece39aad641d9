"""A small campaign of damaged files: each gives an exit code and at most one message. `benchmarks/damage.py` tries thousands."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.soundness import damage


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_file_is_answered(seed: int, tmp_path: Path) -> None:
    given = [*damage.arguments(Random(seed), tmp_path)]
    if given[0] == "fuse" and "--no-verify" not in given:
        given.append("--no-verify")  # onnxruntime is not tested in this process
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    assert damage.fault(damage.answer(given), tmp_path) is None
    assert all(p.read_bytes() == content for p, content in before.items())
