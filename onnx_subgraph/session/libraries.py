"""The libraries of custom operators of a session: those that its program registered, and those that its model needs.

onnxruntime does not list the libraries of session options, so we record each registration from Python, from the first of our
sessions on.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import wraps
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

_REGISTERED: WeakKeyDictionary[Any, tuple[Path, ...]] = WeakKeyDictionary()


def note_down(kind: Any) -> None:
    """From now on record the libraries registered in options of this class, `onnxruntime.SessionOptions`."""
    register = kind.register_custom_ops_library

    @wraps(register)
    def noting(options: Any, path: Any) -> None:
        register(options, path)
        _REGISTERED[options] = (*registered(options), Path(path).absolute())

    kind.register_custom_ops_library = noting


def registered(options: Any) -> tuple[Path, ...]:
    """The libraries that these options have, None for no options."""
    return () if options is None else _REGISTERED.get(options, ())


def with_libraries(options: Any, libraries: Sequence[Path]) -> Any:
    """The options, or new ones, with these libraries, each once. Raises what onnxruntime raises for a bad file."""
    from onnxruntime import SessionOptions

    have = {path.resolve() for path in registered(options)}
    missing = dict.fromkeys(found for path in libraries if (found := path.resolve()) not in have)
    if not missing:
        return options
    options = SessionOptions() if options is None else options
    for path in missing:
        options.register_custom_ops_library(str(path))
    return options
