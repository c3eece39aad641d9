"""The matches of a pattern of function bodies: regions that compute an operator as the standard defines it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import onnx_ir as ir

from onnx_subgraph.facts import Facts
from onnx_subgraph.language.bodies import called
from onnx_subgraph.language.expression import Expression
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.language.sentence import UnknownFact, evaluate
from onnx_subgraph.language.term import Apply, Assignment, Block, Omitted, Operator, Variable
from onnx_subgraph.matching.body.calls import MODES
from onnx_subgraph.matching.body.congruent import result_numbers
from onnx_subgraph.matching.body.defined import Defined, defined
from onnx_subgraph.matching.body.frame import Frame
from onnx_subgraph.matching.body.function import OF_SHAPES, is_static
from onnx_subgraph.matching.body.guess import Guess, guesses
from onnx_subgraph.matching.body.numbers import Number
from onnx_subgraph.matching.interior import live_reader
from onnx_subgraph.matching.match import Match
from onnx_subgraph.matching.numbering import plain_operator
from onnx_subgraph.matching.view import View
from onnx_subgraph.model.element_types import tensor_type
from onnx_subgraph.model.nested import behind
from onnx_subgraph.operators import Schema

_MOST_TRIED = 12
"""Maximum number of likely calls that are compared with the graph."""
_STEPS = 4
"""How many nodes other results may be away from the nodes that compute the first result."""


def bodies_of(view: View, pattern: Pattern) -> list[Match]:
    """The matches of `pattern` in one graph; for each operator only those that are not inside another match of it."""
    present = frozenset(plain_operator(node) for node in view.nodes if not node.domain)
    known = _defined(tuple(pattern.bodies), view.opsets.get("", 1))
    likely = {operator.name: operator for operator in known if operator.core <= present}
    frame, names = _frame(tuple(likely.values())), frozenset(likely)
    ends: dict[str, list[ir.Value]] = defaultdict(list)
    for node in frame.ending(view) if likely else ():
        value = node.outputs[0]
        if value.dtype is not None:
            for name in frame.admitted(view, node, names):
                if tensor_type(value.dtype) in likely[name].schema.outputs[0].types:
                    ends[name].append(value)
    return [match for name, operator in likely.items() for match in _matches(view, pattern, operator, ends[name], present)]


@lru_cache(maxsize=64)
def _defined(names: tuple[str, ...], opset: int) -> tuple[Defined, ...]:
    """The operators among these names that have a function body."""
    return tuple(operator for name in names if (operator := defined(name, opset)) is not None)


_frame = lru_cache(maxsize=64)(Frame)
"""The last operators of the bodies, cached."""


def _matches(
    view: View, pattern: Pattern, operator: Defined, ends: Iterable[ir.Value], present: Collection[str]
) -> Iterator[Match]:
    """The matches of one operator that end in one of these values, which are given last first."""
    inside: set[ir.Node] = set()
    for value in ends:
        match = _match(view, pattern, operator, value, present) if value.producer() not in inside else None
        if match is not None:
            inside.update(match.nodes)
            yield match


def _match(view: View, pattern: Pattern, operator: Defined, value: ir.Value, present: Collection[str]) -> Match | None:
    schema = operator.schema
    for guess in guesses(view, operator, value, present)[:_MOST_TRIED]:
        operands = _operands(guess, schema)
        attributes = _attributes(guess, schema)
        if operands is None or attributes is None:
            continue
        for said in _said(attributes, schema):
            numbers = result_numbers(view, operator.name, operator.version, said, operands, len(schema.outputs))
            if numbers is None or numbers[0] != view.numbering.of(value):
                break
            match = _found(view, pattern, operator, value, said, operands, numbers)
            if match is not None:
                return match
    return None


def _found(
    view: View,
    pattern: Pattern,
    operator: Defined,
    value: ir.Value,
    attributes: Mapping[str, Any],
    operands: Sequence[ir.Value | None],
    numbers: Sequence[int],
) -> Match | None:
    """The match, if only results are read outside; else None."""
    read = [v for v in operands if v is not None]
    roots, doubles = _results(view, value, numbers, read)
    nodes = _region(view, roots.values(), read)
    gone = {n for v in doubles if (n := v.producer()) is not None}
    if "y0" not in roots or live_reader(nodes, frozenset(roots.values()), read, gone, view.order) is not None:
        return None
    schema = operator.schema
    if not _is_taken(view, pattern.bodies[operator.name], schema, operands, attributes, roots):
        return None
    given = {name: _attribute(name, said, schema) for name, said in attributes.items()}
    written = replace(pattern, replace={"standard": _replacement(operator.name, operands, len(schema.outputs))})
    bindings = {f"x{i}": v for i, v in enumerate(operands)}
    return Match(written, view.owner, {**bindings, **roots}, {"attributes": given}, roots, nodes, {}, doubles=doubles)


def _is_taken(
    view: View,
    sentences: Iterable[Expression],
    schema: Schema,
    operands: Sequence[ir.Value | None],
    attributes: Mapping[str, Any],
    roots: Mapping[str, ir.Value],
) -> bool:
    """Whether the operator's conditions on its operands are known to be true."""
    named: dict[str, object] = {called(name): attributes.get(name, spec.default) for name, spec in schema.attributes.items()}
    values = [*zip(schema.inputs, operands, strict=False), *((f, roots.get(f"y{i}")) for i, f in enumerate(schema.outputs))]
    named |= {called(formal.name): None if value is None else Facts(view.constants, value) for formal, value in values}
    try:
        return all(evaluate(sentence, named.get) for sentence in sentences)
    except UnknownFact:
        return False


def _operands(guess: Guess, schema: Schema) -> list[ir.Value | None] | None:
    """The value of each input, without trailing omitted ones; None where a required one is unknown."""
    found = [guess.reading.operands.get(i) for i in range(len(schema.inputs))]
    while found and found[-1] is None:
        found.pop()
    missing = any(formal.optional < (i >= len(found) or found[i] is None) for i, formal in enumerate(schema.inputs))
    return None if missing else found


def _attributes(guess: Guess, schema: Schema) -> dict[str, Any] | None:
    """The attributes of the call that differ from their default; None where the graph does not determine them."""
    found: dict[str, Any] = {}
    for name, said in guess.call.attributes:
        number = said[0] if isinstance(said, tuple) else said
        if isinstance(number, int | float) and guess.call.placeholders.get(number) == name:
            if name not in guess.reading.numbers:
                return None
            number = _fitting(guess.reading.numbers[name], schema.attributes[name].type)
            if number is None:
                return None
            said = (number if isinstance(number, tuple) else (number,)) if isinstance(said, tuple) else number
        if isinstance(said, tuple) and schema.attributes[name].type != "INTS":
            return None
        if said != schema.attributes[name].default:
            found[name] = said
    return found


def _fitting(number: Number, kind: str) -> Number | None:
    """The number in the type of an attribute; None where it is not whole and must be. The graph may have another type."""
    if isinstance(number, tuple):
        parts = [part for each in number if isinstance(part := _fitting(each, kind.removesuffix("S")), int | float)]
        return tuple(parts) if len(parts) == len(number) else None
    if kind == "FLOAT":
        return float(number)
    return int(number) if float(number).is_integer() else None


def _said(attributes: Mapping[str, Any], schema: Schema) -> Iterator[Mapping[str, Any]]:
    """The attributes, then variants with other modes, which the first result does not depend on."""
    yield attributes
    for name in schema.attributes if len(schema.outputs) > 1 else ():
        if name.endswith("_mode") and name not in attributes:
            yield from ({**attributes, name: mode} for mode in MODES if mode)


def _attribute(name: str, said: Any, schema: Schema) -> ir.Attr:
    kind = ir.AttributeType[schema.attributes[name].type]
    return ir.Attr(name, kind, list(said) if isinstance(said, tuple) else float(said) if kind is ir.AttributeType.FLOAT else said)


def _results(
    view: View, value: ir.Value, numbers: Sequence[int], read: Sequence[ir.Value]
) -> tuple[dict[str, ir.Value], dict[ir.Value, ir.Value]]:
    """The value of the graph for each result that is needed outside, and the other values that equal one of these."""
    outside = {view.numbering.of(v) for v in read}
    near = _near(view, value, read)
    equal = {i: near.get(n, []) for i, n in enumerate(numbers) if n not in outside}
    inner = set(_region(view, [v for values in equal.values() for v in values], read))
    roots: dict[str, ir.Value] = {}
    doubles: dict[ir.Value, ir.Value] = {}
    for index, values in equal.items():
        needed = [v for v in values if v.is_graph_output() or any(_needs(user, inner) for user, _ in v.uses())]
        if not needed:
            continue
        root = next((v for v in needed if v.is_graph_output()), needed[0])
        roots[f"y{index}"] = root
        doubles.update((v, root) for v in needed if v is not root and not v.is_graph_output())
    return roots, doubles


def _needs(user: ir.Node, inner: Collection[ir.Node]) -> bool:
    """Whether a reader of a result is outside and needs more than its shape."""
    return user not in inner and (user.op_type not in OF_SHAPES or bool(user.domain))


def _near(view: View, value: ir.Value, read: Sequence[ir.Value]) -> Mapping[int, list[ir.Value]]:
    """Number → the values with it, among those that lead to the result and those computed from them within a few steps."""
    nodes = dict.fromkeys(_region(view, [value], read))
    edge = list(nodes)
    for _ in range(_STEPS):
        readers = (user for node in edge for output in node.outputs for user, _ in output.uses() if user.graph is view.graph)
        edge = [user for user in dict.fromkeys(readers) if user not in nodes]
        nodes.update(dict.fromkeys(edge))
    found: dict[int, list[ir.Value]] = defaultdict(list)
    for node in sorted(nodes, key=view.position.__getitem__):
        for output in node.outputs:
            found[view.numbering.of(output)].append(output)
    return found


def _region(view: View, results: Iterable[ir.Value], read: Sequence[ir.Value]) -> tuple[ir.Node, ...]:
    """The nodes that compute `results` from `read`, without those that depend only on shapes, in the order of the graph."""
    found = behind(results, lambda value: None if value in read or is_static(view, value) else view.producer(value))
    return tuple(sorted(found, key=view.position.__getitem__))


def _replacement(name: str, operands: Sequence[ir.Value | None], results: int) -> Block:
    arguments = tuple(Omitted() if v is None else Variable(f"x{i}") for i, v in enumerate(operands))
    call = Apply((Operator(name),), arguments, rest="attributes")
    return Block((Assignment(tuple(f"y{i}" for i in range(results)), call),))
