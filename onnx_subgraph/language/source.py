"""Read YAML text as plain data with the place of every part.

Only mappings, lists and scalars are read: no anchors, aliases or tags. Size and depth are bounded. A scalar records the place of
each of its lines, so an error inside a block is shown at its line and column of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from onnx_subgraph.errors import OnnxSubgraphError, PatternError, Span

try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # PyYAML without libyaml gives the same result, more slowly
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

MAX_BYTES = 256 * 1024
"""Maximum size of a file; the largest known pattern has 4 KB."""
MAX_DEPTH = 16
"""Maximum nesting of mappings and lists."""

_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")  # libyaml's line ends


class Kind(NamedTuple):
    """A kind of file, for its errors. error: their type.

    give, begin, one: the hints for a missing file, a wrong beginning, and too much content.
    """

    error: type[OnnxSubgraphError]
    give: str
    begin: str
    one: str


PATTERN = Kind(
    PatternError,
    give="give a pattern file, a group or a pack",
    begin="start with `id: my-pattern`",
    one="one file holds one pattern",
)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A piece of text. `style`: "" plain, "'" or '"' quoted, "|" literal block, ">" folded block.

    places: for each line of `text` its 1-based (line, column) in the file. Empty where the layout differs from the file's (folded
    lines, escapes); then every place inside the text is the whole scalar's `span`.
    """

    text: str
    style: str
    span: Span
    places: tuple[tuple[int, int], ...] = ()
    lines: tuple[str, ...] = field(default=(), repr=False)

    def at(self, line: int, column: int, length: int = 1) -> Span:
        """The place in the file of the 1-based `line` and `column` of this text."""
        if not 1 <= line <= len(self.places):
            return self.span
        row, first = self.places[line - 1]
        return Span(self.span.file, row, first + column - 1, max(1, length), self.lines[row - 1])


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    items: tuple[Data, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Fields:
    """A mapping with unique keys, in the order written."""

    entries: tuple[tuple[Scalar, Data], ...]
    span: Span

    def get(self, key: str) -> Data | None:
        """The value of `key`, or None."""
        return next((data for name, data in self.entries if name.text == key), None)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys, in the order written."""
        return tuple(name.text for name, _ in self.entries)

    def key(self, key: str) -> Scalar | None:
        """The key itself, for its place, or None."""
        return next((name for name, _ in self.entries if name.text == key), None)


Data = Scalar | Items | Fields


def read_file(path: Path, kind: Kind = PATTERN) -> Fields:
    """Read the YAML file `path`, which must be a mapping. Raises the error of its `kind`, with the place."""
    return read_content(content_of(path, kind), str(path), kind)


def content_of(path: Path, kind: Kind = PATTERN) -> bytes:
    """The contents of the file `path`. Raises the error of its `kind` where it is unreadable or too large."""
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise kind.error(f"cannot read {path}: {error.strerror or error}", hint=kind.give) from None
    if len(content) > MAX_BYTES:
        raise kind.error(f"the file is larger than {MAX_BYTES // 1024} KB", span=Span(str(path), 1, 1), hint=kind.one)
    return content


def read_content(content: bytes, file: str, kind: Kind = PATTERN) -> Fields:
    """Parse `content`, which must be a mapping; `file` is the name for errors. Raises the error of its `kind`, with the place."""
    try:
        return read_text(content.decode("utf-8-sig"), file, kind)
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line = before.count(b"\n") + 1
        column = len(before.rpartition(b"\n")[2].decode("utf-8", "replace")) + 1
        raise kind.error("the file is not UTF-8 text", span=Span(file, line, column), hint="save it as UTF-8") from None


def read_text(text: str, file: str, kind: Kind = PATTERN) -> Fields:
    """Parse `text`, which must be a mapping; `file` is the name for errors. Raises the error of its `kind`, with the place."""
    reader = _Reader(text, file, kind)
    try:
        data = reader.document()
    except yaml.YAMLError as error:
        raise reader.as_error(error) from None
    if not isinstance(data, Fields):
        raise kind.error("the file is not a mapping of keys", span=data.span, hint=kind.begin)
    return data


class _Reader:
    """Builds data from libyaml's events. PyYAML's composer is not used: it recurses without limit and loses anchors."""

    def __init__(self, text: str, file: str, kind: Kind) -> None:
        self.file = file
        self.kind = kind
        self.text = text
        self.lines = tuple(_BREAK.split(text))
        self.events: Iterator[Any] = iter(())

    def document(self) -> Data:
        self.events = yaml.parse(self.text, Loader=_Loader)
        next(self.events)  # start of the stream
        if isinstance(next(self.events), yaml.StreamEndEvent):
            raise self.kind.error("the file is empty", span=self.place(1, 1), hint=self.kind.begin)
        data = self.data(next(self.events), 0)
        next(self.events)  # end of the document
        after = next(self.events)
        if not isinstance(after, yaml.StreamEndEvent):
            raise self.kind.error("a second document begins here", span=self.span(after), hint=self.kind.one)
        return data

    def data(self, event: Any, depth: int) -> Data:
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            hint = "write the text out; if it begins with `*` or `&`, quote it"
            raise self.kind.error("anchors and aliases are not supported", span=self.span(event), hint=hint)
        if event.tag is not None:
            hint = "leave the tag out; if the text begins with `!`, quote it"
            raise self.kind.error(f"the tag `{event.tag}` is not supported", span=self.span(event), hint=hint)
        if depth > MAX_DEPTH:
            raise self.kind.error(f"nested more than {MAX_DEPTH} levels deep", span=self.span(event))
        if isinstance(event, yaml.ScalarEvent):
            return self.scalar(event)
        return self.items(event, depth) if isinstance(event, yaml.SequenceStartEvent) else self.fields(event, depth)

    def items(self, start: Any, depth: int) -> Items:
        found: list[Data] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            found.append(self.data(event, depth + 1))
        return Items(tuple(found), self.span(start))

    def fields(self, start: Any, depth: int) -> Fields:
        found: dict[str, tuple[Scalar, Data]] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key = self.data(event, depth + 1)
            if not isinstance(key, Scalar):
                raise self.kind.error("a key is a word", span=key.span, hint="quote a value that begins with `{` or `[`")
            if key.text in found:
                line = found[key.text][0].span.line
                raise self.kind.error(f"`{key.text}` is given twice", span=key.span, hint=f"it is already given in line {line}")
            found[key.text] = key, self.data(next(self.events), depth + 1)
        return Fields(tuple(found.values()), self.span(start))

    def scalar(self, event: Any) -> Scalar:
        style = event.style or ""
        span = self.span(event)
        text: str = event.value
        places: tuple[tuple[int, int], ...] = ()
        if style == "|":
            places = self.block_places(text, span.line)
        elif style != ">" and "\n" not in text:
            column = span.column + (1 if style else 0)
            if span.text[column - 1 : column - 1 + len(text)] == text:
                places = ((span.line, column),)
        return Scalar(text, style, span, places, self.lines)

    def block_places(self, text: str, header: int) -> tuple[tuple[int, int], ...]:
        # A line of a literal block is a line of the file without its indentation.
        rows = text.split("\n")
        in_file = self.lines[header : header + len(rows)]
        return tuple(
            (header + 1 + i, len(line) - len(row) + 1 if row else 1)
            for i, (row, line) in enumerate(zip(rows, in_file, strict=False))
        )

    def span(self, event: Any) -> Span:
        start, end = event.start_mark, event.end_mark
        length = end.column - start.column if end.line == start.line else 1
        return self.place(start.line + 1, start.column + 1, length)

    def place(self, line: int, column: int, length: int = 1) -> Span:
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        return Span(self.file, line, column, max(1, length), text)

    def as_error(self, error: yaml.YAMLError) -> OnnxSubgraphError:
        """A YAML error as an error of this kind."""
        if isinstance(error, yaml.MarkedYAMLError):
            mark = error.problem_mark or error.context_mark
            span = self.place(mark.line + 1, mark.column + 1) if mark else self.place(1, 1)
            problem = error.problem or "not YAML"
            return self.kind.error(f"not valid YAML: {problem}", span=span, hint=_yaml_hint(span, problem))
        position = next((i for i, c in enumerate(self.text) if not (c.isprintable() or c in "\t\n\r\x85\u2028\u2029")), 0)
        before = _BREAK.split(self.text[:position])
        span = self.place(len(before), len(before[-1]) + 1)
        return self.kind.error(f"not valid YAML: a control character, {self.text[position]!a}", span=span, hint="delete it")


def _yaml_hint(span: Span, problem: str) -> str:
    if "\t" in span.text:
        return "indent with spaces, not tabs"
    if "mapping values" in problem or "block end" in problem:
        return "quote a value that holds `: `, or put it under a `|`"
    return "quote text that holds one of `: # [ ] { } , & * ! | > ' \" % @` and begins with it"


def read_text_of(data: Data, what: str) -> Scalar:
    """`data` as a scalar. Raises PatternError, with the place, for anything else."""
    if not isinstance(data, Scalar):
        raise PatternError(f"`{what}` is not text", span=data.span, hint=f"write `{what}: …` in one line, in quotes if need be")
    return data
