"""The smaller commands: `list-patterns`, `explain`, `verify` and `test-patterns`."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnx_subgraph.proving import Proof
from tests.cli.conftest import GELU, PLAIN, Run, save

MISH = """
id: mish
summary: Mish
match: |
  y = x * Tanh(Softplus(x))
replace: {standard: y = Mish(x)}
example: {x: "float32[2, 8]"}
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A user's pattern, in a group folder."""
    folder = tmp_path / "mine" / "activation"
    folder.mkdir(parents=True)
    (folder / "my_mish.yaml").write_text(MISH.replace("id: mish", "id: my-mish"), encoding="utf-8")
    return folder.parent


def test_the_list_has_the_built_in_patterns_and_the_users(run: Run, own: Path) -> None:
    built_in = [pattern["id"] for pattern in run("list-patterns", "--json").json["patterns"]]
    both = [pattern["id"] for pattern in run("list-patterns", "--json", "--patterns", own).json["patterns"]]
    assert both == [*built_in, "my-mish"]
    assert "my-mish" in run("list-patterns", "--patterns", own).out


def test_one_pattern_shows_its_formula_and_its_targets(run: Run, own: Path) -> None:
    result = run("list-patterns", "my-mish", "--patterns", own)
    assert result.code == 0
    assert "y = x * Tanh(Softplus(x))" in result.out
    assert "standard, function" in result.out
    as_json = run("list-patterns", "my-mish", "--patterns", own, "--json").json
    assert as_json["targets"] == ["standard", "function"]
    assert "Tanh(Softplus(x))" in as_json["source"]


def test_explain_shows_matches_and_writes_nothing(run: Run, gelu: Path) -> None:
    result = run("explain", gelu, "--json")
    assert result.code == 0
    assert [fusion["pattern"] for fusion in result.json["fusions"]] == ["gelu"]
    assert "com.microsoft.Gelu" in run("explain", gelu).out
    assert list(gelu.parent.iterdir()) == [gelu]


def test_explain_shows_near_misses(run: Run, tmp_path: Path) -> None:
    """It names the constant that differs and the line of the pattern that requires it."""
    model = save(GELU.replace("{1.4142135}", "{1.42}"), tmp_path / "nearly.onnx")
    result = run("explain", model, "gelu", "--json")
    assert result.json["fusions"] == []
    assert {near["pattern"] for near in result.json["near_misses"]} == {"gelu"}
    assert any(near["place"]["file"].endswith("formulas.yaml") for near in result.json["near_misses"])
    assert "the constant 0.707107" in run("explain", model, "gelu").out
    assert "^" in run("explain", model, "gelu").out


def test_explain_of_an_absent_pattern_is_one_sentence(run: Run, gelu: Path) -> None:
    """It does not list every sum or product where the pattern begins to match."""
    answer = run("explain", gelu, "mish")
    assert "mish is not in the model: it needs Tanh, and there is none." in answer.out and answer.code == 0
    assert "Nearly matched" not in answer.out


def test_explain_of_a_node_shows_only_that_node(run: Run, tmp_path: Path) -> None:
    model = save(GELU.replace("erf = Erf", "[bystander] other = Abs (x)\n  erf = Erf"), tmp_path / "two.onnx")
    assert run("explain", model, "--node", "bystander", "--json").json["fusions"] == []
    assert "nothing to explain" in run("explain", model, "--node", "bystander").out
    assert [fusion["pattern"] for fusion in run("explain", model, "--node", "erf", "--json").json["fusions"]] == ["gelu"]


def test_a_model_is_equivalent_to_itself(run: Run, gelu: Path) -> None:
    result = run("verify", gelu, gelu, "--json")
    assert (result.code, result.json["verdict"]) == (0, "equivalent")
    assert "equivalent" in run("verify", gelu, gelu).out


def test_another_function_is_different(run: Run, gelu: Path, tmp_path: Path) -> None:
    other = save(GELU.replace("{0.5}", "{0.6}"), tmp_path / "other.onnx")
    result = run("verify", gelu, other, "--json")
    assert (result.code, result.json["verdict"]) == (1, "different")
    assert not all(one["equal"] for one in result.json["runs"])
    assert run("verify", gelu, save(PLAIN, tmp_path / "plain.onnx")).code == 1


@pytest.mark.parametrize(("failures", "code"), [((), 0), (("opset 9: not fused",), 1)])
def test_a_failed_proof_gives_exit_code_1(
    run: Run, monkeypatch: pytest.MonkeyPatch, own: Path, failures: tuple[str, ...], code: int
) -> None:
    monkeypatch.setattr("onnx_subgraph.proving.prove", lambda pattern, tell: Proof(pattern.id, 3, failures, {}))
    result = run("test-patterns", "my-mish", "--patterns", own)
    assert result.code == code
    assert all(failure in result.out for failure in failures)
    assert run("test-patterns", "my-mish", "--patterns", own, "--json").json == {
        "patterns": [{"pattern": "my-mish", "cases": 3, "failures": list(failures), "targets": {}, "unproved": {}, "notes": []}]
    }


def test_patterns_of_the_user_are_proved_alone(run: Run, monkeypatch: pytest.MonkeyPatch, own: Path) -> None:
    """A lowering of a built-in operator is proved with its patterns; without files and names, all are."""
    monkeypatch.setattr("onnx_subgraph.proving.prove", lambda pattern, tell: Proof(pattern.id, 3, (), {}))

    def proved(*words: object) -> list[str]:
        return [one["pattern"] for one in run("test-patterns", *words, "--json").json["patterns"]]

    lowerings = Path(__file__).parents[2] / "docs" / "examples" / "lowerings"
    assert proved("--patterns", own) == ["my-mish"]
    assert proved("--patterns", lowerings) == ["fast-gelu"]
    assert set(proved("--patterns", own, "--patterns", lowerings)) == {"my-mish", "fast-gelu"}
    assert proved("--patterns", own, "gelu") == ["gelu"]
    assert len(proved()) > 100


WRONG = """id: my-silu
summary: SiLU with a slope that is not its own
match: |
  y = x * Sigmoid(x)
replace:
  onnxruntime: y = com.microsoft.QuickGelu(x, alpha=1.5)
example: {x: "float32[2, 8]"}
"""


def test_a_failed_proof_names_the_spelling(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "my_silu.yaml"
    path.write_text(WRONG)
    result = run("test-patterns", "my-silu", "--patterns", path)
    assert result.code == 1
    assert "my-silu: a fused instance differs" in result.out and "opset 18, float32" in result.out
    assert "1 pattern failed" in result.out
    path.write_text(WRONG.replace("1.5", "1.0"))
    right = run("test-patterns", "my-silu", "--patterns", path)
    assert right.code == 0 and "all hold" in right.out
    assert run("test-patterns", "my-silu", "--patterns", path, "--json").json["patterns"][0]["targets"]["onnxruntime"] > 3


def test_an_interrupted_proof_gives_exit_code_2(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> Proof:
        raise KeyboardInterrupt

    monkeypatch.setattr("onnx_subgraph.proving.prove", interrupted)
    result = run("test-patterns", "gelu")
    assert result.code == 2 and "all hold" not in result.out
