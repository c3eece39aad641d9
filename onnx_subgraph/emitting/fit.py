"""Whether a lowering fits a match: the sentences of its `where`, about the values and numbers that it would take."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import onnx_ir as ir

from onnx_subgraph.emitting.emit import Emitter
from onnx_subgraph.emitting.refused import Refused, Unfit
from onnx_subgraph.facts import TypeFacts
from onnx_subgraph.language import falsity
from onnx_subgraph.language.requirement import IS_FALLBACK, PROVIDERS, Requirement
from onnx_subgraph.language.sentence import UnknownFact, UnknownSize, asks_presence, evaluate
from onnx_subgraph.model.gaps import DECLARE


def check_fit(requires: Requirement, emitter: Emitter, providers: Sequence[str], *, is_fallback: bool) -> None:
    """Refuse a replacement that `emitter` is about to emit, if a sentence that it requires is false or unknown in this match.

    providers: the names of the execution providers that the result is for. is_fallback: whether the replacement is for another
    target.
    """

    def names(name: str) -> object:
        if name == PROVIDERS:
            return tuple(providers)
        if name == IS_FALLBACK:
            return is_fallback
        operand = emitter.operand_of(requires.prefix + name)
        return TypeFacts(operand) if isinstance(operand, ir.Value) else operand

    for sentence in requires.sentences:
        if not asks_presence(sentence):
            emitter.fragment.infer()
        try:
            is_true = evaluate(sentence, names)
        except UnknownFact as unknown:
            change = DECLARE if isinstance(unknown, UnknownSize) else ""
            raise Refused(f"its `where` asks for `{sentence}`, and {unknown}", change=change) from None
        if not is_true:
            part = falsity.deciding_part(sentence, names)
            if asks_presence(sentence):
                raise Unfit(f"its `where` asks for `{ast.unparse(part)}`")
            reason = f"its `where` asks for `{ast.unparse(part)}`, and {falsity.facts(part, names)}"
            raise Refused(reason, change=falsity.wish(part))
