"""What the reports need of the values that other rooms make, where the report needs less than the whole value.

A pattern's header is what can be read without checking the pattern, and a proof is what a pattern did on its own models. Both are
given structurally, so that a report can be made and tested without a pattern or a proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Header(Protocol):
    """What a list of patterns shows of one. targets: of `onnxruntime`, `standard`, `function`. file: its path."""

    @property
    def id(self) -> str: ...
    @property
    def group(self) -> str: ...
    @property
    def summary(self) -> str: ...
    @property
    def targets(self) -> Sequence[str]: ...
    @property
    def file(self) -> str: ...


class Proof(Protocol):
    """What came of proving one pattern. pattern: its id. cases: how many models were tried. failures: in words, empty if none."""

    @property
    def pattern(self) -> str: ...
    @property
    def cases(self) -> int: ...
    @property
    def failures(self) -> Sequence[str]: ...
