"""The graph that regions are grown in, and the facts that sentences can use about its nodes and about finished regions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import cache, cached_property
from typing import Any

import onnx_ir as ir

from onnx_subgraph import operators
from onnx_subgraph.facts import Facts
from onnx_subgraph.model.attributes import plain_value
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.operators import Schema
from onnx_subgraph.operators.names import operator_of
from onnx_subgraph.regions.region import Region, Wiring

PATTERN = "onnx_subgraph.pattern"
"""Metadata key of a fused node; its value is the id of the pattern."""


class Ground:
    """The graph that regions are grown in, with caches that several patterns share. The graph must not change meanwhile.

    schema: the schema of a node, None for an unknown operator.
    """

    def __init__(self, graph: ir.Graph, constants: Constants, schema: Callable[[ir.Node], Schema | None]) -> None:
        self.graph = graph
        self.constants = constants
        self.schema = schema
        self.facts = cache(lambda node: NodeFacts(self, node))
        """The facts of a node, as sentences use them."""
        kinds: dict[Hashable, int] = {}
        self.kind = cache(lambda node: kinds.setdefault(_kind(node), len(kinds)))
        """The number of a node's kind: the facts that depend on the kind alone are equal for all its nodes."""

    @cached_property
    def wiring(self) -> Wiring:
        """The nodes of the graph and their edges."""
        return Wiring.of(self.graph)

    @cached_property
    def standing(self) -> Mapping[ir.Node, str]:
        """The nodes that already replace a region → the id of the pattern."""
        return {node: name for node in self.graph if (name := node.metadata_props.get(PATTERN)) is not None}


def _kind(node: ir.Node) -> Hashable:
    """What the facts in `_OF_KIND` depend on."""
    types = tuple([None if v is None else v.dtype for v in node.inputs]), tuple([v.dtype for v in node.outputs])
    return node.domain, node.op_type, types


class NodeFacts:
    """The facts of one node, under their names in the language."""

    def __init__(self, ground: Ground, node: ir.Node) -> None:
        self._ground = ground
        self._node = node

    @cached_property
    def operator(self) -> str:
        """The operator's name, with its domain unless it is standard: `Conv`, `com.microsoft.Gelu`."""
        return operator_of(self._node)

    @property
    def domain(self) -> str:
        """The domain of the operator; "" for the standard."""
        return self._node.domain

    @cached_property
    def is_elementwise(self) -> bool:
        """Whether each element of the result depends on one element of each operand."""
        return operators.is_elementwise(self._node.op_type, self._node.domain)

    @cached_property
    def inputs(self) -> tuple[Facts | None, ...]:
        """The facts of each input; None for one that is omitted."""
        return tuple(None if v is None else Facts(self._ground.constants, v) for v in self._node.inputs)

    @cached_property
    def outputs(self) -> tuple[Facts, ...]:
        """The facts of each output."""
        return tuple(Facts(self._ground.constants, v) for v in self._node.outputs)

    @cached_property
    def dtypes(self) -> tuple[str, ...] | None:
        """The element types of the inputs and outputs, without repetition; None where one is unknown."""
        return _dtypes((*self.inputs, *self.outputs))

    @cached_property
    def attributes(self) -> Attributes:
        """The attributes, by name."""
        return Attributes(self._ground, self._node)


class Attributes:
    """The attributes of a node as numbers, text and tuples; the schema's default for an attribute that the node does not set."""

    def __init__(self, ground: Ground, node: ir.Node) -> None:
        self._ground = ground
        self._node = node

    def __getattr__(self, name: str) -> Any:
        attribute = self._node.attributes.get(name)
        if attribute is None:
            schema = self._ground.schema(self._node)
            value = schema.attributes[name].default if schema is not None and name in schema.attributes else None
        else:
            value = plain_value(attribute)
        if value is None:
            raise AttributeError(name)
        return tuple(value) if isinstance(value, list | tuple) else value


class RegionFacts:
    """The facts of a finished region, under their names in the language."""

    def __init__(self, ground: Ground, region: Region) -> None:
        self._ground = ground
        self._region = region

    @property
    def size(self) -> int:
        """The number of nodes."""
        return len(self._region.nodes)

    @cached_property
    def operators(self) -> tuple[str, ...]:
        """The operators in the region, without repetition, sorted by name."""
        return tuple(sorted({operator_of(n) for n in self._region.nodes}))

    @cached_property
    def inputs(self) -> tuple[Facts, ...]:
        """The values that the region reads and does not compute."""
        return tuple(Facts(self._ground.constants, v) for v in self._region.inputs)

    @cached_property
    def outputs(self) -> tuple[Facts, ...]:
        """The values that the region computes and other nodes read."""
        return tuple(Facts(self._ground.constants, v) for v in self._region.outputs)

    @cached_property
    def dtypes(self) -> tuple[str, ...] | None:
        """The element types of all values that the region reads or computes, without repetition; None where one is unknown."""
        computed = (Facts(self._ground.constants, o) for n in self._region.nodes for o in n.outputs)
        return _dtypes((*self.inputs, *computed))


def _dtypes(values: tuple[Facts | None, ...]) -> tuple[str, ...] | None:
    found = {v.dtype for v in values if v is not None}
    return None if None in found else tuple(sorted(d for d in found if d is not None))
