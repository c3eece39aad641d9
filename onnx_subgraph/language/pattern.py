"""A pattern: the contents of one YAML file after reading.

Only data. `syntax` reads the blocks, `sentence` the `where` list, `check` checks a pattern against the operator schemas, and
`library` finds the files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from onnx_subgraph.errors import Span
from onnx_subgraph.language.expression import Expression
from onnx_subgraph.language.operator import Raised
from onnx_subgraph.language.term import Block, Operator, Static
from onnx_subgraph.operators.names import OWN_DOMAIN
from onnx_subgraph.targets import TARGETS, WRITTEN

ID = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
"""The id of a pattern: lower-case words joined by `-`."""
Needs = tuple[frozenset[tuple[str, str]], ...]
"""Sets of operators, as (domain, name)."""


def camel_case(id: str) -> str:  # noqa: A002  (the id is called id everywhere)
    """An id as an operator name: `fast-gelu` becomes `FastGelu`."""
    return "".join(word[:1].upper() + word[1:] for word in id.split("-"))


@dataclass(frozen=True, slots=True)
class Example:
    """The shape and range of one free value, for the models that prove a pattern: `float32[2, 8] in [-1, 1]`.

    low, high: the range of random values, None for a standard normal. constant: drawn once and stored as an initializer.
    value: a fixed value (a scalar such as an epsilon) instead of a random one.
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
    """An attribute that the operator replacing a region takes from the node with this operator in the region."""

    operator: Operator
    attribute: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Grow:
    """A region: where it may start, along which edges it may grow, and whether it is kept.

    operator, domain: of the node that replaces it; the model contains its definition. attributes: of this node.
    select, input, output: the questions; an omitted one is answered with no. keep: sentences about the finished region, all of
    which must be true. selector: a Python selector instead of the questions, by name or as an object
    (`onnx_subgraph.regions.selector.Selector`).
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
    """One fusion: what to search for, the conditions, and the replacement for each target.

    id: unique in all loaded packs; the file's stem with `-` for `_`. group: the folder's name.
    order: the position in its library; breaks ties between matches of equal size. shares: names of matched values that other
    nodes may read; the nodes that compute them are then kept. given: the results, where the file lists them. grow: how a region
    grows; `match` is then empty. bodies: standard operators whose function bodies are searched for, each with sentences about its
    inputs, outputs and attributes that must be true; `match` is then empty, too. raised: the canonical operator that this is a
    formula of. Its lowerings are in `replace`; further ones for the same target are in `variants`. kernel: the element types for
    which the library of kernels has that operator, if the pattern supports the target native. opsets: domain → minimum opset that
    its pack requires. late: whether it is tried only where no other pattern matches any more. formerly: ids of patterns that were
    merged into this one. needs: sets of operators, as (domain, name), such that every match has one of each; empty where that is
    not known without the formula.
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
    late: bool = False
    grow: Grow | None = None
    bodies: Mapping[str, tuple[Expression, ...]] = field(default_factory=dict)
    raised: Raised | None = None
    kernel: frozenset[str] = frozenset()
    variants: Mapping[str, tuple[Block, ...]] = field(default_factory=dict)
    formerly: tuple[str, ...] = ()
    opsets: Mapping[str, int] = field(default_factory=dict)
    needs: Needs = ()

    def blocks(self, target: str) -> tuple[Block, ...]:
        """The replacements for a target, in order."""
        return (*((self.replace[target],) if target in self.replace else ()), *self.variants.get(target, ()))

    @property
    def name(self) -> str:
        """The operator's name in the `function` target: the canonical operator's, a region's own, else the id in CamelCase."""
        if self.raised is not None:
            return self.raised.operator.name
        return camel_case(self.id) if self.grow is None else self.grow.operator

    @property
    def is_formula(self) -> bool:
        """Whether the pattern is a formula, not a region or function bodies."""
        return self.grow is None and not self.bodies

    @property
    def results(self) -> tuple[str, ...]:
        """The names of `match` that replacements or `results` name, in its order; else those of the last line."""
        provided = self.given.union(*(block.names for block in self.replace.values()))
        names = tuple(name for name in self.match.names if name in provided)
        return names or tuple(n for a in self.match.assignments[-1:] for n in a.names if n != "_")

    def is_for(self, target: str) -> bool:
        """Whether to search for the pattern with this target.

        A formula with any replacement qualifies for every target. Without one it qualifies for its first target: an operator of
        our kernels says how to compute, so it is no result of `function`.
        """
        if not self.is_formula:
            return target in self.targets
        return not {*WRITTEN}.isdisjoint(self.targets) or target in self.targets[:1]

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets that this pattern can be fused for, in the order of `TARGETS`."""
        if self.bodies:
            return WRITTEN
        if self.grow is not None and self.grow.domain != OWN_DOMAIN:
            return TARGETS  # an operator in the author's domain is the same for every target
        return tuple(t for t in TARGETS if t in self.replace or t == "function" or (t == "native" and self.kernel))
