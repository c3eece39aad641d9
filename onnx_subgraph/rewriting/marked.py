"""Replace the regions that a user marked in a model by operators in our domain, with their definitions in the model.

Marked regions that differ only in their weights, such as equal layers of a network, share a definition. Any runtime can inline
it; `onnx-subgraph inline` restores the nodes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile

import onnx_ir as ir

from onnx_subgraph.emitting.definitions import Definitions
from onnx_subgraph.emitting.enclosure import enclose, put_in_place
from onnx_subgraph.emitting.function import ir_version
from onnx_subgraph.emitting.refused import Refused
from onnx_subgraph.errors import UsageError
from onnx_subgraph.matching.origin import equals, is_made, label, stood_for
from onnx_subgraph.model.surgery import sweep
from onnx_subgraph.operators.names import OWN_DOMAIN
from onnx_subgraph.regions.ground import PATTERN
from onnx_subgraph.regions.marks import between, modules, paths
from onnx_subgraph.regions.region import Region
from onnx_subgraph.rewriting.outline import Outline


@dataclass(frozen=True, slots=True)
class Marks:
    """The user's marks: the modules that match one of `scopes`, and the nodes between the values `first` and `last`."""

    scopes: tuple[str, ...] = ()
    first: tuple[str, ...] = ()
    last: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.scopes or self.first or self.last)


@dataclass(frozen=True, slots=True)
class Marked:
    """An operator made from marked regions.

    count: the number of its nodes. nodes: the number of nodes in its definition. first: the module of its first node.
    """

    operator: str
    count: int
    nodes: int
    first: str


@dataclass(frozen=True, slots=True)
class Before:
    """What is remembered of a model before its nodes are replaced.

    paths: name of a node → the paths of its modules, outermost first. makers: name of a value → the name of its node.
    """

    paths: Mapping[str, Sequence[str]]
    makers: Mapping[str, str]

    @classmethod
    def of(cls, model: ir.Model) -> Before:
        """Of the model as it is now."""
        nodes = list(model.graph)
        makers = {output.name: label(node) for node in nodes for output in node.outputs if output.name}
        return cls({label(node): paths(node) for node in nodes}, makers)


def check_marks(model: ir.Model, marks: Marks) -> None:
    """Raises UsageError for a mark that matches nothing, for marks that overlap, and for a value that does not exist."""
    seen: dict[ir.Node, str] = {}
    for name, regions in _regions(model.graph, marks, None):
        for path, region in regions.items():
            for node in region.nodes:
                if seen.setdefault(node, path or name) != (path or name):
                    raise UsageError(f"what is marked as {path or name} overlaps with another mark", hint="mark each node once")


def replace_marked(model: ir.Model, marks: Marks, before: Before | None = None) -> tuple[Marked, ...]:
    """Replace the marked regions of the main graph by calls of functions. Changes `model`; returns the new operators.

    before: the original model, if it was rewritten. A node that replaced others belongs to the innermost module that contains all
    of them. Raises UsageError like `check_marks`, and for a region that no function can hold.
    """
    outline, definitions = Outline(model), Definitions(model.functions)
    made = []
    for name, regions in _regions(model.graph, marks, before):
        made += _replace(model, regions, name, outline, definitions)
    model.opset_imports.setdefault(OWN_DOMAIN, 1)
    model.ir_version = max(model.ir_version, ir_version(model.functions.values()))
    model.graph.sort()
    return tuple(made)


def _regions(graph: ir.Graph, marks: Marks, before: Before | None) -> list[tuple[str, dict[str, Region]]]:
    """The marked regions: (name of the operator, module path → region)."""
    if bool(marks.first) != bool(marks.last):
        raise UsageError("a region lies between values, and only one end is given", hint="give both --from and --to")
    paths_of = None if before is None else partial(_paths, before.paths)
    found = [(_operator_name(scope), modules(graph, scope, paths_of)) for scope in marks.scopes]
    if marks.first:
        if before is not None:
            _check_values(graph, (*marks.first, *marks.last), before)
        found.append(("Static", {"": between(graph, marks.first, marks.last)}))
    return found


def _check_values(graph: ir.Graph, names: Sequence[str], before: Before) -> None:
    """Raises UsageError for a value that the original model had and this one does not."""
    values = {value.name for value in (*graph.inputs, *(output for node in graph for output in node.outputs))}
    for name in names:
        if name in values or name not in before.makers:
            continue
        made = next((node for node in graph if is_made(node) and before.makers[name] in stood_for(node)), None)
        if made is None:
            raise UsageError(f"{name} was computed beforehand", hint="mark another value, or keep this one: --no-simplify")
        skip = made.metadata_props.get(PATTERN, "PATTERN")
        raise UsageError(f"{name} was fused into {made.op_type}", hint=f"mark a value next to it, or keep it: --skip {skip}")


def _paths(known: Mapping[str, Sequence[str]], node: ir.Node) -> Sequence[str]:
    """The paths of the modules that contain every node that this one replaced, outermost first."""
    named = stood_for(node) if is_made(node) else ()
    places = [known.get(name, ()) for name in (*named, *equals(node))]
    if not is_made(node):
        places.append(paths(node) or known.get(label(node), ()))
    together = takewhile(lambda level: len(set(level)) == 1, zip(*places, strict=False))
    return [level[0] for level in together]


def _replace(
    model: ir.Model, regions: Mapping[str, Region], name: str, outline: Outline, definitions: Definitions
) -> list[Marked]:
    made: dict[ir.OperatorIdentifier, Marked] = {}
    for path, found in regions.items():
        if any(node.graph is not model.graph for node in found.nodes):
            raise UsageError(f"what is marked as {path or name} overlaps with another mark", hint="mark each node once")
        region = Region.of(model.graph, found.nodes)  # recompute: its inputs may be results of a call by now
        try:
            definition, read = enclose(region, name, model.opset_imports, _constant)
        except Refused as refused:
            raise UsageError(
                f"{path or 'what is marked'} can't become a function: {refused}",
                hint="fuse for any runtime with --target standard, or mark something else",
            ) from None
        definition = definitions.shared(definition)
        model.functions.setdefault(definition.identifier(), definition)
        call = ir.Node(OWN_DOMAIN, definition.name, read, num_outputs=len(region.outputs), name=outline.fresh(path or name))
        put_in_place(call, region, region.nodes)
        sweep(value for value in region.inputs if not value.uses())  # constants that are embedded in the definition
        first = made.get(definition.identifier(), Marked(definition.name, 0, len(definition), path or "what lies between"))
        made[definition.identifier()] = replace(first, count=first.count + 1)
    return list(made.values())


def _constant(value: ir.Value) -> ir.TensorProtocol | None:
    return None if value.is_graph_input() else ir.convenience.get_const_tensor(value)


def _operator_name(scope: str) -> str:
    """The operator's name: `EncoderLayer` for the modules `encoder.layer.*`."""
    words = re.findall(r"[A-Za-z][A-Za-z0-9]*", scope)
    return "".join(word[0].upper() + word[1:] for word in words) or "Module"
