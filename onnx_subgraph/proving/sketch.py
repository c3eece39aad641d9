"""Find the alternatives in the model of a choice without building the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from onnx_subgraph.language import term as syntax
from onnx_subgraph.language.evaluation import evaluate
from onnx_subgraph.language.expression import Expression
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.language.sentence import asks_presence
from onnx_subgraph.matching.synonyms import written
from onnx_subgraph.operators import schema
from onnx_subgraph.proving.instance import Builder
from onnx_subgraph.proving.lines import Lines, lines_of
from onnx_subgraph.proving.spelling import LATEST, Spelling


def alternatives_of(pattern: Pattern, spelling: Spelling) -> frozenset[tuple[int, int]]:
    """The alternatives in the instance of this spelling. Raises UnbuildableError."""
    builder = Builder(pattern, spelling)
    builder.compute()
    return frozenset(builder.used)


class Point(NamedTuple):
    """A place of a formula with alternatives. point: the `id` of its term. ways: what each alternative reads."""

    point: int
    ways: tuple[tuple[Part, ...], ...]


Part = str | Point
"""What a term reads: a name, or one of several alternatives."""
IMPOSSIBLE = Point(0, ((),))
"""Stands for a part that can't be built."""


@dataclass(slots=True)
class Sketch:
    """The names and points that each line of a formula reads. wanted: the names of the results to build."""

    pattern: Pattern
    wanted: Iterable[str]
    _lines: Lines = field(init=False)
    _parts: dict[str, tuple[Part, ...]] = field(init=False)
    _presence: tuple[Expression, ...] = field(init=False)

    def __post_init__(self) -> None:
        self._lines = lines_of(self.pattern.match)
        self._parts = {name: tuple(_parts(line.assignment.term)) for name, line in self._lines.items()}
        self._presence = tuple(filter(asks_presence, self.pattern.where))

    def alternatives(self, choice: Mapping[int, int]) -> frozenset[tuple[int, int]]:
        """The alternatives of the instance, assuming that the example's shapes fit; empty where a sentence excludes it."""
        used: set[tuple[int, int]] = set()
        present: dict[str, bool] = {}
        left: list[Part] = [*self.wanted]
        while left:
            part = left.pop()
            if isinstance(part, Point):
                index = choice.get(part.point, 0)
                used.add((part.point, index))
                left += part.ways[index]
            elif part not in present:
                line = self._lines.get(part)
                present.update(dict.fromkeys((part,) if line is None else (*line.assignment.names, *line.captured), True))
                left += self._parts.get(part, ())
        excluded = (IMPOSSIBLE.point, 0) in used or any(evaluate(s, present.get) is False for s in self._presence)
        return frozenset() if excluded else frozenset(used)


def _parts(term: syntax.Term) -> Iterator[Part]:
    """What a term reads."""
    match term:
        case syntax.Variable(name="_") | syntax.Omitted():
            yield IMPOSSIBLE
        case syntax.Variable(name=name, optional=True):
            yield Point(id(term), ((name,), ()))
        case syntax.Variable(name=name):
            yield name
        case syntax.Either(alternatives=alternatives):
            yield Point(id(term), tuple(tuple(_parts(a)) for a in alternatives))
        case syntax.Rearrange(source=source):
            yield from _parts(source)
        case syntax.Apply() | syntax.Chain() if (found := written(term)) is not None:
            yield Point(id(term), (tuple(_operands(term)), *(tuple(_parts(f)) for f in found.formulas)))
        case syntax.Apply(operators=operators) if len(operators) > 1:
            yield Point(id(term), tuple((*_exists(operator), *_operands(term)) for operator in operators))
        case syntax.Apply(operators=(operator,)):
            yield from _exists(operator)
            yield from _operands(term)
        case syntax.Chain():
            yield from _operands(term)


def _operands(term: syntax.Apply | syntax.Chain) -> Iterator[Part]:
    if isinstance(term, syntax.Chain):
        for item, _ in term.items:
            yield from _parts(item)
        return
    for argument in term.arguments:
        if not isinstance(argument, syntax.Omitted) and not (isinstance(argument, syntax.Variable) and argument.name == "_"):
            yield from _parts(argument)
    for _, value in term.keywords:
        if isinstance(value, syntax.Either):
            yield Point(id(value), ((),) * len(value.alternatives))


def _exists(operator: syntax.Operator) -> Iterator[Part]:
    if schema(operator.name, operator.domain, LATEST if not operator.domain else 1) is None:
        yield IMPOSSIBLE
