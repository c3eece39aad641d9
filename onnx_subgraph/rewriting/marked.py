"""What a user marked in a model becomes one operator of our own domain each, whose definition the model carries.

Marked regions that differ in their weights alone, the equal layers of a network, share a definition. Any runtime runs it, by
inlining; `onnx-subgraph inline` puts the nodes back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from onnx_subgraph.errors import UsageError
from onnx_subgraph.operators.names import OWN_DOMAIN
from onnx_subgraph.regions.marks import between, modules
from onnx_subgraph.regions.region import Region
from onnx_subgraph.rewriting.definitions import Definitions
from onnx_subgraph.rewriting.enclosure import enclose, put_in_place
from onnx_subgraph.rewriting.function import ir_version
from onnx_subgraph.rewriting.outline import Outline
from onnx_subgraph.rewriting.refused import Refused


@dataclass(frozen=True, slots=True)
class Marks:
    """What is marked: the modules that fit one of `scopes`, and what lies between the values `first` and `last`."""

    scopes: tuple[str, ...] = ()
    first: tuple[str, ...] = ()
    last: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.scopes or self.first or self.last)


def replace_marked(model: ir.Model, marks: Marks) -> int:
    """Replace what is marked in the main graph by calls of functions; how many. Changes `model`.

    Raises UsageError for a mark that marks nothing, for marks that overlap, and for a region that no function can hold.
    """
    if bool(marks.first) != bool(marks.last):
        raise UsageError("a region lies between values, and only one end is given", hint="give both --from and --to")
    wanted = [(_operator_name(scope), modules(model.graph, scope)) for scope in marks.scopes]
    if marks.first:
        wanted.append(("Static", {"": between(model.graph, marks.first, marks.last)}))
    outline, definitions = Outline(model), Definitions(model.functions)
    for name, regions in wanted:
        _replace(model, regions, name, outline, definitions)
    model.opset_imports.setdefault(OWN_DOMAIN, 1)
    model.ir_version = max(model.ir_version, ir_version(model.functions.values()))
    model.graph.sort()
    return sum(len(regions) for _, regions in wanted)


def _replace(model: ir.Model, regions: Mapping[str, Region], name: str, outline: Outline, definitions: Definitions) -> None:
    for path, found in regions.items():
        if any(node.graph is not model.graph for node in found.nodes):
            raise UsageError(f"what is marked as {path or name} overlaps with another mark", hint="mark each node once")
        region = Region.of(model.graph, found.nodes)  # its inputs may be results of a call by now
        try:
            definition, read = enclose(region, name, model.opset_imports, _constant)
        except Refused as refused:
            raise UsageError(
                f"{path or 'what is marked'} can't become a function: {refused}", hint="mark something else"
            ) from None
        definition = definitions.shared(definition)
        model.functions.setdefault(definition.identifier(), definition)
        call = ir.Node(OWN_DOMAIN, definition.name, read, num_outputs=len(region.outputs), name=outline.fresh(path or name))
        put_in_place(call, region, region.nodes)


def _constant(value: ir.Value) -> ir.TensorProtocol | None:
    return None if value.is_graph_input() else ir.convenience.get_const_tensor(value)


def _operator_name(scope: str) -> str:
    """`EncoderLayer` for the modules `encoder.layer.*`."""
    words = re.findall(r"[A-Za-z][A-Za-z0-9]*", scope)
    return "".join(word[0].upper() + word[1:] for word in words) or "Module"
