"""^C and SIGTERM as an exception that leads to exit code 2."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable


class Interrupt(KeyboardInterrupt):
    """^C, as a type of its own.

    After a plain KeyboardInterrupt has passed through an `exec` of text (as in making a dataclass), `python -m` ends by SIGINT
    and not with its exit code, even if the exception was caught (`run_eval_code_obj` in CPython's pythonrun.c).
    """


_interrupted = threading.Event()


def was_interrupted() -> bool:
    """Whether ^C was handled; native code, such as an extension module's import, may have turned it into another exception."""
    return _interrupted.is_set()


def check() -> None:
    """Raises Interrupt if ^C was handled but did not end the work.

    Python ignores what is raised in a callback of its own, such as that of a weak reference: each import makes and drops one.
    """
    if was_interrupted():
        raise Interrupt


def break_off(number: int, frame: object) -> NoReturn:
    """Raises Interrupt for a signal, and ignores later ones of its kind, which would interrupt the cleanup."""
    signal.signal(number, signal.SIG_IGN)
    _interrupt(number, frame)


def _interrupt(number: int, frame: object) -> NoReturn:
    _interrupted.set()
    raise Interrupt


@contextmanager
def interrupts() -> Iterator[None]:
    """Inside, ^C raises Interrupt instead of KeyboardInterrupt. What ends work is not printed where Python ignores it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _interrupted.clear()
    shown = sys.unraisablehook
    sys.unraisablehook = _without_ends(shown)
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_ours:
        signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = shown


def _without_ends(show: Callable[[sys.UnraisableHookArgs], object]) -> Callable[[sys.UnraisableHookArgs], None]:
    def hook(ignored: sys.UnraisableHookArgs) -> None:
        if isinstance(ignored.exc_value, Exception):
            show(ignored)

    return hook
