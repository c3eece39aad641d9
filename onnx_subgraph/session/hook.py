"""The hook: replaces `onnxruntime.InferenceSession` by ours in a program that was not written for it.

It is installed by `install`, by `onnx-subgraph run`, or for a whole Python environment by `onnx-subgraph hook --install`; never
by importing this package. Only the public name is replaced, after the program has imported onnxruntime. Other programs pay
nothing, because only the standard library is imported here.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from onnx_subgraph.errors import UsageError
from onnx_subgraph.late import late_imports

RUNTIME = "onnxruntime"
NAME = "InferenceSession"
STARTUP_FILE = "onnx_subgraph_hook.pth"
STARTUP = (
    "import os, sys; "
    "any(os.environ.get('ONNX_SUBGRAPH_' + name) for name in ('SESSION', 'BACKEND', 'STATIC')) and "
    "__import__('onnx_subgraph.session.hook', fromlist=['start']).start()\n"
)
"""The code that Python runs at every start in an environment with the hook. It only looks at three environment variables."""


def install() -> None:
    """Replace this process's `onnxruntime.InferenceSession` by ours, now or as soon as onnxruntime is imported."""
    module = sys.modules.get(RUNTIME)
    if module is not None:
        _replace(module)
    elif not is_installed():
        sys.meta_path.insert(0, _Watch())


def uninstall() -> None:
    """Restore onnxruntime's own class. Existing sessions do not change."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Watch)]
    module = sys.modules.get(RUNTIME)
    if module is not None and is_installed():
        from onnx_subgraph.verification.sessions import plain_session_class

        setattr(module, NAME, plain_session_class())


def is_installed() -> bool:
    """Whether the hook is in place in this process."""
    if any(isinstance(finder, _Watch) for finder in sys.meta_path):
        return True
    ours = sys.modules.get("onnx_subgraph.session.inference")
    return ours is not None and getattr(sys.modules.get(RUNTIME), NAME, None) is getattr(ours, NAME)


def start() -> None:
    """Install the hook if the environment asks for it; runs when Python starts."""
    from onnx_subgraph.session.settings import asked_for

    if asked_for():
        install()


def startup_file() -> Path:
    """The path of the startup file in this Python environment, whether it exists or not."""
    return Path(sysconfig.get_path("purelib")) / STARTUP_FILE


def install_startup() -> Path:
    """Make every Python of this environment look at the environment variables when it starts. Raises UsageError."""
    path = startup_file()
    try:
        path.write_text(STARTUP, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{path} can't be written: {error.strerror or error}", hint="use a virtual environment, or `onnx-subgraph run`"
        ) from error
    return path


def uninstall_startup() -> Path | None:
    """Undo `install_startup`; the removed file, None if there was none. Raises UsageError."""
    path = startup_file()
    try:
        path.unlink()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{path} can't be removed: {error.strerror or error}", hint="remove it as its owner") from error
    return path


def _replace(module: ModuleType) -> None:
    with late_imports():
        from onnx_subgraph.session import inference

    # If our own module was the first to import onnxruntime, our class does not exist yet: that module calls `catch_up` later.
    if hasattr(inference, NAME):
        setattr(module, NAME, inference.InferenceSession)
    else:
        _waiting.append(module)


_waiting: list[ModuleType] = []


def catch_up() -> None:
    """Complete the installation once our class exists; called by the module that defines it."""
    for module in tuple(_waiting):
        _replace(module)


class _Watch(importlib.abc.MetaPathFinder):
    """Waits for the import of onnxruntime: the other finders find it, and the hook acts after its execution."""

    def __init__(self) -> None:
        self._searching = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of onnxruntime from the other finders, with our step after its execution; None for everything else."""
        if fullname != RUNTIME or self._searching:
            return None
        self._searching = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._searching = False
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_replace(module: ModuleType) -> None:
            execute(module)
            sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
            _replace(module)

        spec.loader.exec_module = execute_and_replace  # type: ignore[method-assign]
        return spec
