"""Sentences: what they mean, when they are unknown, and what they refuse."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_subgraph.errors import PatternError
from onnx_subgraph.language.expression import Expression
from onnx_subgraph.language.sentence import (
    UnknownFact,
    evaluate,
    free_names,
    place_of,
    read_definitions,
    read_sentence,
    valued_names,
)
from onnx_subgraph.language.source import Fields, read_text


@dataclass(frozen=True)
class Dimension:
    """A symbolic dimension as in a graph library: `value` is its name, or None if it has none."""

    value: str | None

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True)
class Facts:
    dtype: object = None
    shape: object = None
    rank: object = None
    is_constant: object = None
    is_scalar: object = None
    value: object = None


B, S = Dimension("batch"), Dimension("seq")
NAMES: dict[str, object] = {
    "x": Facts("float32", (B, S, 64), 3, False, False),
    "y": Facts("float32", (B, S, 64), 3, False, False),
    "z": Facts("float16", (B, Dimension(None), 8), 3, False, False),
    "w": Facts("float32", (2,), 1, True, False, np.array([1.0, 2.0], np.float32)),
    "c": Facts("float32", (), 0, True, True, np.float32(0.5)),
    "u": Facts(),
    "mask": None,
    "h": 8,
    "eps": float(np.float32(1e-5)),
    "axes": [-1, -2],
    "act": "Relu",
}


def sentence(text: str) -> Expression:
    data = read_text(f"s: |\n  {text}\n", "f.yaml")
    assert isinstance(data, Fields)
    found = data.get("s")
    assert found is not None
    return read_sentence(found)


def value_of(text: str) -> object:
    data = read_text(f"let: |\n  v = {text}\n", "f.yaml").get("let")
    assert data is not None
    ((_, found),) = read_definitions(data)
    return evaluate(found, NAMES.__getitem__)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x.dtype == float32", True),
        ('x.dtype in [float16, "float32"]', True),
        ("z.dtype not in [float16]", False),
        ("x.rank == 3 and not x.is_constant", True),
        ("x.shape == y.shape", True),
        ("x.shape[0] == y.shape[0]", True),
        ("x.shape[-1] == 64", True),
        ("x.shape[1:] == y.shape[1:]", True),
        ("x.shape[axes[0]:] == [64]", True),
        ("x.shape == w.shape", False),
        ("x.shape[-1] % h == 0", True),
        ("x.shape[-1] // h", 8),
        ("1 / sqrt(x.shape[-1])", 0.125),
        ("eps == 1e-5", True),
        ("eps == 1.1e-5", False),
        ("0 < eps < 1e-3", True),
        ("c.value == 0.5 and c * 2 == 1", True),
        ("w.value == [1, 2]", True),
        ("max(w.value) + min(1, 2) + len(axes)", 5),
        ("mask is None", True),
        ("mask is not None and mask.rank == 4", False),
        ("x is None", False),
        ("act == 'Relu'", True),
        ("u.rank == 2 or h == 8", True),
        ("u.rank == 2 and h == 9", False),
        ("2 if h == 8 else 3", 2),
        ("-h", -8),
        ("x.rank - len(axes)", 1),
        ("x.shape[:1] + (1, 2)", (B, 1, 2)),
        ("prod([2, 3]) == 6 and any([False, True])", True),
        ("axes == [-1, -2]", True),
        ("known(x.shape[0] == y.shape[0])", True),
        ("known(x.shape[0] == x.shape[1])", False),
        ("not known(x.shape[0] == 8) and known(x.rank == 3)", True),
        ("pi", math.pi),
    ],
)
def test_what_a_sentence_means(text: str, value: object) -> None:
    assert value_of(text) == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("u.rank == 3", "the rank of `u` is not known"),
        ("not u.rank == 3", "the rank of `u` is not known"),
        ("u.rank == 3 or h == 9", "the rank of `u` is not known"),
        ("x.value == 3", "`x` is not a constant"),
        ("mask.rank == 4", "`mask` is absent"),
        ("x.shape[0] == x.shape[1]", "whether x.shape[0] and x.shape[1] are equal is not known"),
        ("x.shape[0] != 8", "whether x.shape[0] and 8 are equal is not known"),
        ("z.shape == z.shape", "whether z.shape and z.shape are equal is not known"),
        ("x.shape[0] > 1", "which of x.shape[0] and 1 is greater is not known"),
        ("x.shape[0] * 2 == 4", "`x.shape[0] * 2` is not a known number"),
        ("x.shape[7] == 1", "`x.shape[7]` does not exist: there are 3"),
        ("h / (h - h) == 1", "`h / (h - h)` can't be computed: division by zero"),
        ("h ** h ** h ** h == 1", "can't be computed"),
        ("axes * h == 1", "`axes * h` is not a known number"),
        ("sqrt(-1) == 1", "`sqrt(-1)` can't be computed"),
        ("x * 2 == 1", "`x` is not a constant"),
    ],
)
def test_an_unknown_fact_is_named(text: str, reason: str) -> None:
    with pytest.raises(UnknownFact) as raised:
        value_of(text)
    assert reason in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "x.__class__",
        "x.shape.rank",
        "[a for a in axes]",
        "(lambda: 1)()",
        "f'{x}'",
        "x == None",
        "x is 3",
        "x & 1",
        "~h",
        "len",
        "len(axes, axes)",
        "known()",
        "min(*axes)",
        "(h := 3)",
        "{1: 2}",
        "10 ** 1000 if 1e999 else 0 in {1}",
        "h if",
        "1j",
        "x.rank = 3",
    ],
)
def test_words_outside_the_vocabulary_are_refused(text: str) -> None:
    with pytest.raises(PatternError) as raised:
        sentence(text)
    assert raised.value.span is not None


LEAVES = [
    "x.rank",
    "x.shape",
    "z.shape",
    "u.dtype",
    "c.value",
    "w.value",
    "1",
    "-2",
    "0",
    "1e300",
    "[1, 2]",
    "None",
    "'a'",
    "inf",
]
words = st.sampled_from([*NAMES, *LEAVES])
joined = st.sampled_from(
    ["==", "!=", "<", ">=", "in", "not in", "+", "-", "*", "/", "//", "%", "**", "and", "or", "is", "is not", "if 1 else"]
)


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, joined, inner).map(lambda t: f"({' '.join(t)})"),
        st.tuples(
            st.sampled_from(["len", "min", "max", "abs", "sum", "prod", "sqrt", "all", "any", "known", "not ", "-"]), inner
        ).map(lambda t: f"{t[0]}({t[1]})"),
        st.tuples(inner, inner).map(lambda t: f"({t[0]})[{t[1]}]"),
        st.tuples(inner, inner).map(lambda t: f"({t[0]})[{t[1]}:]"),
    )


@given(st.recursive(words, grown, max_leaves=8))
@settings(deadline=None, max_examples=500)
def test_a_sentence_is_refused_or_has_a_value_or_is_unknown(text: str) -> None:
    """Law: reading raises only PatternError, evaluating raises only UnknownFact."""
    try:
        tree = sentence(text)
    except PatternError:
        return
    try:
        first = evaluate(tree, NAMES.__getitem__)
    except UnknownFact as unknown:
        assert str(unknown)
        return
    assert repr(first) == repr(evaluate(tree, NAMES.__getitem__))


def test_names_of_a_sentence() -> None:
    tree = sentence("x.rank == len(axes) and float32 == y.dtype and c.value + d > pi and mask is None")
    assert free_names(tree) == ("x", "axes", "y", "c", "d", "mask")
    assert valued_names(tree) == {"axes", "c", "d"}
    place = place_of(tree, "axes")
    assert place is not None
    assert (place.line, place.text[place.column - 1 : place.column - 1 + place.length]) == (2, "axes")


def test_definitions_are_read_in_order() -> None:
    data = read_text("let: |\n  a = h / 2\n  b = a + 1\n", "f.yaml").get("let")
    assert data is not None
    definitions = read_definitions(data)
    assert [(name, str(expression)) for name, expression in definitions] == [("a", "h / 2"), ("b", "a + 1")]
