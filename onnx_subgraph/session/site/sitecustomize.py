"""Python imports this at its start where `onnx-subgraph run` put this folder on the path, in child processes too.

It installs the hook and hands on to the `sitecustomize` that would have been imported without it.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import PathFinder
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_ROOT = _HERE.parents[2]
if importlib.util.find_spec("onnx_subgraph") is None:
    sys.path.append(str(_ROOT))

from onnx_subgraph.session import hook  # noqa: E402 - it may lie at the end of the path that was just made longer

hook.start()

_others = [place for place in sys.path if place and Path(place).resolve() != _HERE]
_next = PathFinder.find_spec("sitecustomize", _others)
if _next is not None and _next.loader is not None:
    _module = importlib.util.module_from_spec(_next)
    sys.modules["sitecustomize"] = _module
    _next.loader.exec_module(_module)
