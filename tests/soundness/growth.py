"""A graph under construction: values of known type and size, and the nodes, weights, bodies and functions that compute them.

The generator of the soundness campaign builds its graphs here. `operators` has the nodes to choose from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray[Any, np.dtype[Any]]

DOMAIN = "local"
"""The domain of the model's own functions."""
ODD_NAMES = ("{} size", "{}:1", "2{}", "<{}>", "#{}", "{}=2", "{}-size", "ceil({})", "_d{}", "{0}**{0}", "?", "None")
"""What else exporters call a free dimension; the last two say nothing."""


def tensor_type(dtype: str) -> int:
    """ONNX's number of an element type that numpy has."""
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a graph: its name, its element type in numpy's words, and its shape for the current feeds."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def is_float(self) -> bool:
        return self.dtype.startswith("float")

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass(slots=True)
class Scope:
    """The nodes, weights and visible values of one graph: the main graph or a nested body."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)


@dataclass(slots=True)
class Growth:
    """The whole model. scopes: the main graph and the bodies under construction, whose values can all be read.

    hidden: values that no other node may read. dropped: results that nothing reads, not even as an output.
    """

    random: Random
    opset: int
    dtype: str = "float32"
    scopes: list[Scope] = field(default_factory=lambda: [Scope()])
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    feeds: dict[str, Array] = field(default_factory=dict)
    functions: list[onnx.FunctionProto] = field(default_factory=list)
    domains: set[str] = field(default_factory=set)
    hidden: set[str] = field(default_factory=set)
    dropped: set[str] = field(default_factory=set)
    count: int = 0

    @property
    def here(self) -> Scope:
        return self.scopes[-1]

    @property
    def values(self) -> list[Value]:
        """Every value that can be read here."""
        return [v for scope in self.scopes for v in scope.values]

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}_{self.count}"

    def dimension(self, stem: str) -> str:
        """A name for a free dimension. Every third name is not an identifier, or is a placeholder."""
        name = self.fresh(stem)
        return self.random.choice(ODD_NAMES).format(name) if self.random.random() < 1 / 3 else name

    def numbers(self, shape: Sequence[int], dtype: str) -> Array:
        """Random elements of a magnitude that chains of operators can bear."""
        draw = np.random.default_rng(self.random.randrange(2**32))
        if dtype == "bool":
            return np.asarray(draw.random(shape) > 0.5)
        if dtype.startswith("int"):
            return np.asarray(draw.integers(-4, 5, shape)).astype(dtype)
        return np.asarray(draw.standard_normal(shape)).astype(dtype)

    def input(self, array: Array, dims: Sequence[int | str] | None = None, stem: str = "x") -> Value:
        """A graph input that is fed `array`. dims: what is declared, its shape where nothing is said."""
        name = self.fresh(stem)
        declared = array.shape if dims is None else dims
        self.inputs.append(helper.make_tensor_value_info(name, tensor_type(str(array.dtype)), declared))
        self.feeds[name] = array
        made = Value(name, str(array.dtype), array.shape)
        self.scopes[0].values.append(made)
        return made

    def weight(self, array: Array, stem: str = "w") -> Value:
        """A constant: an initializer of the graph or of the open body, or a Constant node."""
        name = self.fresh(stem)
        tensor = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
        if self.random.random() < 0.2:
            self.here.nodes.append(helper.make_node("Constant", [], [name], name=self.fresh("Constant"), value=tensor))
        else:
            self.random.choice([self.here, self.scopes[0]]).weights.append(tensor)
        return Value(name, str(array.dtype), array.shape)

    def ints(self, *values: int) -> Value:
        return self.weight(np.array(values, np.int64), "n")

    def node(
        self,
        operator: str,
        inputs: Sequence[Value | None],
        *results: tuple[str, Sequence[int]],
        domain: str = "",
        **attributes: Any,
    ) -> list[Value]:
        """A node and its results, which are (element type, shape) each."""
        made = [Value(self.fresh(operator.lower()), dtype, tuple(shape)) for dtype, shape in results]
        names = ["" if i is None else i.name for i in inputs]
        said = {k: v for k, v in attributes.items() if v is not None}
        self.here.nodes.append(
            helper.make_node(operator, names, [v.name for v in made], name=self.fresh(operator), domain=domain, **said)
        )
        self.here.values.extend(made)
        if domain:
            self.domains.add(domain)
        return made

    def pick(self, fits: Callable[[Value], bool] = lambda _: True) -> Value | None:
        """A value that fits, preferring later ones."""
        fitting = [v for v in self.values if v.name not in self.hidden | self.dropped and fits(v)]
        if not fitting:
            return None
        return fitting[max(self.random.randrange(len(fitting)), self.random.randrange(len(fitting)))]

    def pick_float(self, rank: int = 0) -> Value | None:
        return self.pick(lambda v: v.is_float and v.rank >= rank)

    # Bodies and functions

    def body(self, grow: Callable[[], Sequence[Value]], inputs: Sequence[Value] = (), name: str = "body") -> onnx.GraphProto:
        """The graph of a body whose outputs `grow` returns, all made inside. inputs: the inputs of the body.

        It declares their ranks: sizes may be free in the model around it.
        """
        self.scopes.append(Scope(values=list(inputs)))
        results = [v if v.name in self._made_here() else self.node("Identity", [v], (v.dtype, v.shape))[0] for v in grow()]
        scope = self.scopes.pop()
        declared = [helper.make_tensor_value_info(v.name, tensor_type(v.dtype), [None] * v.rank) for v in inputs]
        made = [helper.make_tensor_value_info(v.name, tensor_type(v.dtype), None) for v in results]
        return helper.make_graph(scope.nodes, self.fresh(name), declared, made, scope.weights)

    def _made_here(self) -> set[str]:
        """Values that the open body can return without another node."""
        return {o for n in self.here.nodes if n.op_type != "Constant" for o in n.output}

    def model(self) -> onnx.ModelProto:
        """The model. Unread values are outputs, beside the requested outputs."""
        scope = self.scopes[0]
        read = self._read()
        unread = [o for n in scope.nodes for o in n.output if o and o not in read | self.dropped]
        known = {v.name: v for v in scope.values}
        wanted = [known[n] for n in dict.fromkeys([*self.outputs, *unread]) if n in known]
        outputs = [helper.make_tensor_value_info(v.name, tensor_type(v.dtype), [None] * v.rank) for v in wanted]
        graph = helper.make_graph(scope.nodes, "campaign", self.inputs, outputs, scope.weights)
        versions = {"": self.opset, **dict.fromkeys(sorted(self.domains), 1)}
        imports = [helper.make_opsetid(d, v) for d, v in versions.items()]
        model = helper.make_model(graph, opset_imports=imports, functions=self.functions, ir_version=8 if self.opset < 21 else 10)
        inferred = {o.name: o.type for o in onnx.shape_inference.infer_shapes(model).graph.output}
        for output in model.graph.output:
            found = inferred.get(output.name)
            if found is not None and found.tensor_type.HasField("shape"):
                output.type.CopyFrom(found)
        return model

    def _read(self) -> set[str]:
        """Names that a node of the model reads, in bodies too."""
        return set().union(*(reads(n) for n in self.scopes[0].nodes))


def reads(node: onnx.NodeProto) -> set[str]:
    """The names that a node reads, its bodies included."""
    names = set(node.input)
    for attribute in node.attribute:
        for inner in attribute.g.node:
            names |= reads(inner)
        names |= {o.name for o in attribute.g.output}
    return names


def renamed(node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    """The node with renamed inputs and outputs, also in its bodies."""
    made = onnx.NodeProto()
    made.CopyFrom(node)
    _rename(made, names)
    return made


def rename_graph(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Rename the values of a graph in place, also where its bodies read them."""
    for part in (graph.input, graph.output, graph.initializer, graph.value_info):
        for item in part:
            item.name = names.get(item.name, item.name)
    for node in graph.node:
        _rename(node, names)


def _rename(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    node.input[:] = [names.get(n, n) for n in node.input]
    node.output[:] = [names.get(n, n) for n in node.output]
    for attribute in node.attribute:
        if attribute.HasField("g"):
            rename_graph(attribute.g, names)
