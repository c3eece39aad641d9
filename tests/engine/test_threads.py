"""A session's engines start no threads of their own: they use the thread pool that the program gave onnxruntime."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx
import onnxruntime
import pytest

from onnx_subgraph.cli import main

PROGRAM = """
import os, sys
import numpy as np
import onnxruntime
from onnx_subgraph import EngineSession

onnxruntime.set_global_thread_pool_sizes(4, 1)
before = len(os.listdir("/proc/self/task"))
session = EngineSession(sys.argv[1])
session.run(None, {"x": np.ones((512, 512), np.float32)})
print(len(session.engines), len(os.listdir("/proc/self/task")) - before, session.fallbacks)
"""
NODES = "\n".join(f"m{i} = MatMul (s{i}, x) s{i + 1} = Softmax (m{i})" for i in range(8))
MODEL = f'<ir_version: 8, opset_import: ["" : 17]> g (float[512, 512] x) => (float[512, 512] s8) {{ s0 = Identity (x) {NODES} }}'


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted where /proc lists them")
@pytest.mark.skipif(not hasattr(onnxruntime, "set_global_thread_pool_sizes"), reason="this onnxruntime has no such pool")
def test_engines_share_the_pool_of_the_program(tmp_path: Path) -> None:
    path, partitioned = tmp_path / "m.onnx", tmp_path / "p.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), path)
    command = ("partition", path, "--backend", "onnxruntime", "--deny", "Softmax", "--min-nodes", "1", "--gain", "inf")
    assert main([*map(str, command), "--max-crossing", "9", "-o", str(partitioned)]) == 0
    done = subprocess.run([sys.executable, "-c", PROGRAM, partitioned], check=True, capture_output=True, text=True)
    engines, threads, fallbacks = map(int, done.stdout.split())
    assert engines >= 8 and threads == 0 and fallbacks == 0
    assert not done.stderr
