"""Capture intermediate values: run a copy of the model that has them as outputs, with optimisation off.

Only values of the main graph can be captured: a subgraph may run any number of times, and a function may have many callers.
Captured values stay in memory until they are used, so a caller that needs many asks in batches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import onnx_ir as ir

from onnx_subgraph.inputs.feeds import Feeds
from onnx_subgraph.verification.memory import open_model
from onnx_subgraph.verification.randomness import yield_only
from onnx_subgraph.verification.sessions import Failure, Session, run


def capturable(model: ir.Model) -> set[str]:
    """The names of the values that can be captured: tensors of the main graph, including its inputs."""
    values = (*model.graph.inputs, *(value for node in model.graph for value in node.outputs))
    return {value.name for value in values if value.name and isinstance(value.type, ir.TensorType | None)}


class Capture:
    """Captures values of a model: it is copied once, for any number of batches.

    source: the file that the model was read from; its folder holds the external data.
    """

    def __init__(self, model: ir.Model, source: Path, provider: str) -> None:
        self._model, self._home, self._provider = model, source.resolve().parent, provider

    @cached_property
    def _copy(self) -> ir.Model:
        return self._model.clone()

    def __call__(self, names: Collection[str], feeds: Sequence[Feeds]) -> Iterator[dict[str, Any] | Failure]:
        """For each of the `feeds`, the values of these names, or the failure that prevents it. All must be capturable."""
        inputs = self._model.graph.inputs
        defaults = {v.name: v.const_value for v in inputs if v.name in names and v.const_value is not None}
        session = self._open(names)
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

    def _open(self, names: Collection[str]) -> Session | Failure | None:
        """A session that yields these values; None where all of them are inputs."""
        yield_only(self._copy, names)
        return open_model(self._copy, self._home, self._provider) if self._copy.graph.outputs else None
