"""A server for benchmarks/serving.py that uses plain onnxruntime: threads answer requests of random lengths.

    python benchmarks/server.py MODEL LENGTHS.npy ANSWERS.npz --axis seq --threads 4

LENGTHS has one length for each request. ANSWERS has the first elements of plain onnxruntime's answer for each length. If the file
is missing, it is written; otherwise answers are compared with it. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

BEGUN = time.perf_counter()
FIRST = 1024
"""Elements of each output that are compared."""
NEAR = 2e-3
"""The allowed difference of an answer from plain onnxruntime's, as a share of its largest element."""


class Server:
    """A session and its answers. known: length → the first elements of the right answer."""

    def __init__(self, model: Path, lengths: list[int], axis: str, known: dict[str, np.ndarray]) -> None:
        self.session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
        self.ready = time.perf_counter() - BEGUN
        self.lengths, self.axis, self.known = lengths, axis, known
        self.latencies = [0.0] * len(lengths)
        self.wrong: list[int] = []
        self.lost: list[str] = []

    def answer(self, number: int) -> None:
        """Answer one request."""
        length = self.lengths[number]
        given = self.feeds(length)
        begun = time.perf_counter()
        try:
            outputs = self.session.run(None, given)
        except Exception as error:
            self.lost.append(f"{type(error).__name__}: {error}")
            return
        self.latencies[number] = time.perf_counter() - begun
        found = np.concatenate([np.ravel(output)[:FIRST].astype(np.float64) for output in outputs])
        right = self.known.setdefault(str(length), found)
        if not np.abs(found - right).max() <= NEAR * np.abs(right).max():
            self.wrong.append(number)

    def feeds(self, length: int) -> dict[str, np.ndarray]:
        """Inputs: varying token ids for the first one, ones for the others."""
        made: dict[str, np.ndarray] = {}
        for value in self.session.get_inputs():
            sizes = [length if size == self.axis else size if isinstance(size, int) else 1 for size in value.shape]
            ones = np.ones(sizes, np.float32 if value.type == "tensor(float)" else np.int64)
            made[value.name] = ones if made else ones * (np.arange(ones.size).reshape(sizes) % 7 + 1).astype(ones.dtype)
        return made


def held() -> dict[str, int]:
    """Threads of the process, including those of libraries, and open files; 0 if the system does not tell."""
    places = {"threads": Path("/proc/self/task"), "files": Path("/proc/self/fd")}
    return {what: sum(1 for _ in place.iterdir()) if place.exists() else 0 for what, place in places.items()}


def main() -> None:
    """Serve, and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("lengths", type=Path)
    parser.add_argument("answers", type=Path)
    parser.add_argument("--axis", required=True)
    parser.add_argument("--threads", type=int, default=4)
    given = parser.parse_args()
    heard: list[str] = []
    warnings.showwarning = lambda message, *_, **__: heard.append(str(message))
    warnings.simplefilter("always")
    known = dict(np.load(given.answers)) if given.answers.exists() else {}
    server = Server(given.model, [int(length) for length in np.load(given.lengths)], given.axis, known)
    if not given.answers.exists():
        for number in {length: number for number, length in enumerate(server.lengths)}.values():
            server.answer(number)
        np.savez(given.answers, **server.known)
    server.answer(0)
    first, half = time.perf_counter() - BEGUN, len(server.lengths) // 2
    with ThreadPoolExecutor(given.threads) as pool:
        begun = time.perf_counter()
        list(pool.map(server.answer, range(half)))
        halfway = held()
        list(pool.map(server.answer, range(half, len(server.lengths))))
        seconds, now = time.perf_counter() - begun, held()
    stories: list[Any] = [s for s in getattr(server.session, "schedules", tuple)() if s.state != "seen"]
    told = {
        "ready": server.ready,
        "first": first,
        "seconds": seconds,
        "latencies": server.latencies,
        "wrong": len(server.wrong),
        "lost": server.lost,
        "halfway": halfway,
        "now": now,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "heard": heard,
        "stories": [(story.state, story.hits, round(story.ratio, 2), story.reason) for story in stories],
    }
    sys.stdout.write(json.dumps(told))
    sys.stdout.flush()
    os._exit(0)  # do not wait for a backend that hangs


if __name__ == "__main__":
    main()
