"""Every kind of mistake in a pattern file: its place, the caret and the hint.

The cases are in `data/mistakes.txt`, divided by `====`: a title, the file, and after `----` the exact message.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_subgraph.errors import PatternError
from onnx_subgraph.language.check import check
from onnx_subgraph.language.reading import parse_pattern

FILE = "patterns/group/sample.yaml"
CASES = [
    (title, text, message)
    for title, text, message in (
        (case.partition("\n")[0], *case.partition("\n")[2].split("\n----\n"))
        for case in (Path(__file__).parent / "data" / "mistakes.txt").read_text(encoding="utf-8").rstrip("\n").split("\n====\n")
    )
]
SAMPLES = [path.read_text(encoding="utf-8") for path in sorted((Path(__file__).parent / "data").glob("*/*.yaml"))]


@pytest.mark.parametrize(("text", "message"), [case[1:] for case in CASES], ids=[case[0].replace(" ", "-") for case in CASES])
def test_a_mistake_has_a_place_a_caret_and_a_hint(text: str, message: str) -> None:
    with pytest.raises(PatternError) as raised:
        check(parse_pattern(text, FILE))
    assert str(raised.value) == message


@given(st.text() | st.text(alphabet=" \n\t:-[]{}|>&*!#'\"%?,ab1é\u2028\x85\r\0"))
@settings(deadline=None, max_examples=300)
def test_any_text_is_refused_with_a_place(text: str) -> None:
    """Law: reading raises nothing but PatternError, and it says where."""
    with pytest.raises(PatternError) as raised:
        check(parse_pattern(text, FILE))
    assert raised.value.span is not None
    assert str(raised.value)


@given(st.sampled_from(SAMPLES), st.data())
@settings(deadline=None, max_examples=300)
def test_a_damaged_pattern_is_read_or_refused(text: str, data: st.DataObject) -> None:
    """Law: the same for a good file in which one character was replaced, doubled or dropped."""
    place = data.draw(st.integers(0, len(text) - 1))
    put = data.draw(st.sampled_from(["", text[place] * 2, *"()[]{}|=:,.*/-+@#'\"\n\t _1xA"]) | st.text(max_size=2))
    try:
        check(parse_pattern(text[:place] + put + text[place + 1 :], FILE))
    except PatternError as error:
        assert error.span is not None
        assert str(error)
