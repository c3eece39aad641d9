"""The `function` target: one node of our own domain, and the definition that the model carries for it.

The definition is the match in its canonical spelling, with the alternatives that matched. Constants written in the pattern and
captured attributes are baked in; every other name is an input. Sites with the same definition share it; another one of the same
pattern gets a number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import onnx_ir as ir

from onnx_subgraph import operators
from onnx_subgraph.language.pattern import TARGETS
from onnx_subgraph.matching.match import Match
from onnx_subgraph.rewriting.attribute import Lookup
from onnx_subgraph.rewriting.definitions import DOMAIN, Definitions
from onnx_subgraph.rewriting.emit import Emitter, is_narrower
from onnx_subgraph.rewriting.fragment import Fragment, Refused

IR_VERSION = 8
"""The IR version that model-local functions need."""


def provided_names(match: Match) -> tuple[str, ...]:
    """The matched names that the fused operator provides: those that the pattern's replacements name, or the last line's.

    A region provides all that others read.
    """
    pattern = match.pattern
    if pattern.grow is not None:
        return tuple(match.roots)
    block = next((pattern.replace[t] for t in TARGETS if t in pattern.replace), None)
    names = pattern.match.assignments[-1].names if block is None else block.names
    return tuple(n for n in names if n != "_" and n in match.roots)


_NOT_IN_A_BODY = frozenset({("com.microsoft", "EmbedLayerNormalization")})
"""Whose results onnxruntime 1.31 gives the type of the ids when it infers the body of a function."""


def check_body(nodes: Iterable[ir.Node]) -> None:
    """Refuse what can't stand in a function: onnxruntime 1.31 crashes on its own operators of the default domain there."""
    for node in nodes:
        if (node.domain, node.op_type) in _NOT_IN_A_BODY:
            raise Refused(f"onnxruntime does not load {node.op_type} in the body of a function")
        if not node.domain and not operators.is_standard(node.op_type):
            raise Refused(f"the body of a function would hold {node.op_type}, which is no operator of the standard")


def call(
    match: Match,
    fragment: Fragment,
    lookup: Lookup,
    definitions: Definitions,
    check_loads: Callable[[Fragment], None],
) -> None:
    """Write the fused node into `fragment`, with its definition: the one of `definitions` that is equal, or a new one.

    check_loads: raises Refused where an operator of a body does not load; asked where the body computes in another precision
    than the match. Raises Refused where the match has no canonical spelling.
    """
    names = provided_names(match)
    if not names:
        raise Refused("the match has no named result")
    opset_imports = {d: v for d, v in fragment.opset_imports.items() if d != DOMAIN}
    inner = Fragment(opset_imports, lambda _: None, fold_constants=False)
    precision = _precision(match)
    emitter = Emitter(inner, match.bindings, match.rest, lookup, lambda n: n in names, match.chosen, precision)
    emitter.block(match.pattern.match)
    check_body(inner.nodes)
    if precision is not None:
        inner.infer()
        check_loads(inner)
    results = [_narrowed(emitter, emitter.value_of(n), match.roots[n].dtype) for n in names]
    inputs = [v for v in inner.read if v.uses() or v in results]
    definition = _define(match, inner, inputs, results, names)
    definition = definitions.shared(definition, match.pattern.name)
    fragment.functions.append(definition)
    arguments = [fragment.stand_in(inner.read[v]) for v in inputs]
    values = fragment.node(definition.name, arguments, domain=DOMAIN, outputs=[True] * len(names))
    fragment.provides.update(zip(names, values, strict=True))


def _precision(match: Match) -> ir.DataType | None:
    """The widest floating dtype that a match through casts computes in: its definition must not have a narrower one."""
    if not match.pattern.mixed_precision:
        return None
    dtypes = [o.dtype for n in match.nodes if n.op_type != "Cast" for o in n.outputs]
    floating = [d for d in dtypes if d is not None and d.is_floating_point()]
    return max(floating, key=lambda d: d.itemsize, default=None)


def _narrowed(emitter: Emitter, value: ir.Value, dtype: ir.DataType | None) -> ir.Value:
    precision = emitter.precision
    return emitter.cast(value, dtype) if precision is not None and dtype is not None and is_narrower(dtype, precision) else value


def _define(
    match: Match, inner: Fragment, inputs: Sequence[ir.Value], results: list[ir.Value], names: Sequence[str]
) -> ir.Function:
    for index, result in enumerate(results):
        if result.producer() is None or result in results[:index]:
            results[index] = inner.node("Identity", [result])[0]
    for constant in inner.constants:
        if constant.uses():
            value = ir.Value(name=constant.name)
            tensor = constant.const_value
            assert tensor is not None
            inner.nodes.insert(0, ir.Node("", "Constant", [], [ir.AttrTensor("value", tensor)], outputs=[value]))
            for user, index in tuple(constant.uses()):
                user.replace_input_with(index, value)
    spelled = {v: n for n, v in match.bindings.items() if isinstance(v, ir.Value)}
    taken: set[str] = set()
    for value, name in zip(results, names, strict=True):
        value.name = _free(name, taken)
    for value in inputs:
        value.name = _free(spelled.get(inner.read[value], "x"), taken)
        value.const_value = None
    for node in inner.nodes:
        for output in node.outputs:
            if output.name and output not in results:
                output.name = _free(f"{node.op_type.lower()}", taken)
    for position, node in enumerate(inner.nodes):
        node.name = f"{node.op_type}_{position}"
    for value in (*inputs, *(o for n in inner.nodes for o in n.outputs)):
        value.type = value.shape = None  # a definition serves every shape
    domains = {n.domain for n in inner.nodes} | {""}
    graph = ir.Graph(
        inputs, results, nodes=inner.nodes, opset_imports={d: inner.opset_imports.get(d, 1) for d in sorted(domains)}
    )
    function = ir.Function(DOMAIN, match.pattern.name, graph=graph, attributes=())
    function.doc_string = f"{match.pattern.summary}\n\n{match.pattern.match}"
    return function


def _free(stem: str, taken: set[str]) -> str:
    name, number = stem, 1
    while name in taken:
        number += 1
        name = f"{stem}_{number}"
    taken.add(name)
    return name
