"""The alternative layouts in which a kernel of our library accepts its operands.

If an operand already has such a layout before a Transpose brings it into the defined one, the kernel reads it without the
Transpose. The definition in the model then begins with that Transpose, and ends with its inverse on the results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_subgraph.emitting import layout
from onnx_subgraph.emitting.attribute import Lookup, known_before
from onnx_subgraph.emitting.emit import Emitter
from onnx_subgraph.language.operator import CanonicalOperator
from onnx_subgraph.language.recipe import recipe_axes
from onnx_subgraph.language.term import Literal, Rearrange, Term, Variable

_SOURCE = Variable("what is rearranged")
"""The operand of the rearrangement in messages."""


@dataclass(frozen=True, slots=True)
class Layouts:
    """The recipes of an operator's operands and results, and the sizes of those axes that its attributes give."""

    recipes: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, operator: CanonicalOperator, lookup: Lookup) -> Layouts:
        """The layouts of an operator, with sizes from `lookup`. Empty if one of the sizes is unknown."""
        known = {*operator.attributes, *dict(operator.let)}
        named = {axis for recipe in operator.layouts.values() for axis in recipe_axes(recipe)} & known
        sizes = {axis: known_before(operator.prefix + axis, lookup) for axis in named}
        found = {axis: size for axis, size in sizes.items() if isinstance(size, int)}
        return cls(operator.layouts, found) if len(found) == len(named) else cls()

    def __contains__(self, name: str) -> bool:
        """Whether this operand or result has an alternative layout."""
        return name in self.recipes

    def taken(self, emitter: Emitter, name: str, value: ir.Value) -> ir.Value | None:
        """An operand in the kernel's alternative layout, if it exists without moving data; else None."""
        if name not in self.recipes:
            return None
        return layout.unmoved(emitter.fragment, value, self._term(self.recipes[name]), emitter.bindings, emitter.lookup)

    def done(self, emitter: Emitter, name: str, value: ir.Value) -> ir.Value:
        """A value of the defined layout, converted to the kernel's alternative layout."""
        return self._rearranged(emitter, value, self.recipes[name])

    def undone(self, emitter: Emitter, name: str, value: ir.Value) -> ir.Value:
        """A value of the kernel's alternative layout, converted to the defined layout."""
        left, right = self.recipes[name].split("->")
        return self._rearranged(emitter, value, f"{right.strip()} -> {left.strip()}")

    def _rearranged(self, emitter: Emitter, value: ir.Value, recipe: str) -> ir.Value:
        return layout.rearrange(emitter.fragment, value, self._term(recipe), emitter.bindings, emitter.lookup)

    def _term(self, recipe: str) -> Rearrange:
        axes = recipe_axes(recipe)
        sizes: tuple[tuple[str, Term], ...] = tuple((axis, Literal(size)) for axis, size in self.sizes.items() if axis in axes)
        return Rearrange("rearrange", _SOURCE, recipe, sizes)
