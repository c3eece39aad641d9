"""Why a replacement is not made: what checks raise, and a plan collects."""

from __future__ import annotations


class Refused(Exception):  # noqa: N818 - a verdict, not an error
    """Why a replacement can't be made here. opset: of the default domain, which has the `operator` that is wanted, or None.

    change: the smallest change that would let it be made, in words; "" where none is known.
    """

    def __init__(self, reason: str, opset: int | None = None, operator: str = "", change: str = "") -> None:
        super().__init__(reason)
        self.change = change
        self.reason = reason
        self.opset = opset
        self.operator = operator


class Absent(Refused):
    """What the replacement needs is absent in this match."""


class Unloadable(Refused):
    """A provider does not load the replacement."""
