"""Check a replacement before it is planned: its results, whether the providers load it, and its cost."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import isnan

import onnx_ir as ir
from numpy import float32

from onnx_subgraph.emitting.copying import copies, copying_nodes, is_of_shapes
from onnx_subgraph.emitting.fragment import Fragment
from onnx_subgraph.emitting.refused import Needless, Refused, Slower, Unloadable
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.matching.match import Match
from onnx_subgraph.model.dimension_names import shown
from onnx_subgraph.model.gaps import DECLARE
from onnx_subgraph.model.shapes import same_dim
from onnx_subgraph.operators.names import KNOWN_DOMAINS, OWN_DOMAIN, operator_of
from onnx_subgraph.rewriting.costs import Cost, Costs, is_fused, main_operator
from onnx_subgraph.rewriting.liveness import orphans
from onnx_subgraph.rewriting.loadability import Loadability, NoKernel, NoSuchOperator, Operand

PROBED_CONSTANT_BYTES = 256
"""Constants up to this size are passed to the loadability probe, because a kernel may require them as initializers."""
_ANONYMOUS = re.compile(r"\b_d\d+\b")
"""The name that shape inference gives an unknown dimension; it also occurs inside a maximum."""
_MULTI_HEAD, _OURS = "com.microsoft.MultiHeadAttention", f"{OWN_DOMAIN}.Attention"
_PREFER = "ask for it all the same: --prefer fusion"


def adopt(match: Match, fragment: Fragment) -> None:
    """Give results the type and shape of the values that they replace, where these are unknown and claimed to be the same.

    The author of a pattern claims this of an unknown custom operator; verification checks it with the library that has it. A
    function whose body is the match itself gives the same shape, but one that it takes as an input is not known in its body.
    """
    is_match = bool(fragment.functions) and match.pattern.raised is None
    for name, new in fragment.provides.items():
        node, old = new.producer(), match.roots[name]
        if node is not None and node.domain not in KNOWN_DOMAINS and node.domain != OWN_DOMAIN:
            new.type = old.type if new.dtype is None else new.type
            new.shape = old.shape if new.shape is None else new.shape
        elif is_match and new.dtype is not None and new.shape is None:
            new.shape = old.shape


def check_result(old: ir.Value, new: ir.Value, fragment: Fragment) -> None:
    """Refuse a result whose dtype or shape differs from the original, or may differ.

    An unknown dimension of the original (also one broadcast with an unknown one) can't be proved equal to any other. It is
    accepted, and left to verification. A known dimension must be provably the same.
    """
    if old.dtype is not None and new.dtype is not None and old.dtype != new.dtype:
        dtype = old.dtype.name.lower()
        reason = f"the result {old.name} would be {new.dtype.name.lower()}, and is {dtype}"
        change = f"let what it reads be {dtype}, or the replacement of the pattern give {dtype}"
        raise Refused(reason, change=change, is_local=True)
    if old.shape is None:
        return
    if new.shape is None:
        raise Refused(
            f"the shape of the result {old.name} can't be shown to be the same: {shown(old.shape)} and unknown",
            change=DECLARE,
            is_local=True,
        )
    if len(old.shape) != len(new.shape):
        reason = f"the result {old.name} would have {len(new.shape)} dimensions, and has {len(old.shape)}"
        raise Refused(reason, change=f"let the replacement of the pattern give {len(old.shape)}", is_local=True)
    dynamic = not all(isinstance(dim, int) for dim in (*old.shape, *new.shape))
    for was, would_be in zip(old.shape, new.shape, strict=True):
        unknown = not isinstance(was, int) and (was.value is None or _ANONYMOUS.search(was.value) is not None)
        if not unknown and (fragment.foreign(would_be) or not same_dim(was, would_be)):
            shapes = f"{shown(old.shape)} and {shown(new.shape)}"
            reason = f"the shape of the result {old.name} can't be shown to be the same: {shapes}"
            raise Refused(reason, change=DECLARE if dynamic else "", is_local=True)


def check_reads(match: Match, fragment: Fragment) -> None:
    """Refuse a replacement that reads an inner value of the match, because that value is removed."""
    inner = {o for n in match.nodes for o in n.outputs}
    for stand_in, value in fragment.read.items():
        if value in inner and stand_in.uses():
            raise Refused(f"the replacement reads the inner value {value.name}, which is removed with the match", is_local=True)


def check_opsets(pattern: Pattern, versions: Mapping[str, int]) -> None:
    """Refuse a model whose opset is older than the pattern's pack requires. versions: domain → opset of the model."""
    for domain, least in pattern.opsets.items():
        has = versions.get(domain, least)
        if has < least:
            which = f"opset {least}" if not domain else f"version {least} of {domain}"
            raise Refused(f"its pack asks for {which}, and the model is of {has}", None if domain else least)


def check_loads(fragment: Fragment, loadability: Sequence[Loadability]) -> None:
    """Refuse an operator that a provider does not load for these operands."""
    carried = {function.identifier() for function in fragment.functions}
    for node in fragment.nodes:
        if node.domain == OWN_DOMAIN:
            continue
        for provider in loadability:
            reason = _load_error(node, provider, fragment, sized=False)
            if isinstance(reason, NoSuchOperator) and node.op_identifier() in carried:
                continue  # no library has this operator; its definition in the model is run
            if reason is not None:  # some kernels need to know sizes, such as that of an embedding
                reason = _load_error(node, provider, fragment, sized=True)
            if reason is not None:
                name = operator_of(node)
                change = "compute in float32, or on a provider that has the kernel" if isinstance(reason, NoKernel) else ""
                if isinstance(reason, NoSuchOperator) and node.domain not in KNOWN_DOMAINS:
                    change = "name the library that has it: --custom-op-library PATH"
                raise Unloadable(f"{provider.provider} does not load {name}: {reason}", change=change)


def _load_error(node: ir.Node, provider: Loadability, fragment: Fragment, *, sized: bool) -> str | None:
    inputs = [None if v is None else _operand(v, node, sized=sized) for v in node.inputs]
    outputs = [Operand(v.dtype or ir.DataType.UNDEFINED) if v.name else None for v in node.outputs]
    version = fragment.opset_imports.get(node.domain, 1)
    return provider.reason(node.op_type, node.domain, version, inputs, outputs, node.attributes.values())


def check_operands(fragment: Fragment, *, has_kernel: bool) -> None:
    """Refuse what an operator would load, and compute differently or not at all.

    has_kernel: whether our operators run as kernels of our library, not as the definitions in the model.
    """
    _check_attributes(fragment)
    for node in fragment.nodes:
        if operator_of(node) in ("Attention", _MULTI_HEAD) or (has_kernel and operator_of(node) == _OURS):
            _check_broadcast(node)


def _check_attributes(fragment: Fragment) -> None:
    """Refuse an attribute that loses digits: ONNX stores it in float32, and the operator computes in float64."""
    for node in fragment.nodes:
        if not any(value is not None and value.dtype == ir.DataType.DOUBLE for value in (*node.inputs, *node.outputs)):
            continue
        for attribute in node.attributes.values():
            rounded = next((x for x in _floats(attribute) if float(float32(x)) != x and not isnan(x)), None)
            if rounded is not None:
                reason = f"{operator_of(node)} keeps {attribute.name} in float32, which is too coarse for {rounded:g} in float64"
                raise Refused(reason, change="compute in float32")


def _floats(attribute: ir.Attr) -> Sequence[float]:
    if attribute.type == ir.AttributeType.FLOAT:
        return (attribute.value,)
    return attribute.value if attribute.type == ir.AttributeType.FLOATS else ()


def _check_broadcast(node: ir.Node) -> None:
    """Refuse an attention whose operands broadcast along the batch or the heads: its kernels can't, unlike the products."""
    shapes = [value.shape for value in node.inputs[:3] if value is not None and value.shape is not None]
    if len(shapes) < 3:
        return
    heads = [shape[1] for shape in shapes[1:] if len(shape) == 4]
    if count := node.attributes.get_int("num_heads" if operator_of(node) == _MULTI_HEAD else "heads", 0):
        query, key, _ = shapes
        size = query[-1] // count if len(query) == 3 and isinstance(query[-1], int) else query[-1]
        if len(key) == 3 and isinstance(key[2], int) and isinstance(size, int) and size:
            heads.append(key[2] // size)  # heads and sizes are one axis
        heads += [count // node.attributes.get_int("repeats", 1)] if heads else []
        heads += [query[1], count] if len(query) == 4 and query[1] != count else []
    for dims, axis in (([shape[0] for shape in shapes], "batch"), (heads, "heads")):
        known = [dim for dim in dims if isinstance(dim, int) or (dim.value is not None and not _ANONYMOUS.search(dim.value))]
        fixed = {dim for dim in known if isinstance(dim, int)}
        if (fixed and any(dim not in fixed for dim in known)) or (1 in fixed and len(fixed) > 1):  # a named size may be 1
            sizes = " and ".join(dict.fromkeys(str(dim) for dim in known))
            raise Refused(f"{operator_of(node)} does not broadcast the {axis}, and its operands have {sizes}")


def check_overloads(fragment: Fragment, root: ir.Graph | ir.Function) -> None:
    """Refuse the call of an overload in the body of a function: onnxruntime 1.32 runs the first definition of the name there."""
    for node in fragment.nodes if isinstance(root, ir.Function) else ():
        if node.overload:
            raise Refused(f"onnxruntime would take another definition of {node.op_type} in the body of a function")


def check_need(match: Match, fragment: Fragment, loadability: Sequence[Loadability]) -> None:
    """Refuse to write one operator of the standard as another one, unless a provider would inline it, or as itself."""
    node, *others = match.nodes
    raised = match.pattern.raised is not None
    if others or node.domain or not (raised or match.is_renamed):
        return
    if any(new.op_identifier() == node.op_identifier() for new in fragment.nodes):
        raise Needless(f"it is {node.op_type} already")
    if raised and not _is_inlined(match, fragment.opset_imports.get("", 1), loadability):
        raise Needless(f"{' and '.join(provider.provider for provider in loadability)} runs {node.op_type} as it is")


def _is_inlined(match: Match, opset: int, loadability: Sequence[Loadability]) -> bool:
    """Whether a match is one operator of the standard for which a provider has no kernel, so that it runs the definition."""
    node, *others = match.nodes
    if others or node.domain or any(value is not None and value.dtype is None for value in node.inputs):
        return False
    inputs = [None if value is None else _operand(value, node) for value in node.inputs]
    return any(provider.inlines(node.op_type, opset, inputs) for provider in loadability)


def check_kernels(match: Match, fragment: Fragment, loadability: Sequence[Loadability]) -> None:
    """Refuse a standard operator that onnxruntime would inline again, unless the match contains the same operator."""
    had = {n.op_type for n in match.nodes if not n.domain}
    for node in fragment.nodes:
        if node.domain or node.op_type in had:
            continue
        inputs = [None if v is None else _operand(v, node) for v in node.inputs]
        for provider in loadability:
            if provider.inlines(node.op_type, fragment.opset_imports.get("", 1), inputs):
                raise inlined(node.op_type, provider)


def check_costs(match: Match, fragment: Fragment, costs: Costs, loadability: Sequence[Loadability]) -> None:
    """Refuse a replacement that was measured slower, and one without a reason to expect that it is faster.

    A fused operator is a reason. So is saving nodes, also those that only the match reads. A replacement that adds a copy, too,
    must be faster wherever it was measured; so must one that saves no node. If costs do not refuse, one that shares no operator
    with the match passes as well. A refusal says how to get the replacement only if that would allow it.
    An operator that would be inlined passes: the graph that was measured has far fewer nodes than its definition.
    """
    if _is_inlined(match, fragment.opset_imports.get("", 1), loadability):
        return
    had = {n.op_identifier() for n in match.nodes}
    computing = [n for n in fragment.nodes if not is_of_shapes(n)]
    saves = len(computing) < len(match.nodes) + orphans(match.nodes, fragment.read.values())
    moves = copying_nodes(computing) > copying_nodes(match.nodes)
    passes = (saves and not moves) or any(is_fused(n) and n.op_identifier() not in had for n in fragment.nodes)
    at_any_cost = passes or had.isdisjoint(n.op_identifier() for n in computing)
    change = _PREFER if costs.refuses and at_any_cost else ""
    found = _check_slower(match, fragment, costs, loadability, change)
    if not costs.refuses and at_any_cost:
        return
    unproved = next((p for p, c in found.items() if (not saves if c is None else not c.is_faster)), None)
    if not passes and unproved is not None:
        measured = f", and no measurement shows it to be faster on {unproved}" if costs.refuses else ""
        raise Refused(f"it {'adds a copy' if saves else 'saves no node'}{measured}", change=change)


def _check_slower(
    match: Match, fragment: Fragment, costs: Costs, loadability: Sequence[Loadability], change: str = _PREFER
) -> Mapping[str, Cost | None]:
    """The cost on each provider, None where it does not matter. Refuses a replacement that was measured slower on one of them.

    change: what would allow it.
    """
    if not costs.refuses:
        return dict.fromkeys(p.provider for p in loadability)
    found = {p.provider: costs.of(p.provider, match.pattern.id, fragment.nodes) for p in loadability}
    for provider, cost in found.items():
        if cost is not None and cost.is_slower:
            how = f"it takes {cost.ratio:.2f} times as long, for example at {cost.place}"
            reason = f"slower than the unfused graph on {provider}: {how}"
            kind = main_operator(fragment.nodes)
            raise Slower(reason, change=change, provider=provider, kind=kind, copies=copies(fragment))
    return found


def check_instead(match: Match, body: Fragment, costs: Costs | None, loadability: Sequence[Loadability]) -> None:
    """Check a body that replaces a definition: it must load, take its operands, not be inlined, and not be measured slower."""
    check_loads(body, loadability)
    check_operands(body, has_kernel=False)
    check_kernels(match, body, loadability)
    if costs is not None:
        _check_slower(match, body, costs, loadability)


def nothing_to_try(match: Match, target: str, others: Sequence[str]) -> Refused:
    """The refusal of a match whose pattern has no replacement for the target. others: the targets that it has one for."""
    pattern = match.pattern
    possible = [block for t in dict.fromkeys((target, "standard")) for block in pattern.blocks(t)]
    taken = {name for block in possible for name in block.requires.absent if match.bindings.get(name) is not None}
    if pattern.grow is not None:
        reason = "a region becomes a function: use the target function"
    elif target == "function" and not pattern.bodies:
        reason = "a function would only wrap this one operator"
    elif taken:
        reason = f"no replacement for the target {target} can take {' and '.join(sorted(taken))}"
    else:
        reason = f"the pattern has no replacement for the target {target}"
    return Refused(reason, change=f"choose another: --target {' or '.join(others)}" if others else "")


def inlined(operator_name: str, provider: Loadability) -> Refused:
    """The refusal of an operator that the provider would inline."""
    reason = f"no kernel for {operator_name} on {provider.provider}; inlined it would not be faster"
    return Refused(reason, change="ask for the operator all the same: --target standard")


def _operand(value: ir.Value, node: ir.Node, *, sized: bool = False) -> Operand:
    if value.dtype is None:
        raise Refused(f"the dtype of an input of {node.op_type} is not known")
    rank = None if value.shape is None else len(value.shape)
    tensor = value.const_value
    if tensor is None or tensor.dtype == ir.DataType.STRING or tensor.nbytes > PROBED_CONSTANT_BYTES:
        known = value.shape if sized and value.shape is not None else ()
        return Operand(value.dtype, rank, shape=tuple(d if isinstance(d, int) else None for d in known))
    return Operand(value.dtype, rank, tensor.tobytes(), tuple(tensor.shape.numpy()))
