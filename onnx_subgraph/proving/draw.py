"""Draw the free values of an instance. The seed is the name, so every spelling of a formula has the same numbers."""

from __future__ import annotations

from collections.abc import Mapping

import ml_dtypes  # registers bfloat16 with numpy
import numpy as np

from onnx_subgraph.inputs.draws import magnitudes
from onnx_subgraph.language.pattern import Example, Pattern

FAR = 1000.0
"""A distance from 0 in deviations. A variance as E[x²] - E[x]² has one digit left there, in float32."""


def widened(feeds: Mapping[str, np.ndarray], pattern: Pattern) -> dict[str, np.ndarray] | None:
    """Feeds of many magnitudes: Relu and a Clip at 6 differ there. None where every float has a range in the example."""
    rng = np.random.default_rng(0)
    free = _free(feeds, pattern)
    return {**feeds, **{n: (a * magnitudes(rng, a.shape, a.dtype)).astype(a.dtype) for n, a in free.items()}} if free else None


def shifted(feeds: Mapping[str, np.ndarray], pattern: Pattern) -> dict[str, np.ndarray] | None:
    """Feeds far from 0 that differ little: their squares lose digits. None where every float has a range in the example."""
    free = _free(feeds, pattern)
    return {**feeds, **{n: (a + FAR).astype(a.dtype) for n, a in free.items()}} if free else None


def nearby(feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The feeds with every float moved to one of its two neighbours."""
    rng = np.random.default_rng(0)
    return {
        n: np.nextafter(a, np.where(rng.random(a.shape) < 0.5, -np.inf, np.inf).astype(a.dtype)) if a.dtype.kind == "f" else a
        for n, a in feeds.items()
    }


def _free(feeds: Mapping[str, np.ndarray], pattern: Pattern) -> dict[str, np.ndarray]:
    """The floats for which the example gives no range."""
    free = {name for name, example in pattern.example.items() if example.low is None and example.high is None}
    return {n: a for n, a in feeds.items() if n in free and a.dtype.kind == "f"}


def draw(name: str, example: Example, dtype: str, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """The value of a free name, in the example's shape or in another one."""
    if example.value is not None:
        return np.asarray(example.value, np.dtype(dtype))
    rng = np.random.default_rng(list(name.encode()))
    size = example.shape if shape is None else shape
    kind = np.dtype(dtype).kind
    if kind == "b":
        drawn: np.ndarray = rng.random(size) > 0.5
        return drawn if example.low is None or example.high is None else drawn.clip(bool(example.low), bool(example.high))
    if kind in "iu":
        low, high = int(example.low or 0), int(example.high if example.high is not None else 7)
        return rng.integers(low, high + 1, size).astype(dtype)
    if example.low is not None and example.high is not None:
        limits = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
        return rng.uniform(example.low, example.high, size).clip(float(limits.min), float(limits.max)).astype(dtype)
    return rng.standard_normal(size).astype(dtype)
