"""One step of a partitioned model, and a run of several."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from onnx_subgraph.backends.array import Array


@dataclass(frozen=True, slots=True)
class Step:
    """One call. inputs, outputs: names of values. done: names of values that no later step reads."""

    run: Callable[[Sequence[Array]], Sequence[Array]]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    done: tuple[str, ...] = ()


def run_steps(steps: Sequence[Step], values: dict[str, Array], keep: Collection[str]) -> None:
    """Add the outputs of all steps to `values`, name → array; values are removed after their last use, unless kept."""
    for step in steps:
        results = step.run([values[name] for name in step.inputs])
        values.update(zip(step.outputs, results, strict=True))
        for name in step.done:
            if name not in keep:
                values.pop(name, None)
