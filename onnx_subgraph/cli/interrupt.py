"""What ^C and SIGTERM do to a command: an exception that leads to exit code 2."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


class Interrupt(KeyboardInterrupt):
    """^C, of a type of its own.

    Once a plain KeyboardInterrupt has passed through an `exec` of text (as in making a dataclass), `python -m` ends by SIGINT and
    not with its exit code, whoever caught the exception since (`run_eval_code_obj` in CPython's pythonrun.c).
    """


_interrupted = threading.Event()


def was_interrupted() -> bool:
    """Whether ^C was answered: native code may have made another exception of it, as the imports of extension modules do."""
    return _interrupted.is_set()


def break_off(number: int, frame: object) -> NoReturn:
    """Answers a signal as ^C, and later ones of its kind not at all: they would break off the cleaning up."""
    signal.signal(number, signal.SIG_IGN)
    _interrupt(number, frame)


def _interrupt(number: int, frame: object) -> NoReturn:
    _interrupted.set()
    raise Interrupt


@contextmanager
def interrupts() -> Iterator[None]:
    """^C raises Interrupt inside, where it would raise KeyboardInterrupt."""
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
