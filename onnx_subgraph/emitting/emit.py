"""Emit the nodes of a replacement: each term of its block becomes nodes of a fragment.

A term used as a value becomes nodes. A term used as an attribute is computed now. The operator's schema at the model's opset
tells which is which, so one line of a pattern works at every opset that has its operators. A constant without a dtype (a literal,
a computed number) takes the dtype of a neighbouring operand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from onnx_subgraph import operators
from onnx_subgraph.emitting import layout
from onnx_subgraph.emitting.attribute import Lookup, attribute, kind_of, plain, static
from onnx_subgraph.emitting.constant_arithmetic import arithmetic, check_held
from onnx_subgraph.emitting.dtypes import declared, is_narrower, plainest
from onnx_subgraph.emitting.fragment import Fragment
from onnx_subgraph.emitting.refused import Absent, Refused
from onnx_subgraph.errors import Span
from onnx_subgraph.language.optional import is_optional
from onnx_subgraph.language.term import (
    Apply,
    Assignment,
    Block,
    Chain,
    Conditional,
    Either,
    Literal,
    Omitted,
    Operator,
    Rearrange,
    Static,
    Term,
    Variable,
    children,
)
from onnx_subgraph.matching.equalities import REARRANGING
from onnx_subgraph.matching.match import Binding
from onnx_subgraph.matching.synonyms import written
from onnx_subgraph.model.element_types import tensor_type
from onnx_subgraph.operators import Formal, Schema, formal_at
from onnx_subgraph.operators.names import OWN_DOMAIN

_PASSING_ABSENCE = REARRANGING | {"Cast", "Expand", "Identity"}
"""The result of these operators is absent where their input is absent."""
_CHAIN = {("+", False): "Add", ("+", True): "Sub", ("*", False): "Mul", ("*", True): "Div"}


@dataclass(frozen=True, slots=True, eq=False)
class Weak:
    """A constant without a dtype; it takes the dtype of a neighbouring operand."""

    value: Static | np.ndarray


Operand = ir.Value | Weak | None
"""A term's value; None where it is absent."""


@dataclass(slots=True, eq=False)
class Emitter:
    """Writes the lines of a block into `fragment`.

    bindings, rest: those of the match. lookup: the number of a name. is_read: whether a result of this name is needed.
    chosen, seen: for the terms of a `match` block, the alternatives that matched, and the dtypes that nodes give there.
    precision: the dtype to which narrower floating operands are cast. own: emits the call of a canonical operator.
    """

    fragment: Fragment
    bindings: Mapping[str, Binding]
    rest: Mapping[str, Mapping[str, ir.Attr]]
    lookup: Lookup
    is_read: Callable[[str], bool]
    chosen: Mapping[int, int] = field(default_factory=dict)
    seen: Mapping[Span | None, ir.DataType | None] = field(default_factory=dict)
    precision: ir.DataType | None = None
    results: dict[str, Operand] = field(default_factory=dict)
    own: Callable[[Emitter], tuple[ir.Value, ...]] | None = None

    def block(self, block: Block, check: Callable[[Emitter], None] = lambda _: None) -> None:
        """Emit every line whose results are needed. Raises Refused where the block can't be written for this match.

        check: called when all has been emitted that the block's requirement is about; it may raise Refused.
        """
        read = [self._names(line.term) for line in block.assignments]
        for position, line in enumerate(block.assignments):
            if position == block.requires.line:
                check(self)
            later = set().union(*read[position + 1 :])
            needed = [n != "_" and (n in later or self.is_read(n)) for n in line.names]
            if any(needed):
                try:
                    self._line(line, needed)
                except Absent:
                    if any(map(self.is_read, line.names)):
                        raise
                    self.results.update(dict.fromkeys(line.names))  # only later lines read it, and may not need it

    def _line(self, line: Assignment, needed: list[bool]) -> None:
        term = self._chosen(line.term)
        if len(line.names) == 1:
            self.results[line.names[0]] = self.operand(term)
            return
        if isinstance(term, Apply):
            values = self._apply(term, needed)
        elif isinstance(term, Rearrange) and term.word == "split":
            values = layout.split(self.fragment, self.value(term.source), term, self.lookup, len(line.names))
        else:
            raise Refused(f"`{term}` has one result, and {len(line.names)} are named")
        self.results.update((n, v) for n, v in zip(line.names, values, strict=False) if n != "_")

    def operand(self, term: Term) -> Operand:
        """Emit the nodes that compute a term, and return its value."""
        term = self._chosen(term)
        match term:
            case Literal(value=value):
                return Weak(value)
            case Omitted():
                return None
            case Variable(name=name):
                return self._variable(name)
            case Chain():
                return self._chain(term)
            case Apply():
                return self._apply(term, [True])[0]
            case Rearrange(word="split"):
                raise Refused("`split` has several results")
            case Rearrange():
                return layout.rearrange(self.fragment, self.value(term.source), term, self.bindings, self.lookup)
            case Conditional():
                raise AssertionError("`_chosen` chose a branch")
            case Either(alternatives=alternatives):
                present = next((t for t in alternatives if self._is_present(t)), None)
                return None if present is None else self.operand(present)

    def value(self, term: Term) -> ir.Value:
        """The value of a term as a tensor. Raises Absent where the term is absent."""
        found = self.operand(term)
        if found is None:
            raise Absent(f"`{term}` is absent here, and the replacement needs it")
        return self.settled(found, None)

    def value_of(self, name: str) -> ir.Value:
        """The value of a name that the block assigned."""
        return self.settled(self.results.get(name), None)

    def operand_of(self, name: str) -> ir.Value | Static | np.ndarray | ir.Attr | None:
        """What a name stands for: a value, or what is known before the model runs; None where it is absent."""
        operand = self.results.get(name, self.bindings.get(name))
        return operand if operand is None or isinstance(operand, ir.Value) else self._known(name)

    def cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """`value` as another dtype."""
        return self.fragment.node("Cast", [value], [ir.AttrInt64("to", int(dtype))])[0]

    def settled(self, operand: Operand, dtype: ir.DataType | None) -> ir.Value:
        """An operand as a value. A weak constant gets the given dtype, or by default the usual one for its numbers."""
        if isinstance(operand, ir.Value):
            return operand
        if operand is None:
            raise Absent("an operand of the replacement is absent here")
        array = np.asarray(operand.value)
        if dtype is None:
            dtype = plainest(array)
        with np.errstate(all="ignore"):
            held = array.astype(dtype.numpy())
        check_held(array, held)
        return self.fragment.constant(ir.Tensor(held, dtype=dtype))

    def dtype(self, value: ir.Value) -> ir.DataType | None:
        """The dtype of a value of the fragment: known, given by its operator's schema, or else inferred."""
        if value.dtype is None and (node := value.producer()) is not None:
            known = declared(node, value, self.fragment.opset_imports, self.dtype)
            if known is not None:
                return known
            self.fragment.infer()
        return value.dtype

    def _chosen(self, term: Term) -> Term:
        """The part of a term that is written here: the alternative that matched, or the one whose condition is true."""
        if isinstance(term, Conditional):
            return self._chosen(term.then if self._known(term.condition.name) else term.otherwise)
        while isinstance(term, Either) and id(term) in self.chosen:
            term = term.alternatives[self.chosen[id(term)]]
        if self.chosen.get(id(term)) and (found := written(term)) is not None:
            return self._chosen(found.formulas[self.chosen[id(term)] - 1])
        return term

    def _variable(self, name: str) -> Operand:
        if name in self.results:
            return self.results[name]
        binding = self.bindings.get(name)
        if binding is None:
            return None
        if isinstance(binding, ir.Value):
            value = self.fragment.stand_in(binding)
            if self.precision is not None and is_narrower(value.dtype, self.precision):
                value = self.results[name] = self.cast(value, self.precision)
            return value
        if isinstance(binding, ir.Attr):
            known = plain(binding)
            return Weak(tuple(known) if isinstance(known, list) else known)  # type: ignore[arg-type]
        if not isinstance(binding, bool | int | float | str | tuple | np.ndarray | np.generic):
            raise Refused(f"`{name}` is {binding}, which is not known before the model runs")
        return Weak(binding)

    def _chain(self, chain: Chain) -> Operand:
        operands = [(self.operand(t), inverse) for t, inverse in chain.items if not self._is_missing(t)]
        present: list[tuple[Operand, bool]] = [(o, inverse) for o, inverse in operands if o is not None]
        # An absent operand counts as zero, like an omitted bias: without b, `b * k` is absent and `b - mean` is `-mean`.
        if len(present) != len(operands) and chain.operator == "*":
            if any(o is None and inverse for o, inverse in operands):
                raise Refused(f"`{chain}` divides by what is absent here")
            return None
        if not present:
            return None
        if present[0][1]:
            present.insert(0, (Weak(0.0 if chain.operator == "+" else 1.0), False))
        constant = [p for p in present if self._is_constant(p[0])]
        if 1 < len(constant) < len(present) and not self._is_integer(present):
            # Combine the constants first, so that they fold into one.
            rest = [p for p in present if not self._is_constant(p[0])]
            neutral: tuple[Operand, bool] = (Weak(0.0 if chain.operator == "+" else 1.0), False)
            straight = [p for p in constant if not p[1]]
            ordered = straight + [p for p in constant if p[1]] if straight else [neutral, *constant]
            total = self._sum(chain.operator, ordered)
            present = [*rest, (total, False)] if not rest[0][1] else [(total, False), *rest]
        return self._sum(chain.operator, present)

    def _is_missing(self, term: Term) -> bool:
        """Whether `term` is an optional input, or an optional item of a chain, that is absent here."""
        if not is_optional(term):
            return False
        return self.chosen.get(id(term)) == 1 or not self._is_present(term)

    def _sum(self, operator: str, items: list[tuple[Operand, bool]]) -> Operand:
        total = items[0][0]
        for operand, inverse in items[1:]:
            if isinstance(total, Weak) and isinstance(operand, Weak):
                total = Weak(arithmetic(operator, inverse, total.value, operand.value))
            else:
                total = self._emit(Operator(_CHAIN[operator, inverse]), [total, operand], [], [True])[0]
        return total

    def _is_constant(self, operand: Operand) -> bool:
        if isinstance(operand, ir.Value):
            node = operand.producer()
            return operand.const_value is not None or (node is not None and all(map(self._is_constant, node.inputs)))
        return True

    def _is_integer(self, items: list[tuple[Operand, bool]]) -> bool:
        dtypes = [self.dtype(o) for o, _ in items if isinstance(o, ir.Value)]
        return not all(d is not None and d.is_floating_point() for d in dtypes)

    def _apply(self, term: Apply, needed: list[bool]) -> tuple[Operand, ...]:
        operator = self._operator(term)
        if operator.domain == OWN_DOMAIN and self.own is not None:
            return self.own(self)
        keywords = [(k, t) for k, t in term.keywords if not self._is_absent(t) and not self._is_later_default(operator, k, t)]
        captured = self.rest.get(term.rest, {}) if term.rest else {}
        arguments: list[Operand] = [self._argument(a) for a in term.arguments]
        if not operator.domain and operator.name in _PASSING_ABSENCE and arguments and arguments[0] is None:
            return (None,)  # `Reshape(bias, [-1])` where there is no bias
        if operator == Operator("Shape") and (part := self._part(keywords)) is not None:
            return (self.fragment.sizes(self.settled(arguments[0], None), *part),)
        while arguments and arguments[-1] is None:
            arguments.pop()
        schema = self.fragment.schema(operator, (*(k for k, _ in keywords), *captured), len(arguments))
        attributes = [ir.Attr(k, a.type, a.value) for k, a in captured.items()]
        formals = {f.name: i for i, f in enumerate(schema.inputs)}
        for name, keyword in keywords:
            if name in schema.attributes:
                known = static(self._chosen(keyword), self._known)
                if known is not None:
                    attributes.append(attribute(name, kind_of(schema.attributes[name].type), known))
                continue
            index = formals[name]
            arguments += [None] * (index + 1 - len(arguments))
            arguments[index] = self.operand(keyword)
        return self._emit(operator, arguments, attributes, needed, schema, self.seen.get(term.span))

    def _part(self, keywords: list[tuple[str, Term]]) -> tuple[int, int] | None:
        """The axes, from the first to before the last, whose sizes a call of Shape asks; None for all axes."""
        given = {name: static(self._chosen(term), self._known) for name, term in keywords}
        start, end = given.get("start", 0), given.get("end")
        return (start, end) if isinstance(start, int) and isinstance(end, int) and 0 <= start < end else None

    def _emit(
        self,
        operator: Operator,
        operands: list[Operand],
        attributes: list[ir.Attr],
        needed: list[bool],
        schema: Schema | None = None,
        dtype: ir.DataType | None = None,
    ) -> tuple[ir.Value, ...]:
        """Emit a node. dtype: of its first result, where that is known."""
        schema = schema or self.fragment.schema(operator, (), len(operands))
        for formal, operand in zip(schema.inputs, operands, strict=False):
            if operand is None and not formal.optional and not formal.variadic:
                raise Absent(f"{operator} needs {formal.name}, which is absent here")
        if len(operands) < schema.min_inputs:
            raise Absent(f"{operator} needs {formal_at(schema.inputs, len(operands)).name}, which is absent here")
        inputs = [self._settle(o, i, operands, schema, dtype) for i, o in enumerate(operands)]
        if operator == Operator("Cast") and (source := inputs[0]) is not None and self._has_type(source, attributes):
            return (source,)
        emitted = [n or not formal_at(schema.outputs, i).optional for i, n in enumerate(needed)]
        while len(emitted) > 1 and not emitted[-1]:
            emitted.pop()
        values = self.fragment.node(operator.name, inputs, attributes, domain=operator.domain, outputs=emitted)
        return values + tuple(ir.Value(name="") for _ in needed[len(values) :])

    def _has_type(self, value: ir.Value, attributes: list[ir.Attr]) -> bool:
        """Whether a value computed in this fragment already has the type that a Cast with these attributes gives."""
        if not self.fragment.fold_constants or value.producer() is None:
            return False
        to = next((a.as_int() for a in attributes if a.name == "to"), None)
        return to is not None and self.dtype(value) == to

    def _settle(
        self, operand: Operand, index: int, operands: list[Operand], schema: Schema, result: ir.DataType | None
    ) -> ir.Value | None:
        if operand is None or isinstance(operand, ir.Value):
            return operand
        formal = formal_at(schema.inputs, index)
        dtype = self._neighbour(operand, formal, index, operands, schema)
        if dtype is None and formal.variable and formal.variable == formal_at(schema.outputs, 0).variable:
            dtype = result
        return self.settled(operand, dtype or _usual(operand, formal))

    def _neighbour(
        self, operand: Weak, formal: Formal, index: int, operands: list[Operand], schema: Schema
    ) -> ir.DataType | None:
        """The dtype that other operands give a weak constant: one with the same type variable, or else a floating one."""
        kind = np.asarray(operand.value).dtype.kind
        others = [
            (formal_at(schema.inputs, i), dtype)
            for i, o in enumerate(operands)
            if i != index and isinstance(o, ir.Value) and (dtype := self.dtype(o)) is not None
        ]
        for other, dtype in others:  # in almost all schemas, operands that allow the same types share a type variable
            if other.types == formal.types and (kind != "f" or dtype.is_floating_point()):
                return dtype
        for _, dtype in others:
            if kind == "f" and dtype.is_floating_point() and tensor_type(dtype) in formal.types:
                return dtype
        return None

    def _names(self, term: Term) -> set[str]:
        term = self._chosen(term)
        if isinstance(term, Variable):
            return {term.name}
        return {n for child in children(term) for n in self._names(child)}

    def _argument(self, term: Term) -> Operand:
        if isinstance(term, Variable) and term.name == "_":
            raise Refused("`_` has no value that could be used")
        return None if self._is_missing(term) else self.operand(term)

    def _is_later_default(self, operator: Operator, name: str, term: Term) -> bool:
        """Whether this opset's operator lacks the attribute, and the term is the default that a later opset gives it."""
        version = self.fragment.opset_imports.get(operator.domain, 1)
        here, latest = (operators.schema(operator.name, operator.domain, v) for v in (version, None))
        if here is None or latest is None or name in here.attributes or name not in latest.attributes:
            return False
        return isinstance(term, Literal) and term.value == latest.attributes[name].default

    def _is_absent(self, term: Term) -> bool:
        return isinstance(term, Variable) and term.name not in self.results and self.bindings.get(term.name) is None

    def _is_present(self, term: Term) -> bool:
        """Whether every part of a term is present here. A replacement takes the first alternative that is."""
        term = self._chosen(term)
        if isinstance(term, Variable):
            name = term.name
            return (self.results[name] if name in self.results else self.bindings.get(name)) is not None
        if isinstance(term, Either):
            return any(map(self._is_present, term.alternatives))
        return all(self._is_present(t) for t in children(term) if not (isinstance(term, Chain) and is_optional(t)))

    def _known(self, name: str) -> Static | np.ndarray | ir.Attr | None:
        result = self.results.get(name)
        return result.value if isinstance(result, Weak) else self.lookup(name)

    def _operator(self, term: Apply) -> Operator:
        if term.capture:
            captured = self.bindings.get(term.capture)
            if not isinstance(captured, str):
                raise Refused(f"which operator `{term.capture}` is, is not known")
            domain, _, name = captured.rpartition(".")
            return Operator(name, domain)
        if len(term.operators) == 1:
            return term.operators[0]
        if id(term) in self.chosen:
            return term.operators[self.chosen[id(term)]]
        raise Refused(f"which operator of `{term}` matched is not known")


def _usual(operand: Weak, formal: Formal) -> ir.DataType | None:
    """The dtype of a weak constant beside which nothing has one: the usual one for its numbers, if an operand may have it."""
    usual = plainest(np.asarray(operand.value))
    if not formal.types or tensor_type(usual) in formal.types:
        return usual
    return next((d for d in ir.DataType if d and tensor_type(d) in formal.types), None)
