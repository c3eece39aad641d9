"""Reasons: where a candidate failed, raw while matching goes on, in words when somebody reads it."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping

import onnx_ir as ir

from onnx_subgraph.errors import Span
from onnx_subgraph.language import falsity
from onnx_subgraph.language.evaluation import Names
from onnx_subgraph.language.pattern import Expression, Pattern
from onnx_subgraph.language.sentence import free_names
from onnx_subgraph.matching.chain import Front
from onnx_subgraph.matching.match import NearMiss
from onnx_subgraph.matching.normal import Choice, Constant, Layout, Name, Normal, Nothing, Operation, Product, Sum
from onnx_subgraph.matching.origin import is_made, stood_for
from onnx_subgraph.matching.veils import guarded, is_float_cast
from onnx_subgraph.matching.view import View, Virtual
from onnx_subgraph.model.dimension_names import outer
from onnx_subgraph.model.gaps import DECLARE

Target = ir.Value | Virtual
SLIGHTLY = 0.25
"""How much less deep a failure is where the operator of a node is right, and what is said of it is wrong."""


class Failure:
    """The furthest failure, in raw form; it is put into words only when somebody reads it.

    found: "" for what stands at `value`. change: "" for what is expected, in the place of what was found. nodes: all that had
    matched, where only a condition failed.
    """

    __slots__ = ("change", "depth", "expected", "found", "nodes", "span", "value")

    def __init__(
        self,
        depth: float,
        span: Span | None,
        value: Target | None,
        expected: str,
        found: str,
        change: str = "",
        nodes: Collection[ir.Node] = (),
    ) -> None:
        self.depth = depth
        self.span = span
        self.value = value
        self.expected = expected
        self.found = found
        self.change = change
        self.nodes = nodes

    def above(self, depth: float) -> Failure:
        """The same failure, with its depth counted from `depth`."""
        return self.at(self.depth - depth)

    def at(self, depth: float) -> Failure:
        """The same failure at another depth."""
        return Failure(depth, self.span, self.value, self.expected, self.found, self.change, self.nodes)


def words(term: Normal) -> str:
    """What a term asks for: an operator, or a sum or product as the pattern writes it."""
    match term:
        case Operation(operators=operators):
            return " or ".join(sorted(map(qualified, operators)))
        case Name(name=name, definition=definition):
            return words(definition) if definition is not None else f"a value for {name}"
        case Constant(value=value):
            return f"the constant {value}"
        case Nothing():
            return "an omitted input"
        case Product(span=span) | Sum(span=span):
            kind = "a product" if isinstance(term, Product) else "a sum"
            return kind if span is None or not written(span) else f"{kind} `{written(span)}`"
        case Choice(alternatives=alternatives):
            return " or ".join(dict.fromkeys(map(words, alternatives)))
        case Layout(term=word):
            return f"a {word.word}"


def written(span: Span) -> str:
    """The text at a place of a pattern file."""
    return span.text[span.column - 1 : span.column - 1 + span.length].strip()


def qualified(identity: tuple[str, str]) -> str:
    """An operator by its name, with its domain where that is not the standard's."""
    domain, operator = identity
    return f"{domain}.{operator}" if domain else operator


def counted_inputs(number: int) -> str:
    """`1 input`, `2 inputs`."""
    return f"{number} input{'' if number == 1 else 's'}"


def named(value: object) -> str:
    """A value of the graph by its name; a number as it is."""
    if isinstance(value, ir.Value):
        return f"`{value.name}`"
    return value.operator if isinstance(value, Virtual) else f"{value:.6g}" if isinstance(value, float) else str(value)


def applied(view: View, value: ir.Value) -> str:
    """The node behind a value as a pattern would write it, constants by their number: `Pow(h, 2.01)`."""
    node = view.producer(value)
    if node is None or view.constants.is_constant(value):
        return ""
    inputs = ("" if v is None else _constant_or_name(view, v) for v in node.inputs)
    said = _gemm_attributes(view, node)
    return f"{qualified((node.domain, node.op_type))}({', '.join([*inputs, *([said] if said else [])])})"


Said = tuple[str, str, str]
"""What was expected, what was found, and the smallest change."""


def false_sentence(sentence: Expression, names: Names, bindings: Mapping[str, object]) -> tuple[str, str]:
    """Why a sentence is false, with what its names stand for in the graph, and what would have to be."""
    part = falsity.deciding_part(sentence, names)
    head = "it is false" if part is sentence.tree else f"`{ast.unparse(part)}` is false"
    stand_for = (f"{n} is `{v.name}`" for n in free_names(part) if isinstance(v := bindings.get(n), ir.Value))
    return f"{head}: {falsity.facts(part, names)}", "; ".join((falsity.wish(part), *stand_for))


def unknown_sentence(sentence: Expression, unknown: str) -> tuple[str, str]:
    """Why a sentence can't be said to be true, and what to do about it."""
    if "is not a constant" in unknown:
        return unknown, f"let it be a constant, so that `{sentence}` can be worked out"
    if "is absent" not in unknown and ("not known" in unknown or ("not a known number" in unknown and ".shape" in unknown)):
        return unknown, DECLARE
    return unknown, f"let `{sentence}` have a value"


def read_elsewhere(view: View, value: ir.Value, reader: ir.Node | None) -> Said:
    """An inner value that is needed outside the match: by `reader`, or as an output of the graph."""
    expected = "an inner value that only the match reads"
    if reader is None:
        return expected, f"value `{value.name}` is an output of the graph", f"take `{value.name}` out of the graph's outputs"
    where = "" if reader.graph is view.graph else ", in a nested body"
    place = _name(reader)
    found = f"value `{value.name}` is also read by {place} ({reader.op_type}){where}"
    return expected, found, f"let {place} read another value, or leave it out"


def not_read(value: ir.Value, reader: Normal, readers: str) -> Said:
    """A part of the pattern is there, and what the pattern wants to read it is not."""
    wanted = words(reader)
    return f"{wanted} that reads `{value.name}`", readers, f"let {wanted} read `{value.name}`"


def spelled(front: Front, *, product: bool) -> str:
    """A sum or product of the graph as a pattern would write it: `0.5 * x * s ** -1`, `a - b + 1`."""
    if product:
        factors = [_operand(v) if power == 1 else f"{_operand(v)} ** {power:.6g}" for v, power in front.items]
        return " * ".join([*([] if front.constant == 1 else [f"{front.constant:.6g}"]), *factors])
    addends = [("- " if sign < 0 else "+ ") + _operand(v) for v, sign in front.items]
    constant = [] if front.constant == 0 else [f"{'-' if front.constant < 0 else '+'} {abs(front.constant):.6g}"]
    return " ".join([*addends, *constant]).removeprefix("+ ")


def near_miss(pattern: Pattern, view: View, anchor: ir.Node, failure: Failure) -> NearMiss:
    """The failure of a candidate that started from `anchor`, in words."""
    value = failure.value
    found = failure.found or describe(view, value)
    change = _change(pattern, view, failure)
    return NearMiss(
        pattern=pattern.id,
        span=failure.span,
        anchor=_name(anchor),
        node=_place(value, anchor),
        expected=outer(failure.expected),
        found=outer(found),
        matched=int(failure.depth + SLIGHTLY),
        change=outer(change or f"put {failure.expected} in the place of {found}"),
        unknown=failure.change == DECLARE,
    )


def is_of_interest(pattern: Pattern, view: View, anchor: ir.Node, failure: Failure) -> bool:
    """Whether a failure says something about the user's file.

    What a replacement made is fused already, and is in no file: that something else does not stand in its place is no reason, nor
    that what begins at it lacks another operator.
    """
    value = failure.value
    node = value.node if isinstance(value, Virtual) else anchor if value is None else value.producer()
    if is_made(node):
        return False
    return not is_made(anchor) or bool(_change(pattern, view, failure))


def _change(pattern: Pattern, view: View, failure: Failure) -> str:
    """The smallest change that would do, where it is more than to put one operator in the place of another."""
    value = failure.value
    known = failure.change or _veiled(pattern, view, value) or _opened(value, failure.expected)
    return known or _unfolded(view, value, failure.expected)


def _name(node: ir.Node) -> str:
    """The name of a node in the user's file: of what a replacement made, that of the last node that it replaced."""
    names = stood_for(node) if is_made(node) else [node.name or (node.outputs[0].name if node.outputs else "") or ""]
    return next((name for name in reversed(names) if name), "")


def _place(value: ir.Value | Virtual | None, anchor: ir.Node) -> str:
    if isinstance(value, Virtual):
        return _name(value.node)
    producer = value.producer() if value is not None else anchor
    if producer is None:
        return (value.name if value is not None else "") or ""
    return _name(producer)


def describe(view: View, value: ir.Value | Virtual | None) -> str:
    """What stands where something else was expected."""
    if value is None:
        return "nothing"
    if isinstance(value, Virtual):
        return value.operator
    if view.constants.is_constant(value):
        number = view.scalar(value)
        return f"a constant of shape {value.shape}" if number is None else f"{number.number:.6g}"
    producer = value.producer()
    if producer is not None:
        said = _gemm_attributes(view, producer)
        return f"{qualified((producer.domain, producer.op_type))}{f' with {said}' if said else ''}"
    if _is_overridable(value):
        return f"`{value.name}`, an initializer that is a graph input as well"
    return f"`{value.name}`, a graph input" if value.is_graph_input() else f"`{value.name}`, a value from outside"


def _constant_or_name(view: View, value: ir.Value) -> str:
    number = view.scalar(value)
    return value.name or "" if number is None else f"{number.number:.6g}"


def _operand(value: Target) -> str:
    return (value.name or "") if isinstance(value, ir.Value) else value.operator


def _is_overridable(value: ir.Value) -> bool:
    return value.is_initializer() and value.is_graph_input()


def _opened(value: Target | None, expected: str) -> str:
    """What to change where a constant is expected, and the value could be one."""
    if not isinstance(value, ir.Value) or "constant" not in expected or not _is_overridable(value):
        return ""
    return f"take {value.name} out of the inputs of the graph, so that nothing can override it: --constant-initializers"


def _gemm_attributes(view: View, node: ir.Node) -> str:
    """What keeps a Gemm from being `a @ b + c`: `transB=1, alpha=0.5`; "" for any other node."""
    if (node.domain, node.op_type) != ("", "Gemm") or view.is_plain_gemm(node):
        return ""
    plain = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0}
    return ", ".join(f"{name}={a.value:g}" for name, a in sorted(node.attributes.items()) if a.value != plain.get(name))


def _unfolded(view: View, value: Target | None, expected: str) -> str:
    """What to change where a Gemm stands that is not `a @ b + c`, and a product of matrices or a sum with one is expected."""
    node = view.producer(view.through(value)[0]) if isinstance(value, ir.Value) else None
    said = "" if node is None else _gemm_attributes(view, node)
    if not said or not ("MatMul" in expected or " @ " in expected or expected.startswith("a sum")):
        return ""
    stored = " and store its weight transposed" if "trans" in said else ""
    return f"leave {said} out of the Gemm{stored}, so that it is a @ b + c"


def _veiled(pattern: Pattern, view: View, value: Target | None) -> str:
    """What to change where a Cast or a guard stands in the way that other patterns look through."""
    node = view.producer(value) if isinstance(value, ir.Value) else None
    if node is None or node.domain:
        return ""
    if node.op_type == "Cast" and not pattern.mixed_precision and is_float_cast(node):
        return "leave the Cast out; or let the pattern say `mixed-precision: true`"
    if node.op_type == "Where" and "finite" not in pattern.assumes and guarded(view, node)[0] is not None:
        return "leave the guard against NaN out; or let the pattern say `assumes: finite`"
    return ""
