"""Why a replacement is refused: raised by checks, collected by a plan."""

from __future__ import annotations


class Refused(Exception):  # noqa: N818 - a verdict, not an error
    """Why a replacement can't be made here.

    opset: the opset of the default domain that has the `operator` that is needed, or None. change: the smallest change that would
    allow it, in words; "" where none is known. is_local: whether the reason names something of this place.
    """

    def __init__(
        self, reason: str, opset: int | None = None, operator: str = "", change: str = "", *, is_local: bool = False
    ) -> None:
        super().__init__(reason)
        self.change = change
        self.reason = reason
        self.opset = opset
        self.operator = operator
        self.is_local = is_local


class Absent(Refused):
    """A value that the replacement needs is absent in this match."""


class WasWrong(Refused):
    """The replacement was made before, and was wrong."""


class Unfit(Refused):
    """The replacement is for matches with other arguments."""


class Needless(Refused):
    """The providers run what is matched as it is."""


class Unloadable(Refused):
    """A provider does not load the replacement."""


class Slower(Refused):
    """The replacement was measured slower than the unfused graph.

    provider: where. kind: the main operator, with its domain. copies: how many copies of data the replacement makes (`copying`).
    """

    def __init__(self, reason: str, *, change: str = "", provider: str = "", kind: str = "", copies: int = 0) -> None:
        super().__init__(reason, change=change)
        self.provider = provider
        self.kind = kind
        self.copies = copies
