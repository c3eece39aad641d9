"""^C and SIGTERM as an exception that leads to exit code 2."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


class Interrupt(KeyboardInterrupt):
    """^C, as a type of its own.

    After a plain KeyboardInterrupt has passed through an `exec` of text (as in making a dataclass), `python -m` ends by SIGINT
    and not with its exit code, even if the exception was caught (`run_eval_code_obj` in CPython's pythonrun.c).
    """


_interrupted = threading.Event()


def was_interrupted() -> bool:
    """Whether ^C was handled; native code, such as an extension module's import, may have turned it into another exception."""
    return _interrupted.is_set()


def break_off(number: int, frame: object) -> NoReturn:
    """Raises Interrupt for a signal, and ignores later ones of its kind, which would interrupt the cleanup."""
    signal.signal(number, signal.SIG_IGN)
    _interrupt(number, frame)


def _interrupt(number: int, frame: object) -> NoReturn:
    _interrupted.set()
    raise Interrupt


@contextmanager
def interrupts() -> Iterator[None]:
    """Inside, ^C raises Interrupt instead of KeyboardInterrupt."""
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    _interrupted.clear()
    signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
