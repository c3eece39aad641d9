"""Noise only where a result was rounded: a difference of whole numbers, half of them, or a value divided by itself is exact.

A number that is exact and decides something, such as `x / max(x) >= 1`, decides it in every form of a graph. Noise would let
another decision pass. Whether an element was rounded is seen in a run, by its operands in float64. A sum of whole numbers is
exact if it is below 2²⁴, or 2⁵³ in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.nested import operands

ELEMENTWISE = frozenset(("Add", "Sub", "Mul", "Div"))
"""Operators of which a result of at most 32 bits is compared with one in float64, which holds their exact results.
A quotient without an exact float64 is further from each float32 than float64 rounds, so it is seen to be rounded."""
CHOOSING = frozenset(
    {"TopK", "ArgMax", "ArgMin", "Hardmax", "NonMaxSuppression", "NonZero", "Unique"}
    | {"Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal", "Round", "Floor", "Ceil", "Sign"}
)
"""Operators that turn a difference by rounding into a large one; and a Cast to integers."""
OPSET = 9
"""The first opset with a Where of these types."""


def is_choice(node: ir.Node) -> bool:
    """Whether the node turns a difference by rounding into a large one."""
    to = node.outputs[0].dtype
    return node.op_type in CHOOSING or (node.op_type == "Cast" and to is not None and not to.is_floating_point())


def deciding(nodes: Iterable[ir.Node], rounds: Callable[[ir.Node], bool]) -> set[ir.Value]:
    """The results of elementwise arithmetic on which choices depend, by nothing but such arithmetic and what does not round.

    rounds: whether the results of a node are rounded.
    """
    left = [value for node in nodes if is_choice(node) for value in operands(node)]
    seen, found = set[ir.Value](), set[ir.Value]()
    while left:
        if (value := left.pop()) in seen:
            continue
        seen.add(value)
        node = value.producer()
        if node is None:
            continue
        if is_elementwise(node):
            found.add(value)
        elif rounds(node):
            continue
        left += operands(node)
    return found


def is_elementwise(node: ir.Node) -> bool:
    """Whether it can be seen in a run which elements of the node's result were rounded."""
    types = [None if value is None else value.dtype for value in (*node.inputs, *node.outputs)]
    narrow = all(dtype is not None and dtype.is_floating_point() and dtype is not ir.DataType.DOUBLE for dtype in types)
    return not node.domain and node.op_type in ELEMENTWISE and narrow


def where_rounded(node: ir.Node, result: ir.Value, factor: ir.Value, dtype: ir.DataType) -> list[ir.Node]:
    """Nodes whose last output is the factor where an element of the node's result was rounded, and 1 elsewhere.

    result: the node's, in the factor's type `dtype`. The node computes with whole numbers, or is elementwise.
    """
    made = list[ir.Node]()

    def apply(operator: str, *values: ir.Value, **attributes: object) -> ir.Value:
        made.append(ir.node(operator, values, attributes or None))  # type: ignore[arg-type]
        return made[-1].outputs[0]

    def constant(number: float, kind: ir.DataType) -> ir.Value:
        return apply("Constant", value=ir.tensor(np.asarray(number, kind.numpy())))

    if is_elementwise(node):
        wide = int(ir.DataType.DOUBLE)
        (a, b), r = [apply("Cast", value, to=wide) for value in node.inputs if value is not None], apply("Cast", result, to=wide)
        error = apply("Sub", apply(node.op_type, a, b), r)
        is_rounded = apply("Greater", apply("Abs", error), constant(0.0, ir.DataType.DOUBLE))
    else:
        first = 2.0**53 if dtype is ir.DataType.DOUBLE else 2.0**24
        is_rounded = apply("Greater", apply("Abs", result), constant(first, dtype))
    apply("Where", is_rounded, factor, constant(1.0, dtype))
    return made
