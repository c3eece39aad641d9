"""What a lowering asks of a match: sentences about the arguments of its operator, under `where`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from onnx_subgraph.language.expression import Expression
from onnx_subgraph.language.vocabulary import is_word

PROVIDERS = "providers"
"""The name, in these sentences, of the list of execution providers that the model is for."""
IS_FALLBACK = "is_fallback"
"""The name, in these sentences, for whether a replacement of the standard serves a target that has others."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """Sentences that must be true in a match. prefix: stands before their names in the match.

    line: the number of lines of the block that give these names a meaning. asked: the names of the match that the sentences are
    about. present, absent: those that must be present, or absent.
    """

    sentences: tuple[Expression, ...] = ()
    prefix: str = ""
    line: int = 0

    @property
    def asked(self) -> frozenset[str]:
        return frozenset(self.prefix + name for name in _names(self.sentences))

    @property
    def present(self) -> frozenset[str]:
        return frozenset(self.prefix + name for name, is_present in _presence(self.sentences) if is_present)

    @property
    def absent(self) -> frozenset[str]:
        return frozenset(self.prefix + name for name, is_present in _presence(self.sentences) if not is_present)


NOTHING = Requirement()


@cache
def _names(sentences: tuple[Expression, ...]) -> frozenset[str]:
    nodes = (node for sentence in sentences for node in ast.walk(sentence.tree))
    names = frozenset(node.id for node in nodes if isinstance(node, ast.Name) and not is_word(node.id))
    return names - {PROVIDERS, IS_FALLBACK}


@cache
def _presence(sentences: tuple[Expression, ...]) -> tuple[tuple[str, bool], ...]:
    """The names of sentences that are `x is None` or `x is not None`, each with whether it must be present."""
    return tuple(found for sentence in sentences for found in _presence_in(sentence.tree))


def _presence_in(tree: ast.expr) -> Iterator[tuple[str, bool]]:
    match tree:
        case ast.Compare(left=ast.Name(id=name), ops=[ast.Is() | ast.IsNot() as asked]):
            yield name, isinstance(asked, ast.IsNot)
