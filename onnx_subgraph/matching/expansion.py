"""Expand sums and products of one graph step by step: the node behind a value as constant ∘ items."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from hashlib import sha256
from math import isfinite
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import onnx_ir as ir

from onnx_subgraph.matching.equalities import GEMM, LINEAR, MATMUL, POWER, PRODUCTS, SUMS, Step
from onnx_subgraph.matching.remembered import remembered
from onnx_subgraph.matching.view import Scalar, View, Virtual, is_plain_gemm
from onnx_subgraph.model.element_types import FLOATS

if TYPE_CHECKING:
    import numpy as np

Item = tuple[ir.Value | Virtual, float]


_DISTINCT = 1e4
"""Integers below this differ by more than the tolerance of numbers."""


class Factoring(NamedTuple):
    """constant ∘ items, computed by `nodes`: one step of a sum or product (`Expansions`), or several (`chain`).

    items: (value, exponent or sign). scalars: the constants combined in `constant`, as items. tolerance: the relative error that
    `constant` may have.
    """

    items: tuple[Item, ...]
    constant: float
    scalars: tuple[tuple[ir.Value, float], ...]
    nodes: tuple[ir.Node, ...]
    tolerance: float

    @property
    def powers(self) -> tuple[float, ...]:
        """The exponents of the items, sorted. Equal products have equal exponents."""
        return tuple(sorted(power for _, power in self.items))

    @property
    def is_scaling(self) -> bool:
        """Whether it is one item times a constant."""
        return len(self.items) == 1 and self.items[0][1] == 1.0 and bool(self.scalars or self.constant != 1.0)


class Expansions:
    """For each value of a view, one step of the sum or product that it is; None where it is neither. neutral: no constant.

    of: the step of a value that a longer chain may go through. alone: that of a value which is a chain of its own.
    """

    is_product: ClassVar[bool]
    neutral: ClassVar[float]

    def __init__(self, view: View) -> None:
        self._view = view
        self._opposites = _opposites(view) if self.is_product else {}
        self.of = remembered(self._of)
        self.alone = remembered(self._alone)

    def combined(self, constant: float, number: float, power: float) -> float | None:
        """The constant with one more number, which has this sign or exponent; None for a factor that no float can hold."""
        if not self.is_product:
            return constant + power * number
        try:
            product = constant * number**power
        except (OverflowError, ZeroDivisionError):
            return None
        return product if product and isfinite(product) else None

    def may_expand(self, step: Factoring, power: float) -> bool:
        """Whether (a * b) ** p may become a ** p * b ** p: for integer p. But (a ** 2) ** 0.5 is not a."""
        if not self.is_product or float(power).is_integer():
            return True
        return len(step.items) == 1 and step.constant == 1.0 and step.items[0][1] in (-1.0, 0.5, -0.5)

    def _of(self, value: ir.Value) -> Factoring | None:
        node = self._view.producer(value)
        if node is None or node.op_type == "Constant":
            return self._opposites.get(value)
        return None if node.domain else self._computed(value, node)

    def _computed(self, value: ir.Value, node: ir.Node) -> Factoring | None:
        """The step of the result of a standard operator."""
        raise NotImplementedError

    def _alone(self, value: ir.Value) -> Factoring | None:
        """A quotient of integers: it rounds, so a/b*c is not a*c/b. None with a number that another one may be taken for."""
        node = self._view.producer(value)
        step = None if node is None or node.domain or not self.is_product else PRODUCTS.get(node.op_type)
        if node is None or step is None or not step.floats or _is_float(node):
            return None
        numbers = (self._view.scalar(v) for v in node.inputs if v is not None)
        return self._factored(step, node) if all(n is None or abs(n.number) < _DISTINCT for n in numbers) else None

    def _step(self, step: Step, node: ir.Node) -> Factoring | None:
        """A node as the sum or product that its operator computes."""
        return None if step.floats and not _is_float(node) else self._factored(step, node)

    def _factored(self, step: Step, node: ir.Node) -> Factoring | None:
        operands = tuple(value for value in node.inputs if value is not None)
        powers = step.powers_of(len(operands))
        if powers is None or len(operands) != len(node.inputs):
            return None
        items = tuple(zip(operands, powers, strict=True))
        if len(items) == 1:
            return Factoring(items, step.constant if self.is_product else self.neutral, (), (node,), 0.0)
        kept: list[Item] = []
        scalars: list[tuple[ir.Value, float]] = []
        constant, tolerance = self.neutral, 0.0
        for position, (value, power) in enumerate(items):
            number = self._view.scalar(value)
            others = operands[:position] + operands[position + 1 :]
            made = None if number is None else self.combined(constant, number.number, power)
            if number is None or made is None or not is_rank_safe(number, others):
                kept.append((value, power))
                continue
            constant = made
            tolerance += number.tolerance
            scalars.append((value, power))
        return Factoring(tuple(kept), constant, tuple(scalars), (node,), tolerance)


class Sums(Expansions):
    """The sums of a view, step by step."""

    is_product = False
    neutral = 0.0

    def _computed(self, value: ir.Value, node: ir.Node) -> Factoring | None:
        if node.op_type == GEMM:
            inputs = tuple(value for value in node.inputs if value is not None)
            if len(inputs) != 3 or not is_plain_gemm(node):
                return None
            return Factoring(((Virtual(MATMUL, inputs[:2], node), 1.0), (inputs[2], 1.0)), 0.0, (), (node,), 0.0)
        step = SUMS.get(node.op_type)
        return None if step is None else self._step(step, node)


class Products(Expansions):
    """The products of a view, step by step."""

    is_product = True
    neutral = 1.0

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._linear: dict[ir.Value, Factoring] = {}
        for node in view.nodes:  # in topological order: the operands' expansions must exist
            if node.op_type in LINEAR and not node.domain and (scaled := self._pull_scalars(node)) is not None:
                self._linear[node.outputs[0]] = scaled

    def _computed(self, value: ir.Value, node: ir.Node) -> Factoring | None:
        if node.op_type in LINEAR:
            return self._linear.get(value)
        if node.op_type == POWER:
            base, power = node.inputs
            number = None if power is None else self._view.scalar(power)
            if base is None or power is None or number is None or not number.number or not is_rank_safe(number, (base,)):
                return None
            return Factoring(((base, as_exponent(number.number, power.dtype)),), 1.0, (), (node,), 0.0)
        step = PRODUCTS.get(node.op_type)
        return None if step is None else self._step(step, node)

    def _pull_scalars(self, node: ir.Node) -> Factoring | None:
        """(s * a) @ (t * b) as s * t * (a @ b), and the same for the other linear operators."""
        inputs: list[ir.Value | Virtual] = []
        scalars: list[tuple[ir.Value, float]] = []
        nodes, constant, tolerance = [node], 1.0, 0.0
        for position, value in enumerate(node.inputs):
            if value is None:
                continue
            operand: ir.Value | Virtual = value
            for passed, step in self._scalings(value) if position == 0 or node.op_type == MATMUL else ():
                constant *= step.constant
                tolerance += step.tolerance
                scalars += step.scalars
                nodes += [*passed, *step.nodes]
                operand = step.items[0][0]
            inputs.append(operand)
        if len(nodes) == 1:
            return None
        return Factoring(((Virtual(node.op_type, tuple(inputs), node), 1.0),), constant, tuple(scalars), tuple(nodes), tolerance)

    def _scalings(self, value: ir.Value) -> Iterator[tuple[tuple[ir.Node, ...], Factoring]]:
        """The steps from `value` inwards that only scale, each with the transparent nodes before it."""
        operand: ir.Value | Virtual = value
        while type(operand) is ir.Value:
            source, passed = self._view.through(operand)
            step = self.of(source)
            if step is None or not step.is_scaling:
                return
            yield passed, step
            operand = step.items[0][0]


def _opposites(view: View) -> Mapping[ir.Value, Factoring]:
    """Each stored factor that is the negative of an earlier one, as -1 times that one. Factors have several elements."""
    alike: dict[Hashable, list[tuple[ir.Value, np.ndarray]]] = {}
    for value in dict.fromkeys(v for node in view.by_operator.get(("", "Mul"), ()) for v in node.inputs):
        if value is None or value.const_value is None or value.dtype not in FLOATS:
            continue
        array = view.constants.array(value)
        if array is not None and array.size > 1:
            some = array.reshape(-1)[:: max(1, array.size // 8)]  # a few elements, because most constants differ in them
            alike.setdefault((value.dtype, array.shape, abs(some).tobytes()), []).append((value, array))
    found: dict[ir.Value, Factoring] = {}
    for group in (group for group in alike.values() if len(group) > 1):
        earlier: dict[bytes, ir.Value] = {}
        for value, array in group:
            if (other := earlier.get(_digest(0 - array))) is not None:
                found[value] = Factoring(((other, 1.0),), -1.0, (), (), 0.0)
            else:
                earlier.setdefault(_digest(array + 0), value)
    return found


def _digest(array: np.ndarray) -> bytes:
    """A digest of the elements of an array without -0."""
    return sha256(array.tobytes()).digest()


def _is_float(node: ir.Node) -> bool:
    """Whether a node is known to compute floats. Its operands and its result have one type."""
    return bool(FLOATS & {v.dtype for v in (*node.inputs, *node.outputs) if v is not None})


def expansions(view: View, *, is_product: bool) -> Expansions:
    """The products or sums of a view; made once."""
    made: Expansions = view.shared(("expansions", is_product), lambda: (Products if is_product else Sums)(view))
    return made


def is_rank_safe(number: Scalar, others: Sequence[ir.Value]) -> bool:
    """Whether a constant leaves the rank of the result unchanged, given the other operands."""
    return number.rank == 0 or any(v.shape is not None and number.rank <= v.shape.rank() for v in others)


def as_exponent(power: float, dtype: ir.DataType | None = None) -> float:
    """An exponent, stored as `dtype`, as the decimal that it stands for, with six digits: 2.02, 0.333333."""
    return float(f"{float(str(power if dtype is None else dtype.numpy().type(power))):.6g}")
