"""Measure the memory of a model: how far the peak memory of a process rises while it opens and runs the model.

A separate process does this, because the peak of this one includes other models.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from onnx_subgraph import custom_ops, temporary
from onnx_subgraph.deadline import remaining
from onnx_subgraph.timing.runtimes import Setting, open_runner, try_once
from onnx_subgraph.verification.sessions import Failure, check_providers

PATIENCE = 300.0
"""The time limit of the process in seconds."""
_PROGRAM = f"from onnx_subgraph.late import late_imports\nwith late_imports():\n    from {__name__} import main\nmain()"
"""What the process runs."""


def peak(model: Path, runtime: str, setting: Setting, feeds: Mapping[str, Any]) -> int | None:
    """The bytes by which the peak rises when the model is opened and run twice; None where that can't be measured."""
    if any(not isinstance(array, np.ndarray) or array.dtype.hasobject or array.dtype.kind == "V" for array in feeds.values()):
        return None
    with temporary.folder() as folder:
        given = folder / "feeds.npz"
        np.savez(given, **{f"feed_{name}": array for name, array in feeds.items()})
        task = {
            "model": str(model),
            "runtime": runtime,
            "provider": setting.provider,
            "threads": setting.threads,
            "libraries": [str(path) for path in custom_ops.libraries()],
            "feeds": str(given),
            "answer": str(folder / "answer.json"),
        }
        try:
            subprocess.run(
                [sys.executable, "-P", "-c", _PROGRAM],  # -P: a module in the working folder must not shadow another
                input=json.dumps(task),
                capture_output=True,
                text=True,
                timeout=min(PATIENCE, remaining()),
                check=True,
            )
            found: int | None = json.loads((folder / "answer.json").read_text(encoding="ascii"))
        except (subprocess.SubprocessError, OSError, ValueError):
            return None
    return found


def _peak_of_this_process() -> int | None:
    """Bytes; None where the system does not tell."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    with contextlib.suppress(ImportError):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes on macOS, the only such system without /proc
    return None


def main() -> None:
    """Answer one request from standard input."""
    task = json.loads(sys.stdin.read())
    with np.load(task["feeds"], allow_pickle=False) as archive:
        feeds = {name.removeprefix("feed_"): archive[name] for name in archive.files}
    setting = Setting(task["provider"], task["threads"])
    if not task["runtime"].startswith("openvino"):
        check_providers([task["provider"]])  # import onnxruntime before the measurement, which then excludes its own memory
    before = _peak_of_this_process()
    with custom_ops.using(task["libraries"]):
        runner = open_runner(Path(task["model"]), task["runtime"], setting)
        failed = isinstance(runner, Failure) or any(isinstance(try_once(runner, feeds), Failure) for _ in range(2))
    after = _peak_of_this_process()
    found = None if failed or before is None or after is None else after - before
    Path(task["answer"]).write_text(json.dumps(found), encoding="ascii")
