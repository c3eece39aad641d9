"""Instances of the library's patterns, planted into a graph in the making: in the graph itself, in a body, or in a function.

The instances are those that prove the patterns (`onnx_subgraph.proving`), with their free values tied to values that the graph
already has wherever type and size allow, so that fusions meet, overlap and follow each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from onnx_subgraph.evaluator.truth import UnknownError, evaluate
from onnx_subgraph.language.library import Library, load_patterns
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.matching.find import find
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.proving.covering import spellings
from onnx_subgraph.proving.instance import Instance, build
from onnx_subgraph.proving.spelling import STORAGES, Spelling, UnbuildableError
from onnx_subgraph.rewriting.apply import apply
from onnx_subgraph.rewriting.einsum import write_as_products
from onnx_subgraph.rewriting.loadability import CPU
from onnx_subgraph.rewriting.shared_loadability import loadability_of
from tests.soundness import einsums, judge
from tests.soundness.growth import DOMAIN, Growth, Scope, Value, renamed

ATTEMPTS = 12
PLACES = ("graph", "if", "idle if", "loop", "idle loop", "function")
"""Where an instance may lie; a branch that is idle is not taken, a loop that is makes no turn."""
WRONG = Path(__file__).parent / "wrong"
"""A pack of patterns that replace by something else."""
DTYPES = ("float32", "float32", "float32", "float32", "float16", "float64")


@dataclass(frozen=True, slots=True)
class Seed:
    """What is planted: an instance, with all its values computed alone, which give types and sizes."""

    pattern: str
    instance: Instance
    known: Mapping[str, np.ndarray[Any, Any]]

    @property
    def proto(self) -> onnx.ModelProto:
        return self.instance.proto


@dataclass(frozen=True, slots=True)
class Planted:
    """A planted instance. names: its own names → those in the graph. place: one of `PLACES`."""

    seed: Seed
    names: Mapping[str, str]
    place: str


@cache
def library() -> Library:
    """The patterns that come with the project."""
    return load_patterns()


@cache
def misleading() -> Library:
    """The same patterns and the wrong ones, which come first like a user's own."""
    return load_patterns([WRONG])


@cache
def wrong() -> tuple[Pattern, ...]:
    """The patterns with a wrong replacement."""
    return load_patterns([WRONG], built_in=False).patterns


@cache
def _spellings(identifier: str) -> tuple[Spelling, ...]:
    return tuple(spellings(misleading().get(identifier)))


def draw_seed(random: Random, opset: int, target: str, *, alive: bool, patterns: Sequence[Pattern] | None = None) -> Seed | None:
    """Some spelling of some pattern. alive: one that fuses for this target when it stands alone, for traps to be set on.

    patterns: which to choose from; the library's own where nothing is said.
    """
    for _ in range(ATTEMPTS):
        pattern = random.choice(library().patterns if patterns is None else patterns)
        spelling = replace(
            random.choice(_spellings(pattern.id)),
            opset=opset,
            seed=random.randrange(4),
            storage=random.choice(STORAGES),
            symbolic=random.random() < 0.3,
        )
        if not spelling.mixed:
            spelling = replace(spelling, dtype=random.choice(DTYPES))
        seed = sown(pattern, spelling)
        if seed is not None and opset >= einsums.FIRST_OPSET and random.random() < 0.7:
            seed = _with_einsums(random, seed) or seed
        if seed is not None and (not alive or fuses(seed, target)):
            return seed
    return None


def sown(pattern: Pattern, spelling: Spelling) -> Seed | None:
    """The instance in this spelling with its values, or None where it can't be built or computed."""
    try:
        instance = build(pattern, spelling)
    except UnbuildableError:
        return None
    known = values(instance.proto, instance.feeds, instance.types) if valid(instance.proto, instance.feeds) else None
    return None if known is None else Seed(pattern.id, instance, known)


def _with_einsums(random: Random, seed: Seed) -> Seed | None:
    """The seed with its matrix products as Einsums; None where it has none, or where onnxruntime does not compute them."""
    if not any(node.op_type == "MatMul" for node in seed.proto.graph.node):
        return None
    stored = {t.name: t.dims for t in seed.proto.graph.initializer}
    shapes = stored | {name: array.shape for name, array in {**seed.instance.feeds, **seed.known}.items()}
    proto = einsums.as_einsums(random, seed.proto, shapes)
    left = {name for node in proto.graph.node for name in node.output}
    inner = tuple(name for name in seed.instance.inner if name in left)
    instance = replace(seed.instance, proto=proto, inner=inner)
    return replace(seed, instance=instance) if valid(proto, instance.feeds) else None


def valid(proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray[Any, Any]]) -> bool:
    """Whether onnx's checker takes the model and onnxruntime runs it."""
    opened = judge.session(proto)
    return judge.problem(proto) is None and not isinstance(opened, str) and not isinstance(judge.run(opened, feeds), str)


def values(
    proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray[Any, Any]], types: Mapping[str, int]
) -> dict[str, np.ndarray[Any, Any]] | None:
    """Every value of a flat model, in its declared type; None where the reference evaluator can't compute it."""
    open_model = onnx.ModelProto()
    open_model.CopyFrom(proto)
    del open_model.graph.output[:]
    made = [o for n in proto.graph.node for o in n.output if o]
    open_model.graph.output.extend(helper.make_empty_tensor_value_info(n) for n in made)
    try:
        found = evaluate(open_model, feeds)
    except UnknownError:
        return None
    return {n: np.asarray(a).astype(helper.tensor_dtype_to_np_dtype(types[n])) for n, a in found.items()}


def fuses(seed: Seed, target: str) -> bool:
    """Whether the seed's pattern fuses in the instance alone."""
    model = ir.from_proto(seed.proto)
    infer_shapes(model)
    constants = Constants(model)
    write_as_products(model)
    found = find(model, [misleading().get(seed.pattern)], constants=constants)
    return bool(apply(model, found.matches, target=target, loadability=loadability_of([CPU]), constants=constants)[0])


def plant(growth: Growth, seed: Seed, place: str) -> Planted:
    """Put the instance into the graph. Its results become values of the graph there."""
    names = _tied(growth, seed)
    growth.domains |= {o.domain for o in seed.proto.opset_import if o.domain}
    if place == "function":
        return Planted(seed, _as_function(growth, seed, names), place)
    for tensor in seed.proto.graph.initializer:
        names[tensor.name] = growth.fresh(tensor.name)
    if place == "graph":
        _lay(growth, seed, names, growth.here)
        growth.here.values.extend(_results(seed, names))
    else:
        _in_body(growth, seed, names, place)
    return Planted(seed, names, place)


def _tied(growth: Growth, seed: Seed) -> dict[str, str]:
    """Names for the free values: a value of the graph with the same type and shape, or a new input with the same feed."""
    names: dict[str, str] = {}
    batch = growth.dimension("N")
    examples = misleading().get(seed.pattern).example
    for info in seed.proto.graph.input:
        array = seed.instance.feeds[info.name]
        example = examples.get(info.name)
        free = example is not None and example.low is None and array.dtype.kind == "f"
        tie = None
        if free and growth.random.random() < 0.7:
            tie = growth.pick(lambda v, a=array: (v.dtype, v.shape) == (a.dtype.name, a.shape))  # type: ignore[misc]
        if tie is None:
            dims = [batch if d.dim_param else d.dim_value for d in info.type.tensor_type.shape.dim]
            tie = growth.input(array, dims, info.name)
        names[info.name] = tie.name
    return names


def _results(seed: Seed, names: Mapping[str, str]) -> list[Value]:
    """The outputs of the instance as values of the graph."""
    return [Value(names[o.name], seed.known[o.name].dtype.name, seed.known[o.name].shape) for o in seed.proto.graph.output]


def _lay(growth: Growth, seed: Seed, names: dict[str, str], scope: Scope) -> None:
    """Add the nodes of the instance to `scope`, and its weights there or to an outer graph."""
    names.update({o: growth.fresh(o) for n in seed.proto.graph.node for o in n.output if o})
    around = scope if growth.random.random() < 0.5 else growth.scopes[0]
    for tensor in seed.proto.graph.initializer:
        copy = around.weights
        copy.append(onnx.TensorProto())
        copy[-1].CopyFrom(tensor)
        copy[-1].name = names[tensor.name]
    for node in seed.proto.graph.node:
        made = renamed(node, names)
        made.name = growth.fresh(node.op_type)
        scope.nodes.append(made)


def _in_body(growth: Growth, seed: Seed, names: dict[str, str], place: str) -> None:
    """The instance in the first body of an If, or in that of a Loop, where what it computes is added up.

    Idle, that body is not taken, or runs no time.
    """
    results = [(seed.known[o.name].dtype.name, seed.known[o.name].shape) for o in seed.proto.graph.output]

    def instance() -> list[Value]:
        _lay(growth, seed, names, growth.here)
        return _results(seed, names)

    def zeros() -> list[Value]:
        return [growth.weight(np.zeros(shape, dtype)) for dtype, shape in results]

    if place.endswith("if"):
        condition = growth.input(np.array(True), stem="condition") if place == "if" else _never(growth)
        bodies = growth.body(instance), growth.body(zeros)
        growth.node("If", [condition], *results, then_branch=bodies[0], else_branch=bodies[1])
        return
    turn, going = Value(growth.fresh("round"), "int64", ()), Value(growth.fresh("going"), "bool", ())
    carried = [Value(growth.fresh("carried"), dtype, shape) for dtype, shape in results]

    def rounds() -> list[Value]:
        (on,) = growth.node("Identity", [going], ("bool", ()))
        operator = [("Add", r, c) if r.dtype != "bool" else ("Or", r, c) for r, c in zip(instance(), carried, strict=True)]
        return [on, *(growth.node(o, [r, c], (r.dtype, r.shape))[0] for o, r, c in operator)]

    body = growth.body(rounds, [turn, going, *carried])
    often = growth.weight(np.array(0 if place == "idle loop" else 2, np.int64))
    true = growth.weight(np.array(True))
    growth.node("Loop", [often, true, *zeros()], *results, body=body)


def _never(growth: Growth) -> Value:
    """A condition that is false for every number in a random graph, or a constant."""
    value = growth.pick(lambda v: v.dtype == "float32" and v.rank > 0)
    if value is None or growth.random.random() < 0.3:
        return growth.weight(np.array(False))
    (bounded,) = growth.node("Tanh", [value], (value.dtype, value.shape))
    axes = list(range(value.rank))
    as_input = growth.opset >= 18
    operands = [bounded, growth.ints(*axes)] if as_input else [bounded]
    (most,) = growth.node("ReduceMax", operands, (value.dtype, ()), keepdims=0, axes=None if as_input else axes)
    return growth.node("Greater", [most, growth.weight(np.asarray(2, np.float32))], ("bool", ()))[0]


def _as_function(growth: Growth, seed: Seed, names: dict[str, str]) -> dict[str, str]:
    """The instance as a function of the model, called once or twice. Inner names stay the same."""
    graph, name = seed.proto.graph, growth.fresh("Function")
    constants = [helper.make_node("Constant", [], [t.name], name=f"{t.name}_constant", value=t) for t in graph.initializer]
    imports = list(seed.proto.opset_import)
    inputs, outputs = [i.name for i in graph.input], [o.name for o in graph.output]
    growth.functions.append(helper.make_function(DOMAIN, name, inputs, outputs, [*constants, *graph.node], imports))
    known = {v.name: v for v in growth.values}
    results = [(seed.known[o].dtype.name, seed.known[o].shape) for o in outputs]
    for _ in range(growth.random.choice([1, 1, 2])):
        made = growth.node(name, [known[names[i]] for i in inputs], *results, domain=DOMAIN)
    return {**names, **{o: v.name for o, v in zip(outputs, made, strict=True)}}
