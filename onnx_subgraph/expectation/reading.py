"""Read an expectation file strictly: an unknown key or word is an error.

An error shows the line with a caret and says what to write instead. A number is written `12`, `at least 12` or `at most 12`, a
size with its unit, `at most 440 MB`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Literal, cast

from onnx_subgraph.errors import ExpectationError, Span
from onnx_subgraph.expectation.expectation import AttributeValues, Expectation, Fusions, Limit, Section, Tolerance
from onnx_subgraph.language import spelling
from onnx_subgraph.language.example import read_scalar
from onnx_subgraph.language.library import part_of
from onnx_subgraph.language.source import Data, Fields, Items, Kind, Scalar, read_file

KIND = Kind(
    ExpectationError,
    give="`fuse … --write-expect FILE.yaml` makes one from a run",
    begin="start with `models:`, and below it, indented, the name of a model",
    one="one file holds the expectations of one run",
)
KEYS = ("fusions", "near-misses", "engines", "nodes", "size", "providers", "tolerance")
"""The keys of a section."""
UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}
"""Units of a size → bytes."""

_LIMIT = re.compile(r"(at least |at most |)\s*(\d{1,18})")
_SIZE = re.compile(r"(at least |at most |)\s*(\d{1,18}(?:\.\d{1,9})?) ?(B|KB|MB|GB)")
_LIMIT_USAGE = "write `12`, `at least 12` or `at most 12`"
_SIZE_USAGE = "write `at most 440 MB`; the units are B, KB, MB and GB"


@dataclass(frozen=True, slots=True)
class Ids:
    """The current and former ids of patterns.

    renamed: former id → the id of the pattern that now contains it. tell: called with a warning where a former id is used.
    """

    known: Collection[str]
    renamed: Mapping[str, str]
    tell: Callable[[str], None]

    def current(self, key: Scalar) -> str:
        """The current id of the pattern called `key`. Raises ExpectationError, with the place, where there is none."""
        if key.text in self.known:
            return key.text
        if key.text not in self.renamed:
            hint = spelling.hint(key.text, self.known, "`onnx-subgraph list-patterns` shows all patterns")
            raise ExpectationError(f"there is no pattern `{key.text}`", span=key.span, hint=hint)
        self.tell(f"Warning: {key.span}: {part_of(key.text, self.renamed[key.text])}")
        return self.renamed[key.text]

    def keyed(self, entries: Iterable[tuple[Scalar, Data]]) -> Iterator[tuple[str, Scalar, Data]]:
        """The entries with the current ids of their patterns.

        Raises ExpectationError, with the place, where two have the same id.
        """
        lines: dict[str, int] = {}
        for key, data in entries:
            current = self.current(key)
            if current in lines:
                message = f"`{key.text}` is a part of `{current}` now, which line {lines[current]} is about"
                raise ExpectationError(message, span=key.span, hint=f"write one `{current}:` for both")
            lines[current] = key.span.line
            yield current, key, data


def read_expectation(
    path: Path,
    patterns: Collection[str],
    renamed: Mapping[str, str] = MappingProxyType({}),
    tell: Callable[[str], None] = lambda _: None,
) -> Expectation:
    """Read the expectations in the file `path`.

    patterns: the known ids. renamed: former id → the current one. tell: called with a warning where a former id is used. Raises
    ExpectationError, with the place.
    """
    ids = Ids(patterns, renamed, tell)
    fields = read_file(path, KIND)
    _check_keys(fields, ("models",), "an expectation file")
    models = fields.get("models")
    key = fields.key("models")
    if models is None or key is None:
        raise ExpectationError("`models` is missing", span=fields.span, hint=KIND.begin)
    sections = tuple(
        _section(name, data, ids)
        for name, data in _mapping(models, "models", "write below it `model.onnx:`, and below that `fusions:`").entries
    )
    return Expectation(str(path), key.span, sections)


def _section(name: Scalar, data: Data, ids: Ids) -> Section:
    if not PurePosixPath(name.text).parts or ".." in PurePosixPath(name.text).parts:
        hint = "write the file's name, with its folder if several have it: `encoder/model.onnx`"
        raise ExpectationError(f"`{name.text}` is not the end of a path", span=name.span, hint=hint)
    fields = _mapping(data, name.text, f"write below it {', '.join(f'`{key}:`' for key in KEYS[:2])} and the like")
    _check_keys(fields, KEYS, "a model's section")
    near, near_key = fields.get("near-misses"), fields.key("near-misses")
    engines = fields.get("engines")
    nodes, size, tolerance = fields.get("nodes"), fields.get("size"), fields.get("tolerance")
    return Section(
        model=name.text,
        span=name.span,
        fusions=_fusions(fields.get("fusions"), ids),
        near_misses=None if near is None else _near_misses(near, ids),
        near_misses_span=None if near_key is None else near_key.span,
        engines=None if engines is None else _limit(engines, "engines"),
        nodes=None if nodes is None else _limit(nodes, "nodes"),
        size=None if size is None else _size(size),
        providers=_providers(fields.get("providers")),
        tolerance=None if tolerance is None else _tolerance(tolerance),
    )


def _fusions(data: Data | None, ids: Ids) -> dict[str, Fusions]:
    if data is None:
        return {}
    usage = "write below it one `layer-normalization: 12` a line"
    return {name: _pattern(key, value) for name, key, value in ids.keyed(_mapping(data, "fusions", usage).entries)}


def _pattern(key: Scalar, data: Data) -> Fusions:
    if isinstance(data, Scalar):
        return Fusions(_limit(data, key.text))
    fields = _mapping(data, key.text, "write a number, or below it `count:` and `attributes:`")
    _check_keys(fields, ("count", "attributes"), "a pattern's expectation")
    count, attributes = fields.get("count"), fields.get("attributes")
    usage = "write below it one `epsilon: 1e-5` a line"
    return Fusions(
        None if count is None else _limit(count, "count"),
        {}
        if attributes is None
        else {name.text: _values(name.text, value) for name, value in _mapping(attributes, "attributes", usage).entries},
    )


def _values(name: str, data: Data) -> AttributeValues:
    items = data.items if isinstance(data, Items) else (data,)
    if not items or not all(isinstance(item, Scalar) for item in items):
        hint = f"write `{name}: 1e-5`, or if places differ `{name}: [1e-5, 1e-12]`"
        raise ExpectationError(f"`{name}` is not a number or a text", span=data.span, hint=hint)
    return AttributeValues(tuple(read_scalar(item) for item in items if isinstance(item, Scalar)), data.span)


def _near_misses(data: Data, ids: Ids) -> dict[str, Limit]:
    usage = "write `near-misses: {}` if there are none, or below it one `gelu: at most 2` a line"
    fields = _mapping(data, "near-misses", usage)
    return {name: _limit(value, key.text) for name, key, value in ids.keyed(fields.entries)}


def _providers(data: Data | None) -> dict[str, Span]:
    if data is None:
        return {}
    items = data.items if isinstance(data, Items) else (data,)
    found: dict[str, Span] = {}
    for item in items:
        if not isinstance(item, Scalar) or not re.fullmatch(r"\w+", item.text):
            hint = "write `providers: [CPUExecutionProvider]`"
            raise ExpectationError("`providers` is a list of execution providers", span=item.span, hint=hint)
        found[item.text] = item.span
    return found


def _tolerance(data: Data) -> Tolerance:
    number = read_scalar(data) if isinstance(data, Scalar) else None
    if isinstance(number, bool) or not isinstance(number, int | float) or not (number >= 0 and math.isfinite(number)):
        hint = "write the largest absolute difference of an output, `tolerance: 1e-4`"
        raise ExpectationError("`tolerance` is not a number of 0 and more", span=data.span, hint=hint)
    return Tolerance(float(number), data.span)


def _limit(data: Data, what: str) -> Limit:
    found = _LIMIT.fullmatch(data.text) if isinstance(data, Scalar) else None
    if found is None or not isinstance(data, Scalar):
        said = f"`{data.text}` is not a count" if isinstance(data, Scalar) else f"`{what}` is not a count"
        raise ExpectationError(said, span=data.span, hint=_LIMIT_USAGE)
    return Limit(_kind(found[1]), int(found[2]), data.text, data.span)


def _size(data: Data) -> Limit:
    found = _SIZE.fullmatch(data.text) if isinstance(data, Scalar) else None
    if found is None or not isinstance(data, Scalar):
        said = f"`{data.text}` is not a size" if isinstance(data, Scalar) else "`size` is not a size"
        raise ExpectationError(said, span=data.span, hint=_SIZE_USAGE)
    if not found[1]:
        raise ExpectationError("no two exports have the same size", span=data.span, hint=f"write `at most {data.text}`")
    return Limit(_kind(found[1]), round(float(found[2]) * UNITS[found[3]]), data.text, data.span)


def _kind(words: str) -> Literal["exactly", "at least", "at most"]:
    return cast("Literal['exactly', 'at least', 'at most']", words.strip() or "exactly")


def _mapping(data: Data, what: str, usage: str) -> Fields:
    if not isinstance(data, Fields):
        raise ExpectationError(f"`{what}` is not a mapping", span=data.span, hint=usage)
    return data


def _check_keys(fields: Fields, known: tuple[str, ...], what: str) -> None:
    for key, _ in fields.entries:
        if key.text not in known:
            hint = spelling.hint(key.text, known, f"known are {', '.join(known)}")
            raise ExpectationError(f"`{key.text}` is not a key of {what}", span=key.span, hint=hint)
