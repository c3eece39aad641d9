"""The `function` target: one node in our domain, with its definition as a model-local function.

The definition is the match in its canonical form, with the alternatives that matched. Constants written in the pattern and
captured attributes are embedded; every other name is an input. Sites with the same definition share it. Different definitions of
one pattern get a number.

The node of a canonical operator has the inputs and attributes that its page lists, in that order, even if the definition does not
read all of them. So a kernel for the operator can rely on them. Different definitions are overloads of one name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

import onnx_ir as ir

from onnx_subgraph import operators
from onnx_subgraph.emitting.attribute import Lookup, known_before
from onnx_subgraph.emitting.definitions import Definitions
from onnx_subgraph.emitting.dtypes import is_narrower
from onnx_subgraph.emitting.emit import Emitter
from onnx_subgraph.emitting.fit import check_fit
from onnx_subgraph.emitting.fragment import Fragment
from onnx_subgraph.emitting.kernel_layouts import Layouts
from onnx_subgraph.emitting.refused import Refused, Unloadable
from onnx_subgraph.language.names import fresh
from onnx_subgraph.language.operator import CanonicalOperator, Lowering, Raised
from onnx_subgraph.language.requirement import NOTHING, Requirement
from onnx_subgraph.language.term import Block
from onnx_subgraph.matching.match import Match
from onnx_subgraph.model.element_types import named
from onnx_subgraph.operators.names import OWN_DOMAIN
from onnx_subgraph.targets import TARGETS, WRITTEN

Check = Callable[[Fragment], None]
"""Raises Refused where a body is not acceptable."""
_IR_VERSION = 8
"""The IR version that model-local functions need."""
_IR_VERSION_OF_OVERLOADS = 10


def ir_version(functions: Iterable[ir.Function]) -> int:
    """The lowest IR version of a model that carries these definitions."""
    return max((_IR_VERSION_OF_OVERLOADS if function.overload else _IR_VERSION for function in functions), default=0)


def provided_names(match: Match) -> tuple[str, ...]:
    """The matched names that the fused operator provides: those that the pattern's replacements name, or its results.

    A region provides every value that is read outside it.
    """
    pattern = match.pattern
    if pattern.grow is not None:
        return tuple(match.roots)
    block = next((pattern.replace[t] for t in TARGETS if t in pattern.replace), None)
    names = pattern.results if block is None else block.names
    return tuple(n for n in names if n != "_" and n in match.roots)


_NOT_IN_A_BODY = frozenset({("com.microsoft", "EmbedLayerNormalization")})
"""In the body of a function, onnxruntime 1.31 wrongly infers the type of the ids for the results of these operators."""


def not_in_a_body(node: ir.Node) -> str:
    """Why a node can't be in the body of a function; "" where it can.

    onnxruntime 1.31 crashes there on its own operators of the default domain.
    """
    if (node.domain, node.op_type) in _NOT_IN_A_BODY:
        return f"onnxruntime does not load {node.op_type} in the body of a function"
    if not node.domain and not operators.is_standard(node.op_type):
        return f"the body of a function would hold {node.op_type}, which is no operator of the standard"
    return ""


def check_body(nodes: Iterable[ir.Node]) -> None:
    """Refuse nodes that can't be in the body of a function."""
    for node in nodes:
        if reason := not_in_a_body(node):
            raise Unloadable(reason) if node.domain else Refused(reason)


def _check_complete(inner: Fragment) -> None:
    """Refuse a body that lacks a required attribute: the pattern takes any value of it, `Cast(x, to=_)`, and names none."""
    for node in inner.nodes:
        schema = operators.schema(node.op_type, node.domain, inner.opset_imports.get(node.domain))
        for name, attribute in () if schema is None else schema.attributes.items():
            if attribute.required and name not in node.attributes:
                raise Refused(f"the pattern does not give `{name}` of the {node.op_type} in the body of a function")


def call(
    match: Match,
    fragment: Fragment,
    lookup: Lookup,
    definitions: Definitions,
    check_loads: Check,
    check_instead: Check | None = None,
    providers: Sequence[str] = (),
) -> None:
    """Write the fused node into `fragment`, with its definition: an equal one of `definitions`, or a new one.

    check_loads: raises Refused where an operator of a body does not load. It is called where the body may hold operators or types
    that the match does not have.
    check_instead: set where the node is written for our kernel, which also accepts other layouts of the operands. onnxruntime's
    lowering of the operator then becomes the body instead of the definition, unless check_instead raises Refused.
    providers: the names of the execution providers that the lowering must fit.
    Raises Refused where the match has no canonical form.
    """
    names = provided_names(match)
    if not names:
        raise Refused("the match has no named result")
    if match.pattern.raised is not None:
        _call_raised(match, match.pattern.raised, fragment, lookup, definitions, check_loads, check_instead, providers)
        return
    opset_imports = {d: v for d, v in fragment.opset_imports.items() if d != OWN_DOMAIN}
    inner = Fragment(opset_imports, lambda _: None, fold_constants=False)
    precision = _precision(match)
    seen = {span: nodes[-1].outputs[0].dtype for nodes, span in match.visited if nodes}
    emitter = Emitter(inner, match.bindings, match.rest, lookup, lambda n: n in names, match.chosen, seen, precision)
    emitter.block(match.pattern.match)
    check_body(inner.nodes)
    _check_complete(inner)
    if precision is not None:
        inner.infer()
        check_loads(inner)
    results = [_narrowed(emitter, emitter.value_of(n), match.roots[n].dtype) for n in names]
    inputs = [v for v in inner.read if v.uses() or v in results]
    spelled = {v: n for n, v in match.bindings.items() if isinstance(v, ir.Value)}
    formals = {v: spelled.get(inner.read[v], "x") for v in inputs}
    words = f"{match.pattern.summary}\n\n{match.pattern.match}"
    definition = definitions.shared(_define(match.pattern.name, words, inner, formals, results, names))
    fragment.functions.append(definition)
    arguments = [fragment.stand_in(inner.read[v]) for v in inputs]
    values = fragment.node(definition.name, arguments, domain=OWN_DOMAIN, outputs=[True] * len(names))
    fragment.provides.update(zip(names, values, strict=True))


def _call_raised(
    match: Match,
    raised: Raised,
    fragment: Fragment,
    lookup: Lookup,
    definitions: Definitions,
    check_loads: Check,
    check_instead: Check | None,
    providers: Sequence[str],
) -> None:
    """Write what a formula raises to: the pattern's own lines, and the call of the canonical operator with its definition."""
    names, operator = provided_names(match), raised.operator
    called = zip(operator.definition.assignments[-1].names, raised.call.names, strict=True)
    wanted = {name: match.roots[root].dtype for name, root in called if root in match.roots}

    def own(emitter: Emitter) -> tuple[ir.Value, ...]:
        given = {name: emitter.operand(raised.arguments[name]) for name in operator.inputs if name in raised.arguments}
        values = {name: emitter.settled(operand, None) for name, operand in given.items() if operand is not None}
        fragment.infer()
        layouts = Layouts.of(operator, lookup) if check_instead is not None else Layouts()
        given_so = {name: found for name, value in values.items() if (found := layouts.taken(emitter, name, value)) is not None}
        values |= given_so
        fragment.infer()  # the other layout of a value may be a new Reshape
        # New values without producers: the definition must not depend on how its inputs are computed.
        opaque = {name: ir.Value(name=name, type=value.type, shape=value.shape) for name, value in values.items()}
        floats = [v.dtype for v in values.values() if v.dtype is not None and v.dtype.is_floating_point()]
        if check_instead is not None and len(set(floats)) > 1:
            types = " and ".join(sorted({d.name.lower() for d in floats}))
            raise Refused(f"its operands would be {types}, and the kernel of {operator.name} takes those of one type")
        precision = max((*floats, *filter(None, [_precision(match)])), key=lambda d: d.itemsize, default=None)
        opset_imports = {d: v for d, v in fragment.opset_imports.items() if d != OWN_DOMAIN}
        statics = {name: match.bindings.get(operator.prefix + name) for name in (*operator.attributes, *dict(operator.let))}
        results = operator.definition.assignments[-1].names

        def body(block: Block, check: Check, where: Requirement = NOTHING) -> Emitter:
            inner = Fragment(opset_imports, lambda _: None, fold_constants=False)
            known = {**statics, **opaque}
            inside = Emitter(inner, known, {}, lambda n: lookup(operator.prefix + n), lambda n: n in results, precision=precision)
            inside.results.update({name: layouts.undone(inside, name, inner.stand_in(opaque[name])) for name in given_so})
            check_fit(where, inside, providers, is_fallback=False)
            inside.block(block)
            check_body(inner.nodes)
            inner.infer()
            check(inner)
            return inside

        inside = next(_written(body, _instead(operator), check_instead), None) or body(operator.definition, check_loads)
        inner = inside.fragment
        if next(iter(operator.inputs)) in given_so:
            inside.results.update({n: layouts.done(inside, n, inside.value_of(n)) for n in results if n in layouts})
        made = [_narrowed(inside, inside.value_of(n), wanted.get(n) or data_type(statics.get("type"))) for n in results]
        formals = {inner.stand_in(opaque[n]) if n in opaque else ir.Value(): n for n in operator.inputs}
        attributes = _attributes(operator, lookup)
        words = f"{operator.summary}\n\n{operator.definition}"
        function = _define(operator.name, words, inner, formals, made, results, attributes)
        definition = definitions.shared(function, overloads=True)
        fragment.functions.append(definition)
        outputs = fragment.node(
            definition.name,
            [values.get(name) for name in operator.inputs],
            attributes,
            domain=OWN_DOMAIN,
            outputs=[True] * len(results),
            overload=definition.overload,
        )
        if next(iter(operator.inputs)) not in given_so:
            return outputs
        return tuple(layouts.undone(emitter, n, v) if n in layouts else v for n, v in zip(results, outputs, strict=True))

    emitter = Emitter(fragment, match.bindings, match.rest, lookup, lambda n: n in names, own=own)
    emitter.block(Block((*raised.before, raised.call, *raised.after)))
    fragment.provides.update((n, emitter.value_of(n)) for n in names)


def _instead(operator: CanonicalOperator) -> Iterator[Lowering]:
    """The operator's lowerings for onnxruntime."""
    return (one for target in WRITTEN for one in operator.lowerings.get(target, ()))


def _written(
    body: Callable[[Block, Check, Requirement], Emitter], lowerings: Iterable[Lowering], check: Check | None
) -> Iterator[Emitter]:
    """The emitted bodies of the lowerings that fit and pass the check; none without a check."""
    if check is None:
        return
    for lowering in lowerings:
        with suppress(Refused):
            yield body(lowering.block, check, lowering.where)


def _attributes(operator: CanonicalOperator, lookup: Lookup) -> list[ir.Attr]:
    """The attributes of a canonical operator that are present and known before the model runs."""
    known = ((name, known_before(operator.prefix + name, lookup)) for name in operator.attributes)
    return [ir.convenience.convert_attribute(name, value) for name, value in known if value is not None]  # type: ignore[arg-type]


def data_type(name: object) -> ir.DataType | None:
    """The element type of this name in the language; None for anything else."""
    return named(name) if isinstance(name, str) else None


def _precision(match: Match) -> ir.DataType | None:
    """The widest floating dtype of a match with casts; its definition must not compute in a narrower one."""
    if not match.pattern.mixed_precision:
        return None
    dtypes = [o.dtype for n in match.nodes if n.op_type != "Cast" for o in n.outputs]
    floating = [d for d in dtypes if d is not None and d.is_floating_point()]
    return max(floating, key=lambda d: d.itemsize, default=None)


def _narrowed(emitter: Emitter, value: ir.Value, dtype: ir.DataType | None) -> ir.Value:
    precision = emitter.precision
    return emitter.cast(value, dtype) if precision is not None and dtype is not None and is_narrower(dtype, precision) else value


def _define(
    name: str,
    words: str,
    inner: Fragment,
    inputs: Mapping[ir.Value, str],
    results: list[ir.Value],
    names: Sequence[str],
    attributes: Sequence[ir.Attr] = (),
) -> ir.Function:
    """A function definition. name: its name. words: its doc string. inputs, results: its formal values, with their names.

    attributes: those of its node. The function declares them, but its body holds their values as constants.
    """
    for index, result in enumerate(results):
        if result.producer() is None or result in results[:index]:
            results[index] = inner.node("Identity", [result])[0]
    inner.drop_dead(results)
    for constant in inner.constants:
        if constant.uses():
            value = ir.Value(name=constant.name)
            tensor = constant.const_value
            assert tensor is not None
            inner.nodes.insert(0, ir.Node("", "Constant", [], [ir.AttrTensor("value", tensor)], outputs=[value]))
            constant.replace_all_uses_with(value)
    taken: set[str] = set()
    for value, wanted in zip(results, names, strict=True):
        value.name = fresh(wanted, taken)
    for value, wanted in inputs.items():
        value.name = fresh(wanted, taken)
        value.const_value = None
    for node in inner.nodes:
        for output in node.outputs:
            if output.name and output not in results:
                output.name = fresh(f"{node.op_type.lower()}", taken)
    for position, node in enumerate(inner.nodes):
        node.name = f"{node.op_type}_{position}"
    for value in (*inputs, *(o for n in inner.nodes for o in n.outputs)):
        value.type = value.shape = None  # a definition is valid for every shape
    domains = {n.domain for n in inner.nodes} | {""}
    graph = ir.Graph(
        list(inputs), results, nodes=inner.nodes, opset_imports={d: inner.opset_imports.get(d, 1) for d in sorted(domains)}
    )
    declared = [ir.Attr(a.name, a.type, None) for a in attributes]
    function = ir.Function(OWN_DOMAIN, name, graph=graph, attributes=declared)
    function.doc_string = words
    return function
