"""A pattern whose file is read when more is asked for than its header says.

Few of the built-in patterns can match a small model, and the operators that they need say which. The others are not read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any

from onnx_subgraph.language.header import Header
from onnx_subgraph.language.pattern import Needs, Pattern


class Unread(Pattern):
    """A formula that is read at the first use of an attribute that `unread` does not set.

    Python calls `__getattr__` only for an attribute that is not set.
    """

    __slots__ = ("_read", "_targets")
    _read: Callable[[], Pattern]
    _targets: tuple[str, ...]

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets that this pattern can be fused for, in the order of `TARGETS`."""
        return self._targets

    def __getattr__(self, name: str) -> Any:
        return getattr(self._read(), name)


def unread(header: Header, needs: Needs, read: Callable[[], Pattern]) -> Pattern:
    """The formula with this header that `read` gives. `read` is called once, at the first use of anything else."""
    pattern = object.__new__(Unread)
    known: dict[str, object] = {"grow": None, "bodies": {}, "needs": needs, "_read": cache(read), "_targets": header.targets}
    said = {field.name: getattr(header, field.name) for field in fields(Pattern) if hasattr(header, field.name)}
    for name, value in (said | known).items():
        object.__setattr__(pattern, name, value)
    return pattern
