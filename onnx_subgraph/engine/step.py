"""One call of a partitioned model, and how several follow each other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from onnx_subgraph.backends.array import Array


@dataclass(frozen=True, slots=True)
class Step:
    """One call. inputs, outputs: the names of values. done: names of values that no later step reads."""

    run: Callable[[Sequence[Array]], Sequence[Array]]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    done: tuple[str, ...] = ()


def run_steps(steps: Sequence[Step], values: dict[str, Array], keep: Collection[str]) -> None:
    """Add what all steps yield to `values`, name → array; what is read and not to be kept is let go."""
    for step in steps:
        results = step.run([values[name] for name in step.inputs])
        values.update(zip(step.outputs, results, strict=True))
        for name in step.done:
            if name not in keep:
                values.pop(name, None)
