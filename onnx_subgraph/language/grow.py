"""Read `grow`: a region instead of a formula, given by the four questions of a subgraph selector or by a Python selector's name.

A question is a sentence as in `where`, with another closed vocabulary: facts about a node, or about the finished region.
"""

from __future__ import annotations

import ast
from dataclasses import replace

from onnx_subgraph.errors import PatternError
from onnx_subgraph.language import spelling
from onnx_subgraph.language.expression import Expression
from onnx_subgraph.language.grammar import Code
from onnx_subgraph.language.pattern import Grow
from onnx_subgraph.language.sentence import place_in, read_conjuncts, read_sentence
from onnx_subgraph.language.source import Data, Fields, Items, Scalar
from onnx_subgraph.language.vocabulary import FACTS, is_word

KEYS = ("select", "input", "output", "keep", "selector")
"""The keys of `grow`."""
NAMES = {"select": ("node",), "input": ("node", "producer"), "output": ("node", "consumer"), "keep": ("region",)}
"""Question → the names that it may use."""
GROUP = "onnx_subgraph.selectors"
"""The entry point group of Python selectors."""

_KINDS = {"node": "node", "producer": "node", "consumer": "node", "region": "region"}
_NODE = {"operator": "text", "domain": "text", "is_elementwise": "answer", "dtypes": "list"}
_OF: dict[str, dict[str, str]] = {
    "node": {**_NODE, "inputs": "values", "outputs": "values", "attributes": "attributes"},
    "region": {"size": "number", "operators": "list", "dtypes": "list", "inputs": "values", "outputs": "values"},
    "value": dict.fromkeys(FACTS, "fact"),
}
"""Kind of thing → its facts, and the kind of each; `attributes` accepts any name."""


def read_grow(data: Data, replaced: Grow) -> Grow:
    """Read `grow`. replaced: the operator that replaces a region. Raises PatternError."""
    if not isinstance(data, Fields):
        raise PatternError("`grow` is not a mapping", span=data.span, hint="write `select: …` below it, indented")
    for key, _ in data.entries:
        if key.text not in KEYS:
            hint = spelling.hint(key.text, KEYS, f"the questions are {', '.join(KEYS)}")
            raise PatternError(f"`{key.text}` is not a question of `grow`", span=key.span, hint=hint)
    keep = _keep(data.get("keep"))
    selector = data.get("selector")
    if selector is not None:
        for question in ("select", "input", "output"):
            if (answer := data.key(question)) is not None:
                hint = "leave it out, or leave out `selector`"
                raise PatternError(f"`{question}` is answered by the selector", span=answer.span, hint=hint)
        return replace(replaced, keep=keep, selector=_selector(selector))
    if data.get("select") is None:
        hint = "add `select: node.is_elementwise`, or another sentence about `node`"
        raise PatternError("`select` is missing: where may a region start?", span=data.span, hint=hint)
    select, along, back = (_question(data.get(key), key) for key in ("select", "output", "input"))
    return replace(replaced, select=select, output=along, input=back, keep=keep)


def sentences(grow: Grow) -> tuple[Expression, ...]:
    """Every sentence of `grow`."""
    return tuple(s for s in (grow.select, grow.input, grow.output, *grow.keep) if s is not None)


def _question(data: Data | None, question: str) -> Expression | None:
    if data is None:
        return None
    sentence = read_sentence(data, question, _check_path)
    _check_names(sentence, question)
    return sentence


def _keep(data: Data | None) -> tuple[Expression, ...]:
    if data is None:
        return ()
    sentences = tuple(
        s for item in (data.items if isinstance(data, Items) else (data,)) for s in read_conjuncts(item, "keep", _check_path)
    )
    for sentence in sentences:
        _check_names(sentence, "keep")
    return sentences


def _selector(data: Data) -> str:
    from importlib.metadata import entry_points

    if not isinstance(data, Scalar) or not data.text:
        raise PatternError("`selector` is not a name", span=data.span, hint="write `selector: my-selector`")
    known = entry_points(group=GROUP).names
    if data.text not in known:
        otherwise = f"a package registers it in the entry point group `{GROUP}`"
        hint = spelling.hint(data.text, known, otherwise)
        raise PatternError(f"no selector `{data.text}` is installed", span=data.span, hint=hint)
    return data.text


def _check_names(sentence: Expression, question: str) -> None:
    """Raise PatternError for a name that the question may not use."""
    known = NAMES[question]
    for node in ast.walk(sentence.tree):
        if isinstance(node, ast.Name) and not is_word(node.id) and node.id not in known:
            otherwise = f"`{question}` asks about {' and '.join(f'`{n}`' for n in known)}"
            hint = spelling.hint(node.id, known, otherwise)
            raise PatternError(f"`{node.id}` is not a name here", span=place_in(sentence, node), hint=hint)


def _check_path(node: ast.Attribute, code: Code) -> None:
    """Raise PatternError where `node` asks for an unknown fact: `node.rank`, `node.inputs.rank`."""
    kind = _kind(node.value)
    facts = _OF.get(kind or "", {})
    if kind is None or node.attr in facts or (kind == "attributes" and not node.attr.startswith("_")):
        return  # an unknown name is refused later, with its place
    words = code.words(node.value)
    if kind == "values":
        hint = f"write `{words}[0].{node.attr if node.attr in FACTS else 'dtype'}`"
    else:
        hint = spelling.hint(node.attr, facts, f"it has {', '.join(facts)}" if facts else "nothing can be asked of it") or ""
    raise PatternError(f"`.{node.attr}` is not a fact about `{words}`", span=code.span(node), hint=hint)


def _kind(node: ast.expr) -> str | None:
    """The kind of thing that an expression stands for, which determines its facts; None for an unknown name."""
    match node:
        case ast.Name(id=name):
            return _KINDS.get(name)
        case ast.Attribute(value=value, attr=attr):
            return _OF.get(_kind(value) or "", {}).get(attr, "fact")
        case ast.Subscript(value=value, slice=place):
            return ("values" if isinstance(place, ast.Slice) else "value") if _kind(value) == "values" else "fact"
        case _:
            return "fact"
