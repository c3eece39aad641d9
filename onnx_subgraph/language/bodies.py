"""Read `bodies`: standard operators whose function bodies are searched for, each with the specification's limits on its operands.

A graph may contain the body for operands that the operator does not accept. The specification gives these limits only in prose.
So they are written here as sentences about the formal inputs, outputs and attributes.
"""

from __future__ import annotations

from onnx_subgraph import operators
from onnx_subgraph.errors import PatternError
from onnx_subgraph.language import spelling
from onnx_subgraph.language.expression import Expression
from onnx_subgraph.language.sentence import free_names, place_of, read_sentence
from onnx_subgraph.language.source import Data, Fields, Items, Scalar
from onnx_subgraph.language.vocabulary import is_word


def read_bodies(data: Data) -> dict[str, tuple[Expression, ...]]:
    """Operator → its sentences, in order. Raises PatternError, with the place."""
    if not isinstance(data, Fields):
        raise PatternError("`bodies` is not a mapping", span=data.span, hint="write one `Softmax:` a line, sentences below it")
    found: dict[str, tuple[Expression, ...]] = {}
    for operator, sentences in data.entries:
        if not operators.is_standard(operator.text):
            hint = spelling.hint(operator.text, operators.operator_names(), "name operators of ONNX, `Softmax`")
            raise PatternError(f"`{operator.text}` is not an operator of the standard", span=operator.span, hint=hint)
        found[operator.text] = _sentences(operator.text, sentences)
    return found


def called(formal: str) -> str:
    """The name of a formal input, output or attribute in a sentence; `_` is added to a word of the language."""
    return f"{formal}_" if is_word(formal) else formal


def _sentences(operator: str, data: Data) -> tuple[Expression, ...]:
    if isinstance(data, Scalar) and not data.text:
        return ()
    if not isinstance(data, Items):
        hint = "write below it one `- X.rank == 4` a line"
        raise PatternError(f"the conditions of `{operator}` are not a list", span=data.span, hint=hint)
    history = operators.history(operator)
    known = {called(f.name) for s in history for f in (*s.inputs, *s.outputs)} | {
        called(a) for s in history for a in s.attributes
    }
    found = tuple(read_sentence(item, "bodies") for item in data.items)
    for sentence in found:
        for name in free_names(sentence):
            if name not in known:
                near = spelling.hint(name, known, f"its names are {', '.join(sorted(known))}")
                raise PatternError(f"`{name}` is not a name of `{operator}`", span=place_of(sentence, name), hint=near)
    return found
