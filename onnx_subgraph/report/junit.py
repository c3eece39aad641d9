"""A run as JUnit XML, for the test tab of a CI system: a suite for each model, a case for each check.

The schema is that of the Jenkins xUnit plugin (junit-10.xsd), which other readers follow. Times are left out: the same run gives
the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from onnx_subgraph.report import grouping
from onnx_subgraph.report.blame import sentence
from onnx_subgraph.report.entry import missed_text
from onnx_subgraph.report.wording import outcome

if TYPE_CHECKING:
    from onnx_subgraph.expectation.check import Check
    from onnx_subgraph.expectation.expectation import Section
    from onnx_subgraph.report.entry import Entry
    from onnx_subgraph.result import FuseResult

OUTCOMES = {"failure": "failures", "error": "errors", "skipped": "skipped"}
"""Child element of a case → the attribute of the suite that counts it."""

_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def document(entries: Sequence[Entry], unused: Iterable[Section] = ()) -> bytes:
    """The XML document of a run. unused: sections of the expectation file without a model in the run."""
    root = ElementTree.Element("testsuites", name="onnx-subgraph")
    for entry in entries:
        _suite(root, str(entry.model), _cases(entry))
    if cases := [_case(section.model, "expectations", "skipped", "no model of this run") for section in unused]:
        _suite(root, "not in this run", cases)
    for name in ("tests", *OUTCOMES.values()):
        if name != "skipped":  # the schema counts these in suites only
            root.set(name, str(sum(int(suite.get(name, "0")) for suite in root)))
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _suite(root: ElementTree.Element, name: str, cases: Iterable[ElementTree.Element]) -> None:
    suite = ElementTree.SubElement(root, "testsuite", name=_legal(name))
    suite.extend(cases)
    suite.set("tests", str(len(suite)))
    for tag, count in OUTCOMES.items():
        suite.set(count, str(len(suite.findall(f"testcase/{tag}"))))


def _cases(entry: Entry) -> Iterator[ElementTree.Element]:
    model = str(entry.model)
    if entry.result is None:
        yield _case(model, "fuse", "error", entry.error.splitlines()[0], entry.error)
        return
    yield from _verification(entry, entry.result)
    if entry.strict:
        for undone in entry.result.undone:
            rewrite = undone.rewrite
            yield _case(model, f"fusion: {rewrite.pattern} at {rewrite.root}", "failure", sentence(undone))
    for check in entry.checks:
        yield _expectation(model, check)


def _verification(entry: Entry, result: FuseResult) -> Iterator[ElementTree.Element]:
    model, verdict = str(entry.model), result.verdict
    if not verdict.runs:
        tag = {"equivalent": "", "different": "failure"}.get(verdict.verdict, "error" if entry.code == 2 else "skipped")
        yield _case(model, "verification", tag, verdict.reason)
        return
    for group in grouping.compared(verdict.runs):
        where = f" on {group.provider}, {'optimised' if group.optimised else 'not optimised'}" if group.provider else ""
        name = f"verification of {group.output}{where}"
        if group.equal:
            yield _case(model, name)
        else:
            said = "\n".join(outcome(run) for run in group.runs if not run.equal)
            yield _case(model, name, "failure", outcome(group.worst), said)


def _expectation(model: str, check: Check) -> ElementTree.Element:
    name = f"expectation: {check.what}"
    return _case(model, name) if check.met else _case(model, name, "failure", str(check), missed_text(check))


def _case(classname: str, name: str, tag: str = "", message: str = "", text: str = "") -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname=_legal(classname), name=_legal(name))
    if tag == "skipped":
        ElementTree.SubElement(case, tag, message=_legal(message))
    elif tag:
        ElementTree.SubElement(case, tag, message=_legal(message), type=tag).text = _legal(text or message)
    return case


def _legal(text: str) -> str:
    """`text` without the characters that XML forbids, which names in a model may contain."""
    return _NO_XML.sub("\ufffd", text)
