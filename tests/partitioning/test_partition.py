"""partition() on files: verified with engines and by inlining, corrected where a backend fails, and undone by inline()."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnx_subgraph import verify
from onnx_subgraph.backends.backend import Backend
from onnx_subgraph.backends.onnxruntime import OnnxRuntime
from onnx_subgraph.backends.subgraph import Subgraph
from onnx_subgraph.engine.session import EngineSession
from onnx_subgraph.engine.settings import EngineSettings
from onnx_subgraph.errors import ModelError, OnnxSubgraphWarning, UsageError
from onnx_subgraph.partitioning import holding
from onnx_subgraph.partitioning.inline import inline
from onnx_subgraph.partitioning.options import PartitionOptions
from onnx_subgraph.partitioning.partition import PartitionResult, partition
from onnx_subgraph.partitioning.worth import RegionLimits
from tests.engine.backends import Scripted, fails
from tests.partitioning.conftest import Clock
from tests.partitioning.models import LAYERS, SAMPLES, Without, run, x

EVERYTHING = RegionLimits(min_nodes=1, max_crossing=9)


def written(text: str, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    return path


def partitioned(
    model: Path, folder: Path, backend: str | Backend, limits: RegionLimits = EVERYTHING, **options: Any
) -> PartitionResult:
    name = backend if isinstance(backend, str) else backend.name
    given = None if isinstance(backend, str) else backend
    return partition(model, folder / "out.onnx", PartitionOptions(name, limits, **options), backend=given)


@pytest.mark.parametrize(
    "limits",
    [RegionLimits(), RegionLimits(deny=("Softmax", "*LayerNorm*/Sqrt", "MaxPool"), gain=math.inf)],
    ids=["whole", "pieces"],
)
@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("bert_torchscript", "openvino"),
        ("mobilenet_v3_torchscript", "openvino"),
        ("branches_torchscript", "openvino"),
        ("gpt2_dynamo", "onnxruntime"),
    ],
)
def test_a_partitioned_sample_is_verified_and_inlines_to_the_original(
    name: str, limits: RegionLimits, backend: str, tmp_path: Path
) -> None:
    if backend == "openvino":
        pytest.importorskip("openvino")
    source = SAMPLES / f"{name}.onnx"
    result = partitioned(source, tmp_path, backend, limits)
    assert result.engines and result.verdict.verdict == "equivalent"
    assert {run.provider for run in result.verdict.runs} == {"CPUExecutionProvider", backend}
    assert not [region for region in result.refused if backend in region.reason]
    back = inline(tmp_path / "out.onnx", tmp_path / "back.onnx")
    assert back.calls >= len(result.engines)
    assert verify(source, back.output).verdict == "equivalent"
    mine = {node.name for node in onnx.load(source).graph.node if node.op_type != "Constant"}
    assert mine <= {node.name for node in onnx.load(back.output).graph.node}


def test_without_supported_nodes_the_output_is_a_copy(tmp_path: Path) -> None:
    source = written(LAYERS, tmp_path)
    result = partitioned(source, tmp_path, Without("Mul", "Relu", "Softmax"))
    assert result.unchanged and result.verdict.verdict == "equivalent"
    assert (tmp_path / "out.onnx").read_bytes() == source.read_bytes()


def test_a_region_that_does_not_compile_is_left_and_the_others_become_engines(tmp_path: Path) -> None:
    class NoSoftmax(Without):
        def compile(self, subgraph: Any, signature: Any) -> Any:
            if any(node.op_type == "Softmax" for node in subgraph.model.graph):
                raise NotImplementedError("no softmax here")
            return super().compile(subgraph, signature)

    backend = NoSoftmax()
    limits = RegionLimits(1, 9, deny=("layer_1_Mul",))
    result = partitioned(written(LAYERS, tmp_path), tmp_path, backend, limits)
    assert result.verdict.verdict == "equivalent"
    assert [engine.replaces for engine in result.engines] == [("layer_1_Scale", "layer_1_Relu")]
    assert [("no softmax here" in region.reason, region.failed) for region in result.refused] == [(True, True)]


class WrongWithTheSecond(Without):
    """A backend whose results are too large for the second of the two layers."""

    def run(self, compiled: Any, inputs: Any) -> Any:
        outputs = super().run(compiled, inputs)
        wrong = any(np.array_equal(w, [4, 3, 2, 1]) for w in compiled.rt_inits_.values())
        return [output + np.float32(0.01) for output in outputs] if wrong else outputs


def test_a_region_whose_results_differ_is_found_and_left(tmp_path: Path) -> None:
    result = partitioned(written(LAYERS, tmp_path), tmp_path, WrongWithTheSecond("Softmax"))
    assert result.verdict.verdict == "equivalent" and len(result.engines) == 1
    assert [(region.reason[:20], region.failed) for region in result.refused] == [("by itself it is 0.01", False)]


def test_a_wrong_region_without_a_float64_result_is_found_as_the_only_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holding, "MOST_WEIGHTS", -1)
    result = partitioned(written(LAYERS, tmp_path), tmp_path, WrongWithTheSecond("Softmax"))
    assert result.verdict.verdict == "equivalent" and result.output is not None
    assert [engine.replaces[0] for engine in result.engines] == ["layer_0_Mul"]
    assert [(region.node, region.reason[:33]) for region in result.refused] == [
        ("layer_1_Mul", "its results differ: y is off by 0")
    ]


@pytest.mark.parametrize("verify", [True, False])
def test_a_model_that_does_not_run_here_is_written_only_without_verification(verify: bool, tmp_path: Path) -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 17, "theirs" : 1]>
    g (float[4] x) => (float[4] y) { a = Abs (x) b = Sqrt (a) y = theirs.Unknown (b) }
    """
    result = partitioned(written(text, tmp_path), tmp_path, Without("Unknown"), verify=verify)
    assert result.engines and result.verdict.verdict == "not-run"
    assert (result.output is None) == verify == (not (tmp_path / "out.onnx").exists())


@pytest.mark.parametrize("name", ["gpt2_dynamo", "resnet_torchscript"])
@pytest.mark.parametrize("off", [0.0, 1e-2, 1e-4])
def test_a_changed_weight_in_openvino_is_found(name: str, off: float, tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    from onnx_subgraph.backends.openvino import OpenVino

    class Off(OpenVino):
        def compile(self, subgraph: Subgraph, signature: Any) -> Any:
            graph = subgraph.model.graph
            weights = [v for v in graph.initializers.values() if v.dtype == ir.DataType.FLOAT and len(v.shape or ()) > 1]
            value = weights[len(weights) // 2]
            assert value.const_value is not None
            value.const_value = ir.tensor((value.const_value.numpy() * (1 + off)).astype(np.float32), name=value.name)
            return super().compile(subgraph, signature)

    result = partitioned(SAMPLES / f"{name}.onnx", tmp_path, Off(), RegionLimits())
    seen = result.verdict.verdict == "different" or any("from the truth" in region.reason for region in result.refused)
    assert seen == bool(off) and (off or result.engines)


def test_a_backend_that_is_always_wrong_leaves_the_model_unchanged(tmp_path: Path) -> None:
    wrong = Scripted(answering=lambda outputs: [output + np.float32(1) for output in outputs])
    result = partitioned(written(LAYERS, tmp_path), tmp_path, wrong)
    assert not result.engines and result.refused and result.output is not None
    assert result.output.read_bytes() == result.model.read_bytes()


def test_a_backend_that_loses_an_axis_is_named(tmp_path: Path) -> None:
    """As OpenVINO does for a HardSwish whose constants have more axes. At run time onnxruntime takes over."""
    flat = Scripted(answering=lambda outputs: [output.reshape(output.shape[1:]) for output in outputs])
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2, 4] x) => (float[1, 2, 4] y) <float[1, 1, 1] k = {3}>
      { a = Add(k, x) y = Exp(a) }"""
    result = partitioned(written(text, tmp_path), tmp_path, flat)
    assert result.verdict.verdict == "equivalent" and not result.engines
    assert ["of shape [2, 4], not [1, 2, 4]" in region.reason for region in result.refused] == [True]


def test_without_verification_all_supported_regions_become_engines(tmp_path: Path) -> None:
    failing = Scripted(compiling=fails(RuntimeError("no")))
    result = partitioned(written(LAYERS, tmp_path), tmp_path, failing, verify=False)
    assert len(result.engines) == 1 and result.verdict.verdict == "not-run" and (tmp_path / "out.onnx").exists()


def test_the_input_is_never_changed_and_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    source = written(LAYERS, tmp_path)
    before = hashlib.sha256(source.read_bytes()).digest()
    result = partitioned(source, tmp_path, "onnxruntime", dry_run=True)
    assert result.output is None and result.engines
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    assert hashlib.sha256(source.read_bytes()).digest() == before


def test_a_result_that_is_not_accepted_is_not_written(tmp_path: Path) -> None:
    asked: list[PartitionResult] = []

    def refuse(given: PartitionResult) -> bool:
        asked.append(given)
        return False

    source = written(LAYERS, tmp_path)
    options = PartitionOptions("onnxruntime", EVERYTHING, verify=False)
    result = partition(source, tmp_path / "out.onnx", options, accepts=refuse)
    assert asked == [result] and result.engines
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("elsewhere", [False, True], ids=["beside", "elsewhere"])
def test_weights_in_a_data_file_are_used_from_there(elsewhere: bool, backend: str, tmp_path: Path) -> None:
    if backend == "openvino":
        pytest.importorskip("openvino")
    source = SAMPLES / "resnet_torchscript.onnx"
    model = onnx.load(source)
    external = tmp_path / "model" / "resnet.onnx"
    external.parent.mkdir()
    onnx.save(model, external, save_as_external_data=True, location="resnet.data", size_threshold=64)
    folder = tmp_path if elsewhere else external.parent
    result = partitioned(external, folder, backend, RegionLimits(deny=("MaxPool", "Flatten"), gain=math.inf))
    assert not [region for region in result.refused if backend in region.reason]
    assert result.engines and result.verdict.verdict == "equivalent"
    kept = [t for t in onnx.load(folder / "out.onnx", load_external_data=False).graph.initializer if not t.external_data]
    assert all(tensor.ByteSize() < 1000 for tensor in kept)
    session = EngineSession(folder / "out.onnx")
    feeds = {session.get_inputs()[0].name: np.ones((1, 3, 32, 32), np.float32)}
    np.testing.assert_allclose(session.run(None, feeds)[0], run(source, feeds)[0], rtol=1e-4, atol=1e-5)


def test_inline_of_a_model_without_functions_is_a_copy(tmp_path: Path) -> None:
    source = written(LAYERS, tmp_path)
    result = inline(source, tmp_path / "out.onnx")
    assert result.calls == 0 and result.output.read_bytes() == source.read_bytes()


def test_inline_gives_the_reason_if_it_fails(tmp_path: Path) -> None:
    text = """
    <ir_version: 9, opset_import: ["" : 17, "mine" : 1]>
    calls (float[n] x) => (float[n] y) { y = mine.Old (x) }
    <opset_import: ["" : 12], domain: "mine"> Old (v) => (w) { w = Abs (v) }
    """
    with pytest.raises(ModelError, match=r"can't be inlined: .*(?s:.)*version"):
        inline(written(text, tmp_path), tmp_path / "out.onnx")


def test_an_unknown_backend_is_an_error_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no backend tensorrt; there are onnxruntime, openvino, reference"):
        partitioned(written(LAYERS, tmp_path), tmp_path, "tensorrt")


def test_an_engine_session_behaves_like_one_of_onnxruntime(tmp_path: Path) -> None:
    source = written(LAYERS, tmp_path)
    partitioned(source, tmp_path, "onnxruntime", RegionLimits(1, 9, deny=("Softmax",)))
    session = EngineSession(tmp_path / "out.onnx")
    assert [(a.name, a.type, a.shape) for a in session.get_inputs()] == [("x", "tensor(float)", ["batch", 4])]
    assert len(session.engines) == 2
    np.testing.assert_array_equal(session.run(["y"], x())[0], run(source, x())[0])
    for feeds, why in (
        ({}, "input x is not given"),
        ({"x": np.ones((2, 4))}, "input x is float64, the model takes float32"),
        ({"x": np.ones((2, 5), np.float32)}, r"input x has the shape \[2, 5\]"),
        ({**x(), "z": np.ones(1)}, "the model has no input z"),
    ):
        with pytest.raises(UsageError, match=why):
            session.run(None, feeds)
    with pytest.raises(UsageError, match="the model has no output q"):
        session.run(["q"], x())


def test_outputs_that_are_inputs_or_constants_are_copies(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[n, 4] x) => (float[n, 4] y, float[n, 4] x, float[2] c) <float[2] c = {1.0, 2.0}> { a = Mul (x, x)  y = Relu (a) }"""
    partitioned(written(text, tmp_path), tmp_path, "onnxruntime")
    session, given = EngineSession(tmp_path / "out.onnx"), np.ones((3, 4), np.float32)
    assert session.engines
    for array in session.run(None, {"x": given}):
        array[...] = -1
    y, same, c = session.run(None, {"x": given})
    assert (y == 1).all() and (same == 1).all() and c.tolist() == [1, 2]


class Louder(OnnxRuntime):
    """A backend whose results are 1 % too large. A LayerNormalization behind it hides that."""

    name = "louder"

    def run(self, compiled: Any, inputs: Any) -> Any:
        return [out * np.asarray(1.01, out.dtype) if out.dtype.kind == "f" else out for out in super().run(compiled, inputs)]


def test_an_engine_that_is_wrong_alone_is_left_though_the_model_hides_it(tmp_path: Path) -> None:
    limits = RegionLimits(deny=("*LayerNorm*",), gain=math.inf)
    result = partitioned(SAMPLES / "bert_torchscript.onnx", tmp_path, Louder(), limits)
    refused = [region for region in result.refused if "from the truth" in region.reason]
    assert not result.engines and len(refused) >= 3, [region.reason for region in result.refused]


def test_an_engine_that_is_right_alone_stays(tmp_path: Path) -> None:
    result = partitioned(
        SAMPLES / "bert_torchscript.onnx", tmp_path, "onnxruntime", RegionLimits(deny=("*LayerNorm*",), gain=math.inf)
    )
    assert len(result.engines) >= 3 and not any("from the truth" in region.reason for region in result.refused)


def rounded(outputs: list[Any]) -> list[Any]:
    """Truncated to the 8 significant bits of bfloat16."""
    return [(array.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32) for array in outputs]


@pytest.mark.parametrize(("accuracy", "engines"), [(None, 0), (1e-1, 1), (1e-4, 0)])
def test_a_less_precise_backend_is_checked_with_the_given_accuracy(accuracy: float | None, engines: int, tmp_path: Path) -> None:
    result = partitioned(written(LAYERS, tmp_path), tmp_path, Scripted(answering=rounded), accuracy=accuracy)
    assert len(result.engines) == engines and result.verdict.verdict == "equivalent"
    if engines:
        (rounding,) = result.verdict.roundings
        assert 1e-4 < rounding.kernels < 1e-2
        assert result.output is not None
        backends = {"scripted": Scripted(answering=rounded)}
        session = EngineSession(result.output, backends=backends, settings=EngineSettings(check=1, strict=True))
        session.run(None, x(2))  # a run allows the error measured by verification
        assert session.engines[0].bound > 1e-3
    else:
        assert "from the truth" in result.refused[0].reason


@pytest.mark.parametrize(("last", "engines"), [("LayerNormalization (b, w)", 1), ("Relu (b)", 0)])
def test_only_results_inside_the_model_may_be_further_off_than_the_accuracy(last: str, engines: int, tmp_path: Path) -> None:
    """The result of the engine is 2 % too large, and the accuracy 1 %. A LayerNormalization outside of engines hides that."""

    class TooLarge(Without):
        def run(self, compiled: Any, inputs: Any) -> Any:
            return [output * np.float32(1.02) for output in super().run(compiled, inputs)]

    text = f"""
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[n, 4] x) => (float[n, 4] y) <float[4] w = {{1.0, 2.0, 3.0, 4.0}}> {{ a = Abs (x) b = Sqrt (a) y = {last} }}
    """
    result = partitioned(written(text, tmp_path), tmp_path, TooLarge("LayerNormalization"), accuracy=1e-2)
    assert len(result.engines) == engines and result.output is not None
    assert ["2.0e-02 of its largest element" in region.reason for region in result.refused] == [True] * (1 - engines)


def test_a_negative_size_is_any_size(tmp_path: Path) -> None:
    """PaddlePaddle writes -1 for a dimension without a name."""
    proto = onnx.parser.parse_model(LAYERS)
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    model = tmp_path / "model.onnx"
    model.write_bytes(proto.SerializeToString())
    result = partitioned(model, tmp_path, "onnxruntime")
    assert result.output is not None and result.engines
    session = EngineSession(result.output)
    (given,) = session.get_inputs()
    assert given.shape is not None and given.shape[0] is None


def louder(factor: float) -> Scripted:
    return Scripted(answering=lambda outputs: [output * np.float32(factor) for output in outputs])


@pytest.mark.parametrize(("verified", "holds", "fails"), [(1, 1.0005, 1.01), (1.002, 1.007, 1.009)])
def test_a_session_finds_a_backend_that_has_become_wrong(verified: float, holds: float, fails: float, tmp_path: Path) -> None:
    """A run allows an error of a thousandth, or four times the one that verification measured."""
    result = partitioned(written(LAYERS, tmp_path), tmp_path, louder(verified), accuracy=0.1)
    assert result.output is not None and result.engines
    for factor in (holds, fails):
        session = EngineSession(result.output, backends={"scripted": louder(factor)}, settings=EngineSettings(check=1))
        with nullcontext() if factor == holds else pytest.warns(OnnxSubgraphWarning, match="is allowed"):
            for mine, own in zip(session.run(None, x(2)), run(result.output, x(2)), strict=True):
                np.testing.assert_allclose(mine, own, rtol=1e-2 if factor == holds else 1e-6)
        assert (session.fallbacks == 0) == (factor == holds)


def test_an_error_in_the_metadata_that_is_no_number_is_ignored(tmp_path: Path) -> None:
    result = partitioned(written(LAYERS, tmp_path), tmp_path, louder(1.002), accuracy=0.1)
    assert result.output is not None
    proto = onnx.load(result.output)
    (entry,) = (entry for node in proto.graph.node for entry in node.metadata_props if entry.key == "onnx_subgraph.apart")
    entry.value = "little"
    onnx.save(proto, result.output)
    session = EngineSession(result.output, backends={"scripted": louder(1.002)}, settings=EngineSettings(check=1))
    with pytest.warns(OnnxSubgraphWarning, match=r"1\.0e-03 is allowed"):
        session.run(None, x(2))


def test_without_its_backend_a_session_runs_by_onnxruntime_unless_strict(tmp_path: Path) -> None:
    written_with = partitioned(written(LAYERS, tmp_path), tmp_path, Scripted()).output
    assert written_with is not None
    with pytest.warns(OnnxSubgraphWarning, match=r"there is no backend scripted; .*; onnxruntime runs its engines") as told:
        session = EngineSession(written_with)
    assert len(told) == 1 and told[0].filename == __file__
    for mine, own in zip(session.run(None, x(2)), run(written_with, x(2)), strict=True):
        np.testing.assert_allclose(mine, own, rtol=1e-6)
    with pytest.raises(UsageError, match="there is no backend scripted"):
        EngineSession(written_with, settings=EngineSettings(strict=True))


class Named(Without):
    """A backend with another name that supports only these operators."""

    def __init__(self, name: str, *operators: str, **given: Any) -> None:
        super().__init__()
        self.name, self.operators = name, operators
        for key, value in given.items():
            setattr(self, key, value)

    def supports(self, node: ir.Node) -> bool:
        return not self.operators or node.op_type in self.operators


def by_backend(result: PartitionResult) -> dict[str, int]:
    return dict(Counter(engine.backend for engine in result.engines))


@pytest.mark.parametrize(
    "wrong", [{"compiling": fails(RuntimeError("no"))}, {"answering": lambda outputs: [o * 1.5 for o in outputs]}]
)
def test_the_second_backend_gets_the_regions_that_the_first_does_not_support(wrong: dict[str, Any], tmp_path: Path) -> None:
    source = written(LAYERS, tmp_path)
    backends = [Named("first", "Mul", "Relu", **wrong), Named("second")]
    result = partition(source, tmp_path / "out.onnx", PartitionOptions(("first", "second"), EVERYTHING), backend=backends)
    assert by_backend(result) == {"second": 1} and result.verdict.verdict == "equivalent"
    assert {region.backend for region in result.refused} == {"first"} and not result.unsupported
    session = EngineSession(tmp_path / "out.onnx", backends={one.name: one for one in backends})
    np.testing.assert_allclose(session.run(None, x())[0], run(LAYERS, x())[0], rtol=1e-6)


def test_engines_of_two_backends_form_no_cycle(tmp_path: Path) -> None:
    """Relu and Neg of each pair may be one engine each, but not both: each would wait for the other's results."""
    source = written(
        """
        <ir_version: 8, opset_import: ["" : 17]>
        crossed (float[n, 4] x) => (float[n, 4] y, float[n, 4] z)
        {
          a = Relu (x)
          b = Neg (a)
          c = Neg (x)
          d = Relu (c)
          y = Add (b, d)
          z = Mul (a, c)
        }
        """,
        tmp_path,
    )
    backends = [Named("relus", "Relu", "Add", "Mul"), Named("negs", "Neg")]
    result = partition(source, tmp_path / "out.onnx", PartitionOptions(("relus", "negs"), EVERYTHING), backend=backends)
    assert result.verdict.verdict == "equivalent" and set(by_backend(result)) == {"relus", "negs"}
    assert sum(engine.cost.nodes for engine in result.engines) == 6
    onnx.checker.check_model(onnx.load(tmp_path / "out.onnx"))


def test_a_slower_engine_of_the_second_backend_is_left(tmp_path: Path, clock: Clock) -> None:
    source = written(LAYERS, tmp_path)
    slow = clock.takes(0.01)
    backends = [Named("first", "Softmax", answering=slow), Named("second", "Mul", "Relu", answering=slow)]
    options = PartitionOptions(("first", "second"), EVERYTHING, measure=True)
    result = partition(source, tmp_path / "out.onnx", options, backend=backends)
    assert result.unchanged
    assert {(region.backend, region.reason.split(":")[0]) for region in result.refused} == {
        ("first", "measured"),
        ("second", "measured"),
    }
