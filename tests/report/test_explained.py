"""The page of `explain`: which lines matched, which nodes they got, and the part that fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx.parser
import pytest

from onnx_subgraph.errors import Span
from onnx_subgraph.explaining import explain
from onnx_subgraph.files.models import load
from onnx_subgraph.language.library import load_patterns
from onnx_subgraph.matching.failure import Kind
from onnx_subgraph.matching.match import NearMiss, SeenLine, SeenNode
from onnx_subgraph.options import Options
from onnx_subgraph.report import explained
from onnx_subgraph.report.grouping import nearly_matched
from onnx_subgraph.result import FuseResult
from tests.report.browser import BROWSER, DRIVER, browser
from tests.report.pages import HOSTILE, result
from tests.report.test_html import Page

ROOT = Path(__file__).parents[2]

PATTERN = """\
id: gate
summary: A gate
match: |
  h = Tanh(x)
  s = Sigmoid(h)
  y = h * Softplus(s)
example:
  x: "float32[2, 8]"
"""

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
gate (float[2,3] x) => (float[2,3] y) {
    [tanh] h = Tanh(x)
    [sigmoid] s = Sigmoid(h)
    [softplus] p = Softplus(s)
    [other] y = Div(p, h)
}
"""


@pytest.fixture
def gate(tmp_path: Path) -> FuseResult:
    """A pattern that is being written, and a model that divides where it should multiply."""
    (tmp_path / "gate.yaml").write_text(PATTERN, encoding="utf-8")
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    library = load_patterns([tmp_path / "gate.yaml"])
    return explain(tmp_path / "m.onnx", library, Options("function", only=("gate",)))


def nearest(told: FuseResult) -> explained.Nearest:
    return explained.nearest(nearly_matched(told.near_misses)[0])


def test_the_first_part_that_fails_is_marked_in_its_line(gate: FuseResult) -> None:
    [failed] = [line for line in nearest(gate).lines if line.failed]
    assert (failed.before, failed.failed, failed.after) == ("y = ", "h * Softplus(s)", "")
    assert [node.name for node in failed.nodes] == ["softplus"], "this part of the line did match"
    told = Page(explained.page(gate, pattern="gate")).text
    assert told.count("✗ fails here") == 1 and "p * h ** -1" in told


def test_a_matched_line_has_its_nodes_with_operator_and_shape(gate: FuseResult) -> None:
    """What matched before the failure, each node beside its line."""
    lines = {line.before: line.nodes for line in nearest(gate).lines if not line.failed}
    assert {text: [(node.name, node.operator) for node in nodes] for text, nodes in lines.items()} == {
        "h = Tanh(x)": [("tanh", "Tanh")],
        "s = Sigmoid(h)": [("sigmoid", "Sigmoid")],
    }
    assert all(node.type == "float32 [2, 3]" for nodes in lines.values() for node in nodes)


@pytest.mark.parametrize("model", ["bert_torchscript", "t5_dynamo", "llama_torchscript", "unet_dynamo"])
def test_lines_are_those_of_the_files_and_nodes_those_of_the_model(model: str) -> None:
    """For every pattern and place: no line and no node is invented, and there are as many nodes as are said to have matched."""
    path = ROOT / f"sample_models/{model}.onnx"
    told = explain(path, load_patterns(), Options(prefer="fusion"))
    operators = {node.name: node.op_type for node in load(path).graph}
    assert any(miss.lines for miss in told.near_misses)
    for miss in told.near_misses:
        for line in miss.lines:
            assert Path(line.file).read_text(encoding="utf-8").splitlines()[line.number - 1].strip() == line.text
        nodes = {node for line in miss.lines for node in line.nodes}
        assert all(operators.get(node.name, node.operator).endswith(node.operator.rpartition(".")[2]) for node in nodes)
        # A chain of layout operators that fails counts as one node; a node that two parts matched counts twice.
        uncertain = miss.kind in {Kind.LAYOUT, Kind.SENTENCE}
        assert miss.matched - len(nodes) in ((0, 1) if uncertain else (0,)), miss


def hostile() -> str:
    """A page on a model, a pattern and a file with names that a careless page would run."""
    line = SeenLine(HOSTILE, 1, HOSTILE, (SeenNode(HOSTILE, HOSTILE, HOSTILE),))
    miss = NearMiss(HOSTILE, Span(HOSTILE, 1, 3, 5, HOSTILE), HOSTILE, HOSTILE, HOSTILE, HOSTILE, 1, HOSTILE, lines=(line,))
    return explained.page(result(near_misses=(miss,), model=Path(HOSTILE.replace("\x00", ""))), pattern=HOSTILE, absence=HOSTILE)


def test_hostile_names_stay_text() -> None:
    source = hostile()
    assert "<script" not in source and "<img" not in source
    assert "<script>alert(1)</script>" in Page(source).text
    assert "{{ 7 * 7 }}" in Page(source).text


def test_thousands_of_places_are_a_small_page() -> None:
    line = SeenLine("p.yaml", 1, "y = " + "x * " * 5000, tuple(SeenNode(f"/n{i}", "Mul", "float32") for i in range(60)))
    span = Span("p.yaml", 2, 1, 5, "z = Erf(y)")
    miss = NearMiss("gate", span, "a", "n", "Erf", "Tanh", 3, lines=(line,))
    misses = [replace(miss, node=f"/layer.{i}/n", expected=f"a value of rank {'i' * (i % 50)}") for i in range(5000)]
    source = explained.page(result(near_misses=tuple(misses)))
    assert source.count('class="fails"') == explained.MOST_SHOWN
    assert len(source) < 1_000_000


def test_a_page_without_near_misses_says_why() -> None:
    text = Page(explained.page(result(), pattern="gelu", absence="gelu is not in the model: it needs Erf.")).text
    assert "gelu is not in the model: it needs Erf." in text


@pytest.mark.skipif(BROWSER is None or DRIVER is None, reason="needs chromium and chromedriver")
def test_the_page_fits_and_its_lines_can_be_reached(gate: FuseResult, tmp_path: Path) -> None:
    """At the width of a phone and of a desk, whatever the names; the line with the focus is marked."""
    (tmp_path / "gate.html").write_text(explained.page(gate, pattern="gate"), encoding="utf-8")
    (tmp_path / "hostile.html").write_text(hostile(), encoding="utf-8")
    with browser(tmp_path / "profile") as window:
        for name in ("gate", "hostile"):
            for width in (400, 1400):
                window.resize(width)
                window.open(tmp_path / f"{name}.html")
                assert window.ask("document.documentElement.scrollWidth") <= width
                assert window.ask("document.querySelectorAll('script, img').length") == 0
        window.command("Emulation.setFocusEmulationEnabled", enabled=True)
        plain = window.ask("getComputedStyle(document.querySelector('.lines tbody tr[tabindex]')).backgroundColor")
        window.ask("document.querySelector('.lines tbody tr[tabindex]').focus()")
        lit = window.ask("getComputedStyle(document.querySelector('.lines tbody tr[tabindex]')).backgroundColor")
        assert plain != lit
