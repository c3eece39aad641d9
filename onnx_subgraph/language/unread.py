"""Patterns and canonical operators whose files are read when more is asked for than the index says.

Few of the built-in patterns can match a small model, and the operators that they need say which. The others are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import fields
from functools import cache, partial
from typing import Any

from onnx_subgraph.language.header import Header
from onnx_subgraph.language.index import Entry, Index
from onnx_subgraph.language.kinds import Contents, read_kinds
from onnx_subgraph.language.operator import CanonicalOperator
from onnx_subgraph.language.operator_reading import lowered_by, operator_of
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.language.reading import pattern_of, read_id


class Unread(Pattern):
    """A pattern that is read at the first use of an attribute that `unread` does not set.

    Python calls `__getattr__` only for an attribute that is not set.
    """

    __slots__ = ("_is_formula", "_read", "_targets")
    _is_formula: bool
    _read: Callable[[], Pattern]
    _targets: tuple[str, ...]

    def __new__(cls, **values: Any) -> Pattern:  # type: ignore[misc]
        """A pattern with these values: `dataclasses.replace` of an unread one gives an ordinary one."""
        return Pattern(**values)

    @property
    def is_formula(self) -> bool:
        """Whether the pattern is a formula, not a region or function bodies."""
        return self._is_formula

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets that this pattern can be fused for, in the order of `TARGETS`."""
        return self._targets

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._read(), name)
        if name in _KNOWN:
            object.__setattr__(self, name, value)
        return value


def unread(entry: Entry, read: Callable[[], Pattern]) -> Pattern:
    """The pattern of an entry, which `read` gives. `read` is called once, at the first use of what the entry does not say."""
    header, needs = entry
    pattern = object.__new__(Unread)
    known: dict[str, object] = {field.name: getattr(header, field.name) for field in fields(Header) if field.name in _KNOWN}
    known |= {"_read": cache(read), "_targets": header.targets, "_is_formula": needs is not None}
    if needs is not None:
        known |= {"needs": needs, "grow": None, "bodies": {}}
    for name, value in known.items():
        object.__setattr__(pattern, name, value)
    return pattern


_KNOWN = frozenset(field.name for field in fields(Pattern))


class Operators(Mapping[str, CanonicalOperator]):
    """Canonical operators by name: some are made already, and each of the others is read when it is needed."""

    def __init__(self, made: Mapping[str, CanonicalOperator], read: Mapping[str, Callable[[], CanonicalOperator]]) -> None:
        self._made = dict(made)
        self._read = read

    def __getitem__(self, name: str) -> CanonicalOperator:
        if name not in self._made:
            self._made[name] = self._read[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._read, *self._made)))

    def __len__(self) -> int:
        return len({*self._read, *self._made})


class Unparsed:
    """The files of an index. Each is parsed once, when a pattern or an operator in it is read."""

    def __init__(self, index: Index, files: Contents) -> None:
        self._index = index
        self._contents = {str(path): (path, content) for path, content in files}
        self._kinds = cache(lambda file: read_kinds((self._contents[file],)))

    def operators(self) -> dict[str, Callable[[], CanonicalOperator]]:
        """Canonical operator → a function that reads it."""
        return {name: partial(self._operator, *map(str, places)) for name, places in self._index.operators.items()}

    def _operator(self, file: str, *lowerings: str) -> CanonicalOperator:
        ((path, fields),) = self._kinds(file).operators
        operator = operator_of(fields, path)
        for path, fields in (one for place in reversed(lowerings) for one in reversed(self._kinds(place).lowerings)):
            operator = lowered_by(fields, path, {operator.name: operator})
        return operator

    def naming(self, operators: Collection[str]) -> frozenset[str]:
        """The files that name one of these operators; among them are those of all patterns that raise to it."""
        words = [name.encode(errors="replace") for name in operators]
        return frozenset(file for file, (_, content) in self._contents.items() if any(word in content for word in words))

    def patterns(
        self, operators: Mapping[str, CanonicalOperator], finish: Callable[[Pattern], Pattern], now: Collection[str] = ()
    ) -> list[Pattern]:
        """The patterns in order, not read yet.

        operators: those that they may raise to. finish: called with each that is read. now: the files whose patterns are read
        and checked at once, because the index does not say what these operators make of them.
        """

        def read(header: Header, *, checked: bool = False) -> Pattern:
            path, fields = next(one for one in self._kinds(header.file).patterns if read_id(*one[::-1]) == header.id)
            return finish(pattern_of(fields, path, header.order, operators, checked=checked))

        return [
            read(entry.header, checked=True) if entry.header.file in now else unread(entry, partial(read, entry.header))
            for entry in self._index.entries
        ]
