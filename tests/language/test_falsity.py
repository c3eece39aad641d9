"""The explanation of a false sentence: the part that is false, the actual value, and what would make it true."""

from __future__ import annotations

import ast
from types import SimpleNamespace

import pytest

from onnx_subgraph.language.expression import Expression
from onnx_subgraph.language.falsity import deciding_part, facts, spelled, wish

NAMES = {
    "x": SimpleNamespace(rank=4, shape=(2, 3), dtype="float32", is_constant=False, is_output=False),
    "a": 0.5,
    "n": 3,
    "absent": None,
}
MORE_OR_LESS = "let n be more than 5, or let a be at most -1e+08"


@pytest.mark.parametrize(
    ("sentence", "part", "said", "wanted"),
    [
        ("x.rank == 3", "x.rank == 3", "x.rank is 4", "let x.rank be 3"),
        ("x.rank == 4 and n > 5", "n > 5", "n is 3", "let n be more than 5"),
        ("1 < n < 3", "n < 3", "n is 3", "let n be less than 3"),
        ("3 == x.rank", "3 == x.rank", "x.rank is 4", "let x.rank be 3"),
        (
            "x.dtype in [float16, float64]",
            "x.dtype in [float16, float64]",
            "x.dtype is float32",
            "let x.dtype be one of [float16, float64]",
        ),
        ("x.is_constant", "x.is_constant", "x.is_constant is false", "let x be a constant"),
        ("x.is_output", "x.is_output", "x.is_output is false", "let x be an output of the graph"),
        ("absent or n == 2", "absent or n == 2", "absent is absent, n is 3", "let n be 2"),
        ("not n", "not n", "n is 3", ""),
        ("absent is not None", "absent is not None", "absent is absent", "give absent"),
        ("a is None", "a is None", "a is 0.5", "leave a out"),
        ("n == 2 or a > 1", "n == 2 or a > 1", "n is 3, a is 0.5", "let n be 2, or let a be more than 1"),
        ("absent is None and (a is None or n == 2)", "n == 2", "n is 3", "let n be 2"),
        ("a is None or x.rank == 4 and n > 5 or a <= -1e8", "n > 5 or a <= -1e+08", "n is 3, a is 0.5", MORE_OR_LESS),
        (
            "a is None or absent is not None",
            "a is None or absent is not None",
            "a is 0.5, absent is absent",
            "leave a out, or give absent",
        ),
        (
            "x.shape == [2, n + 1]",
            "x.shape == [2, n + 1]",
            "x.shape is [2, 3], [2, n + 1] is [2, 4]",
            "let x.shape be [2, n + 1]",
        ),
    ],
)
def test_a_false_sentence(sentence: str, part: str, said: str, wanted: str) -> None:
    tree = ast.parse(sentence, mode="eval").body
    deciding = deciding_part(tree, NAMES.get)
    assert spelled(deciding) == part
    assert facts(deciding, NAMES.get) == said
    assert wish(deciding) == wanted


@pytest.mark.parametrize(
    ("sentence", "part"),
    [
        ("is_wide", "n > 5"),
        ("x.rank == 3 or is_wide", "x.rank == 3 or n > 5"),
        ("is_there or n == 2", "n == 2"),
        ("size", "size"),
    ],
)
def test_a_line_of_let_is_explained_by_what_it_stands_for(sentence: str, part: str) -> None:
    """A part that asks only whether something is there is no reason, whatever stands for it."""
    let = {
        name: Expression(text, ast.parse(text, mode="eval").body)
        for name, text in {"is_wide": "is_there or n > 5", "is_there": "absent is not None and n == 3", "size": "n - 3"}.items()
    }
    values = {**NAMES, "is_wide": False, "is_there": False, "size": 0}
    assert spelled(deciding_part(ast.parse(sentence, mode="eval").body, values.get, let)) == part
