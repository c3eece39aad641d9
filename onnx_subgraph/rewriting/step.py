"""Turn one step of a Loop into formulas: evaluate its body symbolically, over terms.

A sum of products with constant weights is one `Linear` term, however it is written. So separate gates give the same term as gates
that are computed together and then split. The same holds for weights that the Loop carries unchanged, and for slices of them.
Other operations have no term, and neither do the values that depend on them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.folding import fold
from onnx_subgraph.model.nested import has_bodies

Part = slice


@dataclass(frozen=True, eq=False)
class Term:
    """The symbolic value of a graph value in this step. Terms are equal if they are the same object."""


@dataclass(frozen=True, eq=False)
class Number(Term):
    """A constant. filled: one number everywhere, in a shape that is not known; it broadcasts to any shape."""

    array: np.ndarray
    filled: bool = False


@dataclass(frozen=True, eq=False)
class Symbol(Term):
    """A value at the start of a step.

    kind: "step", the step's number; "length", of the sequence; "input", a row of the sequence; "state", from the step before.
    """

    kind: str
    value: ir.Value


@dataclass(frozen=True, eq=False)
class Next(Term):
    """The number of the next step."""


@dataclass(frozen=True, eq=False)
class ShapeOf(Term):
    """The shape of another term."""

    of: Term


@dataclass(frozen=True, eq=False)
class Linear(Term):
    """Σ term · weight + bias. weights: term → (size of the term, width). bias: (width)."""

    weights: Mapping[Term, np.ndarray]
    bias: np.ndarray | None


@dataclass(frozen=True, eq=False)
class Applied(Term):
    """An elementwise operator ("Sigmoid", "Tanh", "Relu", "Mul", "Add", "Sub", "Less", "And") of terms."""

    operator: str
    operands: tuple[Term, ...]


COUNTING = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.INT64, ir.DataType.INT32)
"""The types that hold each number of steps, of which there are fewer than 2²⁴."""
_RANK = 2
"""The rank of a state: (batch, hidden). A constant of a higher rank makes the result one of that rank."""
_ENDLESS = 2**31 - 1
"""Exporters write this number, or a larger one, for the end of an axis."""


class Step:
    """The terms of a body's values.

    given: the terms of the body's inputs. sequence: the outer value whose rows the body reads; None if it reads none.
    """

    def __init__(self, body: ir.Graph, constants: Constants, opset: int, given: Mapping[ir.Value, Term]) -> None:
        self._terms: dict[ir.Value, Term | None] = dict(given)
        self._constants = constants
        self._opset = opset
        self.sequence: ir.Value | None = None
        for node in body:
            self._evaluate(node)

    def term(self, value: ir.Value | None) -> Term | None:
        """The term of a value; None where it is unknown."""
        if value is None:
            return None
        if value not in self._terms:
            array = self._constants.array(value)
            outer = Symbol("length", value) if value.dtype in COUNTING else None  # may be the length of the sequence
            self._terms[value] = outer if array is None else Number(array)
        return self._terms[value]

    def _evaluate(self, node: ir.Node) -> None:
        self._terms |= dict.fromkeys(node.outputs)
        if node.domain or has_bodies(node):
            return
        if node.op_type == "Constant":
            self._terms.update({o: None if (a := self._constants.array(o)) is None else Number(a) for o in node.outputs})
            return
        if node.op_type == "Gather" and self._gathers(node):
            return
        operands = [self.term(value) for value in node.inputs]
        if all(isinstance(o, Number) or v is None for o, v in zip(operands, node.inputs, strict=True)):
            self._fold(node, operands)
        elif (rule := _RULES.get(node.op_type)) is not None and operands[0] is not None:
            results = rule(self, node, operands)
            self._terms.update(zip(node.outputs, results, strict=False))

    def _gathers(self, node: ir.Node) -> bool:
        """Whether the node takes the row of this step from an outer sequence. If so, sets its term."""
        sequence, at = node.inputs[0], self.term(node.inputs[1])
        axis = node.attributes.get("axis")
        if sequence is None or sequence.graph is node.graph or not isinstance(at, Symbol) or at.kind != "step":
            return False
        if (axis is not None and axis.as_int() != 0) or self.sequence not in (None, sequence):
            return False
        self.sequence = sequence
        self._terms[node.outputs[0]] = self._row(sequence)
        return True

    def _row(self, sequence: ir.Value) -> Symbol:
        known = next((t for t in self._terms.values() if isinstance(t, Symbol) and t.value is sequence), None)
        return known or Symbol("input", sequence)

    def _fold(self, node: ir.Node, operands: list[Term | None]) -> None:
        arrays = [o.array if isinstance(o, Number) else None for o in operands]
        results = fold(node, arrays, self._opset)
        for output, array in zip(node.outputs, results or (), strict=False):
            self._terms[output] = Number(array) if isinstance(array, np.ndarray) else None

    # Rules: at least one operand is not a Number

    def _same(self, node: ir.Node, operands: list[Term | None]) -> list[Term | None]:
        return operands[:1]

    def _counted(self, node: ir.Node, operands: list[Term | None]) -> list[Term | None]:
        """A step number is the same in every numeric type, so a Cast keeps its term."""
        counts = isinstance(operands[0], Next) or (isinstance(operands[0], Symbol) and operands[0].kind in ("step", "length"))
        return operands[:1] if counts and node.attributes["to"].as_int() in COUNTING else [None]

    def _shape(self, node: ir.Node, operands: list[Term | None]) -> list[Term | None]:
        return [ShapeOf(operands[0])] if operands[0] is not None and not node.attributes else [None]

    def _filled(self, node: ir.Node, operands: list[Term | None]) -> list[Term | None]:
        value = node.attributes.get("value")
        array = np.zeros(1, np.float32) if value is None else value.as_tensor().numpy()
        return [Number(array, filled=True)] if isinstance(operands[0], ShapeOf) else [None]

    def _product(self, node: ir.Node, operands: list[Term | None]) -> list[Term | None]:
        left, right = operands[0], operands[1]
        if left is None or not isinstance(right, Number) or right.array.ndim != 2 or isinstance(left, Number | ShapeOf):
            return [None]
        return [Linear({left: right.array}, None)]

    def _elementwise(self, node: ir.Node, operands: list[Term | None]) -> list[Term | None]:
        known = tuple(operand for operand in operands if operand is not None)
        return [Applied(node.op_type, known) if len(known) == len(operands) else None]

    def _times(self, node: ir.Node, operands: list[Term | None]) -> list[Term | None]:
        a, b = operands
        for one, other in ((a, b), (b, a)):
            if isinstance(other, Number) and one is not None:
                return [one if (other.filled or _is_number(other)) and (other.array == 1).all() else None]
        return [None if a is None or b is None else Applied("Mul", (a, b))]

    def _plus(self, node: ir.Node, operands: list[Term | None]) -> list[Term | None]:
        a, b = operands
        for one, other in ((a, b), (b, a)):
            if isinstance(one, Symbol) and one.kind == "step":
                return [Next() if isinstance(other, Number) and other.array.size == 1 and other.array.item() == 1 else None]
            if isinstance(one, Linear) and isinstance(other, Number):
                return [_biased(one, other)]
        if isinstance(a, Linear) and isinstance(b, Linear):
            return [_added(a, b)]
        known = not (a is None or b is None or isinstance(a, Number) or isinstance(b, Number))
        return self._elementwise(node, operands) if known else [None]

    def _minus(self, node: ir.Node, operands: list[Term | None]) -> list[Term | None]:
        a, b = operands
        return [Applied("Sub", (a, b)) if isinstance(a, Number) and _is_number(a) and b is not None else None]

    def _split(self, node: ir.Node, operands: list[Term | None]) -> list[Term | None]:
        """The columns of a sum of products. Splitting the column indices tells which columns each result has."""
        source, rest = operands[0], operands[1:]
        if not isinstance(source, Linear) or not _takes_all_rows(node, rest):
            return [None] * len(node.outputs)
        width = next(iter(source.weights.values())).shape[1]
        arrays = [np.broadcast_to(np.arange(width), (2, width)), *(o.array if isinstance(o, Number) else None for o in rest)]
        results = fold(node, arrays, self._opset)
        found: list[Term | None] = []
        for columns in results or [None] * len(node.outputs):
            whole = isinstance(columns, np.ndarray) and columns.ndim == 2 and len(columns) == 2
            found.append(_columns(source, np.asarray(columns)[0]) if whole else None)
        return found


_Rule = Callable[[Step, ir.Node, list[Term | None]], list[Term | None]]
_RULES: Mapping[str, _Rule] = {
    "Identity": Step._same,
    "Cast": Step._counted,
    **dict.fromkeys(("Sigmoid", "Tanh", "Relu", "Less", "And"), Step._elementwise),
    **dict.fromkeys(("Split", "Slice"), Step._split),
    "Shape": Step._shape,
    "ConstantOfShape": Step._filled,
    "MatMul": Step._product,
    "Mul": Step._times,
    "Add": Step._plus,
    "Sub": Step._minus,
}


def _takes_all_rows(node: ir.Node, operands: list[Term | None]) -> bool:
    """Whether a Slice takes all rows. For a Split along another axis than the last, the shapes of its results show it."""
    if node.op_type != "Slice":
        return True
    if len(operands) < 3 or not all(isinstance(o, Number) for o in operands[:3]):
        return False
    ends, axes = (o.array.tolist() for o in operands[1:3] if isinstance(o, Number))
    return all(end >= _ENDLESS for end, axis in zip(ends, axes, strict=True) if axis in (0, -2))


def _is_number(one: Number) -> bool:
    """Whether it is a single number that does not raise the rank of a state."""
    return one.array.size == 1 and one.array.ndim <= _RANK


def _biased(one: Linear, other: Number) -> Linear | None:
    width = next(iter(one.weights.values())).shape[1]
    if other.filled or other.array.size != width or other.array.shape[-1] != width or other.array.ndim > _RANK:
        return None
    bias = other.array.reshape(-1)
    return Linear(one.weights, bias if one.bias is None else one.bias + bias)


def _added(a: Linear, b: Linear) -> Linear | None:
    if {w.shape[1] for w in (*a.weights.values(), *b.weights.values())} != {next(iter(a.weights.values())).shape[1]}:
        return None
    weights = dict(a.weights)
    for term, weight in b.weights.items():
        weights[term] = weights[term] + weight if term in weights else weight
    bias = a.bias if b.bias is None else b.bias if a.bias is None else a.bias + b.bias
    return Linear(weights, bias)


def _columns(source: Linear, columns: np.ndarray) -> Linear:
    taken = {term: weight[:, columns] for term, weight in source.weights.items()}
    return Linear(taken, None if source.bias is None else source.bias[columns])
