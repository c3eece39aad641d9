"""The estimated cost and gain of a region, and which regions are left after a measurement."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from onnx_subgraph.backends.onnxruntime import OnnxRuntime
from onnx_subgraph.files.models import load
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.partitioning import measure
from onnx_subgraph.partitioning.choice import partition_model
from onnx_subgraph.partitioning.options import PartitionOptions
from onnx_subgraph.partitioning.partition import partition
from onnx_subgraph.partitioning.work import likely_sizes, operations
from onnx_subgraph.partitioning.worth import MEASURED, Cost, RegionLimits, cost, objection
from onnx_subgraph.regions.region import Region
from onnx_subgraph.verification.sessions import run
from tests.engine.backends import Scripted
from tests.partitioning.conftest import Clock
from tests.partitioning.models import LAYERS, SAMPLES, Without, parsed
from tests.partitioning.test_partition import written

HEAD = '<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1, "mine" : 1]>'


def counted(text: str, **sizes: int) -> int:
    model = parsed(f"{HEAD} {text}")
    return operations(list(model.graph), likely_sizes(model, {}) | sizes, model.functions)


@pytest.mark.parametrize(
    ("text", "products"),
    [
        ("g (float[2,3,4] x, float[4,5] w) => (float[2,3,5] y) { y = MatMul (x, w) }", 2 * 3 * 5 * 4),
        ("g (float[4,3] x, float[4,5] w) => (float[3,5] y) { y = Gemm <transA = 1> (x, w) }", 3 * 5 * 4),
        ("g (float[1,4,8,8] x, float[6,2,3,3] w) => (float[1,6,6,6] y) { y = Conv <group = 2> (x, w) }", 6 * 36 * 2 * 9),
        ("g (float[1,4,3,3] x, float[4,6,2,2] w) => (float[1,6,4,4] y) { y = ConvTranspose (x, w) }", 4 * 9 * 6 * 4),
        (
            "g (float[7,2,3] x, float[1,16,3] w, float[1,16,4] r) => (float[7,1,2,4] y) { y = LSTM <hidden_size = 4> (x, w, r) }",
            14 * (48 + 64),
        ),
        (
            (
                "g (float[7,2,3] x, uint8[1,3,16] w, uint8[1,4,16] r, float[1] s, uint8[1] z) => (float[7,1,2,4] y)"
                " { y = com.microsoft.DynamicQuantizeLSTM <hidden_size = 4> (x, w, r, , , , , , s, z, s, z) }"
            ),
            14 * (48 + 64),
        ),
        (
            (
                "g (float[2,3,8] q, float[2,5,8] k, float[2,5,8] v) => (float[2,3,8] y)"
                " { y = com.microsoft.MultiHeadAttention <num_heads = 2> (q, k, v) }"
            ),
            2 * (2 * 3 * 5 * 8),
        ),
        ("g (float[2,3] x) => (float[2,3] y) { y = Relu (x) }", 0),
    ],
    ids=["MatMul", "Gemm", "grouped Conv", "ConvTranspose", "LSTM", "quantized LSTM", "attention", "elementwise"],
)
def test_a_multiply_add_is_two_operations(text: str, products: int) -> None:
    assert counted(text) == 2 * products


def test_nodes_of_functions_and_bodies_are_counted_at_the_call() -> None:
    inner = "{ a = Transpose (v)  w = MatMul (v, a) }"
    text = "g (float[3,4] v) => (float[3,3] w) { w = mine.F (v) }"
    assert counted(f'{text} <opset_import: ["" : 20], domain: "mine"> F (v) => (w) {inner}') == 2 * 3 * 3 * 4
    body = inner.replace("{", "() => (float[3,3] w) {")
    text = f"g (float[3,4] v, bool c) => (float[3,3] r) {{ r = If (c) <then_branch = t {body}, else_branch = e {body}> }}"
    assert counted(text) == 2 * 2 * 3 * 3 * 4


def test_a_region_at_the_limits_is_worth_an_engine() -> None:
    limits = RegionLimits(min_nodes=3, max_crossing=0.5)
    costs = [Cost(nodes, crossing, 0, 4) for nodes, crossing in ((3, 2), (2, 2), (3, 3))]
    assert [objection(one, limits, math.inf)[:16] for one in costs] == ["", "smaller than 3 n", "75% of the bytes"]


def test_a_given_size_counts_in_the_place_of_a_likely_one() -> None:
    text = f"{HEAD} g (float[batch, 8] x) => (float[batch, 8] y) {{ y = Exp (x) }}"
    limits = replace(MEASURED, sizes={"batch": 3})
    ((given,), (likely,)) = (partition_model(parsed(text), OnnxRuntime(), one).engines for one in (limits, MEASURED))
    assert given.cost.inputs == 3 * 8 * 4 != likely.cost.inputs


def test_dynamic_sizes_are_estimated_or_given() -> None:
    text = "g (float[batch,length,4] x, float[4,5] w) => (float[batch,length,5] y) { y = MatMul (x, w) }"
    assert counted(text) == 2 * 64 * 5 * 4
    model = parsed(f"{HEAD} {text}")
    sizes = likely_sizes(model, {"x": (3, 7, 4)})
    assert operations(list(model.graph), sizes, {}) == 2 * 3 * 7 * 5 * 4


def test_one_region_for_the_whole_model_has_no_crossing_cost() -> None:
    model = parsed(LAYERS)
    nodes = tuple(model.graph)
    assert cost(Region.of(model.graph, nodes), model, {}).price == 0
    assert cost(Region.of(model.graph, nodes[1:]), model, {}).price > 0


def test_a_whole_body_is_not_the_whole_model() -> None:
    """Also where the main graph has as many nodes: what the body reads and gives crosses its border."""
    model = parsed(f"""{HEAD} g (float[4] x, bool c) => (float[4] y) {{
      a = Neg (x)
      y = If (c) <
        then_branch = t () => (float[4] p) {{ b = Abs (a) p = Exp (b) }},
        else_branch = e () => (float[4] q) {{ q = Identity (a) }}>
    }}""")
    body = model.graph[1].attributes["then_branch"].as_graph()
    assert len(body) == len(model.graph)
    assert cost(Region.of(body, tuple(body)), model, {}).price > 0


class Gaining(Without):
    """A backend that saves a tenth."""

    gain = 0.1


def test_small_regions_for_a_backend_of_little_gain_are_left_with_a_reason() -> None:
    partition = partition_model(parsed(LAYERS), Gaining("Softmax"), RegionLimits(1, 9))
    assert not partition.engines
    assert {r.reason for r in partition.refused} == {
        "crossing its border takes longer than 10% of its work, which the backend may save"
    }
    assert len(partition_model(parsed(LAYERS), Gaining("Softmax"), RegionLimits(1, 9, gain=math.inf)).engines) == 2
    assert len(partition_model(parsed(LAYERS), Gaining(), RegionLimits(1, 9)).engines) == 1


def test_large_regions_are_worth_the_crossing_cost() -> None:
    """The same network with 8 and with 2048 channels."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[64, WIDTH] x, float[WIDTH, WIDTH] w) => (float[64, WIDTH] y) {
        a = MatMul (x, w)  b = Relu (a)  c = MatMul (b, w)  d = Relu (c)  e = MatMul (d, w)  f = Relu (e)
        g = MatMul (f, w)  h = Softmax (g)  i = MatMul (h, w)  y = Relu (i)
    }"""
    made = {}
    for width in (8, 2048):
        model = parsed(text.replace("WIDTH", str(width)))
        weight = model.graph.inputs.pop()
        weight.const_value = ir.tensor(np.zeros((width, width), np.float32), name="w")
        model.graph.register_initializer(weight)
        made[width] = len(partition_model(model, Gaining("Softmax")).engines)
    assert made == {8: 0, 2048: 1}


@pytest.mark.parametrize("name", ["bert_torchscript", "resnet_dynamo", "functions_onnxscript", "branches_dynamo", "unet_dynamo"])
def test_every_region_of_a_real_model_has_a_cost(name: str) -> None:
    model = load(SAMPLES / f"{name}.onnx")
    infer_shapes(model)
    (price,) = (made.cost for made in partition_model(model, Scripted(), RegionLimits(1, 9)).engines)
    assert price.operations > 0 and price.touched > price.crossing > 0 and price.whole


class Asleep(Scripted):
    """A backend that is slow in the second layer."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._takes_long = clock.takes(0.2)

    def run(self, compiled: Any, inputs: Any) -> Any:
        slow = any(list(w) == [4, 3, 2, 1] for w in compiled.rt_inits_.values() if w.shape == (4,))
        return (self._takes_long if slow else lambda outputs: outputs)(super().run(compiled, inputs))

    def supports(self, node: ir.Node) -> bool:
        return node.op_type != "Softmax"


def test_a_region_measured_to_be_slower_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    class Slow(OnnxRuntime):
        """Nested sessions that take 20 ms, longer than on any machine, so that the first layer gains clearly."""

        def run(self, compiled: Any, inputs: Any) -> Any:
            return clock.takes(0.02)(super().run(compiled, inputs))

    monkeypatch.setattr(measure, "ROUNDS", 3)
    monkeypatch.setattr(measure, "OnnxRuntime", Slow)
    monkeypatch.setattr(measure, "run", lambda session, feeds: clock.takes(0.5)(run(session, feeds)))
    options = PartitionOptions("scripted", RegionLimits(1, 9), measure=True)
    result = partition(written(LAYERS, tmp_path), tmp_path / "out.onnx", options, backend=Asleep(clock))
    assert result.verdict.verdict == "equivalent" and "measure" in result.seconds
    assert [engine.replaces[0] for engine in result.engines] == ["layer_0_Mul"]
    (left,) = result.refused
    assert left.node == "layer_1_Mul"
    assert re.fullmatch(r"measured: \d+ ms by scripted and 0 ms to cross its border, [\d.]+ ms by onnxruntime", left.reason)


def test_a_model_that_no_engine_makes_faster_is_copied(tmp_path: Path, clock: Clock) -> None:
    options = PartitionOptions("scripted", RegionLimits(1, 9), measure=True)
    source = written(LAYERS, tmp_path)
    result = partition(source, tmp_path / "out.onnx", options, backend=Scripted(answering=clock.takes(0.1)))
    assert result.unchanged and (tmp_path / "out.onnx").read_bytes() == source.read_bytes()
