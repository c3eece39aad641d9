"""Choose sizes for the symbolic dimensions of a model's inputs, likely ones first.

Equal names get equal sizes. Different names get different ones, so that swapped axes show. A name that is a sum of others
("past_length + seq_length", "past_plus_seq") gets the sum. Other constraints of a model (a constant that an exporter embedded in
a Reshape, an image size that a network halves five times) are not declared, so `assignments` offers many sizes, and a run
decides.
"""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import onnx_ir as ir

from onnx_subgraph.errors import UsageError
from onnx_subgraph.inputs.expressions import integer
from onnx_subgraph.inputs.ranges import constant
from onnx_subgraph.model.dimension_names import name_of, outer, sized, words

Sizes = dict[str, int]

_BATCH = re.compile(r"batch|^n$|^b$|^bs$", re.IGNORECASE)
_IMAGE = re.compile(r"height|width|^h$|^w$|image|pixel", re.IGNORECASE)
_PAST = re.compile(r"past|cache", re.IGNORECASE)
_COUNTED = re.compile(r"seq|len|token|time|frame|node|edge|atom|point", re.IGNORECASE)
"""A first dimension with such a name is a length, not a batch."""
_PIECES = (512, 128, 256, 64)


class Likely(NamedTuple):
    """Sizes that are tried first. roles: role → sizes for its dimensions in turn.

    uniform: sizes that all dimensions except the batch get together. batches: the batch sizes combined with these. pieces: the
    size of all other dimensions beside a piece of a signal.
    """

    roles: Mapping[str, tuple[int, ...]]
    batches: tuple[int, ...]
    pieces: int
    uniform: tuple[int, ...] = (8, 16, 32, 64, 4, 128, 224, 1, 2, 256, 512, 77)

    def with_images(self, *sizes: int) -> Likely:
        """The same with other sizes of images."""
        return self._replace(roles={**self.roles, "image": sizes})


FIRST = Likely({"batch": (2,), "image": (64, 96), "past": (5, 3), "length": (7, 11, 13, 9, 6)}, (2, 1), 2)
"""Small and all different, so that swapped axes show."""
SECOND = Likely({"batch": (1, 3), "image": (96, 64), "past": (8, 6), "length": (12, 8, 10, 14, 5)}, (1, 3), 3)
"""Different sizes, in case one size hides an error."""
SMALLER = tuple((FIRST.with_images(a, b), SECOND.with_images(b, a)) for a, b in ((32, 48), (16, 24)))
"""The same pair with smaller images, for slow models: attention to every pixel takes the square of their number."""
LARGE = (128, 224, 64, 256, 512, 32, 77, 16, 8, 4, 2, 1)
"""Uniform sizes; those typical of applications come first."""
USUAL = Likely({"batch": (1,), "image": (224, 224), "past": (128,), "length": (128, 64, 32)}, (1,), 1, LARGE)
"""Sizes typical of applications: one image, one text of some length."""
MOST_ELEMENTS = 1 << 24
"""The most elements of an input whose size is guessed. One size for all dimensions is too much where there are four or five."""


def symbols(inputs: Sequence[ir.Value]) -> dict[str, str]:
    """Symbolic dimension → its role ("batch", "image", "past", "length"), in the order of the inputs.

    A dimension without a name is called `input[axis]`. Sums of other dimensions are not listed: `resolve` computes them.
    """
    found: dict[str, str] = {}
    for value in inputs:
        rank = 0 if value.shape is None else len(value.shape)
        names = [dimension(value, axis) for axis in range(rank)]
        for axis, name in enumerate(names):
            if isinstance(name, str) and name not in found:
                role = _role(name, axis, rank, value)
                found[name] = "length" if role == "batch" and names.count(name) > 1 else role
    return {name: role for name, role in found.items() if not _terms(name, found)}


def dimension(value: ir.Value, axis: int) -> int | str:
    """The declared size of one dimension of an input, or its name in the file."""
    assert value.shape is not None
    dim = value.shape[axis]
    return dim if isinstance(dim, int) else (name_of(dim) or f"{value.name}[{axis}]")


def known(inputs: Sequence[ir.Value], sizes: Mapping[str, int]) -> Sizes:
    """The sizes, also under the names that shape inference gives to unnamed dimensions of the inputs."""
    found = dict(sizes)
    for value in inputs:
        for axis, dim in enumerate(value.shape or ()):
            if isinstance(dim, ir.SymbolicDim) and dim.value and (size := sizes.get(str(dimension(value, axis)))) is not None:
                found.setdefault(dim.value, size)
    return found


def resolve(sizes: Mapping[str, int], name: str) -> int | None:
    """The size of a dimension: its own, or that of the expression in its name (`expressions`); else None."""
    if outer(name) in sizes:
        return sizes[outer(name)]
    text = name.replace("_plus_", "+")
    if not words(text):
        return None
    try:
        return integer(ast.parse(sized(text, sizes), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # not an expression, or too deep
        return None


def shape_of(value: ir.Value, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of an input with these sizes. A dimension of unknown size has 1."""
    shape = []
    for axis in range(0 if value.shape is None else len(value.shape)):
        dim = dimension(value, axis)
        size = dim if isinstance(dim, int) else resolve(sizes, dim)
        shape.append(1 if size is None else max(0, size))
    return tuple(shape)


def elements_of(value: ir.Value, sizes: Mapping[str, int]) -> int:
    """The number of elements of an input with these sizes."""
    return math.prod(shape_of(value, sizes))


def all_elements(inputs: Sequence[ir.Value], sizes: Sizes) -> int:
    """The number of elements of all inputs with these sizes."""
    return sum(elements_of(value, known(inputs, sizes)) for value in inputs)


def moderate(inputs: Sequence[ir.Value], guesses: Iterable[Sizes]) -> Iterator[Sizes]:
    """The guesses that give no input more than `MOST_ELEMENTS`; the smallest one if there are none."""
    smallest: tuple[int, Sizes] | None = None
    found = False
    for sizes in guesses:
        every = known(inputs, sizes)
        largest = max((elements_of(value, every) for value in inputs), default=0)
        if largest <= MOST_ELEMENTS:
            found = True
            yield sizes
        elif smallest is None or largest < smallest[0]:
            smallest = largest, sizes
    if not found and smallest is not None:
        yield smallest[1]


def assignments(inputs: Sequence[ir.Value], shapes: Mapping[str, tuple[int, ...]], likely: Likely = FIRST) -> Iterator[Sizes]:
    """Sizes for all symbolic dimensions, the likeliest first. Sizes that `shapes` (input → shape) fixes are the same in all.

    Raises UsageError for a shape that does not fit its input.
    """
    roles = symbols(inputs)
    fixed = fixed_by(inputs, shapes)
    roles = {name: role for name, role in roles.items() if name not in fixed}
    yield _by_role(roles, likely.roles) | fixed
    if not roles:
        return
    named = {name: re.sub(r"^.*\[(\d+)\]$", r"axis \1 of \1", name) for name in roles}
    if len(set(named.values())) < len(named):  # unnamed dimensions: equal axes may have equal sizes
        table = _by_role({named[name]: role for name, role in roles.items()}, likely.roles)
        yield {name: table[named[name]] for name in roles} | fixed
    # "total_length" is a sum, but its name is not an expression
    totals = [name for name in roles if re.search(r"total|mask|kv|key", name, re.IGNORECASE) and roles[name] != "batch"]
    lengths = [name for name in roles if roles[name] in ("length", "past") and name not in totals]
    if totals and len(lengths) >= 2:
        sizes = _by_role(roles, likely.roles)
        yield sizes | dict.fromkeys(totals, sum(sizes[name] for name in lengths[:2])) | fixed
    for batch in likely.batches:
        for size in likely.uniform:
            yield {name: batch if role == "batch" else size for name, role in roles.items()} | fixed
    # a piece of a signal, with a state whose batch dimension is unnamed
    others = [name for name, role in roles.items() if role != "batch"]
    for size, name in itertools.product(_PIECES, others if len(others) > 1 else ()):
        yield {other: size if other == name else likely.pieces for other in roles} | fixed


def with_ones(inputs: Sequence[ir.Value], shapes: Mapping[str, tuple[int, ...]], sizes: Sizes) -> Iterator[Sizes]:
    """The sizes with 1 for the dimensions of some inputs, then for those of the others. Inputs take turns for each role.

    A size of 1 broadcasts. So a rewrite that takes the dimensions of two inputs for equal shows where one of them is 1. A role
    that only one input has keeps its sizes.
    """
    fixed = fixed_by(inputs, shapes)
    roles = {name: role for name, role in symbols(inputs).items() if name not in fixed}
    home: dict[str, int] = {}  # dimension → the first input that has it
    for index, value in enumerate(inputs):
        for axis in range(len(value.shape or ())):
            home.setdefault(str(dimension(value, axis)), index)
    turns: dict[str, int] = {}
    for role in dict.fromkeys(roles.values()):
        names = [name for name in roles if roles[name] == role]
        homes = list(dict.fromkeys(home[name] for name in names))
        turns |= {name: homes.index(home[name]) % 2 for name in names} if len(homes) > 1 else {}
    for turn in (1, 0) if turns else ():
        yield sizes | {name: 1 for name in turns if turns[name] == turn}


def baked(model: ir.Model) -> list[int]:
    """Sizes in constant shapes of the model's Reshape and Expand nodes, which an exporter may have embedded.

    From each shape: its sizes and their product. The most frequent come first, at most twelve.
    """
    counts: dict[int, int] = {}
    for node in model.graph.all_nodes():
        if node.op_type in ("Reshape", "Expand") and len(node.inputs) > 1:
            shape = constant(node.inputs[1])
            named = [] if shape is None else [int(size) for size in shape.reshape(-1) if size > 1]
            for size in {*named, math.prod(named)} - {1}:
                counts[size] = counts.get(size, 0) + 1
    return sorted(counts, key=lambda size: -counts[size])[:12]


def fixed_by(inputs: Sequence[ir.Value], shapes: Mapping[str, tuple[int, ...]]) -> Sizes:
    """The sizes of symbolic dimensions in the user's shapes. UsageError where these don't fit the inputs or each other."""
    by_name = {value.name: value for value in inputs}
    fixed: Sizes = {}
    for name, shape in shapes.items():
        value = by_name.get(name)
        if value is None:
            hint = f"inputs: {', '.join(map(str, by_name))}" if by_name else "it has no inputs: leave --shape out"
            raise UsageError(f"--shape names {name}, which is no input of the model", hint=hint)
        if value.shape is None:
            continue
        if len(shape) != len(value.shape):
            raise UsageError(
                f"--shape gives {name} {len(shape)} dimensions, the model declares {_shape_text(value)}",
                hint=f"give {len(value.shape)} sizes",
            )
        for axis, size in enumerate(shape):
            dim = dimension(value, axis)
            expected = dim if isinstance(dim, int) else fixed.get(dim, size)
            if expected != size:
                raise UsageError(
                    f"--shape gives dimension {axis} of {name} the size {size}, "
                    + (
                        f"the model declares {_shape_text(value)}"
                        if isinstance(dim, int)
                        else f"but {dim} is {fixed[dim]} elsewhere"
                    ),
                    hint=f"give it the size {expected}",
                )
            if isinstance(dim, str):
                fixed[dim] = size
    return fixed


def _shape_text(value: ir.Value) -> str:
    return "x".join(str(dimension(value, axis)) for axis in range(len(value.shape or ())))


def _role(name: str, axis: int, rank: int, value: ir.Value) -> str:
    first = dimension(value, 0)
    beside = isinstance(first, str) and first != name and _BATCH.search(first) is not None
    if _BATCH.search(name) and not beside:  # N is a batch, but a length if dimension 0 is a batch
        return "batch"
    if _PAST.search(name) and "[" not in name:
        return "past"
    if _IMAGE.search(name) and "[" not in name:
        return "image"
    if axis == 0 and ("[" in name or rank > 1) and not _COUNTED.search(name):
        return "batch"
    floats = value.dtype is not None and value.dtype.is_floating_point()
    if rank == 4 and axis >= 2 and floats and not _PAST.search(value.name or ""):
        return "image"
    return "length"


def _by_role(roles: Mapping[str, str], table: Mapping[str, tuple[int, ...]]) -> Sizes:
    taken: dict[str, int] = {}
    sizes = {}
    for name, role in roles.items():
        choices, index = table[role], taken.get(role, 0)
        taken[role] = index + 1
        # all batch dimensions are equal; sides of an image may differ; lengths beyond the list continue it
        sizes[name] = choices[0] if role == "batch" else choices[index % len(choices)] + index // len(choices)
    return sizes


def _terms(name: str, known: Mapping[str, str]) -> bool:
    """Whether the name is an expression of at least one other known name."""
    if name in known and name.isidentifier() and "_plus_" not in name:
        return False
    others = dict.fromkeys((other for other in known if other != name), 1)
    return resolve(others, name) is not None
