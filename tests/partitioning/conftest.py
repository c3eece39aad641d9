"""A clock on which a backend is slow without waiting."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from onnx_subgraph.partitioning import measure


class Clock:
    """A clock that runs on, and that a run moves forward."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def perf_counter(self) -> float:
        """In seconds."""
        return time.perf_counter() + self._ahead

    def takes(self, seconds: float) -> Callable[[Any], Any]:
        """A function that returns its argument so much later."""

        def pass_time(value: Any) -> Any:
            self._ahead += seconds
            return value

        return pass_time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock by which engines are measured."""
    made = Clock()
    monkeypatch.setattr(measure, "time", made)
    return made
