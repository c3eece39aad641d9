"""Times the stages of a command and reports progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str], None]
"""Called with the name of each stage when it begins."""


class Clock:
    """Reports the stages, and adds up the seconds of each."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress: Progress = progress or (lambda stage: None)
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Within the block the stage `name` runs: it is reported and timed."""
        self.progress(name)
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begun
