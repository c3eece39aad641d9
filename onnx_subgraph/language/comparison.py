"""Compare values in sentences: equal, ordered, or contained in a list. The answer is True, False, or unknown."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import Any

from onnx_subgraph.language.axis import Axis, same_axes
from onnx_subgraph.language.vocabulary import RELATIVE_TOLERANCE


class UnknownFact(Exception):  # noqa: N818  (an answer, not a mistake)
    """A sentence depends on an unknown fact, as "the rank of x is not known". The text is for users.

    change: what would decide it, with a place for the sentence.
    """

    change = "let `{}` have a value"


class UnknownSize(UnknownFact):
    """The unknown fact is, or depends on, a size or rank. Declaring it in the model would decide the sentence."""


class UnknownProperty(UnknownFact):
    """The unknown fact is about all elements of a value, such as whether it repeats."""

    change = "store it as a constant, or compute it so that this follows"


class NotConstant(UnknownFact):
    """The sentence asks for the value of something that is computed when the model runs."""

    change = "let it be a constant, so that `{}` can be worked out"


_PROPERTIES = {
    "is_doubled": "whether the second half of each row of `{}` equals the first",
    "is_paired": "whether neighbours in the rows of `{}` are equal in pairs",
    "is_binary": "whether every element of `{}` is 0 or 1",
    "is_causal": "whether `{}` hides the columns behind the diagonal and nothing else",
    "lower_bound": "a number that no element of `{}` is below",
}
"""Facts about all elements of a value, in words."""


def missing(attr: str, name: str) -> UnknownFact:
    """Why a fact of the value `name` is not known."""
    if attr == "value":
        return NotConstant(f"`{name}` is not a constant")
    if attr in _PROPERTIES:
        return UnknownProperty(f"{_PROPERTIES[attr].format(name)} is not known")
    return UnknownSize(f"the {attr} of `{name}` is not known")


@lru_cache(maxsize=4096)
def words_of(node: ast.AST) -> str:
    """The text of a part of a sentence. Cached, because there are few sentences and many questions."""
    return ast.unparse(node)


class Words:
    """Parts of a sentence; their text is made only when it is shown."""

    def __init__(self, *nodes: ast.AST) -> None:
        self._nodes = nodes

    def __str__(self) -> str:
        return " and ".join(map(words_of, self._nodes))


def check_ranks(words: Words, values: Iterable[Any]) -> None:
    """Raise UnknownFact where a number is an axis of a value with an unknown rank."""
    if any(isinstance(value, Axis) and value.rank is None for value in values):
        raise UnknownSize(f"the rank for the axes of `{words}` is not known")


def beside(a: int | float, b: int | float) -> int | float:
    """The axis `a` in the form that is comparable with `b`: it counts from the front if `b` is a plain number >= 0."""
    if isinstance(a, Axis) and a.rank is not None and not isinstance(b, Axis) and b >= 0:
        return a + a.rank
    return a


def _equal_axes(a: Any, b: Any, words: Words) -> bool:
    same = same_axes(*((v if isinstance(v, tuple) else (v,)) for v in (a, b)))
    if same is None:
        raise UnknownSize(f"whether {words} are the same axes is not known: their rank is unknown")
    return same


def equal(a: Any, b: Any, words: Words) -> bool:
    """Whether two plain values are equal. Raises UnknownFact. words: the operands, for the message."""
    if type(a) is type(b) and type(a) in (int, str):
        return bool(a == b)
    if (_are_axes(a) and _are_numbers(b)) or (_are_numbers(a) and _are_axes(b)):
        return _equal_axes(a, b, words)
    a, b = _unpacked(a, b), _unpacked(b, a)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and every(partial(equal, one, other, words) for one, other in zip(a, b, strict=True))
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        if isinstance(a, float) or isinstance(b, float):
            return math.isclose(a, b, rel_tol=RELATIVE_TOLERANCE)
        return a == b
    known = (bool, int, float, str, tuple)
    if isinstance(a, known) and isinstance(b, known):
        return bool(a == b)
    if not isinstance(a, known) and not isinstance(b, known) and _is_same_dimension(a, b):
        return True
    raise UnknownSize(f"whether {words} are equal is not known")


def _unpacked(a: Any, b: Any) -> Any:
    """Unpack a list of one number if the other operand is a number."""
    return a[0] if isinstance(a, tuple) and len(a) == 1 and isinstance(b, (int, float)) else a


def every(holds: Iterable[Callable[[], bool]]) -> bool:
    """Whether all hold. One that is false decides, even if others are unknown. Raises UnknownFact."""
    unknown = None
    for one in holds:
        try:
            if not one():
                return False
        except UnknownFact as fact:
            unknown = unknown or fact
    if unknown is not None:
        raise unknown
    return True


def _is_same_dimension(a: Any, b: Any) -> bool:
    """Whether two symbolic dimensions have the same name. Different names may still have the same size."""
    named = None not in (a, b) and None not in (getattr(a, "value", 0), getattr(b, "value", 0))
    return bool(named and (a == b or str(a) == str(b)))


def _are_axes(value: Any) -> bool:
    return isinstance(value, Axis) or (isinstance(value, tuple) and any(isinstance(v, Axis) for v in value))


def _are_numbers(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, tuple) and all(isinstance(v, int) for v in value))


def within(a: Any, b: Any, words: Words) -> bool:
    """Whether a plain value is in a list. Raises UnknownFact. words: the operands, for the message."""
    if isinstance(a, str) and isinstance(b, str):
        return a == b
    if type(a) is str and isinstance(b, tuple) and a in b:
        return True
    if not isinstance(b, tuple):
        raise UnknownFact(f"`{words}`: the second is not a list")
    unknown = None
    for item in b:
        try:
            if equal(a, item, words):
                return True
        except UnknownFact as fact:
            unknown = unknown or fact
    if unknown is not None:
        raise unknown
    return False
