"""Remember refused replacements, so that a place like a refused one is refused for the same reason, without another try.

A network has the same place in every layer, and a place that was refused is found again in the next round. To write, infer and
check a replacement takes a thousand times as long as to look it up.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Hashable, Iterator, Mapping

import numpy as np
import onnx_ir as ir

from onnx_subgraph.language.term import Block
from onnx_subgraph.matching.match import Binding, Match
from onnx_subgraph.model.attributes import plain_value
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.shapes import SHAPE_DATA
from onnx_subgraph.rewriting.known import SMALL_BYTES
from onnx_subgraph.rewriting.refused import Refused

Kind = Hashable
"""All that the checks of a replacement depend on, apart from the nodes around it. Equal kinds are refused alike."""

_STATIC = (bool, int, float, str, tuple, np.generic, ir.SymbolicDim, type(None))


class Refusals:
    """The refusals of one model, by kind. Providers, measurements and patterns must be the same in all calls."""

    def __init__(self) -> None:
        self._known: dict[Kind, Refused] = {}
        self._held: list[object] = []  # what kinds name by its identity, which must not be given to another object

    def check(self, kind: Kind | None) -> None:
        """Raises the refusal of this kind, if there was one."""
        known = self._known.get(kind)
        if known is not None:
            raise copy.copy(known)  # its frames would keep the graph alive

    def remember(self, kind: Kind | None, refused: Refused) -> None:
        """Remember a refusal, unless its reason names something of its place."""
        if kind is not None and not refused.is_local:
            self._known[kind] = copy.copy(refused)

    def kind(
        self, match: Match, block: Block | None, needed: Collection[str], root: ir.Graph | ir.Function, constants: Constants
    ) -> Kind | None:
        """The kind of a match that `block` is to replace; None where it can't be told, and for a region.

        needed: the results that are read. root: the graph or function that the match is in, or whose nested body it is in.
        """
        if match.pattern.grow is not None:
            return None
        facts = _Facts(match, constants)
        try:
            inputs = tuple(map(facts.value, match.nodes[0].inputs)) if len(match.nodes) == 1 else ()
            return (
                *map(self._identity, (match.pattern, block)),
                frozenset(needed),
                type(root),
                frozenset(root.opset_imports.items()),
                frozenset(match.chosen.items()),
                tuple((node.op_identifier(), *(output.dtype for output in node.outputs)) for node in match.nodes),
                tuple((name, facts.binding(bound)) for name, bound in match.bindings.items()),
                tuple((name, facts.value(root)) for name, root in match.roots.items()),
                tuple((name, *facts.rest(attributes)) for name, attributes in match.rest.items()),
                inputs,
                tuple(map(self._identity, facts.large)),
            )
        except _Untold:
            return None

    def _identity(self, thing: object) -> int:
        self._held.append(thing)
        return id(thing)


class _Untold(Exception):  # noqa: N818 - not an error
    """Something is bound whose meaning can't be told by its facts."""


class _Facts:
    """What is known of the values of a match. A value that was told before is told by its number.

    large: the constants that are too large to compare, apart from weights, whose elements no check reads.
    """

    def __init__(self, match: Match, constants: Constants) -> None:
        self.large: list[object] = []
        self._constants = constants
        self._inner = {output for node in match.nodes for output in node.outputs}
        self._number: dict[ir.Value, int] = {}

    def binding(self, bound: Binding) -> Hashable:
        """What a name is bound to. Raises _Untold."""
        if isinstance(bound, ir.Value):
            return self.value(bound)
        if isinstance(bound, ir.Attr):
            return self._attribute(bound)
        if isinstance(bound, np.ndarray):
            return bound.dtype.str, bound.shape, bound.tobytes()
        if isinstance(bound, _STATIC):
            return repr(bound)  # tells 1 from 1.0 and True
        raise _Untold

    def value(self, value: ir.Value | None) -> Hashable:
        """The type, the shape and the elements, as far as they are known."""
        if value is None or value in self._number:
            return value and self._number[value]
        self._number[value] = len(self._number)
        shape = None if value.shape is None else _dims(value.shape)
        data = value.meta.get(SHAPE_DATA)
        constant = self._constant(value) if self._constants.is_constant(value) else None
        return value in self._inner, type(value.type), value.dtype, shape, data and _dims(data), constant

    def rest(self, attributes: Mapping[str, ir.Attr]) -> Iterator[Hashable]:
        """Captured attributes."""
        return ((name, self._attribute(attribute)) for name, attribute in attributes.items())

    def _attribute(self, attribute: ir.Attr) -> Hashable:
        if (known := plain_value(attribute)) is None:
            raise _Untold
        return attribute.type, repr(known)

    def _constant(self, value: ir.Value) -> Hashable:
        tensor = value.const_value or self._constants.tensor(value)
        if tensor is None:
            raise _Untold
        if tensor.dtype != ir.DataType.STRING and tensor.nbytes <= SMALL_BYTES:
            return tuple(tensor.shape.numpy()), tensor.tobytes()
        if not tensor.dtype.is_floating_point():
            if value.const_value is None:
                raise _Untold
            self.large.append(tensor)
        return "large"


def _dims(dims: ir.Shape | tuple[int | ir.SymbolicDim, ...]) -> tuple[int | str | None, ...]:
    return tuple(dim if isinstance(dim, int) else dim.value for dim in dims)
