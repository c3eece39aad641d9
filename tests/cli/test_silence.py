"""Nothing is switched off in silence: what keeps the tool from fusing is said, with the place and the next step."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import onnx
import pytest

from onnx_subgraph.rewriting.emit import Emitter
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
def test_where_shape_inference_gives_up_is_said(run: Run, unknown: Path, command: tuple[str, ...]) -> None:
    result = run(command[0], unknown, *command[1:])
    assert result.code == 0
    said = on_one_line(result.out)
    assert "Shape inference gives up at mystery (com.acme.Mystery): the shapes that com.acme.Mystery gives are not known" in said
    assert "1 pattern needs what is missing behind it, at 5 nodes." in said
    assert "change: declare the type and shape of `mystery`, as a value_info" in said


def test_the_object_has_the_gap(run: Run, unknown: Path) -> None:
    for command in (("fuse", unknown, "--dry-run", "--no-verify", "--json"), ("explain", unknown, "--json")):
        answer = run(*command).json
        jsonschema.validate(answer, SCHEMA)
        (gap,) = answer["gaps"]
        assert (gap["operator"], gap["nodes"], gap["behind"], gap["patterns"]) == ("com.acme.Mystery", ["mystery"], 5, ["gelu"])
        (miss,) = [miss for miss in answer["near_misses"] if miss["pattern"] == "gelu"]
        assert miss["change"] == gap["change"], "the inputs have shapes: to declare them would change nothing"


def test_what_is_declared_closes_the_gap(run: Run, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(UNKNOWN)
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("mystery", onnx.TensorProto.FLOAT, ["batch", 8]))
    onnx.save(model, tmp_path / "m.onnx")
    answer = run("fuse", tmp_path / "m.onnx", "--dry-run", "--no-verify", "--json").json
    assert answer["gaps"] == [] and answer["fusions"][0]["count"] == 2


def test_a_gap_that_no_pattern_needs_closed_is_no_news(run: Run, tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "com.acme" : 1]>
    m (float[n] x) => (float y) { a = com.acme.Mystery (x) y = Abs (a) }"""
    result = run("fuse", written(text, tmp_path / "m.onnx"), "--dry-run", "--no-verify")
    assert "gives up" not in result.out


def test_inference_that_ends_is_said(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnx_shape_inference

    def ends(*_: object, **__: object) -> None:
        raise ZeroDivisionError("no\nsuch size")

    model = written(GELU, tmp_path / "m.onnx")
    monkeypatch.setattr(onnx_shape_inference, "infer_symbolic_shapes", ends)
    result = run("fuse", model, "--dry-run", "--no-verify")
    assert "Shape inference gives up in the whole model: it ended with ZeroDivisionError: no." in on_one_line(result.out)


@pytest.fixture
def buggy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planning raises for GELU, and for nothing else."""
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
def test_a_mistake_of_ours_is_a_bug_report_and_costs_one_fusion(run: Run, tmp_path: Path) -> None:
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
def test_the_object_has_the_traceback(run: Run, tmp_path: Path) -> None:
    answer = run("fuse", written(BOTH, tmp_path / "m.onnx"), "--json").json
    jsonschema.validate(answer, SCHEMA)
    (bug,) = answer["bugs"]
    assert bug["pattern"] == "gelu" and bug["count"] == 1
    assert "Traceback" in bug["traceback"] and "KeyError: 'approximate'" in bug["traceback"]


@pytest.mark.usefixtures("buggy")
def test_the_page_and_the_summary_have_the_bug(run: Run, tmp_path: Path) -> None:
    page, summary = tmp_path / "page.html", tmp_path / "summary.md"
    assert run("fuse", written(BOTH, tmp_path / "m.onnx"), "--report", page, "--summary", summary).code == 0
    assert "gelu at g: KeyError: &#39;approximate&#39;" in page.read_text(encoding="utf-8")
    assert "gelu at g: KeyError: 'approximate'" in summary.read_text(encoding="utf-8")


def test_the_page_has_the_gap(run: Run, unknown: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    run("fuse", unknown, "--dry-run", "--no-verify", "--report", page)
    assert "Shape inference gives up at mystery (com.acme.Mystery)" in page.read_text(encoding="utf-8")


@pytest.mark.usefixtures("buggy")
def test_a_proof_fails_by_a_mistake_of_ours(run: Run) -> None:
    result = run("test-patterns", "gelu")
    assert result.code == 1 and "fusing raises KeyError: 'approximate'" in result.out
