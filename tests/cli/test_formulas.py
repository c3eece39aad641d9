"""Shared formulas on the command line: listed with the pattern that uses them, and mistakes shown with their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run

PATTERN = """
id: gate
summary: A gate
match: |
  y = z * soft(x)
example: {x: "float32[2]", z: "float32[2]"}
"""


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """A pack with its own formulas, one of them with the name of a built-in formula."""
    group = tmp_path / "pack" / "gates"
    group.mkdir(parents=True)
    (group.parent / "pack.yaml").write_text("name: gates\n", encoding="utf-8")
    (group.parent / "formulas.yaml").write_text("silu(x): x * Relu(x)\nsoft(x): Tanh(silu(x))\n", encoding="utf-8")
    (group / "gate.yaml").write_text(PATTERN, encoding="utf-8")
    return group.parent


def test_one_pattern_is_listed_with_the_formulas_that_it_uses(run: Run, pack: Path) -> None:
    """The list includes formulas used by other formulas."""
    result = run("list-patterns", "gate", "--patterns", pack)
    assert result.out.rstrip().endswith("silu(x): x * Relu(x)\nsoft(x): Tanh(silu(x))")
    as_json = run("list-patterns", "gate", "--patterns", pack, "--json").json
    assert as_json["formulas"] == {"silu(x)": "x * Relu(x)", "soft(x)": "Tanh(silu(x))"}


def test_a_mistake_in_the_formulas_of_a_pack_is_a_usage_error(run: Run, pack: Path) -> None:
    (pack / "formulas.yaml").write_text("soft(x): Tanh(z)\n", encoding="utf-8")
    result = run("test-patterns", "gate", "--patterns", pack)
    assert result.code == 2
    assert "formulas.yaml:1:15: `z` is no parameter of `soft(x)`" in result.err
