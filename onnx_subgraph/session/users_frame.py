"""Where in the user's program a warning belongs."""

from __future__ import annotations

import sys


def users_frame() -> int:
    """The stack level, as for `warnings.warn` in our caller, of the first frame outside this package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("onnx_subgraph."):
        frame, level = frame.f_back, level + 1
    return level
