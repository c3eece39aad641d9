"""Apply matches to the graph: choose which ones, order them, and commit the changes.

Order: the user's patterns before built-in ones, then larger matches first, then the pattern's order, then the position in the
graph. So the same input gives the same output. Each match is planned just before its commit, against the graph that the earlier
commits left. A match that loses nodes to another one may be found again in the next round. If it is of a user's pattern, it is
also reported as skipped.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress

import onnx_ir as ir

from onnx_subgraph.language.library import is_built_in
from onnx_subgraph.matching.equalities import REARRANGING
from onnx_subgraph.matching.match import Binding, Match
from onnx_subgraph.matching.origin import REPLACES, label, stood_for
from onnx_subgraph.model.attributes import SINGLE
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.nested import graph_of, operands
from onnx_subgraph.model.surgery import detached, remove_all
from onnx_subgraph.operators.names import operator_of
from onnx_subgraph.regions.ground import PATTERN
from onnx_subgraph.rewriting.assembled import assembled
from onnx_subgraph.rewriting.costs import Costs, is_fused
from onnx_subgraph.rewriting.cse import eliminate_common
from onnx_subgraph.rewriting.cutting import Cutting, between, cut
from onnx_subgraph.rewriting.excerpt import Excerpt, excerpt
from onnx_subgraph.rewriting.function import ir_version
from onnx_subgraph.rewriting.known import SMALL_BYTES
from onnx_subgraph.rewriting.lines import matched_lines
from onnx_subgraph.rewriting.liveness import Redirect
from onnx_subgraph.rewriting.loadability import Loadability
from onnx_subgraph.rewriting.outcomes import Outcomes
from onnx_subgraph.rewriting.outline import Outline, shared_path
from onnx_subgraph.rewriting.plan import Plan, plan, root_name
from onnx_subgraph.rewriting.read_values import equal_values, uniform_values
from onnx_subgraph.rewriting.replacement import Site
from onnx_subgraph.rewriting.rewrite import Place, Rewrite, Skip, taken

_REARRANGING = REARRANGING | {"Identity", "Split", "Expand", "Cast", "Shape", "Gather", "Concat"}

Admits = Callable[[Place], bool]
Replaced = Mapping[ir.Value, ir.Value]
"""Value of the graph → the value that replaces it."""
Record = Callable[[Cutting], None]


def apply(
    model: ir.Model,
    matches: Iterable[Match],
    *,
    target: str,
    loadability: Sequence[Loadability],
    constants: Constants,
    excerpts: bool = False,
    admits: Admits = lambda _: True,
    record: Record | None = None,
    costs: Costs | None = None,
    outcomes: Outcomes | None = None,
) -> tuple[tuple[Rewrite, ...], tuple[Skip, ...]]:
    """Replace as many of `matches` as do not overlap and pass every check. Changes `model` in place.

    target: "onnxruntime", "standard" or "function". loadability: one for each provider that must load the result.
    constants: the constants of `model`. excerpts: whether each rewrite records excerpts of what it removed and added.
    admits: whether a place may be changed. record: is called with the cutting of each rewrite.
    costs: what replacements cost on these providers; None replaces regardless of cost. outcomes: those of earlier calls for this
    model with the same target, loadability and costs. Never raises for a valid match: a match that can't be replaced leaves the
    graph unchanged and gives a `Skip` with the reason.
    """
    outline = Outline(model)
    site = Site(outline, constants, loadability, costs, outcomes or Outcomes())
    rewrites: list[Rewrite] = []
    skips: list[Skip] = []
    refused: set[tuple[str, frozenset[ir.Node]]] = set()
    taken_by: dict[ir.Node, str] = {}
    renewed: dict[ir.Value, ir.Value] = {}
    for match in _in_order(model, matches, outline):
        current = _current(match, renewed)
        if current is None and not match.part and not is_built_in(match.pattern.file):
            skips += _taken(match, taken_by)
        if current is None or not admits(_place_of(current, outline)):
            continue
        moved = _without_duplicates(current, outline)
        planned = plan(current, target, site)
        if isinstance(planned, Skip):
            for user, index, value in moved:
                user.replace_input_with(index, value)
            place = (match.pattern.id, frozenset(match.nodes))  # commuted operands can give several matches of the same nodes
            skips += () if match.part or place in refused else (planned,)
            refused.add(place)
        else:
            skips += planned.remarks
            rewrites.append(_recorded(planned, site, renewed, excerpts, record))
            taken_by |= dict.fromkeys(planned.removed, match.pattern.id)
    if rewrites:
        eliminate_common(outline, constants, PATTERN, fused=frozenset(r.node for r in rewrites))
    return tuple(rewrites), tuple(skips)


def _in_order(model: ir.Model, matches: Iterable[Match], outline: Outline) -> list[Match]:
    graphs = {graph: index for index, graph in enumerate(outline.graphs)}

    def key(match: Match) -> tuple[bool, int, int, int, float]:
        graph = graph_of(match.graph)
        root = max(outline.position[n] for n in match.nodes)
        size = sum(n.op_type != "Identity" for n in match.nodes)
        return is_built_in(match.pattern.file), -size, match.pattern.order, graphs[graph], root

    return sorted(matches, key=key)


def _taken(match: Match, taken_by: Mapping[ir.Node, str]) -> list[Skip]:
    """The skip of a match that lost nodes to other patterns; empty where it lost them to its own pattern, or lost none."""
    winners = dict.fromkeys(taken_by[node] for node in match.nodes if node in taken_by)
    if not winners or match.pattern.id in winners:
        return []
    return [taken(match.pattern.id, root_name(match), winners)]


def _current(match: Match, renewed: Mapping[ir.Value, ir.Value]) -> Match | None:
    """The match, with its bindings in the current graph; None where another rewrite removed a part of it."""
    if any(n.graph is None for n in match.nodes):
        return None
    bindings: dict[str, Binding] = {}
    for name, binding in match.bindings.items():
        if type(binding) is ir.Value:
            while binding in renewed:
                binding = renewed[binding]
            producer = binding.producer()
            if producer is not None and producer.graph is None:
                return None
        bindings[name] = binding
    return dataclasses.replace(match, bindings=bindings)


def _without_duplicates(match: Match, outline: Outline) -> list[tuple[ir.Node, int, ir.Value]]:
    """Let the readers of a duplicate computation read the match's result. To undo: returns (reader, input index, old value)."""
    moved: list[tuple[ir.Node, int, ir.Value]] = []
    for double, result in match.doubles.items():
        producer, source = double.producer(), result.producer()
        if producer is None or producer.graph is None or source is None or result not in match.roots.values():
            continue
        if all(outline.position[user] > outline.position[source] for user, _ in double.uses() if user.graph is source.graph):
            moved += [(user, index, double) for user, index in double.uses()]
    for user, index, double in moved:
        user.replace_input_with(index, match.doubles[double])
    return moved


def _place_of(match: Match, outline: Outline) -> Place:
    graph = graph_of(match.graph)
    return Place(match.pattern.id, outline.scope(graph), tuple(str(v.name) for v in match.roots.values()))


def _recorded(planned: Plan, site: Site, renewed: dict[ir.Value, ir.Value], excerpts: bool, record: Record | None) -> Rewrite:
    """Commit the plan and return its rewrite. Excerpts and cuttings need the graph both before and after the commit."""
    old = tuple(planned.replaced)
    names = [str(value.name) for value in old]
    gone = _by_position(planned.removed, site.outline)
    drawn, lines = (_excerpt(gone, site), matched_lines(planned.match, gone)) if excerpts else (None, ())
    equal = _equal(planned, site) if record is not None else {}
    ways = _connecting_nodes(planned, site) if record is not None else ([], [])
    removed = _by_position((*ways[0], *planned.removed), site.outline)
    before = _cut(removed, old, planned, site, equal) if record is not None else None
    alike = {str(value.name): str(other.name) for value, other in equal.items()}
    uniform = {} if before is None else uniform_values(before, removed, site.constants)
    rewrite, nodes = _commit(planned, site.outline, renewed)
    if excerpts:
        rewrite = dataclasses.replace(rewrite, before=drawn, after=_excerpt(nodes, site), lines=lines)
    if record is not None and before is not None:
        new = [renewed[value] for value in old]
        after = _cut([*ways[1], *nodes], new, planned, site, equal)
        results = tuple(zip(names, (str(value.name) for value in new), strict=True))
        record(Cutting(rewrite, before, after, results, alike, uniform))
    return rewrite


def _commit(planned: Plan, outline: Outline, renewed: dict[ir.Value, ir.Value]) -> tuple[Rewrite, list[ir.Node]]:
    """Change the graph. Returns the rewrite and the nodes that it added."""
    fragment, match = planned.fragment, planned.match
    place, root = _place_of(match, outline), root_name(match)
    gone = sorted(planned.removed, key=lambda n: outline.position[n])
    names = list(dict.fromkeys(label(n) for n in gone if n.op_type != "Constant"))
    placed, replaced = _place_constants(planned, outline)
    identities, replaced = _identities_for_outputs(planned, replaced)
    nodes = [*placed, *fragment.nodes, *identities]
    head = _head(planned, fragment.nodes)
    _describe(planned, nodes, outline)
    for stand_in, value in fragment.read.items():
        stand_in.replace_all_uses_with(value)
    _insert(planned, nodes, outline)
    for redirect in planned.redirects:
        _redirect(redirect, planned, replaced, outline)
    made = {o for n in nodes for o in n.outputs}
    for old, value in replaced.items():
        new = fragment.read.get(value, value)
        if new in made:
            _take_place(new, old)
            made.remove(new)
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        renewed[old] = new
    _import(planned, outline, nodes)
    remove_all(planned.removed)
    rewrite = Rewrite(
        pattern=match.pattern.id,
        op=operator_of(head) if head else "",
        node=head.name or "" if head else "",
        replaces=tuple(names),
        added=sum(n.op_type != "Constant" for n in nodes),
        assumes=_assumed(match, nodes),
        body=head is not None and head.op_identifier() in outline.model.functions,
        attributes=_scalars(head) if head is not None else (),
        root=root,
        place=place,
        lowering=planned.lowering,
    )
    return rewrite, nodes


_SIZES = {"nonempty": 0, "nonempty-images": 1}
"""Assumptions about sizes: the first axis that each is about. The batch of images may be 0."""


def _assumed(match: Match, nodes: Sequence[ir.Node]) -> frozenset[str]:
    """What the replacement assumes of the data. Only a free dimension can be 0. Without an epsilon, a variance must not be 0."""
    shapes = [value.shape for value in match.bindings.values() if isinstance(value, ir.Value)]
    fixed = (all(s is not None and all(isinstance(n, int) for n in s[first:]) for s in shapes) for first in _SIZES.values())
    assumed = match.pattern.assumes - set(compress(_SIZES, fixed))
    divides = any(node.attributes.get_float("epsilon", 1.0) == 0.0 for node in nodes)
    return assumed | {"nonzero"} if divides else assumed


def _excerpt(nodes: Sequence[ir.Node], site: Site) -> Excerpt:
    return excerpt(nodes, site.constants.tensor, lambda node: PATTERN in node.metadata_props)


def _cut(
    nodes: Iterable[ir.Node], results: Sequence[ir.Value], planned: Plan, site: Site, equal: Mapping[ir.Value, ir.Value]
) -> ir.Model:
    def constant_of(value: ir.Value) -> ir.TensorProtocol | None:
        return value.const_value if value.is_initializer() and not value.is_graph_input() else site.constants.tensor(value)

    return cut(nodes, results, planned.graph, site.outline, constant_of, equal)


def _connecting_nodes(planned: Plan, site: Site) -> tuple[list[ir.Node], list[ir.Node]]:
    """The nodes that lead from the new operands to the old ones, and those from the old to the new.

    The replacement may read another form of a value than the match read, for example before a Transpose.
    """
    made = {output for node in planned.removed for output in node.outputs}
    old = {v for node in planned.removed for v in operands(node) if v not in made and site.constants.tensor(v) is None}
    new = {v for v in planned.fragment.read.values() if v not in made and site.constants.tensor(v) is None}
    graph = planned.removed[0].graph
    assert isinstance(graph, ir.Graph)
    forth = between(new, old, graph, site.constants.tensor)
    read = old | {v for node in forth for v in operands(node) if v in new}  # what the replaced nodes read, or what leads there
    back = between(read, new, graph, site.constants.tensor)
    return [n for n in forth if n not in planned.removed], _by_position(back, site.outline)


def _equal(planned: Plan, site: Site) -> dict[ir.Value, ir.Value]:
    """The values that the rewrite removes or reads → an earlier value that always equals it."""
    made = [output for node in planned.removed for output in node.outputs]
    read = [value for node in planned.removed for value in operands(node)]
    return equal_values((*made, *read, *planned.fragment.read.values()), planned.graph, site.outline, site.constants)


def _scalars(node: ir.Node) -> tuple[tuple[str, int | float | str], ...]:
    found = sorted(node.attributes.items())
    return tuple((name, attribute.value) for name, attribute in found if not attribute.is_ref() and attribute.type in SINGLE)


def _place_constants(planned: Plan, outline: Outline) -> tuple[list[ir.Node], Replaced]:
    """Add every new constant to the model: as an initializer of the main graph, or inside a function as a Constant node.

    Returns the Constant nodes and the updated replacements.
    """
    # Before IR version 4 an initializer must also be a graph input, and a rewrite adds no inputs.
    as_nodes = isinstance(outline.root(planned.graph), ir.Function) or outline.model.ir_version < 4
    nodes: list[ir.Node] = []
    homes: dict[ir.Value, ir.Value] = {}
    for constant in planned.fragment.constants:
        tensor = constant.const_value
        assert tensor is not None
        if as_nodes:
            value = ir.Value(type=constant.type, shape=constant.shape)
            nodes.append(ir.Node("", "Constant", [], [ir.AttrTensor("value", tensor)], outputs=[value]))
        else:
            small = not isinstance(tensor, ir.LazyTensor) and tensor.nbytes <= SMALL_BYTES
            shared = outline.shared_constant(tensor) if small else None
            value = shared or constant
            if shared is None:
                value.name = tensor.name = outline.fresh(f"{planned.match.pattern.id}_constant")
                outline.model.graph.register_initializer(value)
                outline.remember_constant(value)
        if value is not constant:
            constant.replace_all_uses_with(value)
            homes[constant] = value
    return nodes, {old: homes.get(new, new) for old, new in planned.replaced.items()}


def _identities_for_outputs(planned: Plan, replaced: Replaced) -> tuple[list[ir.Node], Replaced]:
    """Make an Identity for each graph output whose new value is not made by the fragment, or already stands for another output.

    Returns these nodes and the updated replacements.
    """
    nodes: list[ir.Node] = []
    taken: set[ir.Value] = set()
    made = {o for n in planned.fragment.nodes for o in n.outputs}
    own: dict[ir.Value, ir.Value] = {}
    for old, new in replaced.items():
        if old.is_graph_output() and (new not in made or new in taken):
            output = ir.Value()
            nodes.append(ir.Node("", "Identity", [new], outputs=[output]))
            own[old] = output
        taken.add(new)
    return nodes, {**replaced, **own}


def _describe(planned: Plan, nodes: Sequence[ir.Node], outline: Outline) -> None:
    """Set names and metadata of the new nodes and their results."""
    replaced = dict.fromkeys(name for n in _by_position(planned.removed, outline) for name in stood_for(n))
    place = shared_path(replaced)
    for node in nodes:
        node.name = outline.fresh(f"{place}{node.op_type}")
        if node.op_type != "Constant":
            node.metadata_props[PATTERN] = planned.match.pattern.id
            node.metadata_props[REPLACES] = json.dumps(list(replaced), ensure_ascii=False)
        for index, output in enumerate(node.outputs):
            if output.name == "":
                continue
            output.name = outline.fresh(f"{node.name}_output_{index}")
            if output.shape is not None:
                output.shape = ir.Shape(ir.SymbolicDim(None) if planned.fragment.foreign(d) else d for d in output.shape)
                output.shape = _without_anonymous(output.shape)


def _without_anonymous(shape: ir.Shape) -> ir.Shape:
    dims = (d if isinstance(d, int) or "anonymous_" not in (d.value or "") else ir.SymbolicDim(None) for d in shape)
    return ir.Shape(dims)


def _insert(planned: Plan, nodes: Sequence[ir.Node], outline: Outline) -> None:
    graph, position = planned.graph, outline.position
    if planned.before is None:
        last = max(planned.match.nodes, key=lambda n: position[n])
        graph.insert_after(last, nodes)
        outline.place_at(last, nodes)
        return
    graph.remove(planned.moved)
    come = [*planned.moved, *nodes]
    graph.insert_before(planned.before, come)
    outline.place_before(planned.before, come)


def _take_place(new: ir.Value, old: ir.Value) -> None:
    """Give a new value the name, type, shape and metadata of the old one."""
    new.name, old.name = old.name, None
    new.type, new.shape = old.type or new.type, old.shape if old.shape is not None else new.shape
    new.doc_string = old.doc_string
    new.metadata_props.update(old.metadata_props)
    new.meta.update(old.meta)


def _redirect(redirect: Redirect, planned: Plan, replaced: Replaced, outline: Outline) -> None:
    """Let a reader of an inner value's shape get that shape from values that stay in the graph."""
    reader = redirect.reader
    if redirect.value is not None:
        value = replaced.get(redirect.value, redirect.value)
        reader.replace_input_with(redirect.index, planned.fragment.read.get(value, value))
        return
    nodes = assembled(redirect.dims, outline.root(planned.graph).opset_imports.get("", 1))
    result, old = nodes[-1].outputs[0], reader.outputs[0]
    for node in nodes:
        node.name = outline.fresh(node.op_type)
        node.outputs[0].name = outline.fresh(f"{node.name}_output_0")
    home = reader.graph
    assert home is not None
    home.insert_before(reader, nodes)
    outline.place_at(reader, nodes)
    result.type, result.shape = old.type, old.shape
    old.replace_all_uses_with(result)
    detached(reader)


def _import(planned: Plan, outline: Outline, nodes: Sequence[ir.Node]) -> None:
    model = outline.model
    imports = outline.root(planned.graph).opset_imports
    for definition in planned.fragment.functions:
        model.functions.setdefault(definition.identifier(), definition)
        for domain in definition.opset_imports:
            if domain:
                model.opset_imports.setdefault(domain, 1)
    model.ir_version = max(model.ir_version, ir_version(planned.fragment.functions))
    for domain in sorted({n.domain for n in nodes}):
        if domain:
            imports.setdefault(domain, planned.fragment.opset_imports.get(domain, 1))
            model.opset_imports.setdefault(domain, planned.fragment.opset_imports.get(domain, 1))


def _by_position(nodes: Iterable[ir.Node], outline: Outline) -> list[ir.Node]:
    return sorted(nodes, key=lambda n: outline.position[n])


def _head(planned: Plan, nodes: Sequence[ir.Node]) -> ir.Node | None:
    """The main node of a replacement: the last fused operator, else the last that does more than rearrange data."""
    named = [n for n in reversed(nodes) if is_fused(n)] or [n for n in reversed(nodes) if n.op_type not in _REARRANGING]
    return next(iter([*named, *reversed(nodes)]), None)
