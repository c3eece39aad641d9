"""Sentences whose types decide them are mistakes. What is refused tells nothing of any value, and nothing else is refused."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_subgraph.errors import PatternError
from onnx_subgraph.language.expression import Expression
from onnx_subgraph.language.sentence import UnknownFact, evaluate, read_definitions, read_sentence
from onnx_subgraph.language.source import Data, read_text
from tests.language.test_sentence import Facts

MISTAKES = {
    "x.rank == '2'": ("`x.rank` is a number, and `'2'` is text: they are never equal", 11),
    "x.dtype == 1": ("`x.dtype` is text, and `1` is a number: they are never equal", 12),
    "x.dtype in [float32, 16]": ("`x.dtype` is text, and `16` is a number: they are never equal", 22),
    "x.dtype == x.shape": ("`x.dtype` is text, and `x.shape` is a list: they are never equal", 12),
    "x.shape[0] == 'n'": ("`x.shape[0]` is a number, and `'n'` is text: they are never equal", 15),
    "x.shape > 2": ("`x.shape` is a list, and no number", 1),
    "1 < x.rank < 'many'": ("`'many'` is text, and no number", 14),
    "x.dtype > float16": ("`x.dtype` is text, and no number", 1),
    "x.rank in 3": ("`3` is a number, and no list", 11),
    "x.rank in float32": ("`float32` is text, and no list", 11),
    "x.rank": ("`x.rank` is a number, and no condition", 1),
    "not x.shape": ("`x.shape` is a list, and no condition", 5),
    "h or x.dtype": ("`x.dtype` is text, and no condition", 6),
    "h if x.rank else True": ("`x.rank` is a number, and no condition", 6),
    "(2 if h else 3)": ("`2 if h else 3` is a number, and no condition", 2),
    "-x.shape == h": ("`x.shape` is a list, and no number", 2),
    "x.shape + 1 == h": ("`x.shape` is a list, and no number", 1),
    "2 * [1] == h": ("`[1]` is a list, and no number", 5),
    "h % 'a' == 2": ("`'a'` is text, and no number", 5),
    "x.rank / 0 == 1": ("a division by 0 has no result", 10),
    "h % 0.0 == 1": ("a division by 0 has no result", 5),
    "x.rank[0] == 1": ("`x.rank` is a number, and has no parts", 1),
    "x.shape[0.5] == 1": ("`0.5` is no place in a list", 9),
    "x.shape['a':] == h": ("`'a'` is text, and no number", 9),
    "len(x.rank) == 2": ("`x.rank` is a number, and has no length", 5),
    "sqrt(x.shape) == 1": ("`x.shape` is a list, and no number", 6),
    "max(1, float32) == h": ("`float32` is text, and `max` is of numbers", 8),
    "[x.rank > 'a'] == h": ("`'a'` is text, and no number", 11),
    "known(x.shape > 2)": ("`x.shape` is a list, and no number", 7),
}
RIGHT = (
    "x.shape == 2",  # a list of one number
    "x.is_constant == 1",
    "x.dtype in [float32, 'float16']",
    "x.dtype in float32",
    "x.shape[1:] + [1] == h",
    "h + axes == [1]",
    "h == 'same' or h == 2",
    "min(x.shape) > 1 and min(x.rank, 2) == 2",
    "all([1, 0]) or x.shape[-1] % 2 == 0",
    "known(x.rank)",
    "(x.rank if h else x.dtype) == float32",
    "len(h + axes) == 2",
    "h is None or h",
)


def written(text: str) -> Data:
    data = read_text(f"text: |\n  {text}\n", "f.yaml").get("text")
    assert data is not None
    return data


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_shown_at_its_place(text: str) -> None:
    with pytest.raises(PatternError) as caught:
        read_sentence(written(text))
    message, column = MISTAKES[text]
    span = caught.value.span
    assert message in str(caught.value) and span is not None and (span.line, span.column) == (2, column + 2)


def test_element_types_are_written_by_name() -> None:
    with pytest.raises(PatternError) as caught:
        read_sentence(written("x.dtype == 1"))
    assert caught.value.hint == "the element types are written by name, `float32`"


@pytest.mark.parametrize("text", RIGHT)
def test_what_a_match_decides_is_read(text: str) -> None:
    read_sentence(written(text))


def test_a_line_of_let_may_be_anything_whose_parts_fit() -> None:
    assert len(read_definitions(written("a = x.rank\n  b = x.shape\n  c = x.dtype\n  d = x.rank > 2 or b"))) == 4
    with pytest.raises(PatternError, match=r"`x\.shape` is a list, and no number"):
        read_definitions(written("a = 2 * x.shape"))


def test_other_facts_have_any_type() -> None:
    """Sentences about regions ask for facts of their own."""
    assert read_sentence(written("node.operator == 2 and not node.many"), "keep", lambda fact, code: None)


PARTS = (
    "x.rank",
    "x.shape",
    "x.dtype",
    "x.shape[0]",
    "x.is_constant",
    "len(x.shape)",
    "x.shape[1:]",
    "2",
    "'2'",
    "float32",
    "[2]",
)
FACTS = [
    Facts(dtype, shape, len(shape), is_constant)
    for dtype in ("float32", "float16", "2")
    for shape in ((), (1,), (2,), (2, 3), (3, 2, 2))
    for is_constant in (False, True)
]


@given(st.sampled_from(PARTS), st.sampled_from(["==", "!=", "<", ">=", "in", "not in"]), st.sampled_from(PARTS))
def test_what_is_refused_tells_nothing(one: str, comparison: str, other: str) -> None:
    text = f"{one} {comparison} {other}"
    try:
        read_sentence(written(text))
    except PatternError:
        answers = set()
        for facts in FACTS:
            try:
                answers.add(evaluate(Expression(text, ast.parse(text, mode="eval").body), {"x": facts}.__getitem__))
            except UnknownFact:
                continue
        assert len(answers) <= 1
