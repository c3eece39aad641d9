"""Runs sessions with their inputs and outputs in the memory of a device, so that copies from and to it are not timed."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import onnxruntime

DEVICES = {"CUDAExecutionProvider": "cuda", "DmlExecutionProvider": "dml", "ROCMExecutionProvider": "cuda"}
"""Execution provider → onnxruntime's name of the device, where that is not the processor."""


def runner(session: onnxruntime.InferenceSession, feeds: Mapping[str, Any]) -> Callable[[], object]:
    """A function that runs a session on these feeds. It returns when the device has finished.

    On a device the feeds are copied once, here, and the outputs stay there.
    """
    device = DEVICES.get(session.get_providers()[0])
    if device is None:
        return partial(session.run, None, feeds)
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array, device, 0))
    for output in session.get_outputs():
        binding.bind_output(output.name, device)
    return partial(session.run_with_iobinding, binding)


def name(provider: str) -> str:
    """What a provider runs on, for a page."""
    if DEVICES[provider] != "cuda":
        return provider
    asked = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()[0]
