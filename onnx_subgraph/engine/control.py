"""If and Loop, run step by step, because an engine is in a body of theirs.

(ONNX operator specification, If and Loop: https://onnx.ai/onnx/operators/onnx__Loop.html.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

import numpy as np

from onnx_subgraph.backends.array import Array
from onnx_subgraph.backends.backend import Backend
from onnx_subgraph.engine.step import Step, run_steps

CONTROLLED = {"If": ("then_branch", "else_branch"), "Loop": ("body",)}
"""The operators whose bodies are run here, and the attributes that hold these."""


@dataclass(frozen=True, slots=True)
class Body:
    """The graph of a branch or of an iteration. inputs, outputs: names."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    steps: tuple[Step, ...]

    def run(self, around: Mapping[str, Array], inputs: Sequence[Array]) -> list[Array]:
        """The outputs. around: what the outer graphs have."""
        values = {**around, **dict(zip(self.inputs, inputs, strict=True))}
        run_steps(self.steps, values, {*around, *self.outputs})
        return [values[name] for name in self.outputs]


@dataclass(slots=True)
class Control:
    """A node. operands: the names of its inputs, "" for one that is not there. wanted: which of its outputs somebody reads.

    flowing: the names of what flows in, the node's inputs and what its bodies read. constants: by name, those among its inputs
    and among the outputs of its bodies. plain, compile: they run the whole node where `run` gives None.
    """

    bodies: Mapping[str, Body]
    operands: tuple[str, ...]
    wanted: tuple[bool, ...]
    flowing: tuple[str, ...]
    constants: Mapping[str, Array]
    plain: Backend
    compile: Callable[[], Any]
    _compiled: Any = None
    _lock: Lock = field(default_factory=Lock)

    def __call__(self, inputs: Sequence[Array]) -> Sequence[Array]:
        """What comes out of the outputs that somebody reads."""
        around = {**self.constants, **dict(zip(self.flowing, inputs, strict=True))}
        outputs = self.run(around)
        if outputs is None:
            return self._plainly(inputs)
        theirs = {id(array) for array in around.values()}  # an array that is handed on unchanged is the caller's, and is copied
        wanted = (output for output, wanted in zip(outputs, self.wanted, strict=True) if wanted)
        return [output.copy() if id(output) in theirs else output for output in wanted]

    def with_steps(self, change: Callable[[Step], Step]) -> Control:
        """The same, with other steps in its bodies."""
        bodies = {name: replace(body, steps=tuple(map(change, body.steps))) for name, body in self.bodies.items()}
        return replace(self, bodies=bodies)

    def run(self, around: Mapping[str, Array]) -> list[Array] | None:
        """All outputs; None where onnxruntime has to run the whole node."""
        raise NotImplementedError

    def _plainly(self, inputs: Sequence[Array]) -> Sequence[Array]:
        with self._lock:
            if self._compiled is None:
                self._compiled = self.compile()
        return self.plain.run(self._compiled, inputs)


class If(Control):
    """One of two branches."""

    def run(self, around: Mapping[str, Array]) -> list[Array] | None:
        """The outputs of the branch that is taken."""
        taken = bool(np.asarray(around[self.operands[0]]).reshape(-1)[0])
        return self.bodies["then_branch" if taken else "else_branch"].run(around, ())


class Loop(Control):
    """Its body is run up to a number of times, while a condition holds."""

    def run(self, around: Mapping[str, Array]) -> list[Array] | None:
        """The values that were carried, and what each iteration gave, stacked."""
        body = self.bodies["body"]
        most, goes_on = (around[name] if name else None for name in (*self.operands, "", "")[:2])
        state = [around[name] for name in self.operands[2:]]
        gave: list[list[Array]] = []
        number, condition = 0, np.asarray(True if goes_on is None else goes_on)
        while condition.all() and (most is None or number < int(np.asarray(most).reshape(-1)[0])):
            condition, *outputs = body.run(around, (np.asarray(number, np.int64), condition, *state))
            state, scanned = outputs[: len(state)], outputs[len(state) :]
            gave.append(scanned)
            number += 1
        if not gave and len(body.outputs) > 1 + len(state):
            return None  # the shape of a stack of no arrays: onnxruntime knows it
        return [*state, *(np.stack(one) for one in zip(*gave, strict=True))]
