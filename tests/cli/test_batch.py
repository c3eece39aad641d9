"""Processes that fuse: a second signal, and the process that they are forked from."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from onnx_subgraph.cli.interrupt import break_off


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="signals as on POSIX")
def test_a_second_signal_does_not_interrupt_the_cleanup() -> None:
    before = signal.signal(signal.SIGUSR1, break_off)
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGUSR1)  # a cleanup that ran now would not be interrupted
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forks on Linux only")
def test_the_process_to_fork_from_is_safe_to_fork() -> None:
    """It has one thread and has not imported onnxruntime, which starts more.

    Threads of numpy do not count: a fork makes them anew.
    """
    code = """
import os, sys
import onnx_subgraph.cli.preloaded
from onnx_subgraph.language.library import _parsed
from onnx_subgraph.matching.normalise import normalise
assert _parsed.cache_info().currsize == 1 and normalise.cache_info().currsize > 50
sys.exit("onnxruntime" in sys.modules or len(os.listdir("/proc/self/task")) > 1)
"""
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "OPENBLAS_NUM_THREADS": "1"}, timeout=60)
    assert done.returncode == 0
