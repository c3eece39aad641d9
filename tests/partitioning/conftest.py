"""A clock on which a backend is slow without waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from onnx_subgraph.partitioning import measure


class Clock:
    """A clock that stands still until a run moves it forward."""

    def __init__(self) -> None:
        self._now = 0.0

    def perf_counter(self) -> float:
        """In seconds."""
        return self._now

    def takes(self, seconds: float) -> Callable[[Any], Any]:
        """A function that returns its argument so much later."""

        def pass_time(value: Any) -> Any:
            self._now += seconds
            return value

        return pass_time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock by which engines are measured."""
    made = Clock()
    monkeypatch.setattr(measure, "time", made)
    return made
