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
from onnx_subgraph.rewriting.rewrite import Bug, Rewrite, Skip
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
UNDONE = Undone(replace(RESULT.rewrites[0], root="/0/Gelu"), "site", "CPUExecutionProvider", "y", 0.5, 1e-6)
TAKEN_BACK = Entry(RESULT.model, 0, replace(RESULT, undone=(UNDONE,)))
BUG = Entry(RESULT.model, 0, replace(RESULT, skipped=(Skip("mish", "/1/Mul", "a bug", bug=Bug("KeyError: 'x' at a.py:7", "")),)))
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
    entry = replace(TAKEN_BACK, code=int(strict), strict=strict)
    failures = valid(document([entry])).findall(".//testcase[failure]")
    assert [case.get("name") for case in failures] == (["fusion: gelu at /0/Gelu"] if strict else [])
    ((level, properties, message),) = (parsed(line) for line in commands([entry]))
    assert (level, properties["file"]) == ("error" if strict else "warning", "build/bert.onnx")
    assert message.startswith("gelu at /0/Gelu is undone: ")


def test_a_junit_error_has_its_first_line_as_the_message_and_all_as_the_text() -> None:
    for entry, message, text in ((FAILED, FAILED.error.partition("\n")[0], FAILED.error), (NOT_RUN, "no feeds", "no feeds")):
        error = valid(document([entry])).find(".//error")
        assert error is not None and (error.get("message"), error.text) == (message, text)


def test_what_no_provider_ran_is_called_by_the_output_alone() -> None:
    verdict = Verdict("different", runs=(replace(RUN, provider="", problem="another shape"),))
    (case,) = valid(document([replace(DIFFERENT, result=replace(RESULT, verdict=verdict))])).findall(".//testcase")
    assert case.get("name") == "verification of logits"


ANY = st.text(st.characters(codec="utf-8"), min_size=1)


@given(ANY)
def test_any_name_gives_valid_xml(name: str) -> None:
    """Law: control characters in a model's names give valid XML."""
    check = replace(MISSED, what=name, found=name, reasons=(name,))
    failed = replace(FAILED, model=Path("m" + name.replace("\0", "")), error=name + "x")
    unasked = replace(UNASKED, result=replace(RESULT, verdict=Verdict("not-run", reason=name)))
    valid(document([replace(MISSES, checks=(check,)), failed, unasked], [replace(LOST, model=name)]))


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


def told(entry: Entry) -> list[str]:
    return markdown([entry]).splitlines()


def test_a_model_that_passed_is_marked_where_a_fusion_was_undone_or_a_bug_was_met() -> None:
    for entry, block in (
        (TAKEN_BACK, "gelu at /0/Gelu is undone: its result y is 0.5 from the truth; 1e-06 is allowed"),
        (BUG, "bug in onnx-subgraph: mish at /1/Mul: KeyError: 'x' at a.py:7. What it matched there is as it was"),
    ):
        lines = told(entry)
        assert lines[0].endswith("1 of 1 model passed") and lines[4].startswith("| ⚠️ |")
        assert lines[6] == f"#### <code>build/bert.onnx</code>: {entry.outcome}"
        assert lines[9].startswith(block) and (lines[8], lines[10]) == ("```text", "```")
    assert lines[9].endswith("please report it with what --json has under `bugs`")
    assert not any("####" in line for line in told(GOOD))


def test_the_summary_says_why_a_model_is_no_success() -> None:
    assert "no feeds" in told(NOT_RUN)
    assert any(line.startswith("logits differs by 1 of 1e-06 allowed") for line in told(DIFFERENT))
    assert told(FAILED)[0].endswith("0 of 1 model passed") and told(MISSES)[0].endswith("0 of 1 model passed")


def test_the_details_have_all_fusions_and_the_first_near_misses() -> None:
    body = Rewrite("mish", "Mish", "/1/Mish", ("/1/Tanh",), 1, frozenset({"finite", "bounded"}), body=True)
    near = tuple(replace(RESULT.near_misses[0], pattern=f"p_{i}", node="/*/_`") for i in range(7))
    result = replace(RESULT, rewrites=(*RESULT.rewrites, RESULT.rewrites[0], body), near_misses=near)
    lines = told(replace(GOOD, result=result))
    assert "<details><summary><code>build/bert.onnx</code>: 3 fusions, 7 kinds of near miss</summary>" in lines
    assert "| <code>gelu</code> | <code>com.microsoft.Gelu</code> | 2 | 4 → 2 |" in lines
    assert "| <code>mish</code> | <code>Mish</code> (function) assuming bounded, finite | 1 | 1 → 1 |" in lines
    assert sum(line.endswith("<code>/&#42;/&#95;&#96;</code> |") for line in lines) == 5


def test_only_a_verification_that_ran_is_in_the_details() -> None:
    assert [any(line.startswith("Verified on ") for line in told(entry)) for entry in (GOOD, UNASKED)] == [True, False]


def test_a_block_ends_where_its_text_ends() -> None:
    text = "\n".join(told(replace(FAILED, error="```\n````\n# title")))
    assert "\n`````text\n```\n````\n# title\n`````" in text


@given(ANY)
@example("two\nlines")
@example("```")
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


def test_a_bug_is_annotated_and_is_no_error() -> None:
    ((level, properties, message),) = (parsed(line) for line in commands([BUG]))
    assert (level, properties["title"]) == ("warning", "build/bert.onnx: bug in onnx-subgraph")
    assert message.startswith("mish at /1/Mul: KeyError: 'x' at a.py:7.")


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
