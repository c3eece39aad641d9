"""Commit a plan: the one door through which a graph is changed.

A plan was checked before, so a commit never fails. It places the new constants and nodes, gives them names and metadata, lets
every reader of an old result read the new one, and removes the matched nodes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress

import onnx_ir as ir

from onnx_subgraph.emitting.assembled import assembled
from onnx_subgraph.emitting.function import ir_version
from onnx_subgraph.emitting.known import SMALL_BYTES
from onnx_subgraph.matching.match import Match
from onnx_subgraph.matching.origin import REPLACES, label, stood_for
from onnx_subgraph.model.attributes import SINGLE
from onnx_subgraph.model.nested import graph_of
from onnx_subgraph.model.surgery import INITIALIZERS_ALONE, detached, remove_all
from onnx_subgraph.operators.names import operator_of
from onnx_subgraph.regions.ground import PATTERN
from onnx_subgraph.rewriting.liveness import Redirect
from onnx_subgraph.rewriting.outline import Outline, shared_path
from onnx_subgraph.rewriting.plan import Plan, root_name
from onnx_subgraph.rewriting.rewrite import Place, Rewrite

Replaced = Mapping[ir.Value, ir.Value]
"""Value of the graph → the value that replaces it."""


def commit(planned: Plan, outline: Outline, renewed: dict[ir.Value, ir.Value]) -> tuple[Rewrite, list[ir.Node]]:
    """Change the graph. Returns the rewrite and the nodes that it added; `renewed` gets each old result and its new value."""
    fragment, match = planned.fragment, planned.match
    place, root = place_of(match, outline), root_name(match)
    gone = outline.in_order(planned.removed)
    names = list(dict.fromkeys(label(n) for n in gone if n.op_type != "Constant"))
    placed, replaced = _place_constants(planned, outline)
    identities, replaced = _identities_for_outputs(planned, replaced)
    nodes = [*placed, *fragment.nodes, *identities]
    head = planned.head
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
        op=planned.op,
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


def place_of(match: Match, outline: Outline) -> Place:
    """The key of a match; it is the same before and after other commits."""
    graph = graph_of(match.graph)
    return Place(match.pattern.id, outline.scope(graph), tuple(str(v.name) for v in match.roots.values()))


_SIZES = {"nonempty": 0, "nonempty-images": 1}
"""Assumptions about sizes: the first axis that each is about. The batch of images may be 0."""
_ONE_PASS = frozenset(("GroupNormalization", "com.microsoft.GroupNorm", "com.microsoft.SkipGroupNorm"))
"""Operators whose variance loses its digits where the mean is much larger; onnxruntime's kernels for CUDA compute it so, too."""
_TINY = 1e-20
"""An epsilon below this stands for the bound of a norm, or for none."""


def _assumed(match: Match, nodes: Sequence[ir.Node]) -> frozenset[str]:
    """What the replacement assumes of the data. Only a free dimension can be 0. A tiny epsilon changes small norms."""
    shapes = [value.shape for value in match.bindings.values() if isinstance(value, ir.Value)]
    fixed = (all(s is not None and all(isinstance(n, int) for n in s[first:]) for s in shapes) for first in _SIZES.values())
    assumed = match.pattern.assumes - set(compress(_SIZES, fixed))
    if _divides(nodes) and not _divides(match.nodes):
        assumed |= {"nonzero"}
    return assumed | {"centred"} if _subtracts(nodes) and not _subtracts(match.nodes) else assumed


def _divides(nodes: Iterable[ir.Node]) -> bool:
    """Whether one of the nodes divides by a norm or a deviation that may be next to nothing."""
    return any(node.attributes.get_float("epsilon", 1.0) < _TINY for node in nodes)


def _subtracts(nodes: Iterable[ir.Node]) -> bool:
    """Whether one of the nodes computes a variance as E[x²] - E[x]²: the standard defines its GroupNormalization so."""
    return any(operator_of(node) in _ONE_PASS for node in nodes)


def _place_constants(planned: Plan, outline: Outline) -> tuple[list[ir.Node], Replaced]:
    """Add every new constant to the model: as an initializer of the main graph, or inside a function as a Constant node.

    Returns the Constant nodes and the updated replacements.
    """
    as_nodes = isinstance(outline.root(planned.graph), ir.Function) or outline.model.ir_version < INITIALIZERS_ALONE
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
    replaced = dict.fromkeys(name for n in outline.in_order(planned.removed) for name in stood_for(n))
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
                foreign = planned.fragment.foreign
                dims = (ir.SymbolicDim(None) if foreign(d) or "anonymous_" in str(d) else d for d in output.shape)
                output.shape = ir.Shape(dims)


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
    outline.place_at(planned.before, (*come, planned.before))


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


def _scalars(node: ir.Node) -> tuple[tuple[str, int | float | str], ...]:
    found = sorted(node.attributes.items())
    return tuple((name, attribute.value) for name, attribute in found if not attribute.is_ref() and attribute.type in SINGLE)
