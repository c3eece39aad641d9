"""Formulas in one file, of a canonical operator or of their own, that share lines and keys.

Each formula is expanded to the keys of a pattern file, which is then read like any other. A formula's own line replaces the
shared line that assigns the same name. Of the shared lines a formula has the last one, and those that it and the own lines depend
on. A name that only other formulas define is absent (`None`), and a result that only other formulas have is not provided.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from onnx_subgraph.errors import PatternError
from onnx_subgraph.language.example import each_example
from onnx_subgraph.language.source import Data, Fields, Items, Scalar, read_file

SHARED_KEYS = ("match", "where", "let", "raises", "replace", "example", "assumes", "mixed-precision", "targets", "shares")
"""The keys that formulas may share."""
_BLOCKS = ("match", "let", "raises")
_NAME = re.compile(r"(?<![\w.])[a-z_]\w*(?!\w|\s*\(|\.)")  # in `match`, what stands before a dot is a domain
_READ = re.compile(r"(?<![\w.])[a-z_]\w*(?!\w|\s*\(|\s*=(?!=))")
_TEXT = re.compile(r'"[^"]*"')
_LEFT = re.compile(r"\s*((?:[a-z_]\w*\s*,\s*)*[a-z_]\w*)\s*=(?!=)")


class _Line(NamedTuple):
    """A statement of a block: its text, the place of each of its lines, the names that it assigns and those that it reads."""

    text: str
    places: tuple[tuple[int, int], ...]
    assigned: frozenset[str]
    read: frozenset[str]


def formulas_of(fields: Fields) -> tuple[Fields, ...]:
    """The formulas in an operator's file or under `each`, each as the keys of a pattern. Raises PatternError, with the place."""
    data = fields if fields.get("each") is not None else fields.get("formulas")
    if data is None:
        return ()
    common, each = (data, data.get("each")) if isinstance(data, Fields) else (Fields((), data.span), data)
    for key in (key for key, _ in common.entries if key.text not in (*SHARED_KEYS, "each")):
        hint = f"formulas share {', '.join(SHARED_KEYS)}; `each` lists them"
        raise PatternError(f"`{key.text}` is not shared by formulas", span=key.span, hint=hint)
    items = each.items if isinstance(each, Items) else ()
    found = [item for item in items if isinstance(item, Fields)]
    if not items or len(found) < len(items):
        raise PatternError("`formulas` is not a list of formulas", span=data.span, hint="write `each:` and below it `- id: …`")
    others = frozenset(name for one in (common, *found) for name in _named(one))
    results = frozenset(name for one in found for line in _lines(one.get("match")) for name in line.assigned)
    return tuple(_combined(one, common, others, results) for one in found)


def fields_of(path: Path, identity: str) -> Fields:
    """The keys of one pattern in a file. Raises PatternError, with the place."""
    fields = read_file(path)
    whole = (one for one in formulas_of(fields) if isinstance(name := one.get("id"), Scalar) and name.text == identity)
    return next(whole, fields)


def source_of(path: Path, identity: str) -> str:
    """The text of one pattern: its file, or its own and the shared keys if it shares a file."""
    fields = fields_of(path, identity)
    if fields.span.line == 1:
        return path.read_text(encoding="utf-8")
    return "\n".join(_written(key.text, data) for key, data in fields.entries) + "\n"


def _written(key: str, data: Data, indent: str = "") -> str:
    """A key with its value, as YAML."""
    match data:
        case Scalar(style="|"):
            return f"{indent}{key}: |\n" + "\n".join(f"{indent}  {line}" for line in data.text.splitlines())
        case Scalar():
            return f"{indent}{key}: {data.text}"
        case Items(items=items):
            return "\n".join([f"{indent}{key}:", *(f"{indent}  - {item.text}" for item in items if isinstance(item, Scalar))])
        case Fields(entries=entries):
            return "\n".join([f"{indent}{key}:", *(_written(name.text, value, indent + "  ") for name, value in entries)])


def _named(fields: Fields) -> frozenset[str]:
    """Every name that a formula binds or assigns."""
    match = fields.get("match")
    bound = set(_NAME.findall(match.text)) if isinstance(match, Scalar) else set()
    blocks = (fields.get("let"), fields.get("raises"), *_targets(fields).values())
    return frozenset(bound.union(*(line.assigned for block in blocks for line in _lines(block))))


def _targets(fields: Fields) -> dict[str, Data]:
    """The blocks under `replace`, by target."""
    data = fields.get("replace")
    return {key.text: block for key, block in data.entries} if isinstance(data, Fields) else {}


def _combined(own: Fields, common: Fields, others: frozenset[str], results: frozenset[str]) -> Fields:
    """A formula combined with the shared keys. others: the names in all formulas of the file.

    results: the names that the own lines of all formulas assign in `match`.
    """
    blocks = {key: _lines(own.get(key)) for key in _BLOCKS}
    match = _after_shared(blocks["match"], _lines(common.get("match")))
    lacking = results - {name for line in match for name in line.assigned}
    raises = _after_shared(blocks["raises"], _lines(common.get("raises")), lacking)
    targets = {**_targets(common), **_targets(own)}
    replaced = {t: _after_shared(_lines(_targets(own).get(t)), _lines(_targets(common).get(t)), lacking) for t in targets}
    read = [line for lines in (raises, *replaced.values()) for line in lines]
    where = [sentence for fields in (common, own) for sentence in _items(fields.get("where"))]
    asked = {name for s in where if isinstance(s, Scalar) for name in _read(s.text)}
    let = _merged(blocks["let"], _lines(common.get("let")), asked.union(*(line.read for line in read)))
    bound = {name for line in match for name in _NAME.findall(line.text)}
    given = bound.union(*(line.assigned for line in (*let, *read)))
    wanted = asked.union(*(line.read for line in (*let, *read)))
    place = own.span.line, own.span.column
    absent = [_Line(f"{name} = None", (place,), frozenset({name}), frozenset()) for name in sorted((wanted & others) - given)]
    whole: dict[str, Data] = {key.text: data for key, data in common.entries if key.text not in ("each", "let")}
    whole |= {key.text: data for key, data in own.entries if key.text != "let"}
    whole |= {key: _block(lines, own, common) for key, lines in (("match", match), ("raises", raises)) if lines}
    if targets:
        names = (Scalar(target, "", data.span) for target, data in targets.items())
        whole["replace"] = Fields(tuple((name, _block(replaced[name.text], own, common)) for name in names), own.span)
    if absent or let:
        whole["let"] = _block((*absent, *let), own, common)
    if where:
        whole["where"] = Items(tuple(where), own.span)
    assigned = {name for line in match for name in line.assigned}
    example = _examples(common.get("example"), own.get("example"), bound - assigned, own)
    if example.entries:
        whole["example"] = example
    keys = {key.text: key for fields in (common, own) for key, _ in fields.entries}
    return Fields(tuple((keys.get(name, Scalar(name, "", own.span)), data) for name, data in whole.items()), own.span)


def _items(data: Data | None) -> tuple[Data, ...]:
    return data.items if isinstance(data, Items) else () if data is None else (data,)


def _examples(common: Data | None, own: Data | None, free: Collection[str], formula: Fields) -> Fields:
    """The examples of a formula's free values; its own take precedence over shared ones."""
    given = each_example(own).entries if isinstance(own, Fields) else ()
    named = {key.text for key, _ in given}
    shared = each_example(common).entries if isinstance(common, Fields) else ()
    return Fields((*given, *((k, d) for k, d in shared if k.text in free and k.text not in named)), formula.span)


def _lines(data: Data | None) -> tuple[_Line, ...]:
    """The statements of a block; a statement begins at each line that is not indented."""
    if not isinstance(data, Scalar):
        return ()
    texts = data.text.splitlines()
    first = next((n for n, text in enumerate(texts) if text.strip()), None)
    if first is None:
        raise PatternError("the block is empty", span=data.span, hint="write one `name = …` a line, or leave the key out")
    starts = [n for n, text in enumerate(texts) if n == first or (text[:1].strip() and not text.startswith((")", "]")))]
    found = []
    for start, end in itertools.pairwise([*starts, len(texts)]):
        text = "\n".join(texts[start:end])
        left = _LEFT.match(text)
        assigned = frozenset(re.split(r"\s*,\s*", left[1])) - {"_"} if left else frozenset()
        places = tuple((at.line, at.column) for at in (data.at(n + 1, 1) for n in range(start, end)))
        found.append(_Line(text, places, assigned, _read(text[left.end() if left else 0 :])))
    return tuple(found)


def _without(line: _Line, absent: Collection[str]) -> _Line:
    """A statement that drops the results with these names. What stands behind them keeps its column."""
    left = _LEFT.match(line.text)
    if left is None or line.assigned.isdisjoint(absent):
        return line
    kept = re.sub(r"\w+", lambda name: "_".ljust(len(name[0])) if name[0] in absent else name[0], left[0])
    return line._replace(text=kept + line.text[left.end() :], assigned=line.assigned.difference(absent))


def _read(text: str) -> frozenset[str]:
    return frozenset(_READ.findall(_TEXT.sub("", text)))


def _after_shared(own: tuple[_Line, ...], common: tuple[_Line, ...], lacking: Collection[str] = ()) -> tuple[_Line, ...]:
    """The own lines of a block, and the shared ones for its last line, without the results that the formula lacks."""
    lines = tuple(_without(line, lacking) for line in common)
    return _merged(own, lines, lines[-1].assigned if lines else ())


def _merged(own: tuple[_Line, ...], common: tuple[_Line, ...], wanted: Iterable[str]) -> tuple[_Line, ...]:
    """The own lines, and the shared ones that they or `wanted` depend on; each line after those that it reads."""
    replaced = {name for line in own for name in line.assigned}
    shared = [line for line in common if line.assigned.isdisjoint(replaced)]
    needed = set(wanted).union(*(line.read for line in own))
    kept = list(own)
    for line in reversed(shared):
        if not line.assigned.isdisjoint(needed):
            needed |= line.read
            kept.insert(0, line)
    placed: list[_Line] = []
    while kept:
        later = {name for line in kept for name in line.assigned}
        ready = next((line for line in kept if (line.read & later) <= line.assigned), kept[0])
        kept.remove(ready)
        placed.append(ready)
    return tuple(placed)


def _block(lines: Iterable[_Line], own: Fields, common: Fields) -> Scalar:
    """The lines as one block, each with its place in the file."""
    lines = tuple(lines)
    text = "\n".join(line.text for line in lines) + "\n"
    source = next((d.lines for f in (own, common) for _, d in f.entries if isinstance(d, Scalar) and d.lines), ())
    return Scalar(text, "|", own.span, tuple(place for line in lines for place in line.places), source)
