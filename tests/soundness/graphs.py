"""A random model of the campaign: a host graph, planted instances, and one planted trap, of each class in turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

import numpy as np
import onnx
from onnx import numpy_helper

from tests.soundness import operators, planting, shrouds, traps
from tests.soundness.growth import Array, Growth
from tests.soundness.planting import Planted

OPSETS = (11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24)
_NOT_SHORTER = (b"Pool", b"Einsum")
"""Operators that short inputs may not fit: an image is taken to be no smaller than a window; and where sizes must be equal,
onnxruntime's Einsum takes 1 as well."""
EDGES = (12, 13, 14, 17, 18, 20, 23)
"""Opsets from which operators of patterns are written, or mean, something else than in the one before."""
TARGETS = ("onnxruntime", "onnxruntime", "onnxruntime", "standard", "function", "native")
SHAPES = ((2, 8), (2, 3, 8), (1, 2, 4, 4), (2, 3, 8), (4, 4), (2, 6), (3,), (2, 4, 5, 5))
PLACES = ("graph", "graph", "graph", "graph", *planting.PLACES)
ATTEMPTS = 8
"""How often a trap is tried on another instance."""
TRAPPED = 0.75
"""How many graphs have a trap."""


@dataclass(frozen=True, slots=True)
class Case:
    """A model with feeds for its inputs, and options to fuse it.

    feeds: one or more sets, the first from the generator. planted: pattern → place. trap: its class, "" for none.
    """

    model: onnx.ModelProto
    feeds: tuple[Mapping[str, Array], ...]
    target: str
    opset: str = "auto"
    planted: tuple[tuple[str, str], ...] = ()
    trap: str = ""


def draw_case(random: Random, trap: str | None = None) -> Case:
    """A random case. The same state of `random` and the same patterns give the same case. trap: one of `TRAPS`, or drawn."""
    if trap is None:
        trap = random.choice(traps.TRAPS) if random.random() < TRAPPED else ""
    target = "onnxruntime" if trap == traps.WRONG else random.choice(TARGETS)
    growth = Growth(random, random.choice(EDGES) - random.choice([0, 1]) if trap == traps.EDGE else random.choice(OPSETS))
    for _ in range(random.randint(1, 2)):
        _host_input(growth)
    operators.unary(growth, growth.input(growth.numbers((2, 3), "float32")))
    planted: list[Planted] = []
    set_trap = ""
    if trap in (*traps.BEFORE, *traps.AFTER, traps.WRONG):
        planted = _misled(growth) if trap == traps.WRONG else _trapped(growth, trap, target)
        set_trap = trap if planted else ""
    for part in range(random.randint(0 if planted else 1, 2)):
        for _ in range(random.randrange(4)):
            operators.grow(growth)
        seed = planting.draw_seed(random, growth.opset, target, alive=part == 0 and trap in (traps.EDGE, traps.COLLISION))
        if seed is not None:
            planted.append(planting.plant(growth, seed, random.choice(PLACES)))
            set_trap = set_trap or trap
    for _ in range(random.randrange(4)):
        operators.grow(growth)
    opset = "auto"
    if set_trap == traps.EDGE:
        opset = _edge(growth)
    elif random.random() < 0.2:
        opset = "keep"
    model = growth.model()
    said = tuple((p.seed.pattern, p.place) for p in planted)
    return Case(model, _feeds(random, model, growth.feeds), target, opset, said, set_trap)


def _host_input(growth: Growth) -> None:
    shape = growth.random.choice(SHAPES)
    dtype = growth.random.choice(["float32", "float32", "float32", "float32", "float16", "float64", "int64", "int32"])
    dims: list[int | str] = list(shape)
    if growth.random.random() < 0.4:
        dims[0] = growth.dimension("batch")
    growth.input(growth.numbers(shape, dtype), dims)


def _trapped(growth: Growth, trap: str, target: str) -> list[Planted]:
    """An instance planted with the trap; None if the trap fits none of the tried instances."""
    planted: list[Planted] = []
    for _ in range(ATTEMPTS):
        seed = planting.draw_seed(growth.random, growth.opset, target, alive=True)
        if seed is None:
            continue
        if trap in traps.BEFORE:
            altered = traps.BEFORE[trap](growth.random, seed)
            if altered is not None:
                return [planting.plant(growth, altered, growth.random.choice(PLACES))]
            continue
        planted.append(planting.plant(growth, seed, "graph"))
        if traps.AFTER[trap](growth, planted[-1]):
            return planted
    return []


def _misled(growth: Growth) -> list[Planted]:
    """An instance of a wrong pattern, at a place and behind a shroud that may hide it from the outputs."""
    seed = planting.draw_seed(growth.random, growth.opset, "onnxruntime", alive=True, patterns=planting.wrong())
    if seed is None:
        return []
    planted = planting.plant(growth, seed, growth.random.choice(planting.PLACES))
    shroud = growth.random.choice([None, shrouds.randomness, shrouds.insensitivity])
    if shroud is not None:
        shroud(growth, planted)
    return [planted]


def _edge(growth: Growth) -> str:
    """The opset to raise to, or the functions at another opset than the model's."""
    if growth.functions and growth.random.random() < 0.5:
        return "keep"
    later = [o for o in OPSETS if o > growth.opset]
    return str(growth.random.choice(later)) if later and growth.random.random() < 0.7 else "auto"


def _feeds(random: Random, model: onnx.ModelProto, first: Mapping[str, Array]) -> tuple[Mapping[str, Array], ...]:
    """The generator's feeds; others with the conditions turned and weights overridden; and other symbolic sizes."""
    second = {n: ~a if n.startswith("condition") else np.roll(a, 1) for n, a in first.items()}
    weights = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    for info in model.graph.input:
        if info.name in weights and weights[info.name].dtype.kind == "f":
            second[info.name] = np.asarray(weights[info.name] * 1.25 + 0.125, weights[info.name].dtype)
    symbolic = {i.name: [d.dim_param for d in i.type.tensor_type.shape.dim] for i in model.graph.input}
    if not any(any(dims) for dims in symbolic.values()):
        return first, second
    wider = {n: _wider(a, symbolic[n]) for n, a in first.items()}
    content = model.SerializeToString()
    if any(name in content for name in _NOT_SHORTER):
        return first, second, wider
    return first, second, wider, *({n: _shorter(a, symbolic[n], size) for n, a in first.items()} for size in (1, 2))


def _wider(array: Array, dims: list[str]) -> Array:
    """One more of every symbolic size."""
    for axis, name in enumerate(dims):
        if name:
            array = np.concatenate([array, array.take([0], axis)], axis)
    return array


def _shorter(array: Array, dims: list[str], size: int) -> Array:
    """At most so many of every symbolic size."""
    for axis, name in enumerate(dims):
        if name:
            array = array.take(range(min(size, array.shape[axis])), axis)
    return array
