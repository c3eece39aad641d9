"""Pattern ids from the user: current and former ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from onnx_subgraph.cli.terminal import warn
from onnx_subgraph.errors import UsageError

if TYPE_CHECKING:
    from onnx_subgraph.language.library import Library


def current_ids(ids: Sequence[str], library: Library, parameter: str = "") -> tuple[str, ...]:
    """The current ids of these patterns; prints a note for each former id.

    parameter: of the command, which the ids come from. Raises UsageError, with the nearest id as a hint and the settings file
    where the parameter has its value from there, if `library` has no pattern with one of the `ids`.
    """
    from onnx_subgraph.cli.settings import source_of
    from onnx_subgraph.language.library import part_of

    try:
        found = [library.get(name).id for name in ids]
    except UsageError as error:
        if parameter and (source := source_of(click.get_current_context(), parameter)) is not None:
            error.message = f"{source}: {error.message}"
        raise
    for former, current in zip(ids, found, strict=True):
        if former != current:
            warn(f"Warning: {part_of(former, current)}")
    return tuple(dict.fromkeys(found))
