"""Counts the threads of a program that runs a model with many engines, by runtime, and with one pool for all sessions.

    python benchmarks/engine_threads.py [MODEL]

Each row is a separate process. It cuts the model (by default gpt2 of the samples) into engines, runs it, and counts its threads
(Linux, /proc/self/task). The last row shows why one pool is not the default: once it exists, onnxruntime refuses sessions that
have threads of their own, and the program's sessions do.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime

from onnx_subgraph import EngineSession
from onnx_subgraph.partitioning.options import PartitionOptions
from onnx_subgraph.partitioning.partition import partition
from onnx_subgraph.partitioning.worth import RegionLimits

SAMPLE = Path(__file__).resolve().parent.parent / "sample_models" / "gpt2_dynamo.onnx"
PIECES = RegionLimits(min_nodes=1, max_crossing=9, deny=("Add", "Softmax"), gain=float("inf"))
WAYS = {
    "plain onnxruntime": (None, False),
    "onnxruntime": ("onnxruntime", False),
    "onnxruntime, one pool": ("onnxruntime", True),
    "openvino": ("openvino", False),
}


def threads() -> int:
    """The threads of this process, including those of libraries."""
    return sum(1 for _ in Path("/proc/self/task").iterdir())


def counted(model: Path, way: str) -> dict[str, object]:
    """The number of engines, the threads that a session and its runs add, and what another session of the program then says."""
    backend, pool = WAYS[way]
    engines = 0
    with tempfile.TemporaryDirectory() as folder:
        path = model
        if backend is not None:
            path = Path(folder) / "parted.onnx"
            engines = len(partition(model, path, PartitionOptions(backend, PIECES, verify=False)).engines)
        if pool:
            onnxruntime.set_global_thread_pool_sizes(0, 1)
        before = threads()
        session = EngineSession(path) if backend is not None else onnxruntime.InferenceSession(path)
        feeds = {value.name: np.ones([2] * len(value.shape), np.int64) for value in session.get_inputs()}
        session.run(None, feeds)
        more = threads() - before
        said = "works"
        if pool:
            try:
                onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
            except Exception as error:
                said = " ".join(str(error).split())[-150:].partition(" ")[2]
    return {"engines": engines, "threads": more, "program": said}


def main() -> None:
    """Count, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="?", default=SAMPLE)
    parser.add_argument("--way", choices=tuple(WAYS))
    given = parser.parse_args()
    if given.way is not None:
        print(json.dumps(counted(given.model, given.way)))
        return
    print("| who runs them | engines | more threads | a session of the program's own |\n|---|---:|---:|---|")
    for way in WAYS:
        done = subprocess.run([sys.executable, *sys.argv, "--way", way], capture_output=True, text=True, check=True)
        told = json.loads(done.stdout.splitlines()[-1])
        print(f"| {way} | {told['engines']} | {told['threads']} | {told['program']} |")


if __name__ == "__main__":
    main()
