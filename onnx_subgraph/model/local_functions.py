"""Model-local functions: which ones are called, and the types and shapes inside them, inferred from the calls.

The body of a function declares no types; they depend on the call. What all calls in the model agree on holds for every run of the
model. So the body can be matched like any other graph.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import onnx_ir as ir

from onnx_subgraph.model.nested import bodies
from onnx_subgraph.operators.names import OWN_DOMAIN

Calls = dict[ir.OperatorIdentifier, list[ir.Node]]
"""Function identifier → its calls."""


OWN = "onnx_subgraph.definition"
"""Metadata key of a definition that this tool wrote for an operator outside `OWN_DOMAIN`. The value is the id of its pattern."""


def is_own(function: ir.Function) -> bool:
    """Whether this tool wrote the definition: for an operator in `OWN_DOMAIN`, or for one that a user's pattern names."""
    return function.domain == OWN_DOMAIN or OWN in function.metadata_props


def called(nodes: Iterable[ir.Node], functions: Mapping[ir.OperatorIdentifier, ir.Function]) -> list[ir.Function]:
    """The functions that these nodes or their bodies call, directly or indirectly, sorted by identifier."""
    found: dict[ir.OperatorIdentifier, ir.Function] = {}
    queue = list(nodes)
    while queue:
        node = queue.pop()
        queue += [inner for body in bodies(node) for inner in body.all_nodes()]
        function = functions.get(node.op_identifier())
        if function is not None and function.identifier() not in found:
            found[function.identifier()] = function
            queue += function.all_nodes()
    return [found[identifier] for identifier in sorted(found)]


def infer_local_functions(model: ir.Model, infer: Callable[[ir.Model], object]) -> None:
    """Infer types and shapes in function bodies from what all calls agree on. Callers come before the functions they call.

    infer: infers the types and shapes of a model's values from those of its inputs.
    """
    own = {identifier: _calls(function.all_nodes(), model.functions) for identifier, function in model.functions.items()}
    calls = _calls(model.graph.all_nodes(), model.functions)
    for inside in own.values():
        for identifier, nodes in inside.items():
            calls[identifier] += nodes
    waiting = Counter(identifier for inside in own.values() for identifier in inside)
    ready = [identifier for identifier in model.functions if not waiting[identifier]]
    while ready:  # Recursive functions never become ready. onnx forbids them; they stay as they are.
        identifier = ready.pop()
        function = model.functions[identifier]
        for callee in own[identifier]:
            waiting[callee] -= 1
            ready += [] if waiting[callee] else [callee]
        if not calls[identifier]:
            continue
        for position, value in enumerate(function.inputs):
            _agree(value, [n.inputs[position] if position < len(n.inputs) else None for n in calls[identifier]])
        infer(ir.Model(function.graph, ir_version=model.ir_version, functions=called(function.all_nodes(), model.functions)))


def _calls(nodes: Iterable[ir.Node], wanted: Mapping[ir.OperatorIdentifier, object]) -> Calls:
    found: Calls = defaultdict(list)
    for node in nodes:
        if node.op_identifier() in wanted:
            found[node.op_identifier()].append(node)
    return found


def _agree(value: ir.Value, given: Sequence[ir.Value | None]) -> None:
    """Set the type and the dimensions in which all given values agree."""
    dtypes = {None if v is None else v.dtype for v in given}
    dtype = next(iter(dtypes))
    value.type = ir.TensorType(dtype) if len(dtypes) == 1 and dtype is not None else None
    shapes = [v.shape for v in given if v is not None and v.shape is not None]
    if len(shapes) < len(given) or len({len(s) for s in shapes}) != 1:
        value.shape = None
        return
    value.shape = ir.Shape(
        dims[0] if all(d == dims[0] for d in dims) else ir.SymbolicDim(None) for dims in zip(*shapes, strict=True)
    )
