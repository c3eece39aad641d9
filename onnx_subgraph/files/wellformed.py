"""Check that a protobuf is a well-formed model. Reports the first problem, with its place and what to do.

Only what makes a graph meaningless is an error: a value defined twice or never, a cycle, missing operands, missing weights. What
onnxruntime tolerates (unsorted nodes, missing imports, the long name of the default domain) is repaired by `tidy`. Unknown
operators, domains and future opsets are not errors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

from onnx_subgraph.errors import ModelError
from onnx_subgraph.files import signatures, stored
from onnx_subgraph.files.protobuf import all_nodes, describe, graphs, tensors

_Function = tuple[str, str, str]
"""Domain, name and overload."""
_MOST_NODES = 10_000_000
"""Maximum number of nodes once the functions are inlined."""
_DEEPEST = 100
"""Maximum depth of calls between functions. At a few hundred, onnxruntime's inlining overflows its stack."""
_DENSE = "store it densely; sparse ones can't be read"
"""The hint for a sparse tensor."""


def check(proto: onnx.ModelProto, path: Path, sizes: Mapping[int, int]) -> None:
    """Raise ModelError where the model is not well-formed. Does not read external data, but checks its size.

    sizes: position → size in bytes, for initializers whose data was omitted.
    """
    if not proto.HasField("graph") or not (proto.graph.node or proto.graph.output):
        raise ModelError(f"{path}: holds no graph; it is not an ONNX model", hint="export the model again, or check the path")
    if not proto.opset_import:
        raise ModelError(f"{path}: imports no operator set, so its operators have no meaning", hint="export the model again")
    for imported in (*proto.opset_import, *(o for f in proto.functions for o in f.opset_import)):
        if not 0 <= imported.version < 2**31:
            raise ModelError(
                f"{path}: imports version {imported.version} of '{imported.domain or 'ai.onnx'}', which can't be",
                hint="the file is damaged; export or download it again",
            )
    _check_graph(proto.graph, (), path)
    for function in proto.functions:
        _check_function(function, path)
    _check_calls(proto, path)
    signatures.check(proto, path)
    files: dict[str, int] = {}
    for position, tensor in enumerate(tensors(proto)):  # the graph's initializers come first
        stored.check(tensor, path, files, sizes.get(position))


def _check_graph(graph: onnx.GraphProto, outer: tuple[Mapping[str, str], ...], path: Path) -> None:
    made: dict[str, str] = {}
    for value in graph.input:
        if value.name in made:
            raise ModelError(f"{path}: '{value.name}' is an input twice", hint="give each input its own name")
        made[value.name] = "is a graph input"
    inputs = frozenset(made)
    for sparse in graph.sparse_initializer:
        raise ModelError(f"{path}: the initializer '{sparse.values.name}' is sparse", hint=_DENSE)
    made |= dict.fromkeys((tensor.name for tensor in graph.initializer), "is an initializer")
    _check_nodes(graph.node, made, inputs, outer, path)
    for value in graph.output:
        if value.name not in made:
            raise ModelError(
                f"{path}: nothing makes the output '{value.name}' of graph '{graph.name}'", hint="export the model again"
            )


def _check_function(function: onnx.FunctionProto, path: Path) -> None:
    made = dict.fromkeys(function.input, "is a function input")
    _check_nodes(function.node, made, frozenset(made), (), path)
    for name in function.output:
        if name not in made:
            raise ModelError(f"{path}: nothing makes the output '{name}' of function '{function.name}'", hint="export it again")


def _check_calls(proto: onnx.ModelProto, path: Path) -> None:
    """Raise ModelError where functions call each other recursively, too deeply, or so often that inlining would be too large."""
    functions = {(f.domain, f.name, f.overload): f for f in proto.functions}
    calls = {
        key: Counter(k for n in all_nodes(f.node) if (k := (n.domain, n.op_type, n.overload)) in functions)
        for key, f in functions.items()
    }
    sizes: dict[_Function, int] = {}
    levels: dict[_Function, int] = {}
    for start in functions:
        stack, open_ = [start], set()
        while stack:
            key = stack[-1]
            missing = [callee for callee in calls[key] if callee not in sizes]
            if key in sizes or not missing:
                sizes.setdefault(key, len(functions[key].node) + sum(sizes[c] * n for c, n in calls[key].items()))
                levels.setdefault(key, 1 + max((levels[callee] for callee in calls[key]), default=0))
                stack.pop()
                open_.discard(key)
                continue
            open_.add(key)
            if missing[0] in open_:
                raise ModelError(f"{path}: the function '{missing[0][1]}' calls itself", hint="export the model again")
            stack.append(missing[0])
    if max(levels.values(), default=0) > _DEEPEST:
        raise ModelError(
            f"{path}: its functions call each other more than {_DEEPEST} levels deep",
            hint="export the model without functions, or with fewer levels of them",
        )
    keys = ((n.domain, n.op_type, n.overload) for n in all_nodes(proto.graph.node))
    if sum(sizes.get(key, 1) for key in keys) > _MOST_NODES:
        raise ModelError(
            f"{path}: its functions call each other so often that it would have more than {_MOST_NODES} nodes without them",
            hint="export the model without functions, or with fewer levels of them",
        )


def _check_nodes(
    nodes: Sequence[onnx.NodeProto],
    made: dict[str, str],
    inputs: frozenset[str],
    outer: tuple[Mapping[str, str], ...],
    path: Path,
) -> None:
    for node in nodes:
        for name in node.output:
            if name and name in made:
                raise ModelError(
                    f"{path}: '{name}' is made twice: {describe(node)} makes it, and it {made[name]}",
                    hint="every value may be defined only once; rename one of them",
                )
            if name:
                made[name] = f"is made by {describe(node)}"
    scopes = (made, *outer)
    for node in nodes:
        for name in node.input:
            if name and not any(name in scope for scope in scopes):
                raise ModelError(
                    f"{path}: {describe(node)} reads '{name}', which nothing makes",
                    hint="it is no input, initializer or result of a node; was the model cut out of another one?",
                )
        for attribute in node.attribute:
            if attribute.type in (onnx.AttributeProto.SPARSE_TENSOR, onnx.AttributeProto.SPARSE_TENSORS):
                raise ModelError(f"{path}: {describe(node)} holds a sparse tensor", hint=_DENSE)
            for graph in graphs(attribute):
                _check_graph(graph, scopes, path)
