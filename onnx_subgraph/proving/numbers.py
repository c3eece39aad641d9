"""The element types of values in an instance. A number has the integer type of the operands that it meets, else a float."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import onnx
import onnx_ir as ir

from onnx_subgraph.language import term as syntax
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.model.element_types import numpy_name, tensor_type
from onnx_subgraph.operators import Schema, formal_at
from onnx_subgraph.operators.schemas import Formal

_BY_TYPE = {tensor_type(dtype): numpy_name(dtype) for dtype in ir.DataType if dtype is not ir.DataType.UNDEFINED}
"""The name of a tensor's type in schemas → the element type: `tensor(float)` → `float32`."""


class Builder(Protocol):
    """The interface of the builder that numbers need. types: value → its element type, if known."""

    pattern: Pattern
    number_dtype: str
    types: dict[str, str]
    values: dict[str, str]

    def value(self, term: syntax.Term) -> str:
        """The value of a term."""
        ...

    def argument(self, term: syntax.Term, operator: str) -> str:
        """A positional argument."""
        ...

    def constant(self, value: Any, dtype: str) -> str:
        """A constant of the formula."""
        ...


def record(types: dict[str, str], node: onnx.NodeProto, known: Schema | None) -> None:
    """Add the element types of a node's results, where its schema determines them."""
    for position, result in enumerate(node.output):
        formal = None if known is None or not known.outputs else formal_at(known.outputs, position)
        found = None
        if node.op_type == "Cast" and not node.domain:
            found = next(numpy_name(ir.DataType(given.i)) for given in node.attribute if given.name == "to")
        elif formal is not None and len(formal.types) == 1:
            found = _BY_TYPE.get(next(iter(formal.types)))
        elif formal is not None and known is not None and formal.variable:
            alike = (v for i, v in enumerate(node.input) if formal_at(known.inputs, i).variable == formal.variable)
            found = next((types[v] for v in alike if v in types), None)
        if found is not None:
            types[result] = found


def operands(builder: Builder, terms: Sequence[syntax.Term]) -> list[str]:
    """The values of the items of a sum or product."""
    built = {i: builder.value(term) for i, term in enumerate(terms) if _number(builder, term) is None}
    return [built[i] if i in built else written(builder, term, built.values()) for i, term in enumerate(terms)]


def arguments(builder: Builder, call: syntax.Apply, operator: str, known: Schema) -> list[str]:
    """The positional arguments of a call."""
    built: dict[int, str] = {}
    for i, term in enumerate(call.arguments):
        if _number(builder, term) is None or operator == "Range":
            built[i] = builder.argument(term, operator)
    formals = [formal_at(known.inputs, i) for i in range(len(call.arguments))]
    return [
        built[i]
        if i in built
        else written(builder, term, (built[j] for j in built if _alike(formals[i], formals[j])), formals[i])
        for i, term in enumerate(call.arguments)
    ]


def integer_beside(types: Mapping[str, str], known: Schema, inputs: Sequence[str], position: int) -> str | None:
    """The integer type that the input at a position shares with one of these, or None."""
    wanted = formal_at(known.inputs, position)
    alike = (types.get(value, "") for i, value in enumerate(inputs) if _alike(wanted, formal_at(known.inputs, i)))
    return next(filter(_is_integer, alike), None)


def _is_integer(dtype: str) -> bool:
    return dtype.startswith(("int", "uint"))


def _alike(one: Formal, other: Formal) -> bool:
    return bool(one.variable) and one.variable == other.variable


def _number(builder: Builder, term: syntax.Term) -> syntax.Static | None:
    """The number, or the list, that a term says; or the number that is the example of a name that is not built yet."""
    value: syntax.Static | None = None
    if isinstance(term, syntax.Literal):
        value = term.value
    elif isinstance(term, syntax.Variable) and not term.optional and term.name not in builder.values:
        example = builder.pattern.example.get(term.name)
        value = None if example is None else example.value
    return None if isinstance(value, bool | str) else value


def written(builder: Builder, term: syntax.Term, beside: Iterable[str], formal: Formal | None = None) -> str:
    """A number as a constant. beside: the values of its type. formal: the input that it is for."""
    number = _number(builder, term)
    met = next((builder.types[value] for value in beside if value in builder.types), None)
    dtype = None if met is None else met if _is_integer(met) else builder.number_dtype
    if dtype is None and isinstance(number, int | float) and formal is not None and formal.types:
        dtype = None if "tensor(float)" in formal.types else "int64"
    if number is None or dtype is None or (isinstance(term, syntax.Variable) and isinstance(number, float) and dtype != met):
        return builder.value(term)
    made = builder.constant(number, dtype)
    if isinstance(term, syntax.Variable):
        builder.values[term.name] = made
    return made
