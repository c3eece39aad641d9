"""The backend `openvino`: its frontend decides what is supported, runs may be concurrent, and compiled regions are cached."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

from onnx_subgraph.backends.onnxruntime import OnnxRuntime
from onnx_subgraph.backends.registry import find_backend
from onnx_subgraph.engine.engine import Engine
from onnx_subgraph.engine.session import EngineSession
from onnx_subgraph.engine.settings import EngineSettings
from onnx_subgraph.errors import UsageError
from onnx_subgraph.partitioning.options import PartitionOptions
from onnx_subgraph.partitioning.partition import partition
from onnx_subgraph.partitioning.worth import RegionLimits
from tests.engine.backends import feed, region
from tests.partitioning.models import parsed

pytest.importorskip("openvino")

BRANCHES = """
c = Constant <value_int = 1> ()
b = Cast <to = 9> (c)
y = If (b) <then_branch = t () => (float[n] o) { o = Neg (x) }, else_branch = e () => (float[n] p) { p = Abs (x) }>
"""


@pytest.mark.parametrize(
    ("nodes", "supported"),
    [
        ("y = Relu (x)", True),
        ("s = Constant <value_ints = [-1, 2]> ()  y = Reshape (x, s)", True),
        ("y = Unheard.Of (x)", False),
        (BRANCHES, True),
    ],
    ids=["an operator", "a constant input", "an unknown operator", "bodies that capture"],
)
def test_the_frontend_decides_what_is_supported(nodes: str, supported: bool) -> None:
    model = parsed(f'<ir_version: 8, opset_import: ["" : 17, "Unheard" : 1]> g (float[n, 4] x) => (float[m, k] y) {{ {nodes} }}')
    backend = find_backend("openvino")
    node = model.graph[-1]
    assert backend.supports(node) is supported
    assert backend.supports(node) is supported  # the answer is cached
    assert backend.reason(node) == f"openvino does not run {'Unheard.' * (not supported)}{node.op_type}"


INTEGERS = {
    "a sum of ids": ("y = Add (i, i)", False),
    "a total of ids": ("y = ReduceSum <keepdims = 0> (i)", False),
    "a size that is fed": ("y = Reshape (x, i)", False),
    "a number without a bound": ("y = Cast <to = 7> (x)", False),
    "rows of an unknown number": ("y = Gather (x, i)", False),
    "rows of a known number": ("w = Constant <value_floats = [1.0, 2.0]> ()  y = Gather (w, i)", True),
    "an axis of known size": ("y = Gather <axis = 1> (x, i)", True),
    "ids that are compared": ("y = Equal (i, i)", True),
    "ids that are moved": ("y = Concat <axis = 0> (i, i)", True),
    "a mask": ("y = Cast <to = 1> (i)", True),
    "a product of sizes": ("s = Shape (i)  t = Shape (x)  y = Mul (s, t)", True),
    "positions": ("c = Equal (i, i)  p = Cast <to = 7> (c)  z = Constant <value_int = 0> ()  y = CumSum (p, z)", True),
    "a large constant in a sum": (
        "s = Shape (x)  c = Constant <value = int64 {3000000000}> ()  y = Add (s, c)",
        False,
    ),
    "a large constant that is compared": ("c = Constant <value = int64 {4294967301}> ()  y = Equal (i, c)", False),
    "a large constant that is chosen": (
        "c = Constant <value = int64 {4294967301}> ()  b = Equal (i, i)  y = Where (b, i, c)",
        False,
    ),
    "to the end": (
        """a = Constant <value_ints = [1]> ()  e = Constant <value = int64[1] {9223372036854775807}> ()
        s = Shape (x)  y = Slice (s, a, e)""",
        True,
    ),
    "to the end in a body": (
        """k = Constant <value_int = 1> ()  b = Cast <to = 9> (k)  a = Constant <value_ints = [1]> ()
        e = Constant <value = int64[1] {9223372036854775807}> ()
        y = If (b) <then_branch = t () => (o) { o = Slice (x, a, e) }, else_branch = f () => (p) { p = Identity (x) }>""",
        True,
    ),
    "a sum of ids in a body": (
        """k = Constant <value_int = 1> ()  b = Cast <to = 9> (k)
        y = If (b) <then_branch = t () => (o) { o = Add (i, i) }, else_branch = e () => (p) { p = Identity (i) }>""",
        False,
    ),
}


@pytest.mark.parametrize(("nodes", "supported"), INTEGERS.values(), ids=INTEGERS)
def test_integers_that_may_need_more_than_32_bits_are_not_computed(nodes: str, supported: bool) -> None:
    model = parsed(f'<ir_version: 8, opset_import: ["" : 17]> g (float[n, 4] x, int64[m] i) => (y) {{ {nodes} }}')
    backend, node = find_backend("openvino"), model.graph[-1]
    assert backend.supports(node) is supported
    assert ("more than 32 bits" in backend.reason(node)) is not supported


LOOKUP = """<ir_version: 8, opset_import: ["" : 17]> g (int64[n] i, int64[n] j) => (float[m] y, bool[n] same)
<float[4] w = {1.0, 2.0, 3.0, 4.0}> { b = Concat <axis = 0> (i, j)  y = Gather (w, b)  same = Equal (i, j) }"""


def test_numbers_that_it_would_get_wrong_are_left_to_onnxruntime() -> None:
    """An id outside of the table is onnxruntime's error, in 64 bits and in 32; the next run has the engine again."""
    made = Engine(region(LOOKUP), find_backend("openvino"), OnnxRuntime(), EngineSettings())
    good = [np.array([0, -4]), np.array([3, -1])]
    for bad in (2**32, 4, -5):
        y, same = made.run(good)
        assert np.array_equal(y, [1, 1, 4, 4]) and np.array_equal(same, [False, False])
        with pytest.raises(InvalidArgument, match="out of data bounds"):
            made.run([np.array([0, bad]), np.array([3, -1])])
    assert (made.fallbacks, made.failure) == (0, "")
    compared = '<ir_version: 8, opset_import: ["" : 17]> g (int64[n] i, int64[n] j) => (bool[n] y) { y = Equal (i, j) }'
    made = Engine(region(compared), find_backend("openvino"), OnnxRuntime(), EngineSettings())
    assert not made.run([np.array([2**32 + 5]), np.array([5])])[0] and made.run([np.array([7]), np.array([7])])[0]
    assert (made.fallbacks, made.failure) == (1, "")


def test_threads_share_a_compiled_region() -> None:
    engine = Engine(region(), find_backend("openvino"), OnnxRuntime(), EngineSettings(strict=True))
    expected = {batch: np.maximum(feed(batch)[0] * np.float32([1, 2, 3, 4]), 0) for batch in (1, 2, 3)}
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda n: (1 + n % 3, engine.run(feed(1 + n % 3))[0]), range(60)))
    assert all(np.array_equal(expected[batch], y) for batch, y in results)
    assert engine.usage.misses == 3 and engine.fallbacks == 0


def test_a_compiled_region_is_restored_from_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = EngineSettings(folder=tmp_path, strict=True)
    first = Engine(region(), find_backend("openvino"), OnnxRuntime(), settings).run(feed())
    assert len(list(tmp_path.iterdir())) == 1
    again = find_backend("openvino")
    monkeypatch.setattr(again, "compile", lambda *_: pytest.fail("it was compiled again"))
    second = Engine(region(), again, OnnxRuntime(), settings).run(feed())
    assert all(np.array_equal(one, other) for one, other in zip(first, second, strict=True))


def test_weights_too_large_for_protobuf_are_passed_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    from onnx_subgraph.backends import subgraph
    from onnx_subgraph.backends.openvino import backend as module

    monkeypatch.setattr(module, "_ROOM", 8)
    monkeypatch.setattr(subgraph, "LARGE", 16)
    outputs = Engine(region(), find_backend("openvino"), OnnxRuntime(), EngineSettings(strict=True)).run(feed())
    np.testing.assert_array_equal(outputs[0], np.maximum(feed()[0] * np.float32([1, 2, 3, 4]), 0))


def test_int64_aliases_and_strided_arrays_are_accepted() -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (int64[n, 4] x) => (int64[n, 4] y) { y = Concat <axis = 0> (x, x) }'
    engine = Engine(region(text), find_backend("openvino"), OnnxRuntime(), EngineSettings(strict=True))
    whole = np.arange(16).reshape(2, 8)
    for array in (whole[:, ::2].astype(np.longlong), whole[:, ::2], np.asfortranarray(whole[:, :4])):
        np.testing.assert_array_equal(engine.run([array])[0], np.concatenate([array, array]))


def test_a_precision_is_an_option_and_each_has_its_own_compiled_regions() -> None:
    plain, narrow = find_backend("openvino"), find_backend("openvino:bf16")
    assert plain.coarser == ("openvino:bf16",) and not narrow.coarser and plain.version != narrow.version
    assert find_backend("openvino:CPU,bf16").version == narrow.version


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("openvino:f16,bf16", "is no device and precision"),
        ("openvino:CPU,", "is no device and precision"),
        ("openvino:ABACUS", "OpenVINO has no device ABACUS here"),
    ],
)
def test_a_device_that_is_not_here_is_an_error(name: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        find_backend(name)


def test_openvino_sends_no_telemetry() -> None:
    """On import it forks a process that sends a usage event, and that may hang where threads run."""
    program = "import sys\nfrom onnx_subgraph.backends.registry import find_backend\nfind_backend('openvino')\n"
    program += (
        "from openvino.tools.ovc import telemetry_utils\nprint(telemetry_utils.tm.__name__, 'openvino_telemetry' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "openvino.tools.ovc.telemetry_stub False\n"


def test_empty_inputs_are_left_to_onnxruntime(tmp_path: Path) -> None:
    """OpenVINO divides by the number of rows here, and would end the process."""
    text = """<ir_version: 10, opset_import: ["" : 18]> g (float[n, 4] x) => (float[m, 4] y) {
      axis = Constant <value = int64[1] {1}> ()
      half = Constant <value = float {0.5}> ()
      most = ReduceMax <keepdims = 0> (x, axis)
      chosen = Greater (most, half)
      y = Compress <axis = 0> (x, chosen) }"""
    source, target = tmp_path / "model.onnx", tmp_path / "parted.onnx"
    onnx.save(onnx.parser.parse_model(text), source)
    limits = RegionLimits(min_nodes=1, max_crossing=9)
    assert partition(source, target, PartitionOptions("openvino", limits)).engines
    session = EngineSession(target, settings=EngineSettings(isolated=True))
    found = [session.run(None, {"x": np.ones((rows, 4), np.float32)})[0].shape for rows in (2, 0, 3)]
    assert found == [(2, 4), (0, 4), (3, 4)] and session.fallbacks == 1 and not session.failure
