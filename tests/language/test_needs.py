"""The index of the operators that built-in patterns need, and patterns that are read when they are needed."""

from __future__ import annotations

import runpy
from dataclasses import fields
from pathlib import Path

import pytest

from onnx_subgraph.language.header import Header
from onnx_subgraph.language.library import built_in_contents, built_in_packs, load_patterns
from onnx_subgraph.language.needs import INDEX, read_needs
from onnx_subgraph.language.pattern import TARGETS, Pattern
from onnx_subgraph.language.unread import Unread, unread
from onnx_subgraph.matching.find import find
from tests.matching.graphs import model, pattern

ROOT = Path(__file__).parents[2]
(FOLDER,) = built_in_packs()
ERF = frozenset({("", "Erf")})
READ = {one.id: one for one in load_patterns(checked=True).patterns}
HEADER = ("id", "group", "summary", "targets", "file", "order", "formerly", "is_formula")


def test_the_index_is_current() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "needs.py"))
    assert (FOLDER / INDEX).read_text(encoding="utf-8") == script["index"](), "`python docs/needs.py` writes it again"


def test_the_index_is_not_used_with_other_files() -> None:
    (path, content), *others = built_in_contents()
    assert read_needs(FOLDER, [(path, content), *others])
    assert not read_needs(FOLDER, [(path, content + b"\n"), *others])
    assert not read_needs(FOLDER, others)


@pytest.mark.parametrize("late", load_patterns().patterns, ids=lambda late: late.id)
def test_a_pattern_that_is_not_read_yet_says_the_same(late: Pattern) -> None:
    """Of a formula nothing is read for its header. What is read then is what the file says."""
    read = READ[late.id]
    assert isinstance(late, Unread) is read.is_formula
    for name in HEADER:
        assert getattr(late, name) == getattr(read, name)
    assert [late.is_for(target) for target in TARGETS] == [read.is_for(target) for target in TARGETS]
    for name in (field.name for field in fields(Pattern) if field.name != "needs"):
        assert repr(getattr(late, name)) == repr(getattr(read, name))
    assert (late.name, late.results) == (read.name, read.results)


class Counted:
    """The pattern `y = Erf(x)`, and how often it was read."""

    def __init__(self) -> None:
        self.times = 0
        header = Header("erf", "group", "An Erf", ("onnxruntime", "function"), "erf.yaml", 0)
        self.pattern = unread(header, (ERF,), self._read)

    def _read(self) -> Pattern:
        self.times += 1
        return pattern("y = Erf(x)", "y = Sum(x)", example='{x: "float32[2, 3]"}')


def test_a_pattern_is_not_read_for_a_model_without_its_operators() -> None:
    counted = Counted()
    assert not find(model("y = Tanh(x)", inputs="float[2, 3] x"), [counted.pattern]).matches
    assert counted.times == 0


def test_a_pattern_is_read_once() -> None:
    counted = Counted()
    for _ in range(2):
        assert len(find(model("y = Erf(x)", inputs="float[2, 3] x"), [counted.pattern]).matches) == 1
    assert counted.times == 1


def test_a_pattern_that_the_user_asks_about_is_read() -> None:
    counted = Counted()
    find(model("y = Tanh(x)", inputs="float[2, 3] x"), [counted.pattern], asked=True)
    assert counted.times == 1
