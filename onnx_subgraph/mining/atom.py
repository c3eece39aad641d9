"""Atoms: the steps of a graph without their spelling, so that two ways to write one idea are the same atoms.

A chain of Add, Sub and Neg is one sum, one of Mul, Div, Sqrt and constant Pow one product of powers, one of Reshape, Transpose
and the like one rearrangement; any other node is a call. The equalities are those of `onnx_subgraph.matching`.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import onnx_ir as ir

from onnx_subgraph.language.term import Static
from onnx_subgraph.matching.sizes import Size


@dataclass(frozen=True, slots=True)
class Items:
    """A sum or a product. constant: the number among its items, None where there is none."""

    is_product: bool
    constant: float | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """A rearrangement: the parts of each axis before and after, as numbers, and the size of each part.

    A part that is only in the result repeats the value.
    """

    before: tuple[tuple[int, ...], ...]
    after: tuple[tuple[int, ...], ...]
    sizes: tuple[Size, ...]

    @property
    def repeated(self) -> tuple[int, ...]:
        """The parts that are only in the result."""
        own = {part for axis in self.before for part in axis}
        return tuple(part for axis in self.after for part in axis if part not in own)


@dataclass(frozen=True, slots=True)
class Parts:
    """A value cut along an axis, counted from the back, into parts of these sizes."""

    axis: int
    sizes: tuple[int, ...]

    @property
    def is_even(self) -> bool:
        """Whether all parts are of one size."""
        return len(set(self.sizes)) == 1


@dataclass(frozen=True, slots=True)
class Call:
    """Any other operator. keywords: its attributes, and the inputs that hold axes, where they are not at their default.

    omitted: the positions of inputs that are left out before the last one that is there.
    """

    operator: str
    domain: str
    keywords: tuple[tuple[str, Static], ...] = ()
    omitted: tuple[int, ...] = ()
    is_commutative: bool = False


Form = Items | Layout | Parts | Call


@dataclass(frozen=True, slots=True)
class Operand:
    """What an atom reads. port: equal for operands that may change places: a power, a sign, or a position.

    number: of a constant of one element; None for any other value.
    """

    value: ir.Value
    port: float
    number: float | None = None
    constant: bool = False

    @property
    def role(self) -> str:
        """A number, another constant, or a value that is computed."""
        return "number" if self.number is not None else "constant" if self.constant else "computed"


@dataclass(frozen=True, slots=True, eq=False)
class Atom:
    """One step. operands: in a form that is the same for all spellings. results: what it gives; nodes: in the graph's order."""

    form: Form
    nodes: tuple[ir.Node, ...]
    operands: tuple[Operand, ...]
    results: tuple[ir.Value, ...]

    @property
    def label(self) -> Hashable:
        """What equal atoms have in common: the form without its numbers, and what stands at each port."""
        form: Hashable = self.form
        if isinstance(self.form, Items):
            form = ("product" if self.form.is_product else "sum", self.form.constant is not None)
        elif isinstance(self.form, Layout):
            form = ("layout", self.form.before, self.form.after)
        elif isinstance(self.form, Parts):
            form = ("parts", self.form.axis, len(self.form.sizes) if self.form.is_even else self.form.sizes)
        return form, tuple(sorted((o.port, o.role) for o in self.operands)), len(self.results)
