"""Times models in onnxruntime in turn, in one process, so that a disturbance affects all of them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import devices
import numpy as np
import onnxruntime

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from onnx_subgraph.timing.turns import BLOCKS, Ratio, ratio, take_turns

__all__ = ["BLOCKS", "CPU", "QUANTILE", "Ratio", "open_session", "quartiles", "ratio", "seconds_of_runs", "seconds_of_ways"]

QUANTILE = 0.25
"""The lower quartile of a model's times, because other work on the machine can only make a run longer."""


CPU = "CPUExecutionProvider"


def open_session(path: Path, threads: int, libraries: Sequence[Path] = (), provider: str = CPU) -> onnxruntime.InferenceSession:
    """A session with all of onnxruntime's optimisations. libraries: of custom operators."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    options.add_session_config_entry("session.force_spinning_stop", "1")  # its idle threads free the cores for the next session
    for library in libraries:
        options.register_custom_ops_library(str(library))
    return onnxruntime.InferenceSession(str(path), options, providers=[provider])


def seconds_of_runs(
    sessions: Mapping[str, onnxruntime.InferenceSession], feeds: Mapping[str, Any], budget: float, threads: int
) -> dict[str, list[float]]:
    """Seconds of each run, all sessions in turn, until the budget is spent.

    budget: wall-clock seconds. threads: of each session. With one thread, times are processor time of the process, which does not
    hold on a device: give another number there. On a device the feeds and the outputs stay in its memory.
    """
    return seconds_of_ways({name: devices.runner(session, feeds) for name, session in sessions.items()}, budget, threads)


def seconds_of_ways(ways: Mapping[str, Callable[[], object]], budget: float, threads: int) -> dict[str, list[float]]:
    """As `seconds_of_runs`, for any callable that runs a model."""
    return take_turns(ways, budget, time.process_time if threads == 1 else time.perf_counter)


def quartiles(some: Sequence[float], others: Sequence[float]) -> Ratio:
    """The ratio of the lower quartiles of `some` and `others`, for all runs, and the least and the most of parts of the runs."""
    pairs = zip(np.array_split(some, BLOCKS), np.array_split(others, BLOCKS), strict=True)
    blocks = [float(np.quantile(a, QUANTILE) / np.quantile(b, QUANTILE)) for a, b in pairs if a.size and b.size]
    return Ratio(float(np.quantile(some, QUANTILE) / np.quantile(others, QUANTILE)), min(blocks), max(blocks))
