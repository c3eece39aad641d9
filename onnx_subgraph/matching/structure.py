"""The structure of a term: what is left of it when its names and its constants are taken away.

Equal structures are one object. So what is worked out for one pattern is known for all that ask for the same operators in the
same places, whatever else they ask.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True, eq=False)
class Anything:
    """Any value. constant: whether it must be a constant (True) or must not (False)."""

    constant: bool | None


@dataclass(frozen=True, slots=True, eq=False)
class Absent:
    """No value at all."""


@dataclass(frozen=True, slots=True, eq=False)
class Applied:
    """One of these operators. aligned: how many of the positional arguments stand at the position of their inputs."""

    operators: frozenset[tuple[str, str]]
    arguments: tuple[Structure, ...]
    aligned: int


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """A product or sum of these items, each with its exponent or sign.

    most: the items counted with multiplicity. has_scalar: whether a name takes the constant that is left over;
    needs_scalar: and there must be one. is_silent: whether
    it speaks of no constant. is_empty: whether no node need stand for it.
    """

    is_product: bool
    items: tuple[tuple[Structure, float], ...]
    powers: tuple[float, ...]
    most: int
    has_scalar: bool
    needs_scalar: bool
    is_silent: bool
    is_empty: bool


@dataclass(frozen=True, slots=True, eq=False)
class Alternatives:
    """One of these."""

    alternatives: tuple[Structure, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Word:
    """A word of layout, and its recipe."""

    word: str
    recipe: str


Structure = Anything | Absent | Applied | Items | Alternatives | Word


@lru_cache(maxsize=1 << 16)
def one(kind: type[Structure], *fields: Hashable) -> Structure:
    """The one structure of a kind with these fields."""
    return kind(*fields)  # type: ignore[arg-type]
