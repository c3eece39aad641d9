"""Load OpenVINO's Python package without its telemetry.

On import it sends a usage event, from a process that it forks. Where threads run, the forked process may hang for ever. Without
the package openvino-telemetry, OpenVINO sends nothing.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

_TELEMETRY = "openvino_telemetry"


def load() -> ModuleType:
    """The module `openvino`. Raises ImportError if it is not installed."""
    if _TELEMETRY in sys.modules:  # the program loaded it itself
        return importlib.import_module("openvino")
    sys.modules[_TELEMETRY] = None  # type: ignore[assignment]  # Python's way to say that a module can't be imported
    try:
        return importlib.import_module("openvino")
    finally:
        del sys.modules[_TELEMETRY]
