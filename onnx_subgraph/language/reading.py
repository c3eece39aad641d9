"""Read a pattern file as `Pattern`; other modules read the values of the keys.

This module checks the rules of the file: known keys, the id and the file's name, blocks and sentences. `names` checks how names
are defined and used; `check` checks what the operators accept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from onnx_subgraph.errors import PatternError
from onnx_subgraph.language import names, spelling
from onnx_subgraph.language.bodies import read_bodies
from onnx_subgraph.language.example import each_example, read_example
from onnx_subgraph.language.expression import Expression
from onnx_subgraph.language.formerly import read_formerly
from onnx_subgraph.language.formulas import formulas_for
from onnx_subgraph.language.grow import read_grow
from onnx_subgraph.language.operator import CanonicalOperator, read_raised
from onnx_subgraph.language.own_operator import read_operator
from onnx_subgraph.language.pattern import ID, Case, Example, Pattern, camel_case
from onnx_subgraph.language.sentence import read_definitions, read_sentence
from onnx_subgraph.language.source import Data, Fields, Items, Scalar, read_text, read_text_of
from onnx_subgraph.language.syntax import read_block
from onnx_subgraph.language.targets import wanted_targets
from onnx_subgraph.language.term import Block
from onnx_subgraph.targets import WRITTEN

Operators = Mapping[str, CanonicalOperator]
"""The canonical operators that formulas may raise to, by name."""
KEYS = (
    *("id", "summary", "match", "where", "let", "raises", "replace", "example"),
    *("assumes", "mixed-precision", "late", "targets", "shares", "results", "keeps", "fuses", "grow", "bodies", "formerly"),
)
"""The keys of a pattern file, in the usual order."""
REGION_KEYS = ("id", "summary", "grow", "replace", "keeps", "fuses", "formerly")
"""The keys of a pattern of regions."""
BODY_KEYS = ("id", "summary", "bodies", "keeps", "fuses", "formerly")
"""The keys of a pattern of function bodies."""
ASSUMPTIONS = ("centred", "finite", "nonempty", "nonempty-images", "nonnegative", "nonzero", "visible")
"""What a pattern may assume of the data; the report shows it."""


def parse_pattern(text: str, file: str = "patterns/group/pattern.yaml", operators: Operators = MappingProxyType({})) -> Pattern:
    """Parse the pattern in `text`; the stem of `file` must be its id. Raises PatternError, with the place."""
    return pattern_of(read_text(text, file), Path(file), 0, operators)


def pattern_of(
    fields: Fields, path: Path, order: int, operators: Operators = MappingProxyType({}), *, checked: bool = True
) -> Pattern:
    """The pattern that `fields` describe. Raises PatternError, with the place.

    operators: those that it may raise to. checked: whether to check how its names are defined and used.
    """
    check_keys(fields, KEYS, "a pattern")
    if fields.get("grow") is not None:
        return _region_pattern(fields, path, order)
    if fields.get("bodies") is not None:
        return _body_pattern(fields, path, order)
    identity = read_id(fields, path)
    match = read_block(required(fields, "match"), "match", formulas=formulas_for(path))
    raises = None if fields.get("raises") is None else read_block(required(fields, "raises"), "raises")
    raised = None if raises is None else read_raised(raises, operators)
    written = _replace(fields.get("replace"), match)
    asked = dict(pair for block in (raises, *written.values()) if block is not None for pair in block.conditions)
    wanted = wanted_targets(fields)
    lowered = {} if raised is None else {t: blocks for t in wanted if t not in written and (blocks := raised.lowered(t))}
    pattern = Pattern(
        id=identity,
        group=path.absolute().parent.name,
        summary=read_summary(fields),
        match=match,
        where=tuple(read_sentence(sentence, "where") for sentence in each_sentence(fields.get("where"))),
        let=(*_let(fields.get("let")), *asked.items(), *(() if raised is None else raised.let)),
        replace={t: blocks[0] for t, blocks in lowered.items()} | written,
        variants={t: blocks[1:] for t, blocks in lowered.items() if len(blocks) > 1},
        raised=raised,
        kernel=raised.operator.kernel if raised is not None and "native" in wanted else frozenset(),
        example=_example(fields.get("example")),
        assumes=_assumes(fields.get("assumes")),
        mixed_precision=read_flag(fields, "mixed-precision"),
        late=read_flag(fields, "late"),
        shares=_assigned(fields.get("shares"), match, "shares", "name results of `match` that others may read, too"),
        given=_results(fields, match),
        keeps=read_cases(fields.get("keeps"), "keeps"),
        fuses=read_cases(fields.get("fuses"), "fuses"),
        file=str(path),
        order=order,
        formerly=read_formerly(fields, identity),
    )
    if checked:
        names.check_names(pattern, fields)
    return pattern


def _body_pattern(fields: Fields, path: Path, order: int) -> Pattern:
    _check_beside(fields, "bodies", BODY_KEYS, "has no meaning for function bodies", "the standard says the rest")
    return replace(_without_formula(fields, path, order), bodies=read_bodies(required(fields, "bodies")))


def _region_pattern(fields: Fields, path: Path, order: int) -> Pattern:
    _check_beside(fields, "grow", REGION_KEYS, "has no meaning for a region", "say it in `grow`")
    pattern = _without_formula(fields, path, order)
    operator = read_operator(fields.get("replace"), camel_case(pattern.id))
    return replace(pattern, grow=read_grow(required(fields, "grow"), operator))


def _check_beside(fields: Fields, key: str, known: tuple[str, ...], wrong: str, instead: str) -> None:
    """Raise PatternError at the first key that is not allowed together with `key`."""
    for name, _ in fields.entries:
        if name.text not in known:
            hint = f"beside `{key}` stand {', '.join(k for k in known if k != key)}; {instead}"
            raise PatternError(f"`{name.text}` {wrong}", span=name.span, hint=hint)


def _without_formula(fields: Fields, path: Path, order: int) -> Pattern:
    """The common keys of a pattern without a formula."""
    identity = read_id(fields, path)
    return Pattern(
        id=identity,
        group=path.absolute().parent.name,
        summary=read_summary(fields),
        match=Block(()),
        where=(),
        let=(),
        replace={},
        example={},
        keeps=read_cases(fields.get("keeps"), "keeps"),
        fuses=read_cases(fields.get("fuses"), "fuses"),
        file=str(path),
        order=order,
        formerly=read_formerly(fields, identity),
    )


def read_id(fields: Fields, path: Path) -> str:
    """The id; it must equal the file's stem. Raises PatternError, with the place."""
    scalar = read_text_of(required(fields, "id"), "id")
    if ID.fullmatch(scalar.text) is None:
        hint = "write lower-case words joined by `-`, such as `layer-normalization`"
        raise PatternError(f"`{scalar.text}` is not an id", span=scalar.span, hint=hint)
    if path.stem != scalar.text.replace("-", "_") and fields.span.line == 1:  # a formula in a shared file starts later
        wanted = f"{scalar.text.replace('-', '_')}.yaml"
        hint = f"name the file `{wanted}`, or write `id: {path.stem.replace('_', '-')}`"
        raise PatternError(f"the id `{scalar.text}` does not fit the file's name", span=scalar.span, hint=hint)
    return scalar.text


def read_summary(fields: Fields) -> str:
    """The summary, as one line. Raises PatternError, with the place."""
    scalar = read_text_of(required(fields, "summary"), "summary")
    if not scalar.text.strip():
        raise PatternError("`summary` is empty", span=scalar.span, hint="say in one line what is fused")
    return " ".join(scalar.text.split())


def check_keys(fields: Fields, known: tuple[str, ...], what: str) -> None:
    """Raise PatternError at the first key of `fields` that is not `known`. `what` names the object in the message."""
    for key, _ in fields.entries:
        if key.text not in known:
            otherwise = f"the keys of {what} are {', '.join(known)}"
            raise PatternError(
                f"`{key.text}` is not a key of {what}", span=key.span, hint=spelling.hint(key.text, known, otherwise)
            )


def required(fields: Fields, key: str) -> Data:
    """The value of `key`. Raises PatternError where it is missing."""
    data = fields.get(key)
    if data is None:
        raise PatternError(f"`{key}` is missing", span=fields.span, hint=f"add `{key}:`")
    return data


def read_flag(fields: Fields, key: str) -> bool:
    """The value of a key that is true or false, and false if it is left out. Raises PatternError."""
    data = fields.get(key)
    if data is None:
        return False
    scalar = read_text_of(data, key)
    if scalar.text not in ("true", "false"):
        raise PatternError(f"`{scalar.text}` is neither true nor false", span=scalar.span, hint=f"write `{key}: true`")
    return scalar.text == "true"


def each_sentence(data: Data | None) -> Sequence[Data]:
    """The sentences under `where`, one or a list."""
    if isinstance(data, Scalar) and data.style == "|":
        raise PatternError("`where` is a list", span=data.span, hint="write `where:` and below it one `- x.rank == 3` a line")
    return data.items if isinstance(data, Items) else () if data is None else (data,)


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
    captures = frozenset(names.bound(match).operators)
    found: dict[str, Block] = {}
    for key, block in data.entries:
        if key.text == "function":
            hint = "leave it out: every pattern has this target, its body is the match"
            raise PatternError("the target `function` needs no text", span=key.span, hint=hint)
        if key.text not in WRITTEN:
            raise PatternError(f"`{key.text}` is not a target", span=key.span, hint=spelling.hint(key.text, WRITTEN))
        found[key.text] = read_block(block, key.text, captures)
    return found


def _example(data: Data | None) -> dict[str, Example]:
    if data is None:
        return {}
    if not isinstance(data, Fields):
        raise PatternError("`example` is not a mapping", span=data.span, hint='write `example: {x: "float32[2, 8]"}`')
    return {key.text: read_example(key.text, value) for key, value in each_example(data).entries}


def _assumes(data: Data | None) -> frozenset[str]:
    if data is None:
        return frozenset()
    found: set[str] = set()
    for item in data.items if isinstance(data, Items) else (data,):
        word = read_text_of(item, "assumes")
        if word.text not in ASSUMPTIONS:
            hint = spelling.hint(word.text, ASSUMPTIONS)
            raise PatternError(f"`{word.text}` is not an assumption of the language", span=word.span, hint=hint)
        found.add(word.text)
    return frozenset(found)


def _assigned(data: Data | None, match: Block, key: str, usage: str) -> frozenset[str]:
    """The names under a key, one or a list. `match` must assign each of them."""
    if data is None:
        return frozenset()
    found: set[str] = set()
    for item in data.items if isinstance(data, Items) else (data,):
        word = read_text_of(item, key)
        if word.text not in match.names:
            hint = spelling.hint(word.text, match.names, usage)
            raise PatternError(f"`{word.text}` is not assigned in `match`", span=word.span, hint=hint)
        found.add(word.text)
    return frozenset(found)


def _results(fields: Fields, match: Block) -> frozenset[str]:
    """The results that the file lists. Raises PatternError, with the place, where a replacement already names them."""
    data = fields.get("results")
    if data is not None and (fields.get("replace") or fields.get("raises")):
        hint = "leave `results` out: a replacement names what it provides"
        raise PatternError("`results` stands beside a replacement", span=data.span, hint=hint)
    return _assigned(data, match, "results", "name lines of `match` that others read")


def read_cases(data: Data | None, key: str) -> tuple[Case, ...]:
    """The models under `fuses` or `keeps`, whichever `key` is. Raises PatternError, with the place."""
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
    model = read_text_of(required(data, "model"), "model")
    why = data.get("why")
    if why is None and key == "keeps":
        raise PatternError("a model that must not fuse has its reason", span=data.span, hint="add `why: …`")
    return Case(model.text, "" if why is None else " ".join(read_text_of(why, "why").text.split()), model.span)
