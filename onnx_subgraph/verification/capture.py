"""The values that flow inside a model: a copy of it that yields them is run, with optimisation off.

Only values of the main graph can be had: a body runs any number of times, and a function is called from many places. What is
yielded is held in memory until it has been looked at, so whoever asks for much asks in batches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx_ir as ir

from onnx_subgraph.model.files import write_temporary
from onnx_subgraph.verification.feeds import Feeds
from onnx_subgraph.verification.sessions import Failure, open_session, run


def capturable(model: ir.Model) -> set[str]:
    """The names of the values that can be captured: of tensors in the main graph, its inputs among them."""
    values = (*model.graph.inputs, *(value for node in model.graph for value in node.outputs))
    return {value.name for value in values if value.name and isinstance(value.type, ir.TensorType | None)}


def capture(
    model: ir.Model, source: Path, names: Collection[str], provider: str, feeds: Sequence[Feeds]
) -> Iterator[dict[str, Any] | Failure]:
    """For each of the `feeds`, the values of these names, all of them capturable; or why they can't be had.

    source: the file that the model was read from, in whose folder its external data is.
    """
    inner = _yielding(model, names)
    defaults = {v.name: v.const_value for v in model.graph.inputs if v.name in names and v.const_value is not None}
    with TemporaryDirectory(prefix="onnx-subgraph-") as folder:
        session = None
        if inner.graph.outputs:
            path = write_temporary(inner, source, Path(folder))
            session = open_session(path, provider, optimised=False, folder=source.resolve().parent)
        for given in feeds:
            known = {name: tensor.numpy() for name, tensor in defaults.items()} | given
            if isinstance(session, Failure):
                yield session
                continue
            yielded = {} if session is None else run(session, given)
            if isinstance(yielded, Failure):
                yield yielded
            else:
                yield {name: yielded[name] if name in yielded else known[name] for name in names}


def _yielding(model: ir.Model, names: Collection[str]) -> ir.Model:
    """A copy of the model that yields the values of these names, graph inputs left out, and nothing else."""
    copy = model.clone()
    graph = copy.graph
    graph.outputs.clear()
    graph.outputs.extend(value for node in graph for value in node.outputs if value.name in names)
    return copy
