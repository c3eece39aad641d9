"""Snapshots of a few nodes as plain data: what a rewrite removed and added, for a report to draw.

A snapshot is taken before the rewrite removes the nodes. An `Excerpt` holds no weights and no reference to the model, so it can
be kept, compared and sent to another process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_subgraph.model.dimension_names import outer
from onnx_subgraph.model.element_types import numpy_name
from onnx_subgraph.operators.names import operator_of

MOST_NODES = 60
"""The most nodes that an excerpt holds. Of a larger part only the operators are counted: its drawing would be unreadable."""
MOST_ELEMENTS = 4
"""The most elements of a constant that is written out."""

_TYPES = frozenset({"to", "dtype"})
"""Attributes whose integer is an element type, in standard and onnxruntime operators."""

Tensors = Callable[[ir.Value], ir.TensorProtocol | None]
"""The constant that a value holds, or None where it is not constant."""


@dataclass(frozen=True, slots=True)
class Edge:
    """A value of an excerpt.

    dtype: for example "float16", "" where unknown. shape: a number, a name or "?" for each dimension; None where the rank is
    unknown. constant: whether it is the same in every run. literal: its elements as text, if there are at most `MOST_ELEMENTS`.
    """

    name: str
    dtype: str = ""
    shape: tuple[int | str, ...] | None = None
    constant: bool = False
    literal: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """A node of an excerpt. inputs, outputs: indices of its edges, None where absent. fused: whether a rewrite added it."""

    name: str
    domain: str
    op_type: str
    attributes: tuple[tuple[str, str], ...]
    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]
    fused: bool = False


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Some nodes of a graph, with the values that they read and make.

    steps: the nodes in topological order, () where there are more than `MOST_NODES`. results: indices of the edges that are read
    from outside. operators: operator → number of nodes; set in every case.
    """

    steps: tuple[Step, ...] = ()
    edges: tuple[Edge, ...] = ()
    results: tuple[int, ...] = ()
    operators: Mapping[str, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of nodes of the part, drawn or not."""
        return sum(self.operators.values())

    @property
    def reads(self) -> tuple[int, ...]:
        """Indices of the non-constant edges that come from outside, in the order of their first reader."""
        made = {index for step in self.steps for index in step.outputs}
        read = dict.fromkeys(index for step in self.steps for index in step.inputs if index is not None and index not in made)
        return tuple(index for index in read if not self.edges[index].constant)


def excerpt(nodes: Iterable[ir.Node], tensors: Tensors, fused: Callable[[ir.Node], bool]) -> Excerpt:
    """The excerpt of `nodes`, which are in topological order. Only small constants are read.

    fused: whether a rewrite added a node.
    """
    kept = [node for node in nodes if node.op_type != "Constant"]
    operators = Counter(map(operator_of, kept))
    if len(kept) > MOST_NODES:
        return Excerpt(operators=dict(operators))
    inside = set(kept)
    index: dict[ir.Value, int] = {}
    for value in (value for node in kept for value in (*node.inputs, *node.outputs)):
        if value is not None:
            index.setdefault(value, len(index))

    def place(value: ir.Value | None) -> int | None:
        return None if value is None or (value.name == "" and not value.uses()) else index[value]

    steps = tuple(
        Step(
            name=node.name or "",
            domain=node.domain,
            op_type=node.op_type,
            attributes=tuple((name, _attribute(attribute)) for name, attribute in sorted(node.attributes.items())),
            inputs=tuple(map(place, node.inputs)),
            outputs=tuple(map(place, node.outputs)),
            fused=fused(node),
        )
        for node in kept
    )
    results = tuple(
        place
        for value, place in index.items()
        if value.producer() in inside and (value.is_graph_output() or any(user not in inside for user, _ in value.uses()))
    )
    edges = tuple(_edge(value, None if value.producer() in inside else tensors(value)) for value in index)
    return Excerpt(steps, edges, results, dict(operators))


def _edge(value: ir.Value, tensor: ir.TensorProtocol | None) -> Edge:
    shape = value.shape if value.shape is not None or tensor is None else tensor.shape
    sizes = None if shape is None else tuple(_dimension(size) for size in shape)
    dtype = value.dtype or (tensor.dtype if tensor is not None else None)
    return Edge(
        name=value.name or "",
        dtype="" if dtype is None else numpy_name(dtype),
        shape=sizes,
        constant=tensor is not None,
        literal="" if tensor is None else _literal(tensor),
    )


def _dimension(size: int | ir.SymbolicDimProtocol) -> int | str:
    return size if isinstance(size, int) else outer(size.value or "?")


def _literal(tensor: ir.TensorProtocol) -> str:
    if tensor.size > MOST_ELEMENTS or (len(tensor.shape) > 1 and tensor.size > 1):
        return ""
    try:
        elements = tensor.numpy().reshape(-1).tolist()
    except Exception:  # the data may be missing, or of a type that numpy does not have
        return ""
    words = [f"{element:.6g}" if isinstance(element, float) else str(element) for element in elements]
    return words[0] if len(tensor.shape) == 0 or len(words) == 1 else f"[{', '.join(words)}]"


def _attribute(attribute: ir.Attr) -> str:
    if attribute.is_ref():
        return f"= {attribute.ref_attr_name}"
    value = attribute.value
    if attribute.name in _TYPES and attribute.type == ir.AttributeType.INT and value in set(ir.DataType):
        return numpy_name(ir.DataType(value))
    match attribute.type:
        case ir.AttributeType.TENSOR:
            return _literal(value) or "×".join(map(str, value.shape.numpy())) or "tensor"
        case ir.AttributeType.FLOAT:
            return f"{value:.6g}"
        case ir.AttributeType.FLOATS:
            return f"[{', '.join(f'{one:.6g}' for one in value)}]"
        case ir.AttributeType.INTS:
            return f"[{', '.join(map(str, value))}]"
        case ir.AttributeType.INT | ir.AttributeType.STRING:
            return str(value)
        case other:
            return other.name.lower()
