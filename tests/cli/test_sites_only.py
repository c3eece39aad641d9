"""`fuse --sites-only`: each fusion is checked alone and the whole model is not run, so a model may be larger than memory."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import onnx
import pytest
from onnx import TensorProto, helper

from onnx_subgraph.verification.memory import physical_memory
from tests.cli.conftest import ROOT, Run
from tests.verification.planted import NORM, layers, patterns

SCHEMA = json.loads((ROOT / "docs" / "report.schema.json").read_text(encoding="utf-8"))
WIDTH = 1 << 14
WEIGHT = 4 * WIDTH * WIDTH
"""The bytes of one weight, float32[WIDTH, WIDTH]."""


def large(folder: Path, memory: int) -> tuple[Path, int]:
    """A model of products and SiLU that is larger than `memory`, and its number of layers. Its data file is sparse."""
    count = memory // WEIGHT + 2
    (folder / "weights").touch()
    nodes, weights, value = [], [], "x"
    for n in range(count):
        weight = TensorProto(name=f"w{n}", data_type=TensorProto.FLOAT, dims=[WIDTH, WIDTH])
        place = {"location": "weights", "offset": str(n * WEIGHT), "length": str(WEIGHT)}
        weight.data_location = TensorProto.EXTERNAL
        weight.external_data.extend(onnx.StringStringEntryProto(key=k, value=v) for k, v in place.items())
        weights.append(weight)
        nodes.append(helper.make_node("MatMul", [value, f"w{n}"], [f"h{n}"], name=f"product{n}"))
        nodes.append(helper.make_node("Sigmoid", [f"h{n}"], [f"s{n}"], name=f"sigmoid{n}"))
        nodes.append(helper.make_node("Mul", [f"h{n}", f"s{n}"], [f"y{n}"], name=f"silu{n}"))
        value = f"y{n}"
    with (folder / "weights").open("r+b") as file:
        file.truncate(count * WEIGHT)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", WIDTH]) for name in ("x", value)]
    graph = helper.make_graph(nodes, "large", values[:1], values[1:], weights)
    path = folder / "large.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9).SerializeToString())
    return path, count


def test_a_model_larger_than_memory_is_verified_and_written(run: Run, tmp_path: Path) -> None:
    """Weights are neither read nor copied: the output refers to the data file of the input."""
    memory = physical_memory()
    if memory is None:
        pytest.skip("the system does not tell how much memory it has")
    try:
        path, count = large(tmp_path, memory)
    except OSError:
        pytest.skip("no file with a hole can be made here")
    refused = run("fuse", path)
    assert refused.code == 2 and "GB of memory" in refused.out and "--sites-only" in refused.out
    assert not (tmp_path / "large.fused.onnx").exists()
    result = run("fuse", path, "--sites-only", "--json")
    jsonschema.validate(result.json, SCHEMA)
    assert result.code == 0 and result.json["verification"]["verdict"] == "equivalent"
    coverage = result.json["verification"]["coverage"]
    assert (coverage["kernel"], coverage["body"], coverage["alone"], coverage["drawn"]) == (0, 0, count, count)
    fused = onnx.load(tmp_path / "large.fused.onnx", load_external_data=False)
    assert [node.op_type for node in fused.graph.node].count("QuickGelu") == count
    assert {entry.value for tensor in fused.graph.initializer for entry in tensor.external_data if entry.key == "location"} == {
        "weights"
    }


def test_a_wrong_fusion_is_undone_and_no_session_of_the_model_is_opened(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(*arguments: object, **options: object) -> None:
        raise AssertionError("the model was run")

    for module in ("cases", "capture", "trial"):
        for name in ("open_file", "open_model", "open_session"):
            monkeypatch.setattr(f"onnx_subgraph.verification.{module}.{name}", opened, raising=False)
    model = layers(tmp_path / "m.onnx", [1e-5] * 7 + [1e-2] + [1e-5] * 4)
    result = run("fuse", model, "--patterns", patterns(tmp_path, NORM), "--only", "forgetful-norm,gelu", "--sites-only")
    assert result.code == 0 and "forgetful-norm at g7 is undone: nothing shows it to be right: its result differs" in result.err
    assert "23 fusions" in result.out and "the model was not run" in result.out
    operators = [node.op_type for node in onnx.load(tmp_path / "m.fused.onnx").graph.node]
    assert (operators.count("LayerNormalization"), operators.count("Gelu")) == (11, 12)


def test_the_file_is_a_copy_if_all_fusions_are_undone(run: Run, tmp_path: Path) -> None:
    model = layers(tmp_path / "m.onnx", [1e-2] * 2)
    result = run("fuse", model, "--patterns", patterns(tmp_path, NORM), "--only", "forgetful-norm", "--sites-only")
    assert result.code == 0 and "byte for byte" in result.out
    assert (tmp_path / "m.fused.onnx").read_bytes() == model.read_bytes()


SAMPLES = ["bert_torchscript", "t5_torchscript", "clip_text_dynamo", "gpt2_torchscript", "unet_torchscript"]


@pytest.mark.parametrize("model", SAMPLES)
def test_every_fusion_of_an_export_is_proved(run: Run, model: str) -> None:
    """Sizes that the model computes, such as the target of a Reshape, are those of the drawn values."""
    result = run("fuse", ROOT / "sample_models" / f"{model}.onnx", "--sites-only", "--dry-run", "--json")
    assert result.json["fusions"] and result.json["undone"] == [] and result.json["verification"]["verdict"] == "equivalent"


def test_cosines_that_repeat_are_drawn_so(run: Run) -> None:
    """The halves of a row of cosines are equal in the model, so they are in what is drawn for them."""
    result = run("fuse", ROOT / "sample_models" / "llama_dynamo.onnx", "--sites-only", "--dry-run", "--json")
    assert "rotary-embedding" in [one["pattern"] for one in result.json["fusions"]] and result.json["undone"] == []


BITS = """<ir_version: 10, opset_import: ["" : 23]>
g (float[2,4,6,8] q, float[2,4,8,6] k, float[2,4,6,8] v, bool[2,1,6,6] keep) => (float[2,4,6,8] y)
<float one = {1}, float low = {-1e30}> {
  bits = Cast <to = 1> (keep) s = MatMul (q, k) kept = Mul (s, bits) none = Sub (one, bits) veil = Mul (none, low)
  m = Add (kept, veil) p = Softmax <axis = -1> (m) y = MatMul (p, v) }"""


def test_a_fusion_that_relies_on_values_of_the_model_is_undone_without_blame(run: Run, tmp_path: Path) -> None:
    """A mask is 0 or 1 in the model, but not in drawn values."""
    onnx.save(onnx.parser.parse_model(BITS), tmp_path / "m.onnx")
    result = run("fuse", tmp_path / "m.onnx", "--sites-only", "--dry-run", "--prefer", "fusion")
    assert "multi-head-attention" in result.err and "from the truth" not in result.err


def test_changes_that_are_not_checked_alone_are_not_made(run: Run, tmp_path: Path) -> None:
    """A raised opset and simplified shapes need a run."""
    path = ROOT / "sample_models" / "bert_torchscript.onnx"
    result = run("fuse", path, "-o", tmp_path / "m.onnx", "--sites-only", "--json")
    before, after = onnx.load(path), onnx.load(tmp_path / "m.onnx")
    opsets = [{one.domain: one.version for one in model.opset_import}[""] for model in (before, after)]
    assert opsets[0] == opsets[1] and "simplified" not in result.json


@pytest.mark.parametrize("option", ["--no-verify", "--bench", "--compare-ort", "--target=native", "--opset=20", "--tune"])
def test_options_that_need_a_run_are_refused(run: Run, tmp_path: Path, option: str) -> None:
    result = run("fuse", ROOT / "sample_models" / "bert_torchscript.onnx", "-o", tmp_path / "m.onnx", "--sites-only", option)
    assert result.code == 2 and "--sites-only does not run the model" in result.err and "hint: " in result.err
    assert list(tmp_path.iterdir()) == []
