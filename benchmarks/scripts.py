"""Imports Python files of a corpus, which is not a package."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path


def load_script(path: Path) -> types.ModuleType:
    """The module of one Python file; its siblings are importable while it loads."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module
