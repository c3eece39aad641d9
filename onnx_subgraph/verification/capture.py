"""The values that flow inside a model: a copy of it that yields them is run, with optimisation off.

Only values of the main graph can be had: a body runs any number of times, and a function is called from many places. What is
yielded is held in memory until it has been looked at, so whoever asks for much asks in batches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx_ir as ir

from onnx_subgraph.verification.feeds import Feeds
from onnx_subgraph.verification.memory import open_model
from onnx_subgraph.verification.randomness import with_results_yielded
from onnx_subgraph.verification.sessions import Failure, run


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
    inner = with_results_yielded(model, names)
    defaults = {v.name: v.const_value for v in model.graph.inputs if v.name in names and v.const_value is not None}
    session = open_model(inner, source.resolve().parent, provider) if inner.graph.outputs else None
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
