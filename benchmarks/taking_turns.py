"""Times models in onnxruntime against each other: all of them in turn in one process, so that what disturbs one disturbs all."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

BLOCKS = 5
"""The runs are cut into so many parts, so that a ratio has a least and a most."""


@dataclass(frozen=True)
class Ratio:
    """A ratio of times: of the medians of all runs, and the least and most of those of parts of them."""

    ratio: float
    least: float
    most: float


def open_session(path: Path, threads: int, libraries: Sequence[Path] = ()) -> onnxruntime.InferenceSession:
    """A session with all of onnxruntime's optimisations, on the CPU. libraries: of custom operators."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    options.add_session_config_entry("session.force_spinning_stop", "1")  # its threads leave the cores to the next session
    for library in libraries:
        options.register_custom_ops_library(str(library))
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def seconds_of_runs(
    sessions: Mapping[str, onnxruntime.InferenceSession], feeds: Mapping[str, Any], budget: float, threads: int
) -> dict[str, list[float]]:
    """Seconds of each run, all sessions in turn, until the budget is spent; the order is turned round each time.

    budget: seconds, of the wall clock. threads: of each session; with one, a run's seconds are processor time.
    A session runs twice in its turn, and only the second run counts: the first finds the caches full of another model's weights.
    Without it the two at the ends of the order, which follow themselves, would be flattered.
    """
    clock = time.thread_time if threads == 1 else time.perf_counter
    times: dict[str, list[float]] = {name: [] for name in sessions}
    ends, order = time.perf_counter() + budget, list(sessions)
    while time.perf_counter() < ends or min(map(len, times.values())) < 2 * BLOCKS:
        for name in order:
            sessions[name].run(None, feeds)
            begun = clock()
            sessions[name].run(None, feeds)
            times[name].append(clock() - begun)
        order.reverse()
    return times


def ratio(some: Sequence[float], others: Sequence[float]) -> Ratio:
    """The times `some` over the times `others`."""
    pairs = zip(np.array_split(some, BLOCKS), np.array_split(others, BLOCKS), strict=True)
    blocks = [float(np.median(a) / np.median(b)) for a, b in pairs]
    return Ratio(float(np.median(some) / np.median(others)), min(blocks), max(blocks))
