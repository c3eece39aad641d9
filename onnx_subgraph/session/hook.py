"""The hook: `onnxruntime.InferenceSession` becomes ours, in a program that does not know us.

It is installed by a call of `install`, by `onnx-subgraph run`, or for a whole Python environment by `onnx-subgraph hook
--install`; never by importing this package. Only the public name is replaced, once the program imports onnxruntime; a program
that does not costs nothing, because only the standard library is imported here.
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

RUNTIME = "onnxruntime"
NAME = "InferenceSession"
STARTUP_FILE = "onnx_subgraph_hook.pth"
STARTUP = (
    "import os, sys; "
    "any(os.environ.get('ONNX_SUBGRAPH_' + name) for name in ('SESSION', 'BACKEND', 'STATIC')) and "
    "__import__('onnx_subgraph.session.hook', fromlist=['start']).start()\n"
)
"""What Python runs at every start in an environment with the hook: nothing but a look at three environment variables."""


def install() -> None:
    """From now on this process's `onnxruntime.InferenceSession` is ours; at once, or as soon as onnxruntime is imported."""
    module = sys.modules.get(RUNTIME)
    if module is not None:
        _replace(module)
    elif not is_installed():
        sys.meta_path.insert(0, _Watch())


def uninstall() -> None:
    """Put onnxruntime's own class back. Sessions that exist stay what they are."""
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
    """Install the hook where the environment asks for it: what runs when Python starts."""
    from onnx_subgraph.session.settings import asked_for

    if asked_for():
        install()


def startup_file() -> Path:
    """The file by which this Python environment has, or would have, the hook."""
    return Path(sysconfig.get_path("purelib")) / STARTUP_FILE


def install_startup() -> Path:
    """Let every Python of this environment look for the environment variables when it starts. Raises UsageError."""
    path = startup_file()
    try:
        path.write_text(STARTUP, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{path} can't be written: {error.strerror or error}", hint="use a virtual environment, or `onnx-subgraph run`"
        ) from error
    return path


def uninstall_startup() -> Path | None:
    """Undo `install_startup`; the file that is gone, None where there was none. Raises UsageError."""
    path = startup_file()
    try:
        path.unlink()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{path} can't be removed: {error.strerror or error}", hint="remove it as its owner") from error
    return path


def _replace(module: ModuleType) -> None:
    from onnx_subgraph.session import inference

    # Where our own module was the first to import onnxruntime, its class is yet to come: it calls `catch_up` when it is there.
    if hasattr(inference, NAME):
        setattr(module, NAME, inference.InferenceSession)
        _waiting.clear()
    else:
        _waiting.append(module)


_waiting: list[ModuleType] = []


def catch_up() -> None:
    """Do what had to wait for the class that replaces onnxruntime's; called by the module that defines it."""
    for module in tuple(_waiting):
        _replace(module)


class _Watch(importlib.abc.MetaPathFinder):
    """Waits for the import of onnxruntime: lets the other finders find it, and acts when it has been executed."""

    def __init__(self) -> None:
        self._searching = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec that the other finders give for onnxruntime, with our step after its last; None for everything else."""
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
