"""tune(): if times are sums over the nodes, it makes the best choice; with real times it makes some choice."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnx_subgraph import Options, fuse, load_patterns
from onnx_subgraph.errors import UsageError
from onnx_subgraph.options import in_this_way
from onnx_subgraph.timing.tuning import Tuning, read, write
from onnx_subgraph.tuning import tune
from tests.cli.conftest import save
from tests.tuning.scripted import timed_by

LIBRARY = load_patterns()
TEXT = """<ir_version: 8, opset_import: ["" : 20]> g (float[N, 8] x) => (float[N, 8] y)
<float half = {0.5}, float one = {1.0}, float root = {1.4142135}> {
  scaled = Div (x, root) erf = Erf (scaled) sum = Add (erf, one) product = Mul (x, sum) g = Mul (product, half)
  s = Sigmoid (g) y = Mul (g, s)
}"""
GELU, SILU = "gelu", "silu"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A GELU and a SiLU."""
    return save(TEXT, tmp_path / "m.onnx")


@pytest.mark.parametrize(
    ("costs", "skip"),
    [
        ({}, ()),
        ({"Gelu": 20.0}, (GELU,)),
        ({"Swish": 20.0, "QuickGelu": 20.0}, (SILU,)),
        ({"Gelu": 4.99}, ()),
        ({"Gelu": 5.5}, (GELU,)),
    ],
)
def test_only_slower_fusions_are_left_out(
    costs: dict[str, float], skip: tuple[str, ...], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed_by(monkeypatch, costs)
    found = tune(model, LIBRARY, Options(target="onnxruntime"), 0.0)
    assert found.skip == skip
    assert {choice.what for choice in found.choices} >= {f"without {GELU}", f"without {SILU}"}
    assert {c.what for c in found.choices if c.taken} == {f"without {name}" for name in skip}
    assert found.whole is not None and found.whole.ratio < 1


def test_all_slower_fusions_are_left_out_together(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed_by(monkeypatch, {"Gelu": 5.5, "Swish": 2.5, "QuickGelu": 2.5})
    found = tune(model, LIBRARY, Options(target="onnxruntime"), 0.0)
    assert {*found.skip} == {GELU, SILU}


def test_if_the_changes_are_slower_together_none_is_made(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed_by(monkeypatch, {})
    monkeypatch.setattr("onnx_subgraph.tuning.choosing.CLEARLY", 100.0)  # so that each change is accepted
    found = tune(model, LIBRARY, Options(target="onnxruntime"), 0.0)
    assert found.skip == () and found.choices and not any(choice.taken for choice in found.choices)
    assert found.whole is not None and found.whole.ratio == pytest.approx(2 / 7)


def test_the_budget_is_for_all_measurements_and_those_have_the_sizes_of_the_user(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each but the last compares at least two variants with the model, even if the models are large."""
    asked = timed_by(monkeypatch, {})
    monkeypatch.setattr("onnx_subgraph.tuning.choosing.AT_ONCE", 1)
    options = Options(target="onnxruntime", shapes={"x": (5, 8)}, inputs=model.with_name("x.npz"))
    np.savez(model.with_name("x.npz"), x=np.ones((5, 8), np.float32))
    found = tune(model, LIBRARY, options, 12.0)
    assert [len(paths) for paths, _ in asked] == [3, 2, 2] and len(found.choices) == 3
    assert [one.budget for _, one in asked] == [3.0, 3.0, 6.0]
    assert all((one.shapes, one.inputs) == (options.shapes, options.inputs) for _, one in asked)


def test_a_variant_with_the_same_operators_is_not_measured(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of costs rejects no fusion here."""
    timed_by(monkeypatch, {})
    found = tune(model, LIBRARY, Options(target="onnxruntime"), 0.0)
    assert not any("table of costs" in choice.what for choice in found.choices)


def test_if_the_original_is_fastest_nothing_is_fused(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed_by(monkeypatch, {"Gelu": 20.0, "Swish": 20.0, "QuickGelu": 20.0})
    monkeypatch.setattr("onnx_subgraph.tuning.choosing.CLEARLY", 0.0)  # so that no single change is accepted
    found = tune(model, LIBRARY, Options(), 0.0)
    assert found.whole is None and found.choices and not any(choice.taken for choice in found.choices)
    result = fuse(model, tmp_path / "out.onnx", LIBRARY, in_this_way(Options(), found))
    assert not result.rewrites, "a pattern that had nothing before has something without the others"


def test_differences_that_are_not_clear_change_nothing(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model without GELU is faster, and so is the original; but not in every part of the runs."""
    timed_by(monkeypatch, {"Gelu": 20.0}, spread=100.0)
    found = tune(model, LIBRARY, Options(target="onnxruntime"), 0.0)
    assert found.skip == () and found.choices and not any(choice.taken for choice in found.choices)
    assert found.whole is not None and found.whole.ratio > 1 > found.whole.least


def test_a_faster_target_is_chosen(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed_by(monkeypatch, {"QuickGelu": 20.0})
    found = tune(model, LIBRARY, Options(), 0.0)
    assert {choice.what for choice in found.choices if choice.taken} >= {"for the target standard"}
    assert found.target == "standard" and found.whole is not None


@pytest.mark.parametrize(("cost", "backend"), [(0.1, "onnxruntime"), (100.0, "")])
def test_faster_engines_are_chosen(cost: float, backend: str, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed_by(monkeypatch, {"Engine": cost})
    found = tune(model, LIBRARY, Options(), 0.0, backends=["onnxruntime"])
    assert found.backend == backend and "by onnxruntime" in {choice.what for choice in found.choices}


@pytest.mark.parametrize(
    "given", ["Abs (x)", "Identity (x)"], ids=["an engine is not verified", "the simplified model is not verified"]
)
def test_the_reason_is_told_where_nothing_can_be_verified(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed_by(monkeypatch, {})
    coarse = TEXT.replace("float one", "float far = {1e12}, float one").replace("Div (x, root)", "Div (a, root)")
    coarse = coarse.replace("scaled =", f"a = {given} scaled =").replace("Mul (x, sum)", "Mul (a, sum)")
    coarse = coarse.replace("y = Mul (g, s)", "m = Mul (g, s) u = Add (m, far) y = Sub (u, far)")
    found = tune(save(coarse, tmp_path / "m.onnx"), LIBRARY, Options(), 0.0, backends=["onnxruntime"])
    assert found.backend == ""
    assert any(note.startswith("by onnxruntime: ") and "no output can show a difference" in note for note in found.notes)


def test_the_fastest_engines_are_chosen(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cost(node: onnx.NodeProto) -> float:
        return {b"onnxruntime": 0.1, b"reference": 0.2}.get(next((a.s for a in node.attribute if a.name == "backend"), b""), 1.0)

    timed_by(monkeypatch, cost)
    assert tune(model, LIBRARY, Options(), 0.0, backends=["reference", "onnxruntime"]).backend == "onnxruntime"


def test_a_backend_that_supports_nothing_is_not_timed(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed_by(monkeypatch, {})
    nothing = tmp_path / "nothing.yaml"
    nothing.write_text("id: nothing\nsummary: Runs reshapes alone\nruns: onnxruntime\noperators: {Reshape: {}}\n")
    found = tune(model, LIBRARY, Options(), 0.0, backends=[str(nothing)])
    assert found.backend == "" and not any("nothing" in choice.what for choice in found.choices)


def test_a_model_that_fails_with_default_options_is_not_measured(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnx_subgraph.tuning.choosing.bench", None)
    found = tune(model, LIBRARY, Options(rtol=0.0, atol=0.0), 0.0)  # no rounding is allowed
    assert (found.skip, found.choices, found.whole) == ((), (), None)


def test_without_verification_a_model_is_measured(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed_by(monkeypatch, {})
    assert tune(model, LIBRARY, Options(rtol=0.0, atol=0.0, verify=False), 0.0).choices


def test_a_model_in_which_nothing_fuses_is_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnx_subgraph.tuning.choosing.bench", None)
    plain = save('<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Abs(x) }', tmp_path / "p.onnx")
    found = tune(plain, LIBRARY, Options(), 0.0)
    assert (found.skip, found.choices, found.whole) == ((), (), None)


def test_a_saved_choice_equals_the_found_one(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = tune(model, LIBRARY, Options(), 0.0)
    write(tmp_path / "tuned.json", {"m.onnx": found})
    assert read(tmp_path / "tuned.json") == {"m.onnx": found}
    assert found.other_machine == ""
    older = Tuning((), "speed", machine={**(found.machine or {}), "onnxruntime": "1.0.0"})
    assert older.other_machine.startswith("onnxruntime was 1.0.0 and is ")
    monkeypatch.setenv("ONNX_SUBGRAPH_ISA", "avx2")
    assert found.other_machine.startswith("processor was ") and found.other_machine.endswith("limited to avx2")


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("skip", "gelu", "skip is no list of names"),
        ("rounded", {}, "rounded is no list of names"),
        ("results", [1], "results is no list of names"),
        ("notes", "slow", "notes is no list of names"),
        ("accuracy", 0, "accuracy is not above 0"),
        ("accuracy", True, "accuracy is no number"),
        ("accuracy", 10**400, "accuracy is no number"),
        ("whole", {"ratio": "a", "least": 1, "most": 1}, "a ratio is no number"),
        ("whole", {"ratio": float("nan"), "least": 1, "most": 1}, "a ratio is no number"),
        ("whole", {"ratio": -(10**400), "least": 1, "most": 1}, "a ratio is no number"),
        ("backend", [1], "backend is no name"),
        ("choices", {}, "choices is no list"),
        ("choices", [{"what": "x", "ratio": {"ratio": 1, "least": 1, "most": 1}, "taken": "no"}], "a choice needs a text"),
        ("whole", {}, "something in it is of the wrong type"),
        ("choices", [{"what": "x", "ratio": {"ratio": None, "least": 1, "most": 1}, "taken": True}], "a ratio is no number"),
    ],
)
def test_a_file_that_was_edited_wrongly_is_refused(field: str, value: object, said: str, model: Path, tmp_path: Path) -> None:
    write(tmp_path / "tuned.json", {"m.onnx": Tuning()})
    content = json.loads((tmp_path / "tuned.json").read_text())
    content["models"]["m.onnx"][field] = value
    (tmp_path / "tuned.json").write_text(json.dumps(content))
    with pytest.raises(UsageError, match=said):
        read(tmp_path / "tuned.json")


def test_a_file_of_an_earlier_version_lacks_some_fields(tmp_path: Path) -> None:
    write(tmp_path / "tuned.json", {"m.onnx": Tuning()})
    content = json.loads((tmp_path / "tuned.json").read_text())
    for field in ("results", "choices", "whole", "notes", "machine"):
        del content["models"]["m.onnx"][field]
    (tmp_path / "tuned.json").write_text(json.dumps(content))
    assert read(tmp_path / "tuned.json") == {"m.onnx": Tuning(machine={})}


@pytest.mark.parametrize(
    "text", ["", "[]", "[" * 200_000, "{}", '{"format": 2, "models": {}}', '{"format": 1, "models": {"m": {"skip": []}}}']
)
def test_a_file_of_another_kind_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(UsageError, match="it is no file that --tune has written"):
        read(tmp_path / "t.json")
    (tmp_path / "t.json").write_text(json.dumps({"format": 1, "models": {"m": {"skip": [], "prefer": "luck"}}}))
    with pytest.raises(UsageError, match="prefer is 'luck'"):
        read(tmp_path / "t.json")
