"""Put the failure of a candidate into words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import onnx_ir as ir

from onnx_subgraph.errors import Span
from onnx_subgraph.language import falsity
from onnx_subgraph.language.evaluation import Names
from onnx_subgraph.language.expression import Expression
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.language.sentence import UnknownFact, UnknownSize, free_names
from onnx_subgraph.language.term import Apply
from onnx_subgraph.matching.equalities import GEMM, MATMUL, PLAIN
from onnx_subgraph.matching.expansion import Factoring
from onnx_subgraph.matching.failure import Failure, Kind, Said
from onnx_subgraph.matching.lookthrough import guarded, is_float_cast
from onnx_subgraph.matching.match import NearMiss
from onnx_subgraph.matching.normal import Chain, Choice, Constant, Layout, Name, Normal, Nothing, Operation, walk
from onnx_subgraph.matching.origin import is_made, label, stood_for
from onnx_subgraph.matching.view import View, Virtual, is_plain_gemm
from onnx_subgraph.model.dimension_names import outer
from onnx_subgraph.model.gaps import DECLARE
from onnx_subgraph.operators.names import operator_of, qualified

Target = ir.Value | Virtual
_FORMULA = frozenset({Kind.TERM, Kind.ITEM, Kind.VALUE, Kind.LAYOUT, Kind.SAME, Kind.SENTENCE})
"""The failures where the model has another operator, value, sum or product, or none, or a sentence is false."""


def words(term: Normal) -> str:
    """A description of a term: an operator, or a sum or product as the pattern writes it."""
    match term:
        case Operation(operators=operators):
            return " or ".join(sorted(map(qualified, operators)))
        case Name(name=name, definition=definition):
            return words(definition) if definition is not None else f"a value for {name}"
        case Constant(value=value):
            return f"the constant {value}"
        case Nothing():
            return "an omitted input"
        case Chain(is_product=is_product, span=span, scalar=scalar):
            kind = "a product" if is_product else "a sum"
            said = kind if span is None or not written(span) else f"{kind} `{written(span)}`"
            return said if scalar is None or term.optional is not None else f"{said} with a constant {scalar}"
        case Choice(alternatives=alternatives, term=Apply()):
            return words(alternatives[0])
        case Choice(alternatives=alternatives):
            return " or ".join(dict.fromkeys(map(words, alternatives)))
        case Layout(term=word):
            return f"a {word.word}"


def written(span: Span) -> str:
    """The text at a place of a pattern file."""
    return span.text[span.column - 1 : span.column - 1 + span.length].strip()


def counted_inputs(number: int) -> str:
    """`1 input`, `2 inputs`."""
    return f"{number} input{'' if number == 1 else 's'}"


def named(value: object) -> str:
    """A value of the graph by its name; a number as it is."""
    if isinstance(value, ir.Value):
        return f"`{value.name}`"
    return value.operator if isinstance(value, Virtual) else f"{value:.6g}" if isinstance(value, float) else str(value)


def applied(view: View, value: ir.Value) -> str:
    """The node behind a value in the notation of patterns, with numbers for constants: `Pow(h, 2.01)`."""
    node = view.producer(value)
    if node is None or view.constants.is_constant(value):
        return ""
    inputs = ("" if v is None else _constant_or_name(view, v) for v in node.inputs)
    said = _gemm_attributes(view, node)
    return f"{operator_of(node)}({', '.join([*inputs, *([said] if said else [])])})"


def another_value(name: str, bound: object, value: Target) -> Said:
    """A name is already bound to something else."""
    here = named(value)
    if bound is None:
        return f"no value for {name}, which is absent elsewhere", here, ""
    known = named(bound)
    return f"{known} again, which {name} stands for", here, ""


def no_value(name: str, value: Virtual) -> Said:
    """A name would be bound to a value that no node of the graph computes by itself."""
    wanted, node = f"a value for {name}", value.node.op_type
    if value.operator == node:
        return wanted, f"the {node} without the factor of an operand", f"multiply the result of the {node} instead"
    return wanted, f"the {value.operator} inside {node}", f"write the {node} as the operators that it stands for"


def another_result(term: Operation, index: int | None) -> Said:
    """Another result of a node is read."""
    wanted = f"result {term.index} of {words(term)}"
    return wanted, f"result {index}", f"read {wanted}"


def another_node(term: Operation) -> Said:
    """Results of one node are required, but two nodes compute them."""
    operator = words(term)
    return f"a result of the same {operator}", "another node's result", f"let one {operator} give all the results"


def another_operator(capture: str, known: str, name: str) -> Said:
    """A name is already bound to another operator."""
    return f"{known} again, which {capture} stands for", name, ""


def other_inputs(term: Operation, number: int) -> Said:
    """A node has more or fewer inputs."""
    operator, wanted = words(term), counted_inputs(len(term.arguments))
    return f"{wanted} of {operator}", counted_inputs(number), f"give {operator} {wanted}, not {number}"


def constant_of_rank(rank: int, found: str = "") -> Said:
    """The rank of a constant would raise the rank of the result."""
    expected = "a constant of no higher rank than the value it meets"
    return expected, found or f"a constant of rank {rank}", "store the constant as a scalar, of rank 0"


def false_sentence(sentence: Expression, names: Names, bindings: Mapping[str, object], let: falsity.Let) -> tuple[str, str]:
    """Why a sentence is false, with the values of its names in the graph; and what would make it true."""
    part = falsity.deciding_part(sentence, names, let)
    head = "it is false" if part is sentence.tree else f"`{falsity.spelled(part)}` is false"
    stand_for = (f"{n} is `{v.name}`" for n in free_names(part) if isinstance(v := bindings.get(n), ir.Value))
    return f"{head}: {falsity.facts(part, names)}", "; ".join((wish, *stand_for)) if (wish := falsity.wish(part)) else ""


def unknown_sentence(sentence: Expression, unknown: UnknownFact) -> tuple[str, str]:
    """Why a sentence is unknown, and what to do about it."""
    return str(unknown), DECLARE if isinstance(unknown, UnknownSize) else unknown.change.format(sentence)


def read_elsewhere(view: View, value: ir.Value, reader: ir.Node | None) -> Said:
    """An inner value is needed outside the match: by `reader`, or as an output of the graph (None)."""
    expected = "an inner value that only the match reads"
    if reader is None:
        return expected, f"value `{value.name}` is an output of the graph", f"take `{value.name}` out of the graph's outputs"
    where = "" if reader.graph is view.graph else ", in a nested body"
    place = _name(reader)
    found = f"value `{value.name}` is also read by {place} ({reader.op_type}){where}"
    return expected, found, f"let {place} read another value, or leave it out"


def not_read(value: ir.Value, reader: Normal, readers: str) -> Said:
    """A part of the pattern matched, but no node reads it as the pattern requires."""
    wanted = words(reader)
    return f"{wanted} that reads `{value.name}`", readers, f"let {wanted} read `{value.name}`"


def spelled(factoring: Factoring, *, product: bool) -> str:
    """A sum or product of the graph in the notation of patterns: `0.5 * x * s ** -1`, `a - b + 1`."""
    if product:
        factors = [_operand(v) if power == 1 else f"{_operand(v)} ** {power:.6g}" for v, power in factoring.items]
        return " * ".join([*([] if factoring.constant == 1 else [f"{factoring.constant:.6g}"]), *factors])
    addends = [("- " if sign < 0 else "+ ") + _operand(v) for v, sign in factoring.items]
    constant = [] if factoring.constant == 0 else [f"{'-' if factoring.constant < 0 else '+'} {abs(factoring.constant):.6g}"]
    return " ".join([*addends, *constant]).removeprefix("+ ")


def near_miss(pattern: Pattern, view: View, anchor: ir.Node, failure: Failure) -> NearMiss:
    """The failure of a candidate that started at `anchor`, in words."""
    expected, found, _ = _said(view, failure)
    node = _node_of(failure.value)
    return NearMiss(
        pattern=pattern.id,
        span=failure.span,
        anchor=_name(anchor),
        node=_place(failure.value, anchor),
        expected=outer(expected),
        found=outer(found),
        matched=failure.matched,
        change=outer(_change(pattern, view, failure) or _swap(failure, *(failure.stored or (expected, found)))),
        unknown=failure.said is not None and failure.said[2] == DECLARE,
        kind=failure.kind,
        numbers=_numbers(view, failure),
        operators=_operators(failure.term) if failure.kind is Kind.TERM else (),
        there="" if node is None else operator_of(node),
    )


def _said(view: View, failure: Failure) -> Said:
    """The expected, the found, and the smallest change if it is known."""
    expected, found, change = failure.said or ("" if failure.term is None else words(failure.term), "", "")
    found = found or describe(view, failure.value)
    if expected == found and isinstance(failure.value, ir.Value) and view.through(failure.value)[0] is not failure.value:
        found += ", which changes nothing here, so that the search looks through it"
    return expected, found, change


def _numbers(view: View, failure: Failure) -> tuple[float, float] | None:
    """The expected and the found number, if both are numbers."""
    term = failure.term
    if failure.numbers is None and isinstance(term, Constant) and isinstance(term.value, int | float):
        return _numbers(view, replace(failure, numbers=(float(term.value), None)))
    wanted, found = failure.numbers or (None, None)
    if found is None and isinstance(failure.value, ir.Value):
        number = view.scalar(failure.value)
        found = None if number is None else number.number
    return None if wanted is None or found is None else (wanted, found)


def _defined(term: Normal | None) -> Normal | None:
    """A term, or what its name stands for."""
    while isinstance(term, Name):
        term = term.definition
    return term


def _operators(term: Normal | None) -> tuple[str, ...]:
    """The expected operators, any of which would match."""
    term = _defined(term)
    return tuple(sorted(map(qualified, term.operators))) if isinstance(term, Operation) else ()


def _node_of(value: Target | None) -> ir.Node | None:
    return value.node if isinstance(value, Virtual) else None if value is None else value.producer()


def is_of_interest(pattern: Pattern, view: View, anchor: ir.Node, failure: Failure) -> bool:
    """Whether a failure is useful to the user.

    A node that a replacement made is fused already and not in the user's file. That it differs from the pattern is not a reason;
    nor is a missing operator for a candidate that starts at it.
    """
    if is_made(anchor if failure.value is None else _node_of(failure.value)):
        return False
    return not is_made(anchor) or bool(_change(pattern, view, failure))


def _change(pattern: Pattern, view: View, failure: Failure) -> str:
    """The smallest change of the model that would help, if it is more than replacing one operator by another."""
    value = failure.value
    said = "" if failure.said is None else failure.said[2]
    return said or _change_of_cast_or_guard(pattern, view, value) or _change_of_input(failure) or _change_of_gemm(view, failure)


def _swap(failure: Failure, expected: str, found: str) -> str:
    """The change where a number or a constant differs; "" where an operator does, or is: the model computes something else."""
    term = _defined(failure.term)
    is_exponent = failure.kind is Kind.ITEM and term is None and failure.value is not None
    is_formula = failure.kind in _FORMULA and not isinstance(term, Constant | Nothing)
    is_computed = failure.kind is Kind.CONSTANT and _node_of(failure.value) is not None
    return f"put {expected} in the place of {found}" if is_exponent or not (is_formula or is_computed) else ""


def _name(node: ir.Node) -> str:
    """The name of a node in the user's file. For a node that a replacement made, the name of the last node it replaced."""
    names = stood_for(node) if is_made(node) else [label(node)]
    return next((name for name in reversed(names) if name), "")


def _place(value: ir.Value | Virtual | None, anchor: ir.Node) -> str:
    if isinstance(value, Virtual):
        return _name(value.node)
    producer = value.producer() if value is not None else anchor
    if producer is None:
        return (value.name if value is not None else "") or ""
    return _name(producer)


def describe(view: View, value: ir.Value | Virtual | None) -> str:
    """A description of the value found where something else was expected."""
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
        return f"{operator_of(producer)}{f' with {said}' if said else ''}"
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


def _change_of_input(failure: Failure) -> str:
    """The change where a constant is expected, and the value is a graph input with a default."""
    value = failure.value
    wanted = failure.kind in (Kind.CONSTANT, Kind.NUMBER, Kind.RANK) or isinstance(failure.term, Constant)
    if not wanted or not isinstance(value, ir.Value) or not _is_overridable(value):
        return ""
    return f"take {value.name} out of the inputs of the graph, so that nothing can override it: --constant-initializers"


def _gemm_attributes(view: View, node: ir.Node) -> str:
    """The attributes because of which a Gemm is not `a @ b + c`: `transB=1, alpha=0.5`; "" for any other node."""
    if (node.domain, node.op_type) != ("", GEMM) or is_plain_gemm(node):
        return ""
    return ", ".join(f"{name}={a.value:g}" for name, a in sorted(node.attributes.items()) if a.value != PLAIN.get(name))


def _change_of_gemm(view: View, failure: Failure) -> str:
    """The change where a Gemm is not `a @ b + c`, and a MatMul or a sum is expected."""
    value = failure.value
    node = view.producer(view.through(value)[0]) if isinstance(value, ir.Value) else None
    said = "" if node is None else _gemm_attributes(view, node)
    if not said or not _wants_matmul(failure.term):
        return ""
    stored = " and store its weight transposed" if "trans" in said else ""
    return f"leave {said} out of the Gemm{stored}, so that it is a @ b + c"


def _wants_matmul(term: Normal | None) -> bool:
    """Whether a MatMul, or a sum, is expected."""
    is_sum = isinstance(term, Chain) and not term.is_product
    parts = () if term is None else walk(term)
    return is_sum or any(isinstance(t, Operation) and ("", MATMUL) in t.operators for t in parts)


def _change_of_cast_or_guard(pattern: Pattern, view: View, value: Target | None) -> str:
    """The change where a Cast or guard blocks the match that other patterns look through."""
    node = view.producer(value) if isinstance(value, ir.Value) else None
    if node is None or node.domain:
        return ""
    if node.op_type == "Cast" and not pattern.mixed_precision and is_float_cast(node):
        return "leave the Cast out; or let the pattern say `mixed-precision: true`"
    if node.op_type == "Where" and "finite" not in pattern.assumes and guarded(view, node)[0] is not None:
        return "leave the guard against NaN out; or let the pattern say `assumes: finite`"
    return ""
