"""Compute what is known before the model runs: attributes of new nodes, and numbers derived from captured constants.

A name used as an attribute must be constant: a number of the pattern, a captured attribute, a named axis of known size or a
constant of the graph. Arithmetic over them is done here, with Python numbers. The result is converted to the type in the target
operator's schema.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir

from onnx_subgraph.emitting.refused import Refused
from onnx_subgraph.language.term import Apply, Chain, Literal, Static, Term, Variable
from onnx_subgraph.language.vocabulary import DTYPES
from onnx_subgraph.matching.match import Binding
from onnx_subgraph.model.element_types import named

Known = Static | np.ndarray | ir.Attr
"""A value known at rewrite time."""

Lookup = Callable[[str], "Known | None"]
"""Name → its value, if known at rewrite time; None where it is absent. Raises Refused where it is not constant."""

_FUNCTIONS: Mapping[str, Callable[..., float]] = {
    "Neg": lambda x: -x,
    "Abs": abs,
    "Sqrt": math.sqrt,
    "Reciprocal": lambda x: 1 / x,
    "Exp": math.exp,
    "Log": math.log,
    "Pow": lambda x, y: x**y,
    "Max": max,
    "Min": min,
}


def static(term: Term, lookup: Lookup) -> Known | None:
    """The value of a term that must be constant, or None where it is a name that is absent.

    Raises Refused where the term is not constant.
    """
    match term:
        case Literal(value=value):
            return value
        case Variable(name=name):
            return lookup(name)
        case Chain(operator=operator, items=items):
            total = _number(items[0][0], lookup)
            for item, inverse in items[1:]:
                number = _number(item, lookup)
                if operator == "+":
                    total = total - number if inverse else total + number
                else:
                    total = total / number if inverse else total * number
            return total
        case Apply(operators=(operator,), arguments=arguments, keywords=()) if operator.name in _FUNCTIONS:
            try:
                return _FUNCTIONS[operator.name](*(_number(a, lookup) for a in arguments))
            except (ValueError, ArithmeticError) as error:
                raise Refused(f"`{term}` has no value: {error}") from error
        case _:
            raise Refused(f"`{term}` is not constant")


def plain(value: Known) -> object:
    """A known value as a number, string or list of them."""
    if isinstance(value, ir.Attr):
        value = value.value
    if isinstance(value, np.ndarray | np.generic):
        return value.item() if value.size == 1 and value.ndim == 0 else value.tolist()
    if isinstance(value, tuple | list):
        return [plain(v) for v in value]
    return value


def kind_of(kind: object) -> str:
    """The name of an attribute's type, "FLOAT" or "INTS"."""
    return str(kind).rpartition(".")[2].upper()


def _number(term: Term, lookup: Lookup) -> float:
    value = static(term, lookup)
    number = plain(value) if value is not None else None
    while isinstance(number, list) and len(number) == 1:
        number = number[0]
    if not isinstance(number, int | float):
        raise Refused(f"`{term}` is not a number")
    return number


def lookup_in(bindings: Mapping[str, Binding], array: Callable[[ir.Value], np.ndarray | None]) -> Lookup:
    """Return the lookup for the names of a match. array: the constant of a value of the graph, or None."""

    def lookup(name: str) -> Known | None:
        binding = bindings.get(name)
        if binding is None or isinstance(binding, bool | int | float | str | tuple | np.ndarray | np.generic | ir.Attr):
            return binding
        if not isinstance(binding, ir.Value):
            raise Refused(f"`{name}` must be a number, and is {binding}, which is not known before the model runs")
        found = array(binding)
        if found is None:
            raise Refused(f"`{name}` must be constant, and {binding.name} is not", is_local=True)
        return found

    return lookup


def known_before(name: str, lookup: Lookup) -> object:
    """The number or text of a name, or a list of them; None where it is absent, or only known when the model runs."""
    try:
        known = lookup(name)
    except Refused:  # a dynamic size
        return None
    found = None if known is None else plain(known)
    is_symbolic = isinstance(found, list | tuple) and not all(isinstance(one, int | float | str) for one in found)
    return None if is_symbolic else found


def attribute(name: str, kind: str, value: Known) -> ir.Attr:
    """`value` as the attribute `name` of the type that the schema names ("INT", "FLOATS", …).

    kind: "" keeps the type of the value. Raises Refused where the value can't be converted.
    """
    if not kind:
        found: ir.Attr = value if isinstance(value, ir.Attr) else ir.convenience.convert_attribute(name, plain(value))  # type: ignore[arg-type]
        return ir.Attr(name, found.type, found.value)
    if isinstance(value, ir.Attr) and value.type not in _CONVERTERS and value.type.name == kind:
        return ir.Attr(name, value.type, value.value)
    wanted = ir.AttributeType[kind]
    if wanted == ir.AttributeType.TENSOR and not isinstance(value, ir.Attr):
        return ir.AttrTensor(name, ir.tensor(np.asarray(value)))
    if wanted not in _CONVERTERS:
        raise Refused(f"the attribute {name} of type {kind} can't be written in a pattern")
    raw = plain(value)
    plural = kind.endswith("S")
    if plural and not isinstance(raw, list):
        raw = [raw]
    while not plural and isinstance(raw, list) and len(raw) == 1:
        raw = raw[0]
    try:
        return ir.Attr(name, wanted, _CONVERTERS[wanted](raw))
    except (TypeError, ValueError) as error:
        raise Refused(f"{raw!r} can't be the attribute {name} of type {kind}") from error


def _integer(value: object) -> int:
    if isinstance(value, str) and value in DTYPES:
        return int(named(value))
    if not isinstance(value, int | float) or value != int(value):
        raise ValueError(value)
    return int(value)


def _float(value: object) -> float:
    if not isinstance(value, int | float):
        raise TypeError(value)
    return float(value)


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _each(convert: Callable[[object], object]) -> Callable[[object], object]:
    def convert_all(values: object) -> object:
        if not isinstance(values, list):
            raise TypeError(values)
        return [convert(v) for v in values]

    return convert_all


_CONVERTERS: Mapping[ir.AttributeType, Callable[[object], object]] = {
    ir.AttributeType.INT: _integer,
    ir.AttributeType.FLOAT: _float,
    ir.AttributeType.STRING: _string,
    ir.AttributeType.INTS: _each(_integer),
    ir.AttributeType.FLOATS: _each(_float),
    ir.AttributeType.STRINGS: _each(_string),
}


def attributes_of(given: Mapping[str, object]) -> list[ir.Attr]:
    """Attributes of ONNX, sorted by name. Raises TypeError or ValueError for a value that ONNX has no attribute for."""
    made = list(ir.convenience.convert_attributes(dict(sorted(given.items()))))  # type: ignore[arg-type]
    for attribute in made:
        try:
            ir.to_proto(attribute)
        except ir.serde.SerdeError as error:  # an integer of more than 64 bits
            raise ValueError(f"the attribute {attribute.name!r} can't be {attribute.value!r} in ONNX") from error
    return made
