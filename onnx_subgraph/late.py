"""Libraries that are imported on first use of an attribute, not at the import statement.

onnx-ir and onnx-shape-inference import sympy, whose import takes longer than fusing a small model. Only arithmetic on symbolic
dimensions needs it (`model/symbolic.py`). Two smaller modules are needed as rarely.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType

LATE = (
    "sympy",
    "onnx_ir._symbolic_shapes",
    "onnx_shape_inference._symbolic_shapes",
    "onnx_shape_inference._constraints",
    "onnx_ir.passes.common",
    "packaging.version",
)
"""sympy, and the modules that use it while they are imported; what removes nodes, which fixed dimensions need; versions."""
_loading = threading.RLock()


@contextmanager
def late_imports() -> Iterator[None]:
    """Inside, the modules of `LATE` are imported on first use. A module that is already imported stays imported."""
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Late(ModuleType):
    """A module whose code runs when an attribute is first read. Attributes that were set before keep their values.

    The class of the standard library (`importlib.util.LazyLoader`) stays half initialised if its code is interrupted.
    """

    def __getattribute__(self, name: str) -> object:
        if name in ("__spec__", "__class__", "__dict__"):
            return object.__getattribute__(self, name)
        with _loading:
            if self.__class__ is _Late:
                _load(self)
        return getattr(self, name)


def _load(module: ModuleType) -> None:
    spec = module.__spec__
    assert spec is not None and isinstance(spec.loader, _Loader)
    ours = {name: value for name, value in module.__dict__.items() if not name.startswith("__")}
    module.__class__ = ModuleType
    try:
        spec.loader.loader.exec_module(module)
    except BaseException:
        module.__class__ = _Late
        raise
    module.__dict__.update(ours)


class _Loader(importlib.abc.Loader):
    """Makes a module with its real loader, and runs its code later."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self.loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """The module that the real loader makes."""
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Defers the module's code to the first use of an attribute."""
        module.__class__ = _Late


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of `LATE`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of a module of `LATE`, None for any other."""
        spec = importlib.machinery.PathFinder.find_spec(fullname, path) if fullname in LATE else None
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec
