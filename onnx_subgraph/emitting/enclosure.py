"""Replace a region by one node: a call of a function that holds it, an engine, or the node that a Python selector builds.

The definition contains the nodes of the region, in an order determined by its outputs. Its names come from its operators. So
equal regions share one definition. Scalars and small integer constants such as axes are embedded in it; all else is an input.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_subgraph import operators
from onnx_subgraph.emitting.attribute import attributes_of
from onnx_subgraph.emitting.definitions import Definitions
from onnx_subgraph.emitting.fragment import ConstantOf, Fragment
from onnx_subgraph.emitting.function import not_in_a_body
from onnx_subgraph.emitting.refused import Refused
from onnx_subgraph.errors import as_raised
from onnx_subgraph.language.pattern import OfNode, Pattern
from onnx_subgraph.matching.match import Match
from onnx_subgraph.matching.origin import REPLACES
from onnx_subgraph.model.local_functions import OWN
from onnx_subgraph.model.nested import bodies, graph_of, reads
from onnx_subgraph.operators.names import OWN_DOMAIN
from onnx_subgraph.regions.region import Region
from onnx_subgraph.regions.selector import Builder, NewNode, Review, Reviewer

MOST_BAKED = 1 << 10
"""Integer constants of up to this many bytes are embedded in the definition: they are axes, a shape or the like."""


def call(match: Match, fragment: Fragment, needed: Collection[str], definitions: Definitions) -> None:
    """Write the node that replaces a region into `fragment`. Raises Refused where it can't be built, or a review refuses it."""
    graph = graph_of(match.graph)
    names = [name for name in match.roots if name in needed]
    outputs = tuple(match.roots[name] for name in names)
    region = Region(graph, match.nodes, Region.of(graph, match.nodes).inputs, outputs)
    built = None
    if isinstance(match.selector, Builder):
        with _user_code(match.selector):
            built = match.selector.build(region)
    if built is not None:
        with _user_code(match.selector):
            values = _write(built, fragment, outputs)
    else:
        constant_of = fragment.constant_of if _is_ours(match.pattern) else _nothing_known
        definition, read = enclose(region, match.pattern.name, fragment.opset_imports, constant_of)
        definition.doc_string = match.pattern.summary
        named = _named(match.pattern, definition, region, fragment.opset_imports)
        with _user_code(match.selector):
            review = match.selector.review(region, definition) if isinstance(match.selector, Reviewer) else None
            attributes = attributes_of({**named, **_reviewed(review)})
        for attribute in attributes:
            definition.attributes[attribute.name] = ir.Attr(attribute.name, ir.AttributeType.UNDEFINED, None)
        definition = definitions.shared(definition, overloads=definition.domain != OWN_DOMAIN)
        fragment.functions.append(definition)
        arguments = [fragment.stand_in(v) for v in read]
        values = fragment.node(
            definition.name,
            arguments,
            attributes,
            domain=definition.domain,
            outputs=[True] * len(outputs),
            overload=definition.overload,
        )
        if review is not None:
            fragment.nodes[-1].metadata_props.update(review.metadata)
        for value, old in zip(values, outputs, strict=True):
            value.type, value.shape = old.type, old.shape
    fragment.provides.update(zip(names, values, strict=True))


@contextmanager
def _user_code(selector: object) -> Iterator[None]:
    """Run the code of a user's selector. Raises Refused, with the selector's name, where that code fails."""
    try:
        yield
    except Refused:
        raise
    except Exception as error:
        reason = f"the selector {type(selector).__name__} fails: {as_raised(error)}"
        raise Refused(reason, change="fix its code") from error


def _write(built: NewNode, fragment: Fragment, outputs: Sequence[ir.Value]) -> tuple[ir.Value, ...]:
    arguments = [
        fragment.constant(v) if isinstance(v, np.ndarray) else None if v is None else fragment.stand_in(v) for v in built.inputs
    ]
    return fragment.node(
        built.op_type, arguments, attributes_of(built.attributes), domain=built.domain, outputs=[True] * len(outputs)
    )


def _reviewed(review: Review | None) -> Mapping[str, object]:
    """The attributes that a review gives the node. Raises Refused where the review refuses."""
    if review is None:
        return {}
    if review.refusal:
        raise Refused(review.refusal)
    metadata: dict[Any, Any] = dict(review.metadata)  # the user's code may return anything
    if wrong := [key for key, said in metadata.items() if not isinstance(key, str) or not isinstance(said, str)]:
        raise TypeError(f"the metadata of a review are texts, and {wrong[0]!r} is {metadata[wrong[0]]!r}")
    return review.attributes


def _is_ours(pattern: Pattern) -> bool:
    return pattern.grow is not None and pattern.grow.domain == OWN_DOMAIN


def _nothing_known(value: ir.Value) -> None:
    """Report no constants, so that a user's operator has the same inputs whether or not they are constant in a model."""


def _named(pattern: Pattern, definition: ir.Function, region: Region, opset_imports: Mapping[str, int]) -> dict[str, object]:
    """The attributes that a region's pattern gives its operator. Moves `definition` to the operator's domain."""
    grow = pattern.grow
    assert grow is not None
    if not _is_ours(pattern):
        definition.domain = grow.domain
        definition.metadata_props[OWN] = pattern.id
    found: dict[str, object] = {}
    for name, source in grow.attributes.items():
        value = _of_nodes(source, region, opset_imports) if isinstance(source, OfNode) else source
        if value is not None:
            found[name] = value
    return found


def _of_nodes(source: OfNode, region: Region, opset_imports: Mapping[str, int]) -> object:
    """The attribute's value, or its default, in the region's nodes of an operator; None where it has neither."""
    operator, name = source.operator, source.attribute
    values: dict[object, None] = {}
    for node in region.nodes:
        if (node.domain, node.op_type) != (operator.domain, operator.name):
            continue
        attribute = node.attributes.get(name)
        schema = operators.schema(operator.name, operator.domain, opset_imports.get(operator.domain, 1))
        default = schema.attributes[name].default if schema is not None and name in schema.attributes else None
        value = default if attribute is None else attribute.value
        values[tuple(value) if isinstance(value, list | tuple) else value] = None
    if len(values) > 1:
        raise Refused(f"the region has several {operator} with different {name}", change="keep regions of one of them")
    return next(iter(values), None)


class Enclosed(NamedTuple):
    """A region as a separate graph. Only its inputs and outputs have types.

    arguments: the values of the model that its inputs stand for: computed values, then constants, each in the order of their
    first use. nodes: the nodes of the region in the order of the graph, without the leading Constants. baked: the embedded
    constants; the graph begins with a Constant for each.
    """

    graph: ir.Graph
    arguments: tuple[ir.Value, ...]
    nodes: tuple[ir.Node, ...]
    baked: tuple[ir.Value, ...]


def enclosed(region: Region, opset_imports: Mapping[str, int], constant_of: ConstantOf) -> Enclosed:
    """The region as a graph. Its results are the region's outputs, in their order.

    constant_of: the constant that a value holds, or None. Raises Refused where a definition can't hold one of the nodes.
    """
    nodes = _in_order_of_outputs(region)
    everything = list(_all_nodes(nodes))
    for node in everything:
        if reason := unenclosable(node):
            raise Refused(reason)
    read = Region.of(region.graph, nodes).inputs
    constants = {v: tensor for v in read if (tensor := constant_of(v)) is not None}
    baked = tuple(v for v, tensor in constants.items() if _is_baked(tensor))
    arguments = (*(v for v in read if v not in constants), *(v for v in constants if v not in baked))
    graph = ir.GraphView([*arguments, *baked], region.outputs, nodes=nodes).clone()
    stand_ins = list(graph.inputs)[len(arguments) :]
    del graph.inputs[len(arguments) :]
    made = []
    for stand_in, value in zip(stand_ins, baked, strict=True):
        own = ir.Tensor(constants[value].numpy(), dtype=constants[value].dtype)  # a copy: a tensor is renamed with its value
        made.append(ir.Node("", "Constant", [], [ir.AttrTensor("value", own)]))
        stand_in.replace_all_uses_with(made[-1].outputs[0], replace_graph_outputs=True)
    if made:
        graph.insert_before(graph[0], made)
    _rename(graph)
    graph.opset_imports.clear()
    graph.opset_imports.update({d: opset_imports.get(d, 1) for d in sorted({n.domain for n in everything} | {""})})
    return Enclosed(graph, arguments, tuple(nodes), baked)


def unenclosable(node: ir.Node) -> str:
    """Why a definition can't hold a node; "" where it can."""
    if any(a.is_ref() for a in node.attributes.values()):
        return f"{node.op_type} {node.name or ''} has an attribute of the function that it is in".replace("  ", " ")
    return not_in_a_body(node)


def enclose(
    region: Region, name: str, opset_imports: Mapping[str, int], constant_of: ConstantOf
) -> tuple[ir.Function, tuple[ir.Value, ...]]:
    """A function that computes the region, and the values to call it with. Arguments and errors are those of `enclosed`."""
    made = enclosed(region, opset_imports, constant_of)
    for value in (*made.graph.inputs, *made.graph.outputs):
        value.type = value.shape = None  # the definition is valid for every shape
    return ir.Function(OWN_DOMAIN, name, graph=made.graph, attributes=()), made.arguments


def put_in_place(node: ir.Node, region: Region, replaces: Sequence[ir.Node]) -> None:
    """Replace the region in its graph by `node`. replaces: the nodes of the region, in the order in which to record them."""
    node.metadata_props[REPLACES] = json.dumps([old.name or "" for old in replaces], ensure_ascii=False)
    for inner in (n for old in region.nodes for body in bodies(old) for n in body.all_nodes()):
        inner.resize_inputs(0)  # values captured by a subgraph would keep their producers in use
    ir.convenience.replace_nodes_and_values(region.graph, region.nodes[-1], region.nodes, [node], region.outputs, node.outputs)
    for old, new in zip(region.outputs, node.outputs, strict=True):
        new.metadata_props.update(old.metadata_props)
        new.doc_string = old.doc_string
        new.meta.update(old.meta)


def _in_order_of_outputs(region: Region) -> list[ir.Node]:
    """The nodes in topological order, by depth-first search from the outputs. Equal regions get the same order."""
    inside, done = set(region.nodes), dict[ir.Node, None]()
    ends = (v.producer() for v in region.outputs)
    for end in (*ends, *region.nodes):
        pending = [end]
        while pending:
            node = pending[-1]
            if node is None or node in done:
                pending.pop()
                continue
            sources = [p for v in reads(node) if (p := v.producer()) in inside and p not in done]
            if sources:
                pending += reversed(sources)
            else:
                done[node] = None
                pending.pop()
    return list(done)


def _all_nodes(nodes: Iterable[ir.Node]) -> Iterator[ir.Node]:
    for node in nodes:
        yield node
        for body in bodies(node):
            yield from body.all_nodes()


def _is_baked(tensor: ir.TensorProtocol) -> bool:
    if tensor.dtype == ir.DataType.STRING:
        return False
    return tensor.size == 1 or (tensor.dtype.is_integer() and tensor.nbytes <= MOST_BAKED)


def _rename(graph: ir.Graph) -> None:
    """Name everything by its operator and position. Remove metadata, and types of inner values. Subgraphs keep their names."""
    taken = {v.name for inner in graph.subgraphs() for v in (*inner.inputs, *inner.initializers.values())}
    taken |= {o.name for inner in graph.subgraphs() for node in inner for o in node.outputs}
    number: dict[str, int] = {}

    def fresh(stem: str) -> str:
        while True:
            number[stem] = number.get(stem, 0) + 1
            name = stem if number[stem] == 1 else f"{stem}_{number[stem]}"
            if name not in taken:
                return name

    ends = {*graph.inputs, *graph.outputs}
    for value in (*graph.inputs, *(o for node in graph for o in node.outputs)):
        _forget(value)  # before the renaming: a tensor is renamed together with its value, and it belongs to the model
        if value not in ends:
            value.type = value.shape = None
    for position, value in enumerate(graph.inputs):
        value.name = fresh(f"x{position}")
    for position, value in enumerate(graph.outputs):
        value.name = fresh(f"y{position}")
    outputs = set(graph.outputs)
    for position, node in enumerate(graph):
        node.name = f"{node.op_type}_{position}"
        node.doc_string = None
        node.metadata_props.clear()
        for output in node.outputs:
            if output.name != "" and output not in outputs:
                output.name = fresh(node.op_type.lower())


def _forget(value: ir.Value) -> None:
    value.const_value = value.doc_string = None
    value.metadata_props.clear()
    value.meta.clear()
