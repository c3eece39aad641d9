"""Find sizes that fit, from onnxruntime's error messages: a message names a node, and its operands tell which sizes would fit.

Exporters that trace a model embed sizes in it: a batch of 3 in each Reshape, the length of a mask in an Add. The model does not
declare them. So a run is tried. If a node refuses the sizes, the next ones must be accepted by it and by every node that refused
before. The next run tells more.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import onnx_ir as ir

from onnx_subgraph.inputs import fitting
from onnx_subgraph.inputs.fitting import Dims, Fit
from onnx_subgraph.inputs.sizes import Sizes

LARGEST = 2048
"""The largest size that is tried for a dimension."""
SUGGESTIONS = 6
"""The number of sets of sizes that are tried for one refusal."""
_EVALUATIONS = 60_000
"""The number of sets of sizes that are evaluated for one refusal, if the expressions of the relations are short …"""
_SHORT = 60
"""… at most this many characters. Sizes after five convolutions are long expressions, and then fewer sets are evaluated."""
_FEW = 24
"""The number of values of one dimension that are combined with those of another."""
_NODE = re.compile(r"while running (\w+) node\. Name:'([^']*)'")
_SHAPES = re.compile(r"Input shape:\{([\d,]*)\}, requested shape:\{([-\d,]*)\}")


class Relation(NamedTuple):
    """The sizes that one node accepts. operands: the shapes, or the elements, that it constrains.

    fit: whether it accepts them. is_guess: whether the sizes in it are those of one run, which may be different in another.
    """

    operands: tuple[Dims, ...]
    fit: Callable[..., Fit]
    is_guess: bool = False

    def fits(self, sizes: Mapping[str, int]) -> Fit:
        """How well the sizes fit, None where they are refused. Sizes that can't be computed count as accepted."""
        extents = [fitting.extent(operand, sizes) for operand in self.operands]
        return 0 if None in extents else self.fit(*extents)

    @property
    def symbols(self) -> frozenset[str]:
        """The dimension names in it."""
        return frozenset().union(*map(fitting.symbols_of, self.operands))

    @property
    def numbers(self) -> frozenset[int]:
        """The constant sizes in it."""
        return frozenset(dim for operand in self.operands for dim in operand if isinstance(dim, int) and dim > 0)


def relation_of(node: ir.Node) -> Relation | None:
    """The relation of a node; None for an operator that is not known here, or where a shape is unknown."""
    shapes = [fitting.dims(value) for value in node.inputs]
    second = fitting.elements(node.inputs[1]) if len(node.inputs) > 1 else None
    axis = node.attributes.get_int("axis", 0)
    match node.op_type:
        case "Reshape":
            return _relation(fitting.reshape, shapes[0], second)
        case "Expand":
            return _relation(fitting.broadcast, shapes[0], second)
        case "Concat":
            return _relation(lambda *parts: fitting.concatenate(axis, *parts), *shapes)
        case "MatMul" | "MatMulInteger":
            return _relation(fitting.multiply, *shapes[:2])
        case "Gemm":
            a, b = (node.attributes.get_int(name, 0) for name in ("transA", "transB"))
            return _relation(lambda x, y, *_: fitting.multiply(x[::-1] if a else x, y[::-1] if b else y), *shapes)
        case "Conv" | "ConvInteger" | "FusedConv":
            pads, dilations, group = _pads(node), node.attributes.get_ints("dilations", ()), node.attributes.get_int("group", 1)
            return _relation(lambda x, w: fitting.convolve(x, w, group, dilations, pads), *shapes[:2])
        case "MaxPool" | "AveragePool" | "LpPool":
            pads, (dilations, window) = _pads(node), (node.attributes.get_ints(key, ()) for key in ("dilations", "kernel_shape"))
            return _relation(lambda x: fitting.slide(x, window, dilations, pads), shapes[0])
        case "RNN" | "GRU" | "LSTM" | "DynamicQuantizeLSTM" if not node.attributes.get_int("layout", 0):
            batches = [fitting.dimension(value, 1) for value in (node.inputs[0], *node.inputs[5:7])]  # the length may be unknown
            of_weights = 1 if node.op_type == "DynamicQuantizeLSTM" else 2
            features = [fitting.dimension(node.inputs[0], 2), fitting.dimension(node.inputs[1], of_weights)]
            return _relation(fitting.recur, *features, *(batch for batch in batches if batch is not None))
        case "Split":
            return _relation(lambda shape, parts: 0 if shape[axis] == sum(parts) else None, shapes[0], second)
        case "Squeeze":
            return _relation(lambda shape, axes: 0 if all(shape[a] == 1 for a in axes) else None, shapes[0], second)
        case operator if operator in fitting.BROADCASTING:
            return _relation(fitting.broadcast, *shapes)
    return None


def _pads(node: ir.Node) -> Sequence[int] | None:
    """The padding of a window, before and after each axis; None where it depends on the sizes."""
    return node.attributes.get_ints("pads", ()) if node.attributes.get_string("auto_pad", "NOTSET") == "NOTSET" else None


def _relation(fit: Callable[..., Fit], *operands: Dims | None) -> Relation | None:
    known = tuple(operand for operand in operands if operand is not None)
    return Relation(known, fit) if len(known) == len(operands) else None


@dataclass(slots=True)
class Refusals:
    """The relations of nodes that refused sizes. fixed: dimensions whose size the user chose. The model must not change."""

    model: ir.Model
    fixed: Collection[str] = ()
    _nodes: tuple[ir.Node, ...] = ()
    _relations: list[Relation] = field(default_factory=list)
    _settled: Sizes = field(default_factory=dict)
    _is_new: bool = False

    def guided(self, trials: Iterable[Sizes]) -> Iterator[Sizes]:
        """The trials that satisfy all relations that are no guess. After each trial come suggestions from what `learn` found.

        A dimension for which a relation accepts only one size, such as the channels of an image, has it in every later trial.
        """
        self._is_new = bool(self._relations)  # a later search starts with the known relations
        for sizes in trials:
            trial = {**sizes, **self._settled}
            if self._fits(trial):
                yield trial
            last = trial
            while self._is_new:
                self._is_new = False
                for suggestion in self._suggestions(last):
                    last = suggestion
                    yield suggestion
                    if self._is_new:
                        break

    def learn(self, message: str, sizes: Sizes) -> None:
        """Add the relation behind onnxruntime's error message for a run with these sizes."""
        relation = self._refused(message, sizes)
        if relation is not None and relation not in self._relations:
            self._relations.append(relation)
            self._is_new = True
            found = {} if relation.is_guess else _settled(relation, sizes)
            self._settled |= {name: size for name, size in found.items() if name not in self.fixed}

    def _refused(self, message: str, sizes: Sizes) -> Relation | None:
        """The relation of the node that refused: from its operands' shapes, or else from those in the message."""
        found = _NODE.search(message)
        if found is None:
            return None
        operator, name = found.groups()
        if not self._nodes:
            self._nodes = tuple(self.model.graph.all_nodes())
        # Of an operator that only onnxruntime's optimisation makes, it may be any node.
        nodes = [node for node in self._nodes if node.op_type == operator] or self._nodes
        named = [node for node in nodes if name and node.name == name] or nodes
        relations = (relation_of(node) for node in named)
        known = next((r for r in relations if r is not None and r.fits(sizes) is None), None)
        return known or _guessed(message, sizes, filter(None, (fitting.dims(node.inputs[0]) for node in named if node.inputs)))

    def _fits(self, sizes: Sizes) -> bool:
        return all(relation.is_guess or relation.fits(sizes) is not None for relation in self._relations)

    def _suggestions(self, sizes: Sizes) -> list[Sizes]:
        """Sizes that satisfy all relations, the likeliest first: those with the most equal dimensions, then the nearest."""
        found: dict[tuple[tuple[str, int], ...], tuple[int, int, float]] = {}
        length = sum(len(dim) for relation in self._relations for o in relation.operands for dim in o if isinstance(dim, str))
        for changed in itertools.islice(self._changes(sizes), max(600, _EVALUATIONS * _SHORT // max(_SHORT, length))):
            trial = {**sizes, **changed}
            fits = [relation.fits(trial) for relation in self._relations]
            if trial != sizes and None not in fits:
                distance = sum(abs(math.log(trial[name] / max(1, sizes[name]))) for name in changed)
                score = -sum(fit or 0 for fit in fits), len(changed), distance
                found.setdefault(tuple(trial.items()), score)
        return [dict(trial) for trial in sorted(found, key=lambda trial: found[trial])[:SUGGESTIONS]]

    def _changes(self, sizes: Sizes) -> Iterator[Sizes]:
        """Other sizes for one dimension, for two, for two that are equal, for three."""
        names = [n for n in sizes if n not in self.fixed and any(n in relation.symbols for relation in self._relations)]
        numbers = set().union(*(relation.numbers for relation in self._relations))
        operands = [operand for relation in self._relations for operand in relation.operands]
        products = {math.prod(dim for dim in operand if isinstance(dim, int) and dim > 0) for operand in operands}
        few = sorted(numbers | {d for n in products for d in _divisors(n)}, key=lambda n: (n not in numbers, n))[:_FEW]
        for name in names:
            yield from ({name: size} for size in range(1, LARGEST + 1))
        for pair in itertools.combinations(names, 2):
            yield from (dict(zip(pair, values, strict=True)) for values in itertools.product(few, repeat=2))
        for a, b in itertools.combinations(names, 2):
            yield from ({a: size, b: size} for size in range(1, LARGEST // 4))
        for three in itertools.combinations(names, 3):
            yield from (dict(zip(three, values, strict=True)) for values in itertools.product(few[:12], repeat=3))
        for a, b in itertools.combinations(names, 2):
            for other in (name for name in names if name not in (a, b)):
                yield from ({other: first, a: size, b: size} for first in few[:8] for size in range(1, LARGEST // 4))


def _settled(relation: Relation, sizes: Sizes) -> Sizes:
    """The dimensions for which a relation accepts only one size, whatever the other sizes are."""
    others = {name: size + 1 for name, size in sizes.items()}
    each = {name: [_accepted(relation, around, name) for around in (sizes, others)] for name in relation.symbols & sizes.keys()}
    return {name: here[0] for name, (here, there) in each.items() if len(here) == 1 and here == there}


def _accepted(relation: Relation, sizes: Sizes, name: str) -> list[int]:
    """The first two sizes of one dimension that a relation accepts beside the other sizes."""
    every = (size for size in range(1, LARGEST + 1) if relation.fits({**sizes, name: size}) is not None)
    return list(itertools.islice(every, 2))


def _guessed(message: str, sizes: Sizes, known: Iterable[Dims]) -> Relation | None:
    """The relation of a Reshape from the numbers in the message. known: the shapes that its operand may have.

    The operand is a known shape that has these numbers. Otherwise, a number that is a dimension's size, or a product of two,
    stands for it.
    """
    found = _SHAPES.search(message)
    if found is None:
        return None
    shape, requested = (tuple(int(number) for number in numbers.split(",") if number) for numbers in found.groups())
    operand = next((dims for dims in known if fitting.extent(dims, sizes) == shape), None)
    if operand is None:
        relation = Relation((tuple(_guess(size, sizes) for size in shape), requested), fitting.reshape, is_guess=True)
    else:
        relation = Relation((operand, _with_batch(requested, operand, sizes)), fitting.reshape, is_guess=True)
    return relation if relation.fits(sizes) is None else None


def _with_batch(requested: tuple[int, ...], operand: Dims, sizes: Sizes) -> Dims:
    """The requested shape, in which the first size is a multiple of the operand's first dimension, if that is free."""
    batch = operand[0] if operand else 1
    size = sizes.get(batch, 0) if isinstance(batch, str) else 0
    if not requested or not size or requested[0] < size or requested[0] % size:
        return requested
    return (f"{batch}*{requested[0] // size}", *requested[1:])


def _guess(number: int, sizes: Sizes) -> int | str:
    names = [(name, size) for name, size in sizes.items() if size > 1]
    for name, size in names:
        if size == number:
            return name
    for (a, x), (b, y) in itertools.combinations(names, 2):
        if x * y == number:
            return f"{a}*{b}"
    return number


def _divisors(number: int) -> Iterator[int]:
    """The divisors of a number up to the largest size that is tried; none for a number that would take long."""
    if number <= 1 << 24:
        yield from (d for d in range(1, min(number, LARGEST) + 1) if number % d == 0)
