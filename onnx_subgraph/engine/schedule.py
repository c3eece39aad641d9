"""The steps of a partitioned model in the order in which they run: its engines, and parts of the rest as large as they can be."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from graphlib import TopologicalSorter

import onnx_ir as ir

from onnx_subgraph.backends.array import Array
from onnx_subgraph.backends.backend import Backend
from onnx_subgraph.backends.subgraph import Subgraph, constant
from onnx_subgraph.engine.engine import Engine
from onnx_subgraph.engine.operator import Placed
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.regions.region import Region, grow


@dataclass(frozen=True, slots=True)
class Step:
    """One call. inputs, outputs: the names of values. done: names of values that no later step reads."""

    run: Callable[[Sequence[Array]], Sequence[Array]]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    done: tuple[str, ...] = ()


def run_steps(steps: Sequence[Step], values: dict[str, Array], keep: Collection[str]) -> None:
    """Add what all steps yield to `values`, name → array; what is read and not to be kept is let go."""
    for step in steps:
        results = step.run([values[name] for name in step.inputs])
        values.update(zip(step.outputs, results, strict=True))
        for name in step.done:
            if name not in keep:
                values.pop(name, None)


def schedule(model: ir.Model, engines: Sequence[tuple[Placed, Engine]], plain: Backend) -> tuple[Step, ...]:
    """The steps of a model with these engines, each after what it reads from; `plain` runs what is between them.

    Raises what `plain` raises when it compiles. May infer the types of the values of `model`.
    """
    mine = {placed.node for placed, _ in engines}
    rest = grow(model.graph, lambda node: node not in mine and node.op_type != "Constant")
    if any(value.dtype is None for part in rest for value in part.inputs):
        infer_shapes(model)
    steps = [_step(placed.inputs, placed.outputs, engine.run) for placed, engine in engines]
    for number, part in enumerate(rest):
        subgraph = _subgraph(model, part, f"between_{number}")
        compiled = plain.compile(subgraph, ())
        steps.append(_step(_flowing(part), part.outputs, partial(plain.run, compiled)))
    return _with_ends(_in_order(steps))


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
    return Subgraph(name, "", ir.Model(graph, ir_version=model.ir_version, functions=functions, metadata_props=metadata))


def _in_order(steps: Sequence[Step]) -> list[Step]:
    maker = {name: number for number, step in enumerate(steps) for name in step.outputs}
    order = TopologicalSorter({n: sorted({maker[i] for i in step.inputs if i in maker}) for n, step in enumerate(steps)})
    return [steps[number] for number in order.static_order()]


def _with_ends(steps: Sequence[Step]) -> tuple[Step, ...]:
    last = {name: number for number, step in enumerate(steps) for name in (*step.outputs, *step.inputs)}
    return tuple(
        replace(step, done=tuple(name for name, at in last.items() if at == number)) for number, step in enumerate(steps)
    )
