"""The values that must change together, such as those that one change of the layout concerns."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import onnx_ir as ir


def closed(
    source: ir.Value, beside: Callable[[ir.Value], Iterable[ir.Value] | None], found: dict[ir.Value, None], most: int
) -> bool:
    """Collect in `found` the values that must change if `source` does. Returns whether all of them can.

    beside: the values that must change if a value does; None if it can't. most: the most values.
    """
    waiting = [source]
    while waiting:
        value = waiting.pop()
        if value in found:
            continue
        found[value] = None
        others = beside(value)
        if others is None or len(found) > most:
            return False
        waiting += others
    return True
