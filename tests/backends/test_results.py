"""A backend's results are right for any memory layout of its inputs. Later runs change neither these results nor any input."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from onnx_subgraph.backends.array import Array
from onnx_subgraph.backends.backend import Backend
from onnx_subgraph.backends.onnxruntime import OnnxRuntime
from onnx_subgraph.backends.registry import find_backend
from onnx_subgraph.engine.engine import Engine
from onnx_subgraph.engine.isolated import Isolated
from onnx_subgraph.engine.settings import EngineSettings
from tests.engine.backends import region

TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
region (float[n, m, 4] x, float s) => (float[n, m, 4] y, float[n, m, 4] same, float[k, 4] rows, float[n, m] total)
<int64[2] flat = {-1, 4}, int64[1] last = {2}>
{
  scaled = Mul (x, s)
  y = Relu (scaled)
  same = Identity (x)
  rows = Reshape (scaled, flat)
  total = ReduceSum <keepdims = 0> (y, last)
}
"""


def unaligned(array: Array) -> Array:
    return np.frombuffer(b"-" + array.tobytes(), np.uint8, offset=1).view(array.dtype).reshape(array.shape)


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "in one piece": lambda array: array,
    "transposed": lambda array: array.transpose(2, 1, 0).copy().transpose(2, 1, 0),
    "strided": lambda array: np.repeat(array, 2, axis=1)[:, ::2],
    "backwards": lambda array: array[::-1].copy()[::-1],
    "broadcast": lambda array: np.broadcast_to(array[:1], array.shape),
    "unaligned": unaligned,
    "of the other byte order": lambda array: array.astype(array.dtype.newbyteorder()),
}


def isolated() -> Backend:
    return Isolated("onnxruntime")


BACKENDS: dict[str, Callable[[], Backend]] = {
    "openvino": lambda: find_backend("openvino"),
    "onnxruntime": OnnxRuntime,
    "reference": lambda: find_backend("reference"),
    "isolated": isolated,
}


@pytest.fixture(params=BACKENDS)
def engine(request: pytest.FixtureRequest) -> Engine:
    """An engine that caches fewer signatures than the test uses and raises on every failure."""
    if request.param == "openvino":
        pytest.importorskip("openvino")
    return Engine(region(TEXT), BACKENDS[request.param](), OnnxRuntime(), EngineSettings(signatures=3, strict=True))


def expected(x: Array, s: Array) -> tuple[Array, ...]:
    scaled = x.astype(np.float32) * s
    y = np.maximum(scaled, 0)
    return y, x, scaled.reshape(-1, 4), y.sum(-1)


def test_results_are_right_for_any_memory_layout_and_stay_right_under_threads(engine: Engine) -> None:
    """Every result is compared after all runs. The inputs are large enough to be freed at once; they must not change either."""
    kept: list[tuple[str, Array, Array, Array, list[Array]]] = []
    lock = threading.Lock()

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        for number in range(28):
            name, lay_out = list(LAYOUTS.items())[number % len(LAYOUTS)]
            shape = (1 + int(random.integers(3)), int(random.choice([3, 700])), 4)
            x = lay_out(random.standard_normal(shape).astype(np.float32))
            s = np.asarray(number - 9.5, np.float32)
            before = np.array(x)
            outputs = list(engine.run([x, s]))
            with lock:
                kept.append((name, before, x, s, outputs))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, range(3)))
    assert len(kept) == 84 and engine.fallbacks == 0
    for name, before, x, s, outputs in kept:
        np.testing.assert_array_equal(x, before, name)
        for ours, theirs in zip(outputs, expected(before, s), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6, err_msg=name)


def test_results_share_no_memory(engine: Engine) -> None:
    """Writing to a result changes no input and no other result."""
    x, s = np.ones((2, 700, 4), np.float32), np.asarray(2, np.float32)
    first = engine.run([x, s])
    second = engine.run([x, s])
    for array in first:
        array[...] = -1
    for ours, theirs in zip((*second, *engine.run([x, s])), expected(x, s) * 2, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(x, 1)
