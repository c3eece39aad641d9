"""What a report needs of a value that another room makes, where it needs less than the whole value.

A proof is what came of proving a pattern on its own models. It is given structurally, so that a report can be made and tested
without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Proof(Protocol):
    """What came of proving one pattern. pattern: its id. cases: how many models were tried. failures: in words, empty if none."""

    @property
    def pattern(self) -> str: ...
    @property
    def cases(self) -> int: ...
    @property
    def failures(self) -> Sequence[str]: ...
