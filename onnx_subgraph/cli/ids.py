"""Pattern ids from the user: current and former ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onnx_subgraph.cli.terminal import warn

if TYPE_CHECKING:
    from onnx_subgraph.language.library import Library


def current_ids(ids: Sequence[str], library: Library) -> tuple[str, ...]:
    """The current ids of these patterns; prints a note for each former id.

    Raises UsageError, with the nearest id as a hint, if `library` has no pattern with one of the `ids`.
    """
    from onnx_subgraph.language.library import part_of

    found = [library.get(name).id for name in ids]
    for former, current in zip(ids, found, strict=True):
        if former != current:
            warn(f"Warning: {part_of(former, current)}")
    return tuple(dict.fromkeys(found))
