"""Share equal function definitions that rewrites add to a model, and give different ones different names.

A number in the name tells them apart, or an overload. Overloads are for canonical operators and operators that the user names,
because a library may have one kernel for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import chain

import onnx_ir as ir

from onnx_subgraph.model.local_functions import is_own
from onnx_subgraph.model.quiet import quiet


class Definitions:
    """The definitions in `functions`, indexed by their content. `functions` may grow."""

    def __init__(self, functions: dict[ir.OperatorIdentifier, ir.Function]) -> None:
        self._functions = functions
        self._known: dict[ir.OperatorIdentifier, None] = {}
        self._by_text: dict[tuple[str, bytes], ir.Function] = {}
        self._number: dict[str, int] = {}

    def shared(self, definition: ir.Function, *, overloads: bool = False) -> ir.Function:
        """The equal definition of the model, if any; else this one, under the first free name or overload."""
        self._read()
        stem = definition.name
        equal = self._by_text.get((stem, _text(definition)))
        if equal is not None:
            return equal
        number = self._number.get(stem, 1)
        while _set_name(definition, stem, number, overloads=overloads) in self._functions:
            number += 1
        self._number[stem] = number
        return definition

    def _read(self) -> None:
        for identifier in reversed(self._functions):
            if identifier in self._known:
                return  # earlier entries are known
            self._known[identifier] = None
            function = self._functions[identifier]
            if is_own(function):
                stem = re.sub(r"_\d+$", "", function.name)
                self._by_text.setdefault((stem, _text(function)), function)


def drop_unused(model: ir.Model, kept: Collection[ir.OperatorIdentifier]) -> None:
    """Remove the definitions that nothing calls any more, such as one of a branch that became a constant; not those in `kept`."""
    while True:
        nodes = chain(model.graph.all_nodes(), *(function.all_nodes() for function in model.functions.values()))
        called = {node.op_identifier() for node in nodes}
        unused = [name for name in model.functions if name not in called and name not in kept]
        if not unused:
            return
        for name in unused:
            del model.functions[name]


def _set_name(definition: ir.Function, stem: str, number: int, *, overloads: bool) -> ir.OperatorIdentifier:
    """Set the name and overload of a definition: the `number`th of its stem."""
    definition.name = stem if number == 1 or overloads else f"{stem}_{number}"
    definition.overload = str(number) if number > 1 and overloads else ""
    return definition.identifier()


def _text(function: ir.Function) -> bytes:
    """The content of a definition without its name, overload and metadata."""
    with quiet("onnx_ir"):  # of values whose type is not known
        proto = ir.to_proto(function)
    proto.ClearField("name")
    proto.ClearField("overload")
    proto.ClearField("value_info")
    for node in proto.node:
        node.ClearField("metadata_props")
        for attribute in node.attribute:
            if attribute.HasField("t"):
                attribute.t.ClearField("name")
    text: bytes = proto.SerializeToString(deterministic=True)
    return text
