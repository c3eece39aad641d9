"""Processes that fuse: what comes of one that dies, and of a signal that comes twice."""

from __future__ import annotations

import signal
from typing import Any, cast

import pytest

from onnx_subgraph.cli.batch import Failure, _receive
from onnx_subgraph.cli.interrupt import break_off


class Dead:
    """A process that was killed for its memory."""

    exitcode = -9

    def join(self) -> None: ...


def test_a_process_that_dies_is_a_failure_of_its_model() -> None:
    from multiprocessing import Pipe

    reader, writer = Pipe(duplex=False)
    writer.send("find")
    writer.close()
    assert _receive(reader, cast(Any, Dead())) == "find"
    outcome = _receive(reader, cast(Any, Dead()))
    assert isinstance(outcome, Failure)
    assert "code -9" in outcome.message


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="signals as on POSIX")
def test_a_second_signal_does_not_break_off_the_cleaning_up() -> None:
    before = signal.signal(signal.SIGUSR1, break_off)
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGUSR1)  # what would clean up now is left in peace
    finally:
        signal.signal(signal.SIGUSR1, before)
