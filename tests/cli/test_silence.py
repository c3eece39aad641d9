"""Nothing fails silently: whatever prevents a fusion is reported with its place and the next step."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import onnx
import pytest

from onnx_subgraph.emitting.emit import Emitter
from tests.cli.conftest import GELU, ROOT, Run

SCHEMA = json.loads((ROOT / "docs" / "report.schema.json").read_text(encoding="utf-8"))

UNKNOWN = """
<ir_version: 8, opset_import: ["" : 17, "com.acme" : 1]>
unknown (float[batch, 8] x) => (float[batch, 8] y, float z)
<float half = {0.5}, float one = {1.0}, float root = {1.4142135}>
{
  s1 = Div (x, root)
  e1 = Erf (s1)
  p1 = Add (e1, one)
  m1 = Mul (x, p1)
  y = Mul (m1, half)
  mystery = com.acme.Mystery (x)
  s2 = Div (mystery, root)
  e2 = Erf (s2)
  p2 = Add (e2, one)
  m2 = Mul (mystery, p2)
  z = Mul (m2, half)
}
"""


def written(text: str, path: Path) -> Path:
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def on_one_line(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def unknown(tmp_path: Path) -> Path:
    return written(UNKNOWN, tmp_path / "unknown.onnx")


@pytest.mark.parametrize("command", [("fuse", "--dry-run", "--no-verify"), ("explain",)])
def test_a_gap_in_shape_inference_is_reported(run: Run, unknown: Path, command: tuple[str, ...]) -> None:
    result = run(command[0], unknown, *command[1:])
    assert result.code == 0
    said = on_one_line(result.out)
    assert "Shape inference gives up at mystery (com.acme.Mystery): the shapes that com.acme.Mystery gives are not known" in said
    assert "1 pattern needs what is missing behind it, at 5 nodes." in said
    assert "change: declare the type and shape of `mystery`, as a value_info" in said


def test_the_json_has_the_gap(run: Run, unknown: Path) -> None:
    for command in (("fuse", unknown, "--dry-run", "--no-verify", "--json"), ("explain", unknown, "--json")):
        answer = run(*command).json
        jsonschema.validate(answer, SCHEMA)
        (gap,) = answer["gaps"]
        assert (gap["operator"], gap["nodes"], gap["behind"], gap["patterns"]) == ("com.acme.Mystery", ["mystery"], 5, ["gelu"])
        (miss,) = [miss for miss in answer["near_misses"] if miss["pattern"] == "gelu"]
        assert miss["change"] == gap["change"], "the inputs have shapes: to declare them would change nothing"


def test_a_near_miss_for_another_reason_is_not_blamed_on_the_gap(run: Run, tmp_path: Path) -> None:
    model = written(UNKNOWN.replace("Div (mystery, root)", "Div (mystery, half)"), tmp_path / "m.onnx")
    answer = run("explain", model, "--json").json
    (miss,) = [miss for miss in answer["near_misses"] if miss["pattern"] == "gelu"]
    assert miss["change"] == "put the constant 1.41421 in the place of 0.5" and answer["gaps"][0]["patterns"] == []
    assert "gives up" not in run("explain", model).out


def test_a_declared_shape_closes_the_gap(run: Run, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(UNKNOWN)
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("mystery", onnx.TensorProto.FLOAT, ["batch", 8]))
    onnx.save(model, tmp_path / "m.onnx")
    answer = run("fuse", tmp_path / "m.onnx", "--dry-run", "--no-verify", "--json").json
    assert answer["gaps"] == [] and answer["fusions"][0]["count"] == 2


def test_a_gap_that_matters_to_no_pattern_is_not_reported(run: Run, tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "com.acme" : 1]>
    m (float[n] x) => (float y) { a = com.acme.Mystery (x) y = Abs (a) }"""
    result = run("fuse", written(text, tmp_path / "m.onnx"), "--dry-run", "--no-verify")
    assert "gives up" not in result.out


def test_a_crash_of_shape_inference_is_reported(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnx_shape_inference

    def ends(*_: object, **__: object) -> None:
        raise ZeroDivisionError("no\nsuch size")

    model = written(GELU, tmp_path / "m.onnx")
    monkeypatch.setattr(onnx_shape_inference, "infer_symbolic_shapes", ends)
    result = run("fuse", model, "--dry-run", "--no-verify")
    assert "Shape inference gives up in the whole model: it ended with ZeroDivisionError: no." in on_one_line(result.out)


def test_the_rank_of_a_constant_is_known_without_inference(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hint must not blame the unknown rank of a weight whose rank is in the file."""
    import onnx_shape_inference

    def ends(*_: object, **__: object) -> None:
        raise ZeroDivisionError("no such size")

    text = """<ir_version: 8, opset_import: ["" : 17]> m (float[n, 2] x) => (float[n, 2] y)
    {
      w = Constant <value = float[2, 2] {1, 2, 3, 4}> ()
      b = Constant <value = float[2] {1, 2}> ()
      p = MatMul (x, w)
      y = Add (p, b)
    }"""
    model = written(text, tmp_path / "m.onnx")
    monkeypatch.setattr(onnx_shape_inference, "infer_symbolic_shapes", ends)
    answer = run("explain", model, "--json").json
    assert answer["gaps"][0]["reason"].startswith("it ended with ZeroDivisionError")
    assert "rank of `b` is not known" not in json.dumps(answer["near_misses"]), "`b` of the pattern is the weight"


@pytest.fixture
def buggy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planning raises for GELU only."""
    block = Emitter.block

    def raises(self: Emitter, *arguments: object) -> None:
        block(self, *arguments)  # type: ignore[arg-type]
        if any(node.op_type == "Gelu" for node in self.fragment.nodes):
            raise KeyError("approximate")

    monkeypatch.setattr(Emitter, "block", raises)


BOTH = GELU.replace("float half = {0.5}", "float half = {0.5}, float k = {1.702}").replace(
    "  y = Mul (product, half)",
    "  g = Mul (product, half)\n  scaled_more = Mul (g, k)\n  s = Sigmoid (scaled_more)\n  y = Mul (g, s)",
)


@pytest.mark.usefixtures("buggy")
def test_a_bug_in_a_rewrite_is_reported_and_skips_one_fusion(run: Run, tmp_path: Path) -> None:
    model = written(BOTH, tmp_path / "m.onnx")
    result = run("fuse", model, "--prefer", "fusion")
    assert result.code == 0
    warning = result.err.splitlines()[0]
    assert warning.startswith(f"Warning: {model}: bug in onnx-subgraph: gelu at g: KeyError: 'approximate'")
    assert "please report it" in warning
    assert "Bug  gelu at" in result.out and "verdict  equivalent" in result.out
    assert "could not be planned" not in result.out
    operators = [node.op_type for node in onnx.load(tmp_path / "m.fused.onnx").graph.node]
    assert "Erf" in operators and "QuickGelu" in operators, "the rest is fused"


@pytest.mark.usefixtures("buggy")
def test_the_json_has_the_traceback(run: Run, tmp_path: Path) -> None:
    answer = run("fuse", written(BOTH, tmp_path / "m.onnx"), "--json").json
    jsonschema.validate(answer, SCHEMA)
    (bug,) = answer["bugs"]
    assert bug["pattern"] == "gelu" and bug["count"] == 1
    assert "Traceback" in bug["traceback"] and "KeyError: 'approximate'" in bug["traceback"]


@pytest.mark.usefixtures("buggy")
def test_the_page_the_summary_and_the_annotations_have_the_bug(run: Run, tmp_path: Path) -> None:
    page, summary = tmp_path / "page.html", tmp_path / "summary.md"
    result = run("fuse", written(BOTH, tmp_path / "m.onnx"), "--report", page, "--summary", summary, "--annotations")
    assert result.code == 0
    assert "bug in onnx-subgraph::gelu at g: KeyError: 'approximate'" in result.out + result.err
    assert "gelu at g: KeyError: &#39;approximate&#39;" in page.read_text(encoding="utf-8")
    assert "gelu at g: KeyError: 'approximate'" in summary.read_text(encoding="utf-8")


def test_the_page_has_the_gap(run: Run, unknown: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    run("fuse", unknown, "--dry-run", "--no-verify", "--report", page)
    assert "Shape inference gives up at mystery (com.acme.Mystery)" in page.read_text(encoding="utf-8")


@pytest.mark.usefixtures("buggy")
def test_a_proof_fails_by_a_bug_of_the_tool(run: Run) -> None:
    result = run("test-patterns", "gelu")
    assert result.code == 1 and "fusing raises KeyError: 'approximate'" in result.out


WEIGHTS = """
<ir_version: 4, opset_import: ["" : 17]>
weights (float[batch, 8] x, float[8] w, float two, float epsilon) => (float[batch, 8] y)
<float[8] w = {1, 2, 3, 4, 5, 6, 7, 8}, float two = {2.0}, float epsilon = {0.00001}>
{
  mean = ReduceMean <axes = [-1]> (x)
  centred = Sub (x, mean)
  square = Pow (centred, two)
  variance = ReduceMean <axes = [-1]> (square)
  shifted = Add (variance, epsilon)
  deviation = Sqrt (shifted)
  normal = Div (centred, deviation)
  y = Mul (normal, w)
}
"""


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    return written(WEIGHTS, tmp_path / "weights.onnx")


def test_weights_that_are_inputs_are_one_line_with_the_option(run: Run, weights: Path) -> None:
    for command in (("fuse", weights, "--dry-run"), ("explain", weights)):
        said = on_one_line(run(*command).out)
        assert "3 initializers are inputs as well, which a run may replace: at the 3 nodes that read them nothing" in said
        assert "change: --constant-initializers takes them out of the inputs" in said
    answer = run("fuse", weights, "--dry-run", "--json").json
    jsonschema.validate(answer, SCHEMA)
    assert answer["overridable"] == {"initializers": ["w", "two", "epsilon"], "readers": 3}
    assert answer["fusions"] == []


def test_the_option_makes_them_constants_and_the_report_says_so(run: Run, weights: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    result = run("fuse", weights, "-o", out, "--constant-initializers")
    assert result.code == 0 and "verdict  equivalent" in result.out
    assert "3 initializers are no input any more" in on_one_line(result.out)
    fused = onnx.load(out)
    assert [value.name for value in fused.graph.input] == ["x"]
    assert [node.op_type for node in fused.graph.node] == ["LayerNormalization"]
    answer = run("fuse", weights, "--dry-run", "--constant-initializers", "--json").json
    jsonschema.validate(answer, SCHEMA)
    assert answer["made_constant"] == ["w", "two", "epsilon"] and answer["overridable"]["initializers"] == []


def test_the_judge_accepts_this_difference_only(run: Run, weights: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    run("fuse", weights, "-o", out, "--constant-initializers")
    assert run("verify", weights, out).code == 1, "the interface is another"
    assert run("verify", weights, out, "--constant-initializers").code == 0
    changed = onnx.load(out)
    changed.graph.input[0].name = changed.graph.node[0].input[0] = "z"
    onnx.save(changed, out)
    assert run("verify", weights, out, "--constant-initializers").code == 1


def test_the_option_applies_even_where_nothing_fuses(run: Run, tmp_path: Path) -> None:
    text = """<ir_version: 4, opset_import: ["" : 17]>
    m (float[n] x, float[n] b) => (float[n] y) <float[1] b = {2.0}> { y = Add (x, b) }"""
    out = tmp_path / "out.onnx"
    result = run("fuse", written(text, tmp_path / "m.onnx"), "-o", out, "--constant-initializers")
    assert result.code == 0 and "an unchanged copy" not in result.out
    assert [value.name for value in onnx.load(out).graph.input] == ["x"]


def test_explain_and_specialize_have_the_option(run: Run, weights: Path, tmp_path: Path) -> None:
    said = run("explain", weights, "layer-normalization", "--constant-initializers").out
    assert "LayerNormalization" in said and "Weights are inputs" not in said
    out = tmp_path / "out.onnx"
    assert run("specialize", weights, "--shape", "x=2x8", "-o", out, "--constant-initializers").code == 0
    assert [value.name for value in onnx.load(out).graph.input] == ["x"]


def test_before_ir_version_4_they_are_constants(run: Run, tmp_path: Path) -> None:
    """Also where the opset is raised, which removes them from the inputs: callers could not override them before either."""
    text = WEIGHTS.replace("ir_version: 4", "ir_version: 3").replace('"" : 17', '"" : 12')
    out = tmp_path / "out.onnx"
    result = run("fuse", written(text, tmp_path / "m.onnx"), "-o", out)
    assert result.code == 0 and "Weights are inputs" not in result.out
    fused = onnx.load(out)
    assert [node.op_type for node in fused.graph.node] == ["LayerNormalization"]
    assert [value.name for value in fused.graph.input] == ["x"]


MINE = {
    "small": ("y = 1 + Erf(x)", "standard", "y = Cos(x)"),
    "whole": ("y = 0.5 * x * (1 + Erf(x / sqrt(2)))", "function", ""),
    "inner": ("y = Erf(x)", "standard", "y = Tanh(x)"),
}
"""Patterns of a user's own: formula, target, and what replaces it there."""


def own(folder: Path, *names: str) -> Path:
    """A pack with these patterns."""
    place = folder / "mine" / "activation"
    place.mkdir(parents=True)
    for name in names:
        formula, target, result = MINE[name]
        replaced = f'replace: {{{target}: "{result}"}}\n' if result else ""
        text = f'id: {name}\nsummary: Mine\nmatch: |\n  {formula}\n{replaced}example: {{x: "float32[2, 8]"}}\n'
        (place / f"{name}.yaml").write_text(text, encoding="utf-8")
    return folder / "mine"


def fused_by(answer: dict[str, Any]) -> dict[str, int]:
    return {fusion["pattern"]: fusion["count"] for fusion in answer["fusions"]}


def test_the_users_own_pattern_comes_before_a_larger_built_in_one(run: Run, tmp_path: Path) -> None:
    model = written(GELU, tmp_path / "m.onnx")
    options = ("--dry-run", "--no-verify", "--json")
    assert fused_by(run("fuse", model, *options).json) == {"gelu": 1}
    assert fused_by(run("fuse", model, *options, "--patterns", own(tmp_path, "small")).json) == {"small": 1}


def test_a_users_match_that_can_not_be_replaced_is_reported_and_leaves_its_nodes(run: Run, tmp_path: Path) -> None:
    """The user's pattern has only the target function, so the built-in one fuses. The report has the reason."""
    model, mine = written(GELU, tmp_path / "m.onnx"), own(tmp_path, "whole")
    options = ("--dry-run", "--no-verify", "--patterns", mine, "--json")
    answer = run("fuse", model, *options).json
    assert fused_by(answer) == {"gelu": 1}
    (skip,) = [skip for skip in answer["skipped"] if skip["pattern"] == "whole"]
    assert skip["reason"] == "the pattern has no replacement for the target onnxruntime"
    assert fused_by(run("fuse", model, *options, "--target", "function").json) == {"whole": 1}


CONVOLVED = """
<ir_version: 8, opset_import: ["" : 17]>
convolved (float[1, 2, 30] x) => (float[1, 2, 28] y)
<float[2, 2, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 8, 7, 6}>
{ y = Conv (x, w) }
"""


def test_what_was_given_is_not_proposed(run: Run, tmp_path: Path) -> None:
    """The fusion is not made either way, because it only spells a convolution in another way."""
    model = written(CONVOLVED, tmp_path / "m.onnx")
    for prefer in ("speed", "fusion"):
        answer = run("fuse", model, "--dry-run", "--no-verify", "--prefer", prefer, "--only", "conv-1d", "--json").json
        assert [skip["change"] for skip in answer["skipped"]] == [""] and not answer["fusions"]


def test_a_function_that_would_wrap_one_operator_is_proposed_for_the_other_targets(run: Run, tmp_path: Path) -> None:
    text = "pooled (float[1, 2, 3, 3] x) => (float[1, 2, 1, 1] y) { y = ReduceMean <axes = [2, 3]> (x) }"
    model = written('<ir_version: 8, opset_import: ["" : 17]> ' + text, tmp_path / "m.onnx")
    options = ("--dry-run", "--no-verify", "--only", "global-average-pool", "--json")
    (skip,) = run("fuse", model, *options, "--target", "function").json["skipped"]
    assert skip["reason"] == "a function would only wrap this one operator"
    assert skip["change"] == "choose another: --target standard"
    assert fused_by(run("fuse", model, *options, "--target", "standard").json) == {"global-average-pool": 1}


def test_a_users_match_that_lost_its_nodes_to_another_pattern_is_reported(run: Run, tmp_path: Path) -> None:
    model, mine = written(GELU, tmp_path / "m.onnx"), own(tmp_path, "small", "inner")
    answer = run("fuse", model, "--dry-run", "--no-verify", "--patterns", mine, "--json").json
    assert fused_by(answer) == {"small": 1}
    (skip,) = [skip for skip in answer["skipped"] if skip["pattern"] == "inner"]
    assert (skip["reason"], skip["change"]) == ("taken by small", "leave the other out: --skip small")


def test_conflicts_between_built_in_patterns_are_not_reported(run: Run) -> None:
    sample = ROOT / "sample_models" / "bert_torchscript.onnx"
    options = ("--dry-run", "--no-verify", "--only", "gelu,fused-matmul", "--json")
    answer = run("fuse", sample, *options).json
    assert fused_by(answer)["gelu"] == 2
    assert not any(skip["reason"].startswith("taken") for skip in answer["skipped"])


def test_explain_reports_matches_that_lose_their_nodes(run: Run, tmp_path: Path) -> None:
    model = written(GELU, tmp_path / "m.onnx")
    assert "Matched\n" in run("explain", model, "gelu").out
    said = run("explain", model, "gelu", "--patterns", own(tmp_path, "small")).out
    assert "why     taken by small\n" in said and "Matched\n" not in said
    sample = ROOT / "sample_models" / "bert_torchscript.onnx"
    said = run("explain", sample, "fused-matmul").out
    assert "why     taken by gelu\n" in said and "Matched\n" not in said


def test_regions_of_the_user_have_priority_too(run: Run, tmp_path: Path) -> None:
    place = tmp_path / "mine" / "convolution"
    place.mkdir(parents=True)
    shutil.copy(ROOT / "docs" / "examples" / "patterns" / "convolution" / "conv_bn.yaml", place)
    sample = ROOT / "sample_models" / "resnet_torchscript.onnx"
    options = ("--dry-run", "--no-verify", "--patterns", tmp_path / "mine", "--json")
    answer = run("fuse", sample, *options, "--target", "function").json
    assert sum(fusion["count"] for fusion in answer["fusions"] if fusion["pattern"] == "conv-bn") == 9
    answer = run("fuse", sample, *options).json
    assert fused_by(answer)["batch-normalization-after"] == 9
    (skip,) = [skip for skip in answer["skipped"] if skip["pattern"] == "conv-bn"]
    assert (skip["reason"], skip["count"]) == ("a region becomes a function: use the target function", 9)
    assert "Matched, with --target function" in run("explain", sample, "conv-bn", "--patterns", tmp_path / "mine").out
