"""A pattern: what one YAML file says, after reading.

Only data. `syntax` reads the blocks, `sentence` the `where` list, `check` holds a pattern against the operator schemas, and
`library` finds the files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from onnx_subgraph.errors import Span
from onnx_subgraph.language.expression import Expression
from onnx_subgraph.language.operator import Raised
from onnx_subgraph.language.term import Block, Operator, Static
from onnx_subgraph.operators.names import OWN_DOMAIN

TARGETS = ("onnxruntime", "standard", "native", "function")
"""What a pattern can be fused for. Every formula and region has the last one without saying so; those have `native` that raise to
an operator of the library of kernels."""
WRITTEN = ("onnxruntime", "standard")
"""The targets of operators that somebody else defines, for which replacements are written."""


def camel_case(id: str) -> str:  # noqa: A002  (the id is called id everywhere)
    """An id as the name of an operator: `fast-gelu` is `FastGelu`."""
    return "".join(word[:1].upper() + word[1:] for word in id.split("-"))


@dataclass(frozen=True, slots=True)
class Example:
    """The shape and range of one free value, for the models that prove a pattern: `float32[2, 8] in [-1, 1]`.

    low, high: the range of a drawn value, None for a standard normal. constant: drawn once and stored as an initializer.
    value: given outright (a scalar such as an epsilon) instead of drawn.
    """

    dtype: str
    shape: tuple[int, ...]
    low: float | None = None
    high: float | None = None
    constant: bool = False
    value: Static | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """A model in ONNX text form that must fuse (`fuses`) or must not (`keeps`), and why."""

    model: str
    why: str = ""
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class OfNode:
    """An attribute of the node of that operator in a region, which the operator that replaces the region has as well."""

    operator: Operator
    attribute: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Grow:
    """A region that grows: where it may start, along which edges it may grow, and whether it is worth keeping.

    operator, domain: of the node that replaces it, whose definition the model carries; attributes: those that the node has.
    select, input, output: the questions; one that is left out is answered by no. keep: sentences about the finished region, all
    of which must hold. selector: who answers instead, by its name or in person (`onnx_subgraph.regions.selector.Selector`).
    """

    operator: str
    domain: str = OWN_DOMAIN
    attributes: Mapping[str, OfNode | Static] = field(default_factory=dict)
    select: Expression | None = None
    input: Expression | None = None
    output: Expression | None = None
    keep: tuple[Expression, ...] = ()
    selector: object = None


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """One fusion: what to look for, when, and what replaces it for each target.

    id: unique in all loaded packs; the file's stem with `-` for `_`. group: the folder's name.
    order: the position in its library, by which ties between matches of equal size are broken. shares: names of matched values
    that others may read, too; what computes them then stays for those. given: the results, where the file lists them.
    grow: how it grows, for a pattern of regions; its `match` is then empty, and so it is where `bodies` names operators of the
    standard, whose function bodies are looked for: each with the sentences about its inputs, outputs and attributes that must
    be true. raised: the canonical operator that it is a formula of, whose lowerings are in `replace`; where there are several
    for a target the others are in `variants`. kernel: the element types that the library of kernels has that operator for,
    where the pattern is for the target native. opsets: domain → the least opset that its pack asks for. formerly: ids of
    patterns that are a part of this one now.
    """

    id: str
    group: str
    summary: str
    match: Block
    where: tuple[Expression, ...]
    let: tuple[tuple[str, Expression], ...]
    replace: Mapping[str, Block]
    example: Mapping[str, Example]
    assumes: frozenset[str] = frozenset()
    mixed_precision: bool = False
    shares: frozenset[str] = frozenset()
    given: frozenset[str] = frozenset()
    keeps: tuple[Case, ...] = ()
    fuses: tuple[Case, ...] = ()
    file: str = ""
    order: int = 0
    grow: Grow | None = None
    bodies: Mapping[str, tuple[Expression, ...]] = field(default_factory=dict)
    raised: Raised | None = None
    kernel: frozenset[str] = frozenset()
    variants: Mapping[str, tuple[Block, ...]] = field(default_factory=dict)
    formerly: tuple[str, ...] = ()
    opsets: Mapping[str, int] = field(default_factory=dict)

    def blocks(self, target: str) -> tuple[Block, ...]:
        """The replacements that are written for a target, in order."""
        return (*((self.replace[target],) if target in self.replace else ()), *self.variants.get(target, ()))

    @property
    def name(self) -> str:
        """The operator's name in the `function` target: the canonical operator's, the id in CamelCase, or a region's own."""
        if self.raised is not None:
            return self.raised.operator.name
        return camel_case(self.id) if self.grow is None else self.grow.operator

    @property
    def is_formula(self) -> bool:
        """Whether a formula says what to look for, and not how a region grows or which function bodies there are."""
        return self.grow is None and not self.bodies

    @property
    def results(self) -> tuple[str, ...]:
        """The names of `match` that replacements or `results` name, in its order, else those of the last line."""
        provided = self.given.union(*(block.names for block in self.replace.values()))
        names = tuple(name for name in self.match.names if name in provided)
        return names or tuple(n for a in self.match.assignments[-1:] for n in a.names if n != "_")

    def is_for(self, target: str) -> bool:
        """Whether it is worth looking for where that is the target; a formula is wherever it has a replacement at all."""
        if not self.is_formula:
            return target in self.targets
        return bool(self.replace) or (target == "native" and bool(self.kernel))

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets this pattern can be fused for, in the order of `TARGETS`."""
        if self.bodies:
            return WRITTEN
        if self.grow is not None and self.grow.domain != OWN_DOMAIN:
            return TARGETS  # an operator of the author's is one wherever it is
        return tuple(t for t in TARGETS if t in self.replace or t == "function" or (t == "native" and self.kernel))
