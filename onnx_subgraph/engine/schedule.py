"""The steps of a partitioned model in order: its engines, and parts between them, as large as possible.

A part whose results nobody reads is no step: a session of onnxruntime runs only for outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from graphlib import TopologicalSorter

import onnx_ir as ir

from onnx_subgraph.backends.array import Array
from onnx_subgraph.backends.backend import Backend
from onnx_subgraph.backends.subgraph import Subgraph, constant
from onnx_subgraph.engine.control import CONTROLLED, Body, If, Loop
from onnx_subgraph.engine.drawing import give_seeds, seeds
from onnx_subgraph.engine.engine import Engine
from onnx_subgraph.engine.operator import Placed
from onnx_subgraph.engine.step import Step
from onnx_subgraph.files import maps
from onnx_subgraph.model.nested import bodies
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.regions.region import Region, grow


def schedule(model: ir.Model, engines: Sequence[tuple[Placed, Engine]], plain: Backend) -> tuple[Step, ...]:
    """The steps of a model with these engines, in topological order; `plain` runs the parts between them.

    An If or a Loop with an engine in a body is a step with its own steps. Raises what `plain` raises when it compiles. May infer
    the types of the values of `model`.
    """
    by_node = {placed.node: (placed, engine) for placed, engine in engines}
    return _Scheduler(model, by_node, plain, seeds(plain)).steps(model.graph)


@dataclass(slots=True)
class _Scheduler:
    """Makes the steps of a model's graphs. engines: by their nodes. seeds: of random nodes. count: of parts so far."""

    model: ir.Model
    engines: Mapping[ir.Node, tuple[Placed, Engine]]
    plain: Backend
    seeds: Iterator[int]
    count: int = 0

    def steps(self, graph: ir.Graph) -> tuple[Step, ...]:
        """The steps of one graph."""
        mine = [node for node in graph if node in self.engines]
        control = [node for node in graph if self._is_control(node)]
        apart = {*mine, *control}
        found = grow(graph, lambda node: node not in apart and node.op_type != "Constant")
        rest, wholes = (
            [part for part in parts if part.outputs] for parts in (found, [Region.of(graph, [one]) for one in control])
        )
        if any(value.dtype is None for part in (*rest, *wholes) for value in part.inputs):
            infer_shapes(self.model)
        steps = []
        for node in mine:
            placed, engine = self.engines[node]
            steps.append(_step(placed.inputs, placed.outputs, engine.run))
        steps += [_step(_flowing(whole), whole.outputs, self._controlled(whole)) for whole in wholes]
        for part in rest:
            compiled = self.plain.compile(self._subgraph(part), ())
            steps.append(_step(_flowing(part), part.outputs, partial(self.plain.run, compiled)))
        return _with_ends(_in_order(steps))

    def _is_control(self, node: ir.Node) -> bool:
        """Whether its bodies are run step by step, because one contains an engine."""
        inner = (inner for body in bodies(node) for inner in body.all_nodes())
        return node.op_type in CONTROLLED and not node.domain and any(one in self.engines for one in inner)

    def _controlled(self, whole: Region) -> Callable[[Sequence[Array]], Sequence[Array]]:
        (node,) = whole.nodes
        graphs = {name: node.attributes[name].as_graph() for name in CONTROLLED[node.op_type]}
        handed = [*node.inputs, *(value for body in graphs.values() for value in body.outputs)]
        constants = {str(v.name): tensor.numpy() for v in handed if v is not None and (tensor := constant(v)) is not None}
        kind = If if node.op_type == "If" else Loop
        operands = tuple("" if value is None else str(value.name) for value in node.inputs)
        flowing = tuple(str(value.name) for value in _flowing(whole))
        wanted = tuple(output in whole.outputs for output in node.outputs)
        plainly = partial(self.plain.compile, self._subgraph(whole), ())
        parts = {name: self._body(body) for name, body in graphs.items()}
        return kind(parts, operands, wanted, flowing, constants, self.plain, plainly)

    def _body(self, graph: ir.Graph) -> Body:
        inputs, outputs = (tuple(str(value.name) for value in values) for values in (graph.inputs, graph.outputs))
        ranks = tuple(None if value.shape is None else value.shape.rank() for value in graph.inputs)
        return Body(inputs, outputs, self.steps(graph), ranks)

    def _subgraph(self, part: Region) -> Subgraph:
        self.count += 1
        made = _subgraph(self.model, part, f"between_{self.count - 1}")
        give_seeds(made.model.graph, self.seeds)
        return made


def _step(inputs: Sequence[ir.Value], outputs: Sequence[ir.Value], run: Callable[[Sequence[Array]], Sequence[Array]]) -> Step:
    return Step(run, tuple(str(value.name) for value in inputs), tuple(str(value.name) for value in outputs))


def _flowing(part: Region) -> list[ir.Value]:
    return [value for value in part.inputs if constant(value) is None]


def _subgraph(model: ir.Model, part: Region, name: str) -> Subgraph:
    flowing = _flowing(part)
    constants = [value for value in part.inputs if value not in flowing]
    imports = dict(model.opset_imports)
    graph = ir.GraphView([*flowing, *constants], part.outputs, nodes=part.nodes, opset_imports=imports, name=name).clone()
    inner = list(graph.inputs)[len(flowing) :]
    del graph.inputs[len(flowing) :]
    for value, original in zip(inner, constants, strict=True):
        value.const_value = constant(original)
        graph.register_initializer(value)
    functions, metadata = tuple(model.functions.values()), dict(model.metadata_props)
    made = ir.Model(graph, ir_version=model.ir_version, functions=functions, metadata_props=metadata)
    maps.hand_on(model, made)
    return Subgraph(name, "", made)


def _in_order(steps: Sequence[Step]) -> list[Step]:
    maker = {name: number for number, step in enumerate(steps) for name in step.outputs}
    order = TopologicalSorter({n: sorted({maker[i] for i in step.inputs if i in maker}) for n, step in enumerate(steps)})
    return [steps[number] for number in order.static_order()]


def _with_ends(steps: Sequence[Step]) -> tuple[Step, ...]:
    last = {name: number for number, step in enumerate(steps) for name in (*step.outputs, *step.inputs)}
    return tuple(
        replace(step, done=tuple(name for name, at in last.items() if at == number)) for number, step in enumerate(steps)
    )
