"""Read the file of a canonical operator as `CanonicalOperator`; read the file of a lowering and add it to its operator.

Checks the keys, that there is one definition, and that every name in the lines is an input, an attribute, derived, or assigned.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from onnx_subgraph.errors import PatternError
from onnx_subgraph.language import spelling
from onnx_subgraph.language.grammar import Code
from onnx_subgraph.language.operator import CanonicalOperator, Definitions, Lowering
from onnx_subgraph.language.reading import check_keys, each_sentence, read_summary, required
from onnx_subgraph.language.recipe import recipe_axes, recipe_mistake
from onnx_subgraph.language.requirement import IS_FALLBACK, PROVIDERS, Requirement
from onnx_subgraph.language.sentence import free_names, place_of, read_conjuncts, read_definitions
from onnx_subgraph.language.source import Data, Fields, Items, Scalar, read_text_of
from onnx_subgraph.language.syntax import read_block
from onnx_subgraph.language.term import Apply, Block, Rearrange, Variable, walk
from onnx_subgraph.language.vocabulary import DTYPES, TYPE_FACTS, is_word
from onnx_subgraph.targets import WRITTEN

KEYS = ("operator", "summary", "source", "inputs", "attributes", "let", "definition", *WRITTEN, "native", "layouts", "formulas")
"""The keys of an operator's file, in the usual order."""
LOWERING_KEYS = ("lowers", "summary", "let", *WRITTEN)
"""The keys of a lowering's file."""
_NAME = re.compile(r"[A-Z][A-Za-z0-9]*")
_PARAMETER = re.compile(r"([a-z][a-z0-9_]*)(\?)?")


def operator_of(fields: Fields, path: Path) -> CanonicalOperator:
    """The operator that `fields` describe. Raises PatternError, with the place."""
    check_keys(fields, KEYS, "a canonical operator")
    name = read_text_of(required(fields, "operator"), "operator")
    if _NAME.fullmatch(name.text) is None:
        raise PatternError(f"`{name.text}` is not an operator's name", span=name.span, hint="write one word in CamelCase")
    inputs, optional = _parameters(required(fields, "inputs"), "inputs")
    attributes, left_out = _parameters(fields.get("attributes"), "attributes")
    definition = read_block(required(fields, "definition"), "definition")
    lowerings = _by_target(fields)
    operator = CanonicalOperator(
        name=name.text,
        summary=read_summary(fields),
        source=" ".join(read_text_of(required(fields, "source"), "source").text.split()),
        inputs=inputs,
        attributes=attributes,
        optional=optional | left_out,
        let=_let(fields, lowerings, definition),
        definition=definition,
        lowerings=lowerings,
        file=str(path),
        kernel=_kernel(fields.get("native")),
    )
    _check(operator)
    return replace(operator, layouts=_layouts(fields.get("layouts"), operator))


def lowered_by(fields: Fields, path: Path, operators: Mapping[str, CanonicalOperator]) -> CanonicalOperator:
    """The operator with the lowerings of a file added before its own. Raises PatternError, with the place."""
    check_keys(fields, LOWERING_KEYS, "a lowering")
    name = read_text_of(required(fields, "lowers"), "lowers")
    operator = operators.get(name.text)
    if operator is None:
        known = spelling.hint(name.text, operators, f"the canonical operators are {', '.join(sorted(operators)) or 'none'}")
        raise PatternError(f"`{name.text}` is not a canonical operator", span=name.span, hint=known)
    read_summary(fields)
    added = _by_target(fields, str(path))
    if not added:
        hint = f"write `{' or `'.join(f'{target}:`' for target in WRITTEN)} and the lines that stand for it there"
        raise PatternError(f"there is no replacement for `{operator.name}`", span=fields.span, hint=hint)
    more = tuple(pair for pair in _let(fields, added) if pair not in operator.let)
    lowerings = {t: (*added.get(t, ()), *operator.lowerings.get(t, ())) for t in WRITTEN if t in added or t in operator.lowerings}
    with_it = replace(operator, let=(*operator.let, *more), lowerings=lowerings)
    _check(with_it)
    return with_it


def _let(fields: Fields, lowerings: Mapping[str, tuple[Lowering, ...]], *blocks: Block) -> Definitions:
    """The numbers that the lines need: those of `let`, and the conditions in the lines."""
    named = () if fields.get("let") is None else read_definitions(required(fields, "let"))
    written = (*blocks, *(one.block for several in lowerings.values() for one in several))
    return (*named, *dict(pair for block in written for pair in block.conditions).items())


def _by_target(fields: Fields, file: str = "") -> Mapping[str, tuple[Lowering, ...]]:
    """Target → lowerings of the operator. file: the lowering's file, "" for the operator's own."""
    given = ((target, fields.get(target)) for target in WRITTEN)
    return {
        target: tuple(replace(one, file=file) for one in _lowerings(data, target, fields))
        for target, data in given
        if data is not None
    }


def _parameters(data: Data | None, what: str) -> tuple[Mapping[str, str], frozenset[str]]:
    """The names with their descriptions, and the optional ones, marked `mask?`."""
    if data is None:
        return {}, frozenset()
    if not isinstance(data, Fields):
        raise PatternError(f"`{what}` is not a mapping", span=data.span, hint=f"write `{what}:` and below it `name: what it is`")
    found: dict[str, str] = {}
    optional: set[str] = set()
    for key, value in data.entries:
        name = _PARAMETER.fullmatch(key.text)
        if name is None:
            raise PatternError(
                f"`{key.text}` is not a name", span=key.span, hint="write it in lower case, with `?` if it is optional"
            )
        if is_word(name[1]) or name[1] in (PROVIDERS, IS_FALLBACK):
            hint = f"call it something else, such as `{name[1]}_`"
            raise PatternError(f"`{name[1]}` is a word of the language", span=key.span, hint=hint)
        found[name[1]] = " ".join(read_text_of(value, key.text).text.split())
        if name[2]:
            optional.add(name[1])
    return found, frozenset(optional)


def _kernel(data: Data | None) -> frozenset[str]:
    """The element types of the kernel in the library."""
    items = data.items if isinstance(data, Items) else () if data is None else (data,)
    types = [read_text_of(item, "native") for item in items]
    for one in types:
        if one.text not in DTYPES:
            raise PatternError(f"`{one.text}` is not an element type", span=one.span, hint=spelling.hint(one.text, DTYPES))
    return frozenset(one.text for one in types)


def _layouts(data: Data | None, operator: CanonicalOperator) -> Mapping[str, str]:
    """The recipes of other layouts that the kernel accepts, by input and result."""
    if data is None:
        return {}
    if not isinstance(data, Fields) or not operator.kernel:
        hint = (
            "write `native: float32` before it"
            if not operator.kernel
            else 'write `layouts:` and below it `x: "b h s d -> b s (h d)"`'
        )
        raise PatternError("`layouts` is a mapping, for operators with a kernel", span=data.span, hint=hint)
    known = (*operator.inputs, *operator.definition.assignments[-1].names)
    found = {}
    for key, value in data.entries:
        if key.text not in known:
            raise PatternError(f"`{key.text}` is no input or result", span=key.span, hint=spelling.hint(key.text, known))
        recipe = read_text_of(value, key.text)
        if mistake := recipe_mistake("rearrange", recipe.text, ()):
            raise PatternError(mistake, span=recipe.span, hint='write a recipe such as "b h s d -> b s (h d)"')
        found[key.text] = recipe.text
    return found


def _lowerings(data: Data, target: str, fields: Fields) -> tuple[Lowering, ...]:
    """The lowerings to a target. An item with the name of the other target stands for those of that target."""
    found: list[Lowering] = []
    for item in data.items if isinstance(data, Items) else (data,):
        if isinstance(data, Items) and isinstance(item, Scalar) and item.text in WRITTEN:
            other = fields.get(item.text)
            if other is None or item.text == target or not isinstance(other, Scalar):
                hint = f"write the lines, or give `{item.text}:` lines of its own"
                raise PatternError(f"there are no lines of `{item.text}` to use here", span=item.span, hint=hint)
            found.append(_lowering(other, item.text))
        else:
            found.append(_lowering(item, target))
    return tuple(found)


def _lowering(data: Data, target: str) -> Lowering:
    if not isinstance(data, Fields):
        return Lowering(read_block(data, target))
    for key, _ in data.entries:
        if key.text == "without":
            hint = "write `where: x is None`, for each argument that the lines can't take"
            raise PatternError("`without` has become a sentence", span=key.span, hint=hint)
    check_keys(data, ("where", "lines"), "a lowering")
    parts = (part for item in each_sentence(data.get("where")) for part in read_conjuncts(item, "where", _check_fact))
    return Lowering(read_block(required(data, "lines"), target), Requirement(tuple(parts)))


def _check_fact(node: ast.Attribute, code: Code) -> None:
    """Raise PatternError for a fact that is not known of every argument before the model runs."""
    if node.attr not in TYPE_FACTS:
        hint = spelling.hint(node.attr, TYPE_FACTS, f"the facts are {', '.join(TYPE_FACTS)}")
        raise PatternError(f"`.{node.attr}` is not a fact about an argument", span=code.span(node), hint=hint)


def _check(operator: CanonicalOperator) -> None:
    """Raise PatternError at the first undefined name, and where a lowering does not give the results."""
    results = operator.definition.assignments[-1].names
    attributes = {*operator.attributes}
    for name, expression in operator.let:
        for used in free_names(expression):
            if used not in attributes:
                hint = spelling.hint(used, attributes, "`let` computes with the attributes")
                raise PatternError(f"`{used}` is not an attribute", span=place_of(expression, used), hint=hint)
        attributes.add(name)
    for lowering in (one for several in operator.lowerings.values() for one in several):
        for sentence in lowering.where.sentences:
            for used in free_names(sentence):
                known = (*operator.inputs, *attributes, PROVIDERS, IS_FALLBACK)
                if used not in known:
                    hint = spelling.hint(used, known)
                    raise PatternError(f"`{used}` is not an argument", span=place_of(sentence, used), hint=hint)
    for block in (operator.definition, *(one.block for lowerings in operator.lowerings.values() for one in lowerings)):
        _check_block(block, {*operator.inputs, *attributes})
        missing = [name for name in results if name not in block.names]
        if missing:
            span = block.assignments[-1].span
            raise PatternError(f"the lines don't give `{missing[0]}`", span=span, hint=f"assign `{missing[0]}` in the last line")


def _check_block(block: Block, known: set[str]) -> None:
    for line in block:
        for term in walk(line.term):
            if isinstance(term, Apply) and (term.rest or term.capture):
                hint = "write the attributes out"
                raise PatternError("an operator's lines capture nothing", span=term.span, hint=hint)
            if isinstance(term, Variable) and term.name not in known:
                axes = {axis for t in walk(line.term) if isinstance(t, Rearrange) for axis in recipe_axes(t.recipe)}
                words = spelling.hint(term.name, known | axes, "it is neither an input, an attribute, nor assigned above")
                raise PatternError(f"`{term.name}` has no meaning here", span=term.span, hint=words)
        known |= set(line.names)
