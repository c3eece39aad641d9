"""JUnit, Markdown and annotations of a run: their content, in a form that their readers accept."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onnx_subgraph.errors import Span
from onnx_subgraph.expectation.check import Check
from onnx_subgraph.expectation.expectation import Section
from onnx_subgraph.matching.match import NearMiss
from onnx_subgraph.report.annotations import commands
from onnx_subgraph.report.entry import Entry
from onnx_subgraph.report.junit import document
from onnx_subgraph.report.summary import markdown
from onnx_subgraph.result import FuseResult
from onnx_subgraph.rewriting.rewrite import Rewrite
from onnx_subgraph.verification.blame import Undone
from onnx_subgraph.verification.verdict import Run, Verdict

RUN = Run("CPUExecutionProvider", True, {"batch": 2, "seq": 7}, 0, "logits", 1e-7, 1e-6, (0, 3))
SPAN = Span("ci/expected.yaml", 4, 13, 2, "      gelu: 12")
WHY = "nearly: node /3/Div: expected the constant 0.707107, found 0.7 (4 nodes matched)"
MISSED = Check("gelu", "12", "11", False, SPAN, (WHY,))
RESULT = FuseResult(
    model=Path("build/bert.onnx"),
    output=Path("dist/bert.onnx"),
    nodes_before=100,
    nodes_after=40,
    opset_before=17,
    opset_after=17,
    target="onnxruntime",
    providers=("CPUExecutionProvider",),
    rewrites=(Rewrite("gelu", "com.microsoft.Gelu", "/0/Gelu", ("/0/Div", "/0/Erf"), 1),),
    near_misses=(NearMiss("gelu", SPAN, "/3/Erf", "/3/Div", "the constant 0.707107", "0.7", 4),),
    skipped=(),
    verdict=Verdict("equivalent", "kernel", (RUN, replace(RUN, optimised=False))),
    seconds={"load": 0.1},
)
GOOD = Entry(RESULT.model, 0, RESULT, checks=(replace(MISSED, what="nodes", met=True, reasons=()),))
MISSES = Entry(RESULT.model, 1, replace(RESULT, output=None), checks=(*GOOD.checks, MISSED))
WRONG = replace(RUN, error=1.0)
DIFFERENT = Entry(RESULT.model, 1, replace(RESULT, output=None, verdict=Verdict("different", "kernel", (RUN, WRONG))))
NOT_RUN = Entry(RESULT.model, 2, replace(RESULT, output=None, verdict=Verdict("not-run", reason="no feeds")))
UNASKED = Entry(RESULT.model, 0, replace(RESULT, verdict=Verdict("not-run", reason="verification was not asked for")))
FAILED = Entry(Path("build/swin.onnx"), 2, error="build/swin.onnx: is empty\nhint: export or download the model again")
ALL = [GOOD, MISSES, DIFFERENT, NOT_RUN, UNASKED, FAILED]
LOST = Section("lost.onnx", SPAN)

# JUnit

SCHEMA = {
    "testsuites": ({"name"}, {"tests", "failures", "errors"}, {"testsuite"}),
    "testsuite": ({"name", "tests", "failures", "errors"}, {"skipped"}, {"testcase"}),
    "testcase": ({"name", "classname"}, set(), {"failure", "error", "skipped"}),
    "failure": ({"message", "type"}, set(), set()),
    "error": ({"message", "type"}, set(), set()),
    "skipped": ({"message"}, set(), set()),
}
"""Element → the attributes that it must have, may have, and its children: what junit-10.xsd and other readers agree on."""


def valid(content: bytes) -> ElementTree.Element:
    root = ElementTree.fromstring(content)
    assert root.tag == "testsuites"
    for element in root.iter():
        must, may, children = SCHEMA[element.tag]
        assert must <= set(element.keys()) <= must | may, element.tag
        assert {child.tag for child in element} <= children
        assert element.tag in {"failure", "error"} or not (element.text or "").strip()
    for suite in root:
        assert int(suite.get("tests", "")) == len(suite)
        for tag, count in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            assert int(suite.get(count, "")) == len(suite.findall(f"testcase/{tag}"))
    for count in ("tests", "failures", "errors"):
        assert int(root.get(count, "")) == sum(int(suite.get(count, "")) for suite in root)
    return root


def test_junit_has_a_test_case_for_each_check() -> None:
    root = valid(document(ALL, [LOST]))
    names = [[case.get("name") for case in suite] for suite in root]
    assert names[1] == [
        "verification of logits on CPUExecutionProvider, optimised",
        "verification of logits on CPUExecutionProvider, not optimised",
        "expectation: nodes",
        "expectation: gelu",
    ]
    assert [[child.tag for case in suite for child in case] for suite in root] == [
        [],
        ["failure"],
        ["failure"],
        ["error"],
        ["skipped"],
        ["error"],
        ["skipped"],
    ]


def test_a_junit_failure_says_what_was_missed_and_why() -> None:
    failure = valid(document([MISSES])).find(".//failure")
    assert failure is not None
    assert failure.get("message") == "gelu: expected 12, found 11"
    assert failure.text == f"ci/expected.yaml:4:13\n{SPAN.caret()}\ngelu: expected 12, found 11\n  {WHY}"


def test_a_failed_verification_names_the_runs() -> None:
    failure = valid(document([DIFFERENT])).find(".//failure")
    assert failure is not None and failure.text is not None
    assert failure.text.splitlines() == [
        "logits differs by 1 of 1e-06 allowed at [0, 3] (CPUExecutionProvider, optimised, batch=2 seq=7, seed 0)"
    ]


@pytest.mark.parametrize("strict", [False, True])
def test_an_undone_fusion_fails_only_in_a_strict_run(strict: bool) -> None:
    """Otherwise a file without it was written; an annotation warns of it."""
    undone = Undone(replace(RESULT.rewrites[0], root="/0/Gelu"), "site", "CPUExecutionProvider", "y", 0.5, 1e-6)
    entry = Entry(RESULT.model, int(strict), replace(RESULT, undone=(undone,)), strict=strict)
    failures = valid(document([entry])).findall(".//testcase[failure]")
    assert [case.get("name") for case in failures] == (["fusion: gelu at /0/Gelu"] if strict else [])
    ((level, properties, message),) = (parsed(line) for line in commands([entry]))
    assert (level, properties["file"]) == ("error" if strict else "warning", "build/bert.onnx")
    assert message.startswith("gelu at /0/Gelu is undone: ")


ANY = st.text(st.characters(codec="utf-8"), min_size=1)


@given(ANY)
def test_any_name_gives_valid_xml(name: str) -> None:
    """Law: control characters in a model's names give valid XML."""
    check = replace(MISSED, what=name, found=name, reasons=(name,))
    valid(document([replace(MISSES, checks=(check,)), replace(FAILED, error=name + "x")]))


# Markdown


def test_the_summary_begins_with_failures() -> None:
    text = markdown(ALL, [LOST])
    lines = text.splitlines()
    assert lines[0] == "### onnx-subgraph: 2 of 6 models passed"
    assert lines[4] == "| ✅ | <code>build/bert.onnx</code> | fused | 100 → 40 | 1 | equivalent |"
    assert lines[5] == "| ❌ | <code>build/bert.onnx</code> | 1 of 2 expectations missed | 100 → 40 | 1 | equivalent |"
    assert "gelu: expected 12, found 11" in lines and f"  {WHY}" in lines
    assert "hint: export or download the model again" in lines
    assert "Expected, but not in this run: <code>lost.onnx</code>" in lines
    assert text.endswith("\n\n")  # appended text begins a new paragraph


@given(ANY)
def test_no_name_breaks_the_table(name: str) -> None:
    """Law: names with bars, backticks, tags or line breaks stay in their cells, and messages in their blocks."""
    entry = replace(MISSES, model=Path("m" + name.replace("\0", "")), checks=(replace(MISSED, found=name),))
    lines = markdown([entry]).split("\n")
    assert lines[4].count("|") == 7 and lines[4].count("<") == 2
    fences = [line for line in lines if re.fullmatch("`{3,}(text)?", line)]
    assert len(fences) >= 2 and len({fence.removesuffix("text") for fence in fences[:2]}) == 1


# Annotations


def parsed(line: str) -> tuple[str, dict[str, str], str]:
    """A workflow command, parsed like the runner does."""
    found = re.fullmatch(r"::(\w+) ([^:]*)::(.*)", line)
    assert found is not None, line
    level, properties, message = found.groups()

    def plain(text: str) -> str:
        for escape, character in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
            text = text.replace(escape, character)
        return text

    pairs = dict(part.split("=", 1) for part in properties.split(","))
    return level, {name: plain(value) for name, value in pairs.items()}, plain(message)


def test_there_is_an_annotation_for_each_failure() -> None:
    found = [parsed(line) for line in commands(ALL, [LOST])]
    assert [(level, properties["file"]) for level, properties, _ in found] == [
        ("error", "ci/expected.yaml"),
        ("error", "build/bert.onnx"),
        ("error", "build/bert.onnx"),
        ("error", "build/swin.onnx"),
        ("warning", "ci/expected.yaml"),
    ]
    _, properties, message = found[0]
    assert properties == {
        "file": "ci/expected.yaml", "line": "4", "col": "13", "endColumn": "15", "title": "build/bert.onnx: gelu",
    }  # fmt: skip
    assert message == f"gelu: expected 12, found 11\n{WHY}"
    assert list(commands([GOOD, UNASKED])) == []


def test_a_file_is_named_from_the_root_of_the_repository(tmp_path: Path) -> None:
    """Also if the step runs in a subfolder or gives absolute paths. Files outside the repository keep the given path."""
    inside, outside = replace(FAILED, model=tmp_path / "a" / "m.onnx"), replace(FAILED, model=tmp_path.parent / "m.onnx")
    files = [parsed(line)[1]["file"] for line in commands([inside, outside], workspace=tmp_path)]
    assert files == ["a/m.onnx", str(tmp_path.parent / "m.onnx")]


@given(ANY)
@example("100%0A")
def test_text_stays_inside_its_annotation(name: str) -> None:
    """Law: no name begins another command or ends this one, and the text arrives complete."""
    check = replace(MISSED, what=name, reasons=(name,))
    (line,) = commands([replace(MISSES, checks=(check,))])
    assert "\n" not in line and "\r" not in line
    _, properties, message = parsed(line)
    assert properties["title"] == f"build/bert.onnx: {name}"
    assert message == f"{name}: expected 12, found 11\n{name}"
