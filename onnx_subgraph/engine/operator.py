"""The operator `onnx_subgraph::Engine`: how a model represents a region, and how to read it.

A node has the inputs of its region, run-time inputs first and then weights, and the attributes `backend`, `interval` and
`engine_key`. Regions that differ only in their weights share a definition, the overload named by their key. Its body lets any
runtime inline the engine. The default of its attribute `subgraph` is the region as a model with typed inputs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from onnx_subgraph.backends.subgraph import Subgraph, constant
from onnx_subgraph.engine.sample import BOUND
from onnx_subgraph.errors import ModelError
from onnx_subgraph.model.dimension_names import restored
from onnx_subgraph.operators.names import ENGINE, OWN_DOMAIN

IR_VERSION = 10
"""The least IR version with overloads of functions."""
BACKEND, SUBGRAPH, INTERVAL, KEY = "backend", "subgraph", "interval", "engine_key"
"""The attributes. interval: the positions of the replaced nodes in their graph as half-open intervals, [0, 3, 5, 6] for 0, 1, 2,
5."""
APART = "onnx_subgraph.apart"
"""Metadata of a node: its backend's error against onnxruntime during verification, as a share of the largest element."""
ALLOWED = 4
"""The factor of the measured error that is allowed at run time, if that is more than `BOUND`."""


@dataclass(frozen=True, slots=True)
class Placed:
    """An engine in a model. inputs: the run-time inputs, without the weights; outputs: the results."""

    node: ir.Node
    backend: str
    subgraph: Subgraph
    inputs: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]

    @property
    def bound(self) -> float:
        """The largest difference from onnxruntime's result, as a share of its largest element."""
        try:
            return max(BOUND, ALLOWED * float(self.node.metadata_props[APART]))
        except (KeyError, ValueError):
            return BOUND


def is_engine(node: ir.Node) -> bool:
    """Whether this is an engine operator."""
    return node.domain == OWN_DOMAIN and node.op_type == ENGINE


def definition(graph: ir.Graph, functions: Sequence[ir.Function]) -> ir.Function:
    """The definition of an engine operator: body and subgraph are both `graph`, whose inputs are those of the node.

    functions: the model-local functions that nodes of `graph` call. `graph` belongs to the definition afterwards.
    """
    for value in (*graph.inputs, *(output for node in graph.all_nodes() for output in node.outputs), *graph.outputs):
        value.shape = None if value.shape is None else restored(value.shape)
    content = ir.to_proto(ir.Model(graph, ir_version=IR_VERSION, functions=functions)).SerializeToString(deterministic=True)
    key = hashlib.sha256(content).hexdigest()[:16]
    for value in (*graph.inputs, *graph.outputs):
        value.type = value.shape = None  # a definition serves every shape
    subgraph = ir.AttrTensor(SUBGRAPH, ir.tensor(np.frombuffer(content, np.uint8), name=SUBGRAPH))
    declared = [subgraph, ir.AttrString(BACKEND, ""), ir.AttrInt64s(INTERVAL, []), ir.AttrString(KEY, key)]
    return ir.Function(OWN_DOMAIN, ENGINE, key, graph=graph, attributes=declared)


def engine_node(function: ir.Function, inputs: Sequence[ir.Value], backend: str, positions: Sequence[int]) -> ir.Node:
    """A node with that definition. positions: of the replaced nodes, ascending."""
    attributes = [
        ir.AttrString(BACKEND, backend),
        ir.AttrInt64s(INTERVAL, _runs(positions)),
        ir.AttrString(KEY, function.overload),
    ]
    return ir.Node(OWN_DOMAIN, ENGINE, inputs, attributes, overload=function.overload, num_outputs=len(function.outputs))


def placed_engines(model: ir.Model) -> tuple[Placed, ...]:
    """The engines of a model, including bodies, in order. Raises ModelError for one that can't be read."""
    return tuple(_placed(node, model) for node in model.graph.all_nodes() if is_engine(node))


def note_bounds(model: ir.Model, apart: Mapping[str, float]) -> None:
    """Record the error of engines against onnxruntime in the model, if it is large: name of a node → share."""
    for node in model.graph.all_nodes():
        if is_engine(node) and ALLOWED * apart.get(str(node.name), 0.0) > BOUND:
            node.metadata_props[APART] = f"{apart[str(node.name)]:.1e}"


def _placed(node: ir.Node, model: ir.Model) -> Placed:
    name = node.name or f"{ENGINE} {node.overload}"
    content = _attribute(node, SUBGRAPH, model)
    backend = _attribute(node, BACKEND, model)
    if not isinstance(content, ir.TensorProtocol) or not isinstance(backend, str):
        raise ModelError(f"engine '{name}' has no {SUBGRAPH} or no {BACKEND}", hint="partition the model again")
    try:
        inner = ir.from_proto(_parsed(content.tobytes()))
        flowing = _bind(inner.graph, node)
        InlinePass()(inner)
    except Exception as error:
        raise ModelError(f"engine '{name}': its {SUBGRAPH} can't be read: {error}", hint="partition the model again") from error
    return Placed(node, backend, Subgraph(name, node.overload, inner), flowing, tuple(node.outputs))


def _bind(graph: ir.Graph, node: ir.Node) -> tuple[ir.Value, ...]:
    """Turn the inputs of `graph` that are weights at this node into initializers; returns the values for the other inputs."""
    if len(graph.inputs) != len(node.inputs):
        raise ValueError(f"it has {len(graph.inputs)} inputs, the node {len(node.inputs)}")
    flowing: list[ir.Value] = []
    kept: list[ir.Value] = []
    weights: list[ir.Value] = []
    for inner, value in zip(graph.inputs, node.inputs, strict=True):
        assert value is not None
        tensor = constant(value)
        if tensor is None:
            flowing.append(value)
            kept.append(inner)
            continue
        inner.const_value = tensor
        weights.append(inner)
    graph.inputs[:] = kept
    for inner in weights:
        graph.register_initializer(inner)
    return tuple(flowing)


def _attribute(node: ir.Node, name: str, model: ir.Model) -> object:
    """The value of an attribute: the node's own, or the definition's default."""
    function = model.functions.get(node.op_identifier())
    for attributes in (node.attributes, function.attributes if function is not None else {}):
        if name in attributes:
            return attributes[name].value
    return None


def _parsed(content: bytes) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    proto.ParseFromString(content)
    return proto


def _runs(positions: Sequence[int]) -> list[int]:
    runs: list[int] = []
    for position in positions:
        if runs and runs[-1] == position:
            runs[-1] += 1
        else:
            runs += [position, position + 1]
    return runs
