"""The definitions of our domain that a model carries: equal ones are shared, another one of the same name gets a number."""

from __future__ import annotations

import re

import onnx_ir as ir

from onnx_subgraph.operators.names import OWN_DOMAIN


class Definitions:
    """The definitions in `functions`, which may grow meanwhile, by what they say."""

    def __init__(self, functions: dict[ir.OperatorIdentifier, ir.Function]) -> None:
        self._functions = functions
        self._known: dict[ir.OperatorIdentifier, None] = {}
        self._by_text: dict[tuple[str, bytes], ir.Function] = {}
        self._number: dict[str, int] = {}

    def shared(self, definition: ir.Function, stem: str) -> ir.Function:
        """The definition of the model that is equal to this one, or this one under the first name that is free."""
        self._read()
        equal = self._by_text.get((stem, _text(definition)))
        if equal is not None:
            return equal
        number = self._number.get(stem, 1)
        while (OWN_DOMAIN, name := stem if number == 1 else f"{stem}_{number}", "") in self._functions:
            number += 1
        self._number[stem] = number
        definition.name = name
        return definition

    def _read(self) -> None:
        for identifier in reversed(self._functions):
            if identifier in self._known:
                return  # what came before was read before
            self._known[identifier] = None
            if identifier[0] == OWN_DOMAIN:
                function = self._functions[identifier]
                stem = re.sub(r"_\d+$", "", function.name)
                self._by_text.setdefault((stem, _text(function)), function)


def _text(function: ir.Function) -> bytes:
    """What a definition says, without its name and what was noted on its values and nodes afterwards."""
    proto = ir.to_proto(function)
    proto.ClearField("name")
    proto.ClearField("value_info")
    for node in proto.node:
        node.ClearField("metadata_props")
        for attribute in node.attribute:
            if attribute.HasField("t"):
                attribute.t.ClearField("name")
    text: bytes = proto.SerializeToString(deterministic=True)
    return text
