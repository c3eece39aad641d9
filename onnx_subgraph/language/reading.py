"""A pattern file → `Pattern`: the keys of the envelope, each read by its own room.

The file's own rules are held here: known keys, the id and the file's name, blocks and sentences. How the names of a pattern hang
together is for `names`, what the operators accept is for `check`.
"""

from __future__ import annotations

import re
from pathlib import Path

from onnx_subgraph.errors import PatternError
from onnx_subgraph.language import names, spelling
from onnx_subgraph.language.example import read_example
from onnx_subgraph.language.grow import read_grow, read_operator
from onnx_subgraph.language.pattern import TARGETS, Case, Example, Expression, Pattern, camel_case
from onnx_subgraph.language.sentence import read_definitions, read_sentence
from onnx_subgraph.language.source import Data, Fields, Items, Scalar, read_file, read_text
from onnx_subgraph.language.syntax import read_block
from onnx_subgraph.language.term import Block

KEYS = (
    *("id", "summary", "match", "where", "let", "replace", "example"),
    *("assumes", "mixed-precision", "shares", "keeps", "fuses", "grow"),
)
"""The keys of a pattern file, in the order they are usually written."""
REGION_KEYS = ("id", "summary", "grow", "replace", "keeps", "fuses")
"""The keys of a pattern of regions."""
ASSUMPTIONS = ("finite",)
"""What a pattern may assume; the report names it."""

_ID = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def read_pattern(path: Path, order: int = 0) -> Pattern:
    """The pattern that the file `path` holds. Raises PatternError, with the place."""
    return pattern_of(read_file(path), path, order)


def parse_pattern(text: str, file: str = "patterns/group/pattern.yaml") -> Pattern:
    """The pattern that `text` holds; the stem of `file` must be its id. Raises PatternError, with the place."""
    return pattern_of(read_text(text, file), Path(file), 0)


def pattern_of(fields: Fields, path: Path, order: int) -> Pattern:
    """The pattern that `fields` describe. Raises PatternError, with the place."""
    check_keys(fields, KEYS, "a pattern")
    if fields.get("grow") is not None:
        return _region_pattern(fields, path, order)
    identity = read_id(fields, path)
    match = read_block(required(fields, "match"), "match")
    pattern = Pattern(
        id=identity,
        group=path.absolute().parent.name,
        summary=read_summary(fields),
        match=match,
        where=_where(fields.get("where")),
        let=_let(fields.get("let")),
        replace=_replace(fields.get("replace"), match),
        example=_example(fields.get("example")),
        assumes=_assumes(fields.get("assumes")),
        mixed_precision=_flag(fields.get("mixed-precision")),
        shares=_shares(fields.get("shares"), match),
        keeps=_cases(fields.get("keeps"), "keeps"),
        fuses=_cases(fields.get("fuses"), "fuses"),
        file=str(path),
        order=order,
    )
    names.check_names(pattern, fields)
    return pattern


def _region_pattern(fields: Fields, path: Path, order: int) -> Pattern:
    identity = read_id(fields, path)
    for key, _ in fields.entries:
        if key.text not in REGION_KEYS:
            hint = f"beside `grow` stand {', '.join(k for k in REGION_KEYS if k != 'grow')}; say it in `grow`"
            raise PatternError(f"`{key.text}` has no meaning for a region", span=key.span, hint=hint)
    return Pattern(
        id=identity,
        group=path.absolute().parent.name,
        summary=read_summary(fields),
        match=Block(()),
        where=(),
        let=(),
        replace={},
        example={},
        keeps=_cases(fields.get("keeps"), "keeps"),
        fuses=_cases(fields.get("fuses"), "fuses"),
        file=str(path),
        order=order,
        grow=read_grow(required(fields, "grow"), read_operator(fields.get("replace"), camel_case(identity))),
    )


def read_id(fields: Fields, path: Path) -> str:
    """The id, which the file's stem repeats. Raises PatternError, with the place."""
    scalar = _text(required(fields, "id"), "id")
    if _ID.fullmatch(scalar.text) is None:
        hint = "write lower-case words joined by `-`, such as `layer-normalization`"
        raise PatternError(f"`{scalar.text}` is not an id", span=scalar.span, hint=hint)
    if path.stem != scalar.text.replace("-", "_"):
        wanted = f"{scalar.text.replace('-', '_')}.yaml"
        hint = f"name the file `{wanted}`, or write `id: {path.stem.replace('_', '-')}`"
        raise PatternError(f"the id `{scalar.text}` does not fit the file's name", span=scalar.span, hint=hint)
    return scalar.text


def read_summary(fields: Fields) -> str:
    """The summary: one line. Raises PatternError, with the place."""
    scalar = _text(required(fields, "summary"), "summary")
    if not scalar.text.strip():
        raise PatternError("`summary` is empty", span=scalar.span, hint="say in one line what is fused")
    return " ".join(scalar.text.split())


def read_targets(fields: Fields) -> tuple[str, ...]:
    """The targets that the file has, in the order of `TARGETS`, read without its blocks."""
    data = fields.get("replace")
    written = {key.text for key, _ in data.entries} if isinstance(data, Fields) else set()
    return tuple(t for t in TARGETS if t in written or t == "function")


def check_keys(fields: Fields, known: tuple[str, ...], what: str) -> None:
    """Raises PatternError at the first key of `fields` that is not `known`; `what` names the thing that has the keys."""
    for key, _ in fields.entries:
        if key.text not in known:
            otherwise = f"the keys of {what} are {', '.join(known)}"
            raise PatternError(
                f"`{key.text}` is not a key of {what}", span=key.span, hint=spelling.hint(key.text, known, otherwise)
            )


def required(fields: Fields, key: str) -> Data:
    """What stands under `key`. Raises PatternError where it is missing."""
    data = fields.get(key)
    if data is None:
        raise PatternError(f"`{key}` is missing", span=fields.span, hint=f"add `{key}:`")
    return data


def _text(data: Data, what: str) -> Scalar:
    if not isinstance(data, Scalar):
        raise PatternError(f"`{what}` is not text", span=data.span, hint=f"write `{what}: …` in one line, in quotes if need be")
    return data


def _flag(data: Data | None) -> bool:
    if data is None:
        return False
    scalar = _text(data, "mixed-precision")
    if scalar.text not in ("true", "false"):
        raise PatternError(f"`{scalar.text}` is neither true nor false", span=scalar.span, hint="write `mixed-precision: true`")
    return scalar.text == "true"


def _where(data: Data | None) -> tuple[Expression, ...]:
    if data is None:
        return ()
    sentences = data.items if isinstance(data, Items) else (data,)
    if isinstance(data, Scalar) and data.style == "|":
        raise PatternError("`where` is a list", span=data.span, hint="write `where:` and below it one `- x.rank == 3` a line")
    return tuple(read_sentence(sentence, "where") for sentence in sentences)


def _let(data: Data | None) -> tuple[tuple[str, Expression], ...]:
    if isinstance(data, Fields):
        hint = "write `let: |` and below it, indented, one `name = expression` a line"
        raise PatternError("`let` is a block of assignments", span=data.span, hint=hint)
    return () if data is None else read_definitions(data)


def _replace(data: Data | None, match: Block) -> dict[str, Block]:
    if data is None:
        return {}
    if not isinstance(data, Fields):
        raise PatternError(
            "`replace` names no target", span=data.span, hint="write `onnxruntime: y = …` or `standard: y = …` below it"
        )
    written = tuple(t for t in TARGETS if t != "function")
    captures = frozenset(names.bound(match).operators)
    found: dict[str, Block] = {}
    for key, block in data.entries:
        if key.text == "function":
            hint = "leave it out: every pattern has this target, its body is the match"
            raise PatternError("the target `function` needs no text", span=key.span, hint=hint)
        if key.text not in written:
            raise PatternError(f"`{key.text}` is not a target", span=key.span, hint=spelling.hint(key.text, written))
        found[key.text] = read_block(block, key.text, captures)
    return found


def _example(data: Data | None) -> dict[str, Example]:
    if data is None:
        return {}
    if not isinstance(data, Fields):
        raise PatternError("`example` is not a mapping", span=data.span, hint='write `example: {x: "float32[2, 8]"}`')
    return {key.text: read_example(key.text, value) for key, value in data.entries}


def _assumes(data: Data | None) -> frozenset[str]:
    if data is None:
        return frozenset()
    found: set[str] = set()
    for item in data.items if isinstance(data, Items) else (data,):
        word = _text(item, "assumes")
        if word.text not in ASSUMPTIONS:
            hint = spelling.hint(word.text, ASSUMPTIONS)
            raise PatternError(f"`{word.text}` is not an assumption of the language", span=word.span, hint=hint)
        found.add(word.text)
    return frozenset(found)


def _shares(data: Data | None, match: Block) -> frozenset[str]:
    if data is None:
        return frozenset()
    found: set[str] = set()
    for item in data.items if isinstance(data, Items) else (data,):
        word = _text(item, "shares")
        if word.text not in match.names:
            hint = spelling.hint(word.text, match.names, "name results of `match` that others may read, too")
            raise PatternError(f"`{word.text}` is not assigned in `match`", span=word.span, hint=hint)
        found.add(word.text)
    return frozenset(found)


def _cases(data: Data | None, key: str) -> tuple[Case, ...]:
    if data is None:
        return ()
    usage = "write a list of `- why: …` with `model: |` and below it an ONNX text model"
    if not isinstance(data, Items):
        raise PatternError(f"`{key}` is not a list", span=data.span, hint=usage)
    return tuple(_case(item, key, usage) for item in data.items)


def _case(data: Data, key: str, usage: str) -> Case:
    if isinstance(data, Scalar) and key == "fuses":
        return Case(data.text, span=data.span)
    if not isinstance(data, Fields):
        raise PatternError(f"an item of `{key}` is not a mapping", span=data.span, hint=usage)
    check_keys(data, ("model", "why"), f"an item of `{key}`")
    model = _text(required(data, "model"), "model")
    why = data.get("why")
    if why is None and key == "keeps":
        raise PatternError("a model that must not fuse has its reason", span=data.span, hint="add `why: …`")
    return Case(model.text, "" if why is None else " ".join(_text(why, "why").text.split()), model.span)
