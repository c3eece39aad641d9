"""Checks of the values that a caller gives. The command line checks its own; the functions of the package check theirs here."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from onnx_subgraph.errors import UsageError


def check_one_of(name: str, given: object, known: Sequence[str]) -> None:
    """Raises UsageError unless `given` is one of the words `known`."""
    if given not in known:
        raise UsageError(f"{name} is {given!r}", hint=f"give one of {', '.join(known)}")


def check_not_negative(**given: float | None) -> None:
    """Raises UsageError for the first of these that is negative, infinite or not a number. None stands for a default."""
    for name, value in given.items():
        if value is not None and not 0 <= value < inf:
            raise UsageError(f"{name} is {value}", hint="give a number that is 0 or more")
