"""Runs an If or Loop step by step, because one of its bodies contains an engine.

(ONNX operator specification, If and Loop: https://onnx.ai/onnx/operators/onnx__Loop.html.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

import numpy as np

from onnx_subgraph.backends.array import Array
from onnx_subgraph.backends.backend import Backend
from onnx_subgraph.engine.step import Step, run_steps

CONTROLLED = {"If": ("then_branch", "else_branch"), "Loop": ("body",)}
"""The operators whose bodies are run here, and the attributes that hold the bodies."""


@dataclass(frozen=True, slots=True)
class Body:
    """The graph of a branch or of an iteration. inputs, outputs: names. ranks: those declared of the inputs, None if unknown."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    steps: tuple[Step, ...]
    ranks: tuple[int | None, ...]

    def run(self, around: Mapping[str, Array], inputs: Sequence[Array]) -> list[Array]:
        """The outputs. around: the values of the outer graphs."""
        values = {**around, **dict(zip(self.inputs, inputs, strict=True))}
        run_steps(self.steps, values, self.outputs)
        return [values[name] for name in self.outputs]


@dataclass(slots=True)
class Control:
    """A node. operands: the names of its inputs, "" for an absent one. wanted: which of its outputs are read.

    flowing: the names of its run-time inputs, including what its bodies read from outside. constants: by name, those among its
    inputs and the outputs of its bodies. plain, compile: they run the whole node if `run` gives None.
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
        """The outputs that are read."""
        around = {**self.constants, **dict(zip(self.flowing, inputs, strict=True))}
        outputs = self.run(around)
        if outputs is None:
            return self._plainly(inputs)
        theirs = {id(array) for array in around.values()}  # an array that is passed through is the caller's: it is copied
        found: list[Array] = []
        for output in (output for output, wanted in zip(outputs, self.wanted, strict=True) if wanted):
            found.append(deepcopy(output) if id(output) in theirs else output)
            theirs.add(id(output))  # and so is one that is given twice
        return found

    def with_steps(self, change: Callable[[Step], Step]) -> Control:
        """A copy with other steps in its bodies."""
        bodies = {name: replace(body, steps=tuple(map(change, body.steps))) for name, body in self.bodies.items()}
        return replace(self, bodies=bodies)

    def run(self, around: Mapping[str, Array]) -> list[Array] | None:
        """All outputs; None if onnxruntime has to run the whole node."""
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
    """Its body is run up to a number of times, while a condition holds.

    As in onnxruntime, the body gets its number and the condition with the shape [1] where it declares a rank above 0, else as
    scalars; a condition of unknown rank keeps its own. Results that are stacked are reshaped to the first one.
    """

    def run(self, around: Mapping[str, Array]) -> list[Array] | None:
        """The final values of the loop's variables, and the stacked outputs of the iterations."""
        body = self.bodies["body"]
        most, goes_on = (around[name] if name else None for name in (*self.operands, "", "")[:2])
        state = [around[name] for name in self.operands[2:]]
        gave: list[list[Array]] = []
        number, condition = 0, np.asarray(True if goes_on is None else goes_on)
        of_number, of_condition = body.ranks[:2]
        of_condition = condition.ndim if of_condition is None else of_condition
        while condition.all() and (most is None or number < int(np.asarray(most).reshape(-1)[0])):
            own = _single(np.asarray(number, np.int64), of_number), _single(condition, of_condition)
            condition, *outputs = body.run(around, (*own, *state))
            state, scanned = outputs[: len(state)], outputs[len(state) :]
            gave.append(scanned)
            number += 1
        if not gave and len(body.outputs) > 1 + len(state):
            return None  # onnxruntime knows the shape of a stack of no arrays
        return [*state, *(np.stack([array.reshape(one[0].shape) for array in one]) for one in zip(*gave, strict=True))]


def _single(array: Array, rank: int | None) -> Array:
    """A copy of an array of one element, with the shape [1], or as a scalar for a rank of 0 or None."""
    return array.reshape((1,) if rank else ()).copy()  # the body may return it, and it may be the caller's
