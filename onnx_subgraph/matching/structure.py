"""The structure of a term: the term without its names and constants.

Equal structures are one object. So results for one pattern are shared with all patterns that have the same operators in the same
places.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple


@dataclass(frozen=True, slots=True, eq=False)
class Anything:
    """Any value. constant: whether it must be constant (True) or must not (False); None for either."""

    constant: bool | None


@dataclass(frozen=True, slots=True, eq=False)
class Absent:
    """No value."""


@dataclass(frozen=True, slots=True, eq=False)
class Applied:
    """A call of one of these operators. aligned: how many positional arguments are at the position of their input."""

    operators: frozenset[tuple[str, str]]
    arguments: tuple[Structure, ...]
    aligned: int


class Form(NamedTuple):
    """A product or sum without its items. The factorings of a value that fit in number and exponents depend on it alone.

    length: the number of items. powers: the sorted exponents of a product; () for a sum. most: the number of items with
    multiplicity. has_scalar: whether a name binds the remaining constant. needs_scalar: whether this constant must be present.
    is_silent: whether the term mentions no constant. is_empty: whether it may match without a node.
    """

    is_product: bool
    length: int
    powers: tuple[float, ...]
    most: int
    has_scalar: bool
    needs_scalar: bool
    is_silent: bool
    is_empty: bool


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """A product or sum of these items, each with its exponent or sign."""

    form: Form
    items: tuple[tuple[Structure, float], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Alternatives:
    """One of these alternatives."""

    alternatives: tuple[Structure, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Word:
    """A layout operation and its recipe."""

    word: str
    recipe: str


Structure = Anything | Absent | Applied | Items | Alternatives | Word


@lru_cache(maxsize=1 << 16)
def one(kind: type[Structure], *fields: Hashable) -> Structure:
    """The unique structure of a kind with these fields."""
    return kind(*fields)  # type: ignore[arg-type]
