"""Measures the memory of a model's static schedules, with separate and with shared weights.

    python benchmarks/shared_weights.py MODEL --axis seq [--lengths 16,32,64,128]

Each way is a process of its own with an empty cache: a StaticSession with a schedule for each length. The figure is the
proportional set size of the process (Linux, /proc/self/smaps_rollup), which counts a page once however often it is mapped.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from onnx_subgraph import SessionSettings, StaticSession
from onnx_subgraph.session import inference


def held() -> float:
    """Megabytes of this process."""
    rollup = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8")
    return next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")) / 1024


def measured(model: Path, axis: str, lengths: list[int]) -> list[float]:
    """Megabytes with the general model, and after each further schedule."""
    with tempfile.TemporaryDirectory() as cache:
        session = StaticSession(model, settings=SessionSettings(cache=cache, strict=True))
        found = [held()]
        for length in lengths:
            feeds = {}
            for value in session.get_inputs():
                sizes = [length if size == axis else size if isinstance(size, int) else 1 for size in value.shape]
                feeds[value.name] = np.ones(sizes, np.float32 if value.type == "tensor(float)" else np.int64)
            session.run(None, feeds)
            session.warm(feeds)
            session.run(None, feeds)
            found.append(held())
        return found


def main() -> None:
    """Measure both ways, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--axis", required=True, help="the name of the dimension that is a length")
    parser.add_argument("--lengths", default="16,32,64,128")
    parser.add_argument("--way", choices=("own", "shared"))
    given = parser.parse_args()
    lengths = [int(length) for length in given.lengths.split(",")]
    if given.way is not None:
        if given.way == "own":
            inference.is_optimised = lambda _: False
        print(json.dumps(measured(given.model, given.axis, lengths)))
        return
    print("| weights | general model | " + " | ".join(f"{length}" for length in lengths) + " |")
    print("|---|---:|" + "---:|" * len(lengths))
    for way in ("own", "shared"):
        done = subprocess.run([sys.executable, *sys.argv, "--way", way], capture_output=True, text=True, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        more = " | ".join(f"+{after - before:.0f}" for before, after in itertools.pairwise(found))
        print(f"| {way} | {found[0]:.0f} MB | {more} |")


if __name__ == "__main__":
    main()
