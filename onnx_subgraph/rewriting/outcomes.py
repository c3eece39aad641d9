"""Remember the outcome of each kind of match: its replacement, or why it was refused.

A match of the same kind gets a copy of the replacement, or the same reason. A network has the same match in every layer, and a
refused match is found again in the next round. To write, infer and check a replacement takes far longer than to copy it.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnx_subgraph.emitting.fragment import Fragment
from onnx_subgraph.emitting.known import SMALL_BYTES
from onnx_subgraph.emitting.refused import Refused
from onnx_subgraph.emitting.replica import replica
from onnx_subgraph.language.term import Block
from onnx_subgraph.matching.match import Binding, Match
from onnx_subgraph.model.attributes import plain_value
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.shapes import SHAPE_DATA
from onnx_subgraph.rewriting.checks import PROBED_CONSTANT_BYTES

_STATIC = (bool, int, float, str, tuple, np.generic, ir.SymbolicDim, type(None))


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """What a replacement and its checks depend on, apart from the nodes around a match.

    kind: equal for places with the same outcome. values: those that a replacement may read, in an order that the kind fixes.
    """

    kind: Hashable
    values: tuple[ir.Value, ...]


class Outcomes:
    """The outcomes at the places of one model, in all attempts at it.

    Target, providers, measurements and patterns must be the same for all.
    """

    def __init__(self) -> None:
        self._refused: dict[Hashable, Refused] = {}
        self._made: dict[Hashable, tuple[Fragment, tuple[ir.Value, ...]]] = {}
        self._held: dict[int, object] = {}  # what kinds name by its identity, which must not be given to another object

    def known(self, case: Case, functions: Mapping[ir.OperatorIdentifier, ir.Function]) -> Fragment | None:
        """A copy of the replacement at an earlier place of this kind, None at the first. Raises Refused if it was refused.

        functions: those of the model. A replacement that calls another one is not used again.
        """
        if (refused := self._refused.get(case.kind)) is not None:
            raise copy.copy(refused)  # its frames would keep the graph alive
        if (made := self._made.get(case.kind)) is None:
            return None
        fragment, values = made
        if any(functions.get(function.identifier()) is not function for function in fragment.functions):
            return None
        return replica(fragment, dict(zip(values, case.values, strict=True)))

    def refused(self, case: Case, refusal: Refused) -> None:
        """Remember a refusal, unless its reason names something of its place."""
        if not refusal.is_local:
            self._refused[case.kind] = copy.copy(refusal)

    def made(self, case: Case, fragment: Fragment) -> None:
        """Remember a replacement, unless constants of its place were computed into it, or large ones are still to compute."""
        is_late = any(isinstance(constant.const_value, ir.LazyTensor) for constant in fragment.constants)
        if not fragment.computed and not is_late and set(fragment.read.values()) <= set(case.values):
            self._made[case.kind] = (replica(fragment, {}), case.values)

    def case(
        self,
        match: Match,
        block: Block | None,
        needed: Collection[str],
        root: ir.Graph | ir.Function,
        opset_imports: Mapping[str, int],
        constants: Constants,
    ) -> Case | None:
        """The case of a match that `block` is to replace; None for a region, and where something is bound that has no facts.

        needed: the results that are read. root: the graph or function that the match is in, or whose nested body it is in.
        opset_imports: domain → the version that the replacement is written for.
        """
        if match.pattern.grow is not None:
            return None
        facts = _Facts(match, constants)
        try:
            kind = (
                *map(self._identity, (match.pattern, block)),
                frozenset(needed),
                type(root),
                frozenset(opset_imports.items()),
                frozenset(match.chosen.items()),
                tuple((node.op_identifier(), *(output.dtype for output in node.outputs)) for node in match.nodes),
                tuple((name, facts.binding(bound)) for name, bound in match.bindings.items()),
                tuple((name, facts.value(value)) for name, value in match.roots.items()),
                tuple((name, *facts.rest(attributes)) for name, attributes in match.rest.items()),
                tuple(map(facts.value, match.nodes[0].inputs)) if len(match.nodes) == 1 else (),
                tuple(map(self._identity, facts.large)),
            )
        except _Untold:
            return None
        return Case(kind, tuple(facts.numbers))

    def _identity(self, thing: object) -> int:
        self._held[id(thing)] = thing
        return id(thing)


class _Untold(Exception):  # noqa: N818 - not an error
    """Something is bound whose meaning can't be told by its facts."""


class _Facts:
    """What is known of the values of a match. A value that was told before is told by its number.

    Of weights the type and shape are told: a replacement reads their elements only in the run, or to compute new ones (`made`).
    large: other constants that are too large to compare; they are told by their identity.
    """

    def __init__(self, match: Match, constants: Constants) -> None:
        self.numbers: dict[ir.Value, int] = {}
        self.large: list[object] = []
        self._constants = constants
        self._inner = {output for node in match.nodes for output in node.outputs}

    def binding(self, bound: Binding) -> Hashable:
        """What a name is bound to. Raises _Untold."""
        if type(bound) is ir.Value:
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
        if value is None or value in self.numbers:
            return value and self.numbers[value]
        self.numbers[value] = len(self.numbers)
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
        told = (tensor.dtype, tuple(tensor.shape.numpy()))
        is_text, is_float = tensor.dtype == ir.DataType.STRING, tensor.dtype.is_floating_point()
        if not is_text and tensor.nbytes <= (PROBED_CONSTANT_BYTES if is_float else SMALL_BYTES):
            return *told, tensor.tobytes()
        if is_float:
            return told
        if value.const_value is None:
            raise _Untold
        self.large.append(tensor)
        return told


def _dims(dims: ir.Shape | tuple[int | ir.SymbolicDim, ...]) -> tuple[int | str | None, ...]:
    return tuple(dim if isinstance(dim, int) else dim.value for dim in dims)
