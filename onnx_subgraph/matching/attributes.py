"""Match the static part of a node: attributes, constant inputs, and defaults.

A keyword of a pattern is an attribute or a constant input with this formal name, depending on the node's opset. What a pattern
does not mention must be absent or have the schema's default. Axes are compared whether they count from the front or the back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import onnx_ir as ir

from onnx_subgraph.errors import Span
from onnx_subgraph.language import term as syntax
from onnx_subgraph.language.axis import numbered
from onnx_subgraph.matching.equalities import MEAN, POOL
from onnx_subgraph.matching.numbering import NOOP, axes_rank
from onnx_subgraph.matching.recipe import Mismatch
from onnx_subgraph.matching.state import State
from onnx_subgraph.matching.static_values import equal, read_attribute, same, text, words
from onnx_subgraph.matching.view import View, Virtual, close, pooled_axes
from onnx_subgraph.model.gaps import DECLARE
from onnx_subgraph.operators import Schema, history, is_axis, is_ordered, schema

_OVER_LAST_AXIS = frozenset({("", "Softmax"), ("", "LogSoftmax")})
"""Operators whose meaning changed at opset 13."""
_MEAN_OPSET = 13
"""An opset in which the axes of ReduceMean are an attribute."""
_RENAMED = {("Pad", "value"): "constant_value", ("Pad", "constant_value"): "value"}


Inputs = tuple["ir.Value | Virtual | None", ...]


def match_static(
    view: View, term: syntax.Apply, node: ir.Node, identity: tuple[str, str], inputs: Inputs, state: State
) -> tuple[State, Inputs] | Mismatch:
    """The state with all keywords bound and the inputs left for positional arguments, or the mismatch."""
    is_bare = not (term.keywords or term.rest or node.attributes) and identity not in _OVER_LAST_AXIS
    if is_bare and identity[1] == node.op_type and len(inputs) <= len(term.arguments):  # the common case: there is nothing static
        return state, inputs
    statics = _Statics.of(view, node, identity, inputs)
    if isinstance(statics, Mismatch):
        return statics
    names = [statics.name_of(key) for key, _ in term.keywords] if term.keywords else []
    for name, (_, wanted) in zip(names, term.keywords, strict=True):
        actual = statics.value(name, wanted.span)
        if isinstance(actual, Mismatch):
            return actual
        if isinstance(wanted, syntax.Variable) and type(actual) is ir.Value:
            state = state.bind(wanted.name, actual)
            continue
        if is_axis(name):
            actual = numbered(actual, axes_rank(node), ordered=is_ordered(identity[1]))
        outcome = _match_keyword(name, wanted, actual, state)
        if isinstance(outcome, Mismatch):
            return outcome
        state = outcome
    rest = statics.unmentioned(names)
    if term.rest is not None and identity[1] != node.op_type:
        return Mismatch(identity[1], node.op_type)  # the attributes of a node are not those of the operator that it is matched as
    if term.rest is not None:
        state = state.bind(("rest", term.rest), rest)
    elif (odd := next(filter(None, map(statics.not_at_default, rest)), None)) is not None:
        return odd
    return state, statics.positional(names, len(term.arguments))


class _Statics(NamedTuple):
    """The static part of a node, as the operator that it is matched as. given: its attributes."""

    view: View
    node: ir.Node
    operator: tuple[str, str]
    inputs: Inputs
    schema: Schema | None
    given: Mapping[str, ir.Attr]

    @classmethod
    def of(cls, view: View, node: ir.Node, operator: tuple[str, str], inputs: Inputs) -> _Statics | Mismatch:
        """The static part of a node. A Softmax before opset 13 only matches if it is over the last axis."""
        if operator[1] == MEAN and node.op_type == POOL:
            axes = {"axes": ir.AttrInt64s("axes", pooled_axes(node))}
            return cls(view, node, operator, inputs, schema(MEAN, "", _MEAN_OPSET), axes)
        if operator[1] != node.op_type:  # a Gemm matched as the MatMul inside it
            return cls(view, node, operator, inputs, None, {})
        given = dict(node.attributes.data)
        if is_over_several_axes(view, node):
            return Mismatch("a softmax over the last axis", "Softmax over several axes, as before opset 13")
        if operator in _OVER_LAST_AXIS and view.opsets.get("", 1) < 13:
            given["axis"] = ir.AttrInt64("axis", -1)
        if NOOP in given and _has_axes(inputs):
            del given[NOOP]
        return cls(view, node, operator, inputs, view.schema(node), given)

    @property
    def formals(self) -> tuple[str, ...]:
        """The names of the formal inputs."""
        return () if self.schema is None else _formals(self.schema)

    def name_of(self, key: str) -> str:
        """The name of a pattern's keyword at this opset."""
        is_known = key in self.given or key in self.formals or (self.schema is not None and key in self.schema.attributes)
        return key if is_known else _RENAMED.get((self.operator[1], key), key)

    def is_input(self, name: str) -> bool:
        """Whether a static argument is an input, not an attribute."""
        return name not in self.given and (self.schema is None or name not in self.schema.attributes) and name in self.formals

    def value(self, name: str, span: Span | None) -> Any:
        """The value of an attribute or constant input; None where it is absent; a Mismatch where it is not constant."""
        if name in self.given:
            return read_attribute(self.given[name])
        if self.is_input(name):
            return self._input(name, span)
        return self._default(name)

    def _input(self, name: str, span: Span | None) -> Any:
        index = self.formals.index(name)
        value = self.inputs[index] if index < len(self.inputs) else None
        if value is None:
            return None
        if isinstance(value, Virtual) or not self.view.constants.is_constant(value):
            return Mismatch(f"a constant {name}", "a computed value", span=span)
        single = _is_single(self.operator, name)
        if single and value.shape is not None and value.shape.rank() > 1:
            return Mismatch(f"one number for {name}", f"a constant of rank {value.shape.rank()}", span=span)
        return _read_constant(self.view, value, single=single)

    def _default(self, name: str) -> Any:
        spec = None if self.schema is None else self.schema.attributes.get(name)
        if spec is None:
            return None
        if self.node.op_type == "Transpose" and name == "perm":
            rank = axes_rank(self.node)
            return None if rank is None else tuple(reversed(range(rank)))
        return spec.default

    def unmentioned(self, names: Sequence[str]) -> dict[str, ir.Attr]:
        """The attributes that the pattern does not mention and that the schema has."""
        if not self.given:
            return {}
        settled = self.schema is not None and self.view.is_settled(self.node)
        known = self.schema.attributes if self.schema is not None and settled else self.given
        return {name: attribute for name, attribute in self.given.items() if name not in names and name in known}

    def not_at_default(self, name: str) -> Mismatch | None:
        """None where the attribute has its default value, else the mismatch."""
        attribute, default = self.given[name], self._default(name)
        if _is_default(name, read_attribute(attribute), default, axes_rank(self.node)):
            return None
        spec = None if self.schema is None else self.schema.attributes.get(name)
        written = None if spec is None else spec.default
        expected = f"{name} at its default {written}" if written is not None else f"no {name}"
        return Mismatch(expected, f"{name}={_show(attribute)}", change=f"leave {name} out")

    def positional(self, names: Sequence[str], wanted: int) -> Inputs:
        """The inputs left for positional arguments. Trailing optional inputs with their default value are dropped."""
        if not names and len(self.inputs) <= wanted:
            return self.inputs
        formals = self.formals
        taken = {formals.index(name) for name in names if self.is_input(name)}
        left = [(i, value) for i, value in enumerate(self.inputs) if i not in taken]
        is_variadic = bool(self.schema and self.schema.inputs and self.schema.inputs[-1].variadic)
        while len(left) > wanted and not is_variadic and self._is_neutral(*left[-1]):
            left.pop()
        return tuple(value for _, value in left)

    def _is_neutral(self, position: int, value: ir.Value | Virtual | None) -> bool:
        """Whether an optional input is absent or has its default value."""
        if type(value) is not ir.Value or self.operator[1] != "Slice" or self.formals[position : position + 1] != ("steps",):
            return value is None
        steps = self.view.constants.array(value)
        return steps is not None and bool((steps == 1).all())


@cache
def _formals(schema: Schema) -> tuple[str, ...]:
    return tuple(formal.name for formal in schema.inputs)


def _is_default(name: str, given: Any, default: Any, rank: int | None) -> bool:
    given, default = (numbered(v, rank, ordered=False) if is_axis(name) else v for v in (given, default))
    return bool(same(name, given, default))


def _match_keyword(name: str, wanted: syntax.Term, actual: Any, state: State) -> State | Mismatch:
    match wanted:
        case syntax.Variable(name="_"):
            return state
        case syntax.Variable(name=variable, span=span):
            if variable not in state.bindings:
                return state.bind(variable, actual)
            bound = state.bindings[variable]
            change = f"let {name} be {words(bound)} here as well"
            return _held(name, bound, actual, f"{name}={words(bound)} again", change, span) or state
        case syntax.Literal(value=value, span=span):
            written = f"{name}={syntax.Literal(value)}"
            return _held(name, value, actual, written, f"let {name} be {syntax.Literal(value)}", span) or state
        case syntax.Either(alternatives=alternatives, span=span):
            for index, alternative in enumerate(alternatives):
                outcome = _match_keyword(name, alternative, actual, state)
                if isinstance(outcome, State):
                    return outcome.choose(id(wanted), index)
            return Mismatch(f"{name}={wanted}", f"{name}={actual}", span=span)
        case _:
            return Mismatch(f"{name}={wanted}", f"{name}={actual}", span=wanted.span)


def _held(name: str, wanted: Any, actual: Any, expected: str, change: str, span: Span | None) -> Mismatch | None:
    """None where a static value is the wanted one, else the mismatch."""
    held = same(name, wanted, actual)
    if held is None:
        return Mismatch(expected, f"{name}={words(actual)} of a value whose rank is not known", DECLARE, span=span)
    return None if held else Mismatch(expected, f"{name}={words(actual)}", change, span=span)


def _read_constant(view: View, value: ir.Value, *, single: bool) -> Any:
    """A constant input as a static value; the value itself if it is not a scalar or a short list."""
    array = view.constants.array(value)
    if array is None or array.ndim > 1 or array.size > 64:
        return value
    return array.item() if array.ndim == 0 or (single and array.size == 1) else tuple(array.tolist())


@cache
def _is_single(identity: tuple[str, str], name: str) -> bool:
    """Whether an input is one number, even if stored as a list of one: an earlier opset has it as a single-number attribute."""
    domain, operator = identity
    names = (name, _RENAMED.get((operator, name), name))
    kinds = (s.attributes[n].type for s in history(operator, domain) for n in names if n in s.attributes)
    return any(str(kind).rpartition(".")[2] in ("FLOAT", "INT") for kind in kinds)


def _has_axes(inputs: Inputs) -> bool:
    """Whether a reduction is given axes, so that it does not matter what it does without."""
    axes = inputs[1] if len(inputs) > 1 else None
    count = axes.shape[0] if type(axes) is ir.Value and axes.shape is not None and axes.shape.rank() == 1 else 0
    return isinstance(count, int) and count > 0


def is_over_several_axes(view: View, node: ir.Node) -> bool:
    """Whether a node is a Softmax before opset 13 that is not known to be over the last axis."""
    if (node.domain, node.op_type) not in _OVER_LAST_AXIS or view.opsets.get("", 1) >= 13:
        return False
    axis, (value, *_) = node.attributes.get_int("axis", 1), node.inputs
    rank = None if value is None or value.shape is None else value.shape.rank()
    return axis != -1 and (rank is None or axis % rank != rank - 1)


def equals_literal(view: View, literal: syntax.Static, value: ir.Value) -> bool:
    """Whether a value of the graph is a constant equal to the literal. A list is a constant of rank 1."""
    if not view.constants.is_constant(value):
        return False
    if not isinstance(literal, tuple):
        number = view.scalar(value)
        if number is None or isinstance(literal, str):
            return False
        return close(number.number, float(literal), number.tolerance)
    array = view.constants.array(value)
    return array is not None and array.ndim == 1 and equal("", tuple(literal), tuple(array.tolist()))


def _show(attribute: ir.Attr) -> str:
    value = read_attribute(attribute)
    return str(text(value)) if not isinstance(value, ir.Attr) else attribute.type.name.lower()
