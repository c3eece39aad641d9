"""The index of the built-in patterns, and patterns whose files are parsed when they are needed."""

from __future__ import annotations

import runpy
from dataclasses import fields, replace
from functools import cache
from pathlib import Path

import pytest

from onnx_subgraph.errors import PatternError
from onnx_subgraph.language import library
from onnx_subgraph.language.header import Header
from onnx_subgraph.language.index import INDEX, Entry, read_index
from onnx_subgraph.language.library import built_in_contents, built_in_packs, load_patterns
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.language.unread import Unread, unread
from onnx_subgraph.matching.find import find
from onnx_subgraph.targets import TARGETS
from tests.matching.graphs import model, pattern

ROOT = Path(__file__).parents[2]
(FOLDER,) = built_in_packs()
ERF = frozenset({("", "Erf")})
HEADER = ("id", "group", "summary", "targets", "file", "order", "formerly", "is_formula")


@cache
def whole() -> dict[str, Pattern]:
    """The built-in patterns by id, each read from its file."""
    return {one.id: one for one in load_patterns(checked=True).patterns}


def test_the_index_is_current() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "index.py"))
    assert (FOLDER / INDEX).read_text(encoding="utf-8") == script["index"](), "`python docs/index.py` writes it again"


def test_the_index_is_not_used_with_other_files() -> None:
    (path, content), *others = built_in_contents()
    assert read_index(FOLDER, [(path, content), *others])
    assert not read_index(FOLDER, [(path, content + b"\n"), *others])
    assert not read_index(FOLDER, others)


@pytest.mark.parametrize("late", load_patterns().patterns, ids=lambda late: late.id)
def test_a_pattern_that_is_not_read_yet_says_the_same(late: Pattern) -> None:
    """For its header nothing is read. What is read then is what the file says."""
    read = whole()[late.id]
    assert isinstance(late, Unread)
    for name in HEADER:
        assert getattr(late, name) == getattr(read, name)
    assert [late.is_for(target) for target in TARGETS] == [read.is_for(target) for target in TARGETS]
    for name in (field.name for field in fields(Pattern) if field.name != "needs"):
        assert repr(getattr(late, name)) == repr(getattr(read, name))
    assert (late.name, late.results) == (read.name, read.results)
    other = replace(late, replace={})
    assert type(other) is Pattern and other.replace == {} and repr(other.match) == repr(read.match)


def test_nothing_is_parsed_to_select_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(files: object) -> None:
        raise AssertionError(files)

    monkeypatch.setattr("onnx_subgraph.language.unread.read_kinds", refuse)
    library._parsed.cache_clear()
    loaded = load_patterns()
    assert loaded.selected("onnxruntime", skip=["gelu"])
    assert loaded.get("gelu").summary and loaded.renamed and set(loaded.operators) >= {"Gelu"}
    library._parsed.cache_clear()


GELU = (Path(__file__).parent / "data" / "activation" / "exact_gelu.yaml").read_text(encoding="utf-8")


def test_a_pattern_of_the_user_leaves_the_index_in_use(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(GELU.replace("id: exact-gelu", "id: mine"), encoding="utf-8")
    patterns = load_patterns([tmp_path / "mine.yaml"]).patterns
    assert [one.id for one in patterns[: len(whole())]] == list(whole())
    assert all(isinstance(one, Unread) for one in patterns[: len(whole())])
    assert not isinstance(patterns[-1], Unread)


def test_a_lowering_of_the_user_has_only_the_patterns_read_that_it_changes(tmp_path: Path) -> None:
    """It changes their targets and replacements, so they are checked with it. All patterns are as where all are read."""
    (tmp_path / "mine.yaml").write_text("lowers: Gelu\nsummary: S\nstandard: y = Identity(x)\n", encoding="utf-8")
    patterns = load_patterns([tmp_path / "mine.yaml"]).patterns
    wanted = load_patterns([tmp_path / "mine.yaml"], checked=True).patterns
    raising = {one.id for one in wanted if one.raised is not None and one.raised.operator.name == "Gelu"}
    unread_ids = {one.id for one in patterns if isinstance(one, Unread)}
    assert raising and raising.isdisjoint(unread_ids) and len(unread_ids) > len(whole()) / 2
    for one, other in zip(patterns, wanted, strict=True):
        assert (one.targets, one.is_formula) == (other.targets, other.is_formula)
        for name in (field.name for field in fields(Pattern) if field.name != "needs"):
            assert repr(getattr(one, name)) == repr(getattr(other, name))


def test_a_pattern_of_the_user_has_the_built_in_operators(tmp_path: Path) -> None:
    text = 'id: mine\nsummary: S\nmatch: y = x * Erf(x)\nraises: y = onnx_subgraph.Gelu(x)\nexample: {x: "float32[2, 3]"}\n'
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    mine = load_patterns([tmp_path / "mine.yaml"]).get("mine")
    assert mine.raised is not None and mine.targets == whole()["gelu"].targets


def test_operators_are_listed_in_one_order_before_and_after_they_are_read() -> None:
    operators = load_patterns().operators
    assert list(operators) == sorted(operators) and len(operators) == len({*operators})
    assert [operator.name for operator in operators.values()] == list(operators)


class Counted:
    """The pattern `y = Erf(x)`, and how often it was read."""

    def __init__(self) -> None:
        self.times = 0
        header = Header("erf", "group", "An Erf", ("onnxruntime", "function"), "erf.yaml", 0)
        self.pattern = unread(Entry(header, (ERF,)), self._read)

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


def test_an_id_that_a_built_in_pattern_has_is_refused_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "gelu.yaml").write_text(GELU.replace("exact-gelu", "gelu"), encoding="utf-8")
    with pytest.raises(PatternError, match=r"the id `gelu` is taken by .*gelu\.yaml:\d+:\d+"):
        load_patterns([tmp_path / "gelu.yaml"])
