"""A session of a partitioned model: it calls the engines directly, and onnxruntime runs the parts between them.

It has the interface of onnxruntime's session. It needs no custom operator, passes arrays from step to step without a copy, and a
model that is one engine costs what its backend costs.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import onnx_ir as ir

from onnx_subgraph import custom_ops
from onnx_subgraph.backends.array import Array
from onnx_subgraph.backends.backend import Backend
from onnx_subgraph.backends.onnxruntime import OnnxRuntime
from onnx_subgraph.backends.registry import find_backend
from onnx_subgraph.backends.subgraph import constant
from onnx_subgraph.engine.breaker import Breaker
from onnx_subgraph.engine.control import Control
from onnx_subgraph.engine.drawing import inline_drawing
from onnx_subgraph.engine.engine import Engine
from onnx_subgraph.engine.feeds import Argument, Inputs, argument
from onnx_subgraph.engine.isolated import Isolated
from onnx_subgraph.engine.operator import Placed, placed_engines
from onnx_subgraph.engine.schedule import schedule
from onnx_subgraph.engine.settings import EngineSettings
from onnx_subgraph.engine.step import Step, run_steps
from onnx_subgraph.errors import OnnxSubgraphError, OnnxSubgraphWarning, UsageError
from onnx_subgraph.files.models import load
from onnx_subgraph.paths import StrPath


class EngineSession:
    """A session of a model with engine operators. `run` is thread-safe.

    backends: by name; they take precedence over the registry.
    plain: runs the parts between the engines, and engines whose backend fails; None for onnxruntime on the CPU.
    weights: the folder of the model's external data, if that is elsewhere. libraries: of custom operators, for onnxruntime.
    required: raise UsageError if a backend is missing, as strict settings do; else `plain` runs its regions, with a warning.
    Raises ModelError for a model that can't be read.
    """

    def __init__(
        self,
        path: StrPath,
        *,
        backends: Mapping[str, Backend] | None = None,
        plain: Backend | None = None,
        settings: EngineSettings | None = None,
        weights: StrPath | None = None,
        libraries: Sequence[StrPath] = (),
        required: bool = False,
    ) -> None:
        model = load(Path(path).absolute(), weights=None if weights is None else Path(weights).absolute())
        inline_drawing(model)
        placed = placed_engines(model)
        for one in placed:
            one.subgraph.hold()
        settings = settings or EngineSettings()
        with custom_ops.using(libraries):
            plain = plain or OnnxRuntime()
            self.engines = engines_of(placed, backends, plain, settings, required=required or settings.strict)
        """The engines, in the order of the model."""
        self._inputs = Inputs.of(model.graph)
        self._outputs = [argument(value) for value in model.graph.outputs]
        self._given = _given(model)
        engines = tuple(zip(placed, self.engines, strict=True))
        self._steps = schedule(model, engines, plain)

    def get_inputs(self) -> list[Argument]:
        """The required inputs."""
        return [one for one in self._inputs.arguments if one.name not in self._inputs.defaults]

    def get_overridable_initializers(self) -> list[Argument]:
        """The inputs that have a default."""
        return [one for one in self._inputs.arguments if one.name in self._inputs.defaults]

    def get_outputs(self) -> list[Argument]:
        """The outputs."""
        return list(self._outputs)

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any], run_options: object = None) -> list[Array]:
        """The outputs with these names, or all if there are none. run_options: ignored.

        feeds: input name → array, or another value that onnxruntime takes. A list or a number gets the dtype of the input.
        Raises UsageError if the feeds don't fit the inputs, or there is no such output.
        """
        wanted = list(output_names or [output.name for output in self._outputs])
        if unknown := [name for name in wanted if name not in {output.name for output in self._outputs}]:
            raise UsageError(f"the model has no output {unknown[0]}", hint=f"it has {', '.join(o.name for o in self._outputs)}")
        return self._ran(self._steps, wanted, feeds)

    def warm(self, feeds: Mapping[str, Any], *, every: bool = False) -> list[Array]:
        """All outputs, after every engine was compiled for its inputs, and its results were compared with onnxruntime's.

        every: compile for all sizes at once, if `dynamic` is true. Raises as `run` does, and EngineError if a backend does not
        run its region.
        """

        def warming(step: Step) -> Step:
            if isinstance(step.run, Control):
                return replace(step, run=step.run.with_steps(warming))
            engine = getattr(step.run, "__self__", None)
            return replace(step, run=partial(engine.warm, every=every)) if isinstance(engine, Engine) else step

        return self._ran([warming(step) for step in self._steps], [output.name for output in self._outputs], feeds)

    @property
    def dynamic(self) -> bool:
        """Whether every backend can compile its regions once for all sizes."""
        return all(engine.backend.dynamic or not engine.backend.specializes for engine in self.engines)

    @property
    def fallbacks(self) -> int:
        """How many runs of its engines fell back to onnxruntime."""
        return sum(engine.fallbacks for engine in self.engines)

    @property
    def failure(self) -> str:
        """Why the first backend was given up; "" if none was."""
        return next((engine.failure for engine in self.engines if engine.failure), "")

    def _ran(self, steps: Sequence[Step], wanted: list[str], feeds: Mapping[str, Any]) -> list[Array]:
        values = self._given | (given := self._inputs.taken(feeds))
        run_steps(steps, values, wanted)
        loose = {*self._given, *given}  # an output that is also an input or a constant, or asked for twice, is copied
        found: list[Array] = []
        for name in wanted:
            found.append(deepcopy(values[name]) if name in loose else values[name])
            loose.add(name)
        return found


def engines_of(
    placed: Sequence[Placed],
    backends: Mapping[str, Backend] | None,
    plain: Backend | None,
    settings: EngineSettings | None,
    *,
    required: bool = True,
) -> tuple[Engine, ...]:
    """The engines of a model at run time; the arguments are those of `EngineSession`. Raises UsageError as it does."""
    settings, plain = settings or EngineSettings(), plain or OnnxRuntime()
    known = dict(backends or {})
    for name in dict.fromkeys(p.backend for p in placed if p.backend not in known):
        try:
            known[name] = Isolated(name, settings.deadline) if settings.isolated else find_backend(name)
        except OnnxSubgraphError as error:
            if required:
                raise
            known[name] = plain
            warnings.warn(f"{error.message}; onnxruntime runs its engines", OnnxSubgraphWarning, stacklevel=3)
    breakers = {name: Breaker(settings.retry) for name in known}
    return tuple(Engine(p.subgraph, known[p.backend], plain, settings, breakers[p.backend], p.bound) for p in placed)


def _given(model: ir.Model) -> dict[str, Array]:
    """The values that need no feed: defaults of inputs, and constant outputs."""
    found = {}
    for value in model.graph.inputs:
        if value.is_initializer() and value.const_value is not None:
            found[str(value.name)] = value.const_value.numpy()
    for value in model.graph.outputs:
        if (tensor := constant(value)) is not None:
            found[str(value.name)] = tensor.numpy()
    return found
