"""Engines as custom operators inside onnxruntime's own session, for programs that need that session.

onnxruntime-extensions runs Python kernels with a fixed number of inputs and fixed dtypes. So every engine gets its own operator
type, and reads its weights from the region instead of taking them as inputs. It copies arrays element by element, some 12 ms for
1 MB. Prefer an `EngineSession`, which copies nothing, wherever possible.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx_ir as ir

from onnx_subgraph.backends.backend import Backend
from onnx_subgraph.engine.engine import Engine
from onnx_subgraph.engine.operator import Placed, placed_engines
from onnx_subgraph.engine.session import engines_of
from onnx_subgraph.engine.settings import EngineSettings
from onnx_subgraph.errors import UsageError
from onnx_subgraph.files.models import load, serialized
from onnx_subgraph.inherited import PROTOBUF
from onnx_subgraph.operators.names import ENGINE, OWN_DOMAIN

_FOLDER = "session.model_external_initializers_file_folder_path"
_TYPES = {"FLOAT": "float", "DOUBLE": "double", "UINT64": "uint64", "INT64": "int64", "INT32": "int32", "UINT32": "uint32"}
_TYPES |= {"INT16": "int16", "UINT16": "uint16", "INT8": "int8", "UINT8": "uint8", "BOOL": "bool"}
"""The types that a Python kernel may take and give. A float16 makes onnxruntime-extensions end the process."""
_numbers = itertools.count()


def register_engines(
    path: Path | str,
    options: Any,
    *,
    backends: Mapping[str, Backend] | None = None,
    plain: Backend | None = None,
    settings: EngineSettings | None = None,
) -> bytes:
    """The model of `path` with a custom operator for each engine, for `onnxruntime.InferenceSession(model, options)`.

    options: the session's; the operators are added to it, and live as long as the process. The other arguments are as for
    `EngineSession`. onnxruntime-extensions ends the process at an exception, such as for inputs that onnxruntime refuses.
    Raises UsageError if onnxruntime-extensions or a backend is missing, an engine has an unsupported type or the settings are
    strict, ModelError for a bad model.
    """
    extensions = _extensions()
    if settings is not None and settings.strict:
        message = "strict settings raise an exception if a backend fails, and in a custom operator that would end the process"
        raise UsageError(message, hint="run the model with an EngineSession")
    path = Path(path).absolute()
    model = load(path)
    placed = placed_engines(model)
    for one in placed:
        _check_types(one)
        one.subgraph.hold()
    for one, engine in zip(placed, engines_of(placed, backends, plain, settings), strict=True):
        _register(extensions, _renamed(one), one, engine)
    for one in placed:
        model.functions.pop(one.node.op_identifier(), None)
    options.register_custom_ops_library(extensions.get_library_path())
    options.add_session_config_entry(_FOLDER, str(path.resolve().parent))
    return serialized(model, path)


def _extensions() -> Any:
    """The library. Its import would give processes that are started later the slow protobuf, which refuses some models."""
    before = os.environ.get(PROTOBUF)
    try:
        import onnxruntime_extensions
    except ImportError as error:
        raise UsageError(
            f"custom operators in Python need onnxruntime-extensions: {error}", hint="pip install 'onnx-subgraph[custom-op]'"
        ) from error
    finally:
        os.environ.pop(PROTOBUF, None)
        if before is not None:
            os.environ[PROTOBUF] = before
    return onnxruntime_extensions


def _renamed(placed: Placed) -> str:
    """Replace an engine by a node of its own type, with only the run-time inputs; returns the type."""
    old = placed.node
    name = f"{ENGINE}_{old.overload}_{next(_numbers)}"
    node = ir.Node(OWN_DOMAIN, name, placed.inputs, num_outputs=len(placed.outputs), name=old.name)
    weights = [value for value in old.inputs if value is not None and value not in placed.inputs]
    graph = old.graph
    assert graph is not None
    ir.convenience.replace_nodes_and_values(graph, old, [old], [node], placed.outputs, node.outputs)
    for value in weights:
        if value.name is not None and not value.uses() and not value.is_graph_output() and value.is_initializer():
            assert isinstance(value.graph, ir.Graph)
            value.graph.initializers.pop(value.name, None)
    return name


def _check_types(placed: Placed) -> None:
    graph = placed.subgraph.model.graph
    for value in (*graph.inputs, *graph.outputs):
        name = "unknown type" if value.dtype is None else value.dtype.name
        if name not in _TYPES:
            message = f"region {placed.subgraph.name}: {value.name} is {name.lower()}, which onnxruntime-extensions does not take"
            raise UsageError(message, hint="run the model with an EngineSession")


def _register(extensions: Any, name: str, placed: Placed, engine: Engine) -> None:
    def types(values: tuple[ir.Value, ...]) -> list[Any]:
        kind = extensions.PyCustomOpDef
        return [getattr(kind, f"dt_{_TYPES[value.dtype.name]}") for value in values if value.dtype is not None]

    graph = placed.subgraph.model.graph
    extensions.onnx_op(op_type=f"{OWN_DOMAIN}::{name}", inputs=types(tuple(graph.inputs)), outputs=types(tuple(graph.outputs)))(
        _kernel(engine)
    )


def _kernel(engine: Engine) -> Any:
    def kernel(*inputs: Any) -> Any:
        return tuple(engine.run(inputs))

    return kernel
