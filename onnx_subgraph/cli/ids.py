"""The ids of patterns that a user gives: those that there are, and those that there were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onnx_subgraph.cli.terminal import warn

if TYPE_CHECKING:
    from onnx_subgraph.language.library import Library


def current_ids(ids: Sequence[str], library: Library) -> tuple[str, ...]:
    """The ids that these patterns have now; says so where one had another id before.

    Raises UsageError, with the nearest id as a hint, where `library` has no pattern of one of the `ids`.
    """
    from onnx_subgraph.language.library import part_of

    found = [library.get(name).id for name in ids]
    for former, current in zip(ids, found, strict=True):
        if former != current:
            warn(f"Warning: {part_of(former, current)}")
    return tuple(dict.fromkeys(found))
