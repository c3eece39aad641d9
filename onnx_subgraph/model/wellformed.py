"""Check that a protobuf is a well-formed model. Reports the first problem, with its place and what to do.

Only what makes a graph meaningless is an error: a value defined twice or never, a cycle, missing weights. What onnxruntime
tolerates (unsorted nodes, missing imports, the long name of the default domain) is repaired by `tidy`. Unknown operators, domains
and future opsets are not errors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil, prod
from pathlib import Path

import onnx
import onnx_ir as ir

from onnx_subgraph.errors import ModelError
from onnx_subgraph.model.texts import file_name

_Function = tuple[str, str, str]
"""Domain, name and overload."""
_MOST_NODES = 10_000_000
"""Maximum number of nodes once the functions are inlined."""
_DEEPEST = 100
"""Maximum depth of calls between functions. At a few hundred, onnxruntime's inlining overflows its stack."""
_PER_ELEMENT: Mapping[int, float] = {
    **dict.fromkeys((onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128), 2.0),
    **dict.fromkeys((onnx.TensorProto.UINT4, onnx.TensorProto.INT4, onnx.TensorProto.FLOAT4E2M1), 0.5),
}
"""Numbers in a typed field per element, where it is not 1."""
_DENSE = "store it densely; sparse ones can't be read"
"""The hint for a sparse tensor."""
_TYPED_FIELDS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")


def check(proto: onnx.ModelProto, path: Path, stored: Mapping[int, int]) -> None:
    """Raise ModelError where the model is not well-formed. Does not read external data, but checks its size.

    stored: position → size in bytes, for initializers whose data was omitted.
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
    files: dict[str, int] = {}
    for position, tensor in enumerate(tensors(proto)):  # the graph's initializers come first
        _check_tensor(tensor, path, files, stored.get(position))


def describe(node: onnx.NodeProto) -> str:
    """A node as text for a message: its name, else its first output."""
    if node.name:
        return f"node '{node.name}' ({node.op_type})"
    made = next((name for name in node.output if name), "")
    return f"the {node.op_type} node that makes '{made}'" if made else f"a nameless {node.op_type} node"


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
        key: Counter(k for n in _all_nodes(f.node) if (k := (n.domain, n.op_type, n.overload)) in functions)
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
    keys = ((n.domain, n.op_type, n.overload) for n in _all_nodes(proto.graph.node))
    if sum(sizes.get(key, 1) for key in keys) > _MOST_NODES:
        raise ModelError(
            f"{path}: its functions call each other so often that it would have more than {_MOST_NODES} nodes without them",
            hint="export the model without functions, or with fewer levels of them",
        )


def _all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes, including those in nested bodies."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in _graphs(attribute):
                yield from _all_nodes(graph.node)


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
            for graph in _graphs(attribute):
                _check_graph(graph, scopes, path)


def _graphs(attribute: onnx.AttributeProto) -> Iterator[onnx.GraphProto]:
    if attribute.type == onnx.AttributeProto.GRAPH:
        yield attribute.g
    elif attribute.type == onnx.AttributeProto.GRAPHS:
        yield from attribute.graphs


def tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor of a model: initializers and attributes, also in nested bodies and functions."""
    yield from _graph_tensors(proto.graph)
    for function in proto.functions:
        yield from _node_tensors(function.node)


def _graph_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    yield from _node_tensors(graph.node)


def _node_tensors(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t
            elif attribute.type == onnx.AttributeProto.TENSORS:
                yield from attribute.tensors
            for graph in _graphs(attribute):
                yield from _graph_tensors(graph)


# Weights


def external_place(tensor: onnx.TensorProto) -> tuple[str, int, int | None]:
    """Location, offset and length (None: to the end) of a tensor's external data. Raises ValueError for other text."""
    place = {entry.key: entry.value for entry in tensor.external_data}
    length = place.get("length")
    return place.get("location", ""), int(place.get("offset") or 0), int(length) if length else None


def is_stripped(tensor: onnx.TensorProto) -> bool:
    """Whether the data of a tensor was removed, as is done to share a graph without its weights."""
    if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.HasField("raw_data") or 0 in tensor.dims:
        return False
    return not any(getattr(tensor, field) for field in _TYPED_FIELDS)


def _check_tensor(tensor: onnx.TensorProto, path: Path, files: dict[str, int], stored: int | None) -> None:
    needed = _bytes(tensor, path)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        _check_external(tensor, path, needed, files)
    elif tensor.HasField("raw_data"):
        _check_raw(tensor, path, needed, len(tensor.raw_data) if stored is None else stored)
    else:
        _check_elements(tensor, path)


def _check_raw(tensor: onnx.TensorProto, path: Path, needed: int, stored: int) -> None:
    """Raise ModelError where the size of the raw data does not fit the shape."""
    if needed and stored != needed:
        raise ModelError(
            f"{path}: tensor '{tensor.name}' of shape {list(tensor.dims)} needs {needed} bytes "
            f"and has {'fewer' if stored < needed else 'more'}",
            hint="the file is damaged; export or download it again",
        )


def _check_elements(tensor: onnx.TensorProto, path: Path) -> None:
    """Raise ModelError where the number of stored elements does not fit the shape.

    No elements at all are allowed (`is_stripped`).
    """
    held = {field: len(getattr(tensor, field)) for field in _TYPED_FIELDS if getattr(tensor, field)}
    if held and [*held] != [onnx.helper.tensor_dtype_to_field(tensor.data_type)]:
        kind = onnx.TensorProto.DataType.Name(tensor.data_type)
        raise ModelError(
            f"{path}: tensor '{tensor.name}' of type {kind} has its data in {' and '.join(held)}",
            hint="the file is damaged; export or download it again",
        )
    count = prod(tensor.dims)
    wanted = ceil(count * _PER_ELEMENT.get(tensor.data_type, 1.0))
    if held and list(held.values()) != [wanted]:
        raise ModelError(
            f"{path}: tensor '{tensor.name}' of shape {list(tensor.dims)} needs {count} elements and has another number of them",
            hint="the file is damaged; export or download it again",
        )


def _bytes(tensor: onnx.TensorProto, path: Path) -> int:
    """The size of the elements in bytes; 0 for strings."""
    if tensor.data_type == onnx.TensorProto.UNDEFINED:
        raise ModelError(f"{path}: tensor '{tensor.name}' has no element type", hint="the file is damaged; export it again")
    count = 1
    for dim in tensor.dims:
        if dim < 0:
            raise ModelError(f"{path}: tensor '{tensor.name}' has the size {dim}", hint="the file is damaged; export it again")
        count *= dim
    try:
        dtype = ir.DataType(tensor.data_type)
    except ValueError:
        hint = "the file is damaged, or needs a newer onnx"
        raise ModelError(f"{path}: tensor '{tensor.name}' has the unknown element type {tensor.data_type}", hint=hint) from None
    return 0 if dtype == ir.DataType.STRING else (count * dtype.bitwidth + 7) // 8


def _check_external(tensor: onnx.TensorProto, path: Path, needed: int, files: dict[str, int]) -> None:
    try:
        location, offset, length = external_place(tensor)
    except ValueError:
        raise ModelError(f"{path}: tensor '{tensor.name}': the place of its data is no number", hint="export it again") from None
    if location not in files:
        files[location] = _size(tensor, path, location)
    size = files[location]
    if offset < 0 or (length is not None and length < 0):
        raise ModelError(f"{path}: tensor '{tensor.name}': the place of its data is negative", hint="export the model again")
    if length is not None and 0 <= length < needed and 0 <= offset <= size - needed:
        raise ModelError(
            f"{path}: tensor '{tensor.name}' needs {needed} bytes of '{location}', and the model states a length of {length}",
            hint="the data file is long enough, but the stated length is wrong; export the model again",
        )
    end = offset + (needed if length is None else length)
    if end > size or (length is not None and length < needed):
        raise ModelError(
            f"{path}: tensor '{tensor.name}' needs {needed} bytes at {offset} of '{location}', which has {size}"
            + (f" (it claims {length})" if length is not None else ""),
            hint="the data file is cut off or belongs to another model; download or export both again",
        )


def _size(tensor: onnx.TensorProto, path: Path, location: str) -> int:
    """The size of a data file. onnxruntime's rule for its place: the folder of the model, or below it."""
    if not location or Path(location).is_absolute() or "\0" in location:
        raise ModelError(
            f"{path}: tensor '{tensor.name}' has its data at '{location}', which is no relative path",
            hint="export the model again with its data beside it",
        )
    file = path.parent / file_name(location)
    folder, inside = path.resolve().parent, file.resolve()
    if not inside.is_relative_to(folder):
        # onnxruntime resolves a linked model first, so it can read a cache of links to files that are together.
        if not file.exists() and (folder / file_name(location)).is_file():
            raise ModelError(
                f"{path}: is a link, and the data file '{location}' of tensor '{tensor.name}' is not beside the link",
                hint=f"name the file itself, {path.resolve()}, or put a link to the data beside this one",
            )
        raise ModelError(
            f"{path}: tensor '{tensor.name}' has its data at '{location}', which leaves the folder of the model",
            hint=f"put the data into {folder} and export the model again",
        )
    if not file.is_file():
        raise ModelError(
            f"{path}: the data file '{location}' of tensor '{tensor.name}' is missing",
            hint=f"a model with external data is more than one file; put '{location}' beside it",
        )
    return file.stat().st_size
