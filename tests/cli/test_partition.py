"""`partition` and `inline` on the command line: files, output, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import pytest

from onnx_subgraph import EngineSession
from tests.cli.conftest import ROOT, Run
from tests.partitioning.models import LAYERS

SCHEMA = json.loads((ROOT / "docs" / "report.schema.json").read_text(encoding="utf-8"))
DENIED = ("--backend", "onnxruntime", "--deny", "Softmax")


@pytest.fixture
def layers(tmp_path: Path) -> Path:
    path = tmp_path / "layers.onnx"
    path.write_bytes(onnx.parser.parse_model(LAYERS).SerializeToString())
    return path


def test_inline_undoes_partition(run: Run, layers: Path) -> None:
    done = run("partition", layers, "--backend", "onnxruntime", "--deny", "Softmax")
    assert done.code == 0, done.err
    partitioned = layers.with_name("layers.partitioned.onnx")
    assert f"{layers} → {partitioned}" in done.out and "7 → 3, 2 engines" in done.out and "is among those denied" in done.out
    assert run("verify", layers, partitioned).code == 0
    back = run("inline", partitioned)
    assert back.code == 0 and "2 calls inlined, 3 → " in back.out
    assert run("verify", layers, layers.with_name("layers.partitioned.inlined.onnx")).code == 0


def test_inline_leaves_no_function_and_keeps_the_types_of_branches(run: Run, tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "my": 1]> g (bool c, float[2] x) => (float[2] y) {
      y = If(c) <then_branch = t () => (float[2] a) { a = my.Twice(x) }, else_branch = e () => (float[2] b) { b = Neg(x) }> }
    <domain: "my", opset_import: ["": 17]> Twice (x) => (y) { y = Add(x, x) }
    <domain: "my", opset_import: ["": 17]> Unused (x) => (y) { y = Neg(x) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    assert run("inline", tmp_path / "m.onnx", "-o", tmp_path / "inlined.onnx").code == 0
    inlined = onnx.load(tmp_path / "inlined.onnx")
    assert not inlined.functions and {o.domain for o in inlined.opset_import} == {""}
    branches = [attribute.g for attribute in inlined.graph.node[0].attribute]
    assert [b.output[0].type.tensor_type.shape.dim[0].dim_value for b in branches] == [2, 2]


def test_inline_gives_names_that_no_body_has(run: Run, tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "my": 1]> g (bool c, float[2] x) => (float[2] y) {
      z = my.Twice(x) y = If(c) <then_branch = t () => (float[2] s) { add = Add(z, x) s = Neg(add) },
      else_branch = e () => (float[2] b) { b = Neg(z) }> }
    <domain: "my", opset_import: ["": 17]> Twice (x) => (y) { add = Add(x, x) y = Add(add, x) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    assert run("inline", tmp_path / "m.onnx", "-o", tmp_path / "inlined.onnx").code == 0
    onnx.checker.check_model(onnx.load(tmp_path / "inlined.onnx"), full_check=True)


def test_json_is_as_documented(run: Run, layers: Path, tmp_path: Path) -> None:
    answer = run("partition", layers, "--backend", "onnxruntime", "--deny", "Softmax,layer_1_*", "--min-nodes", 4, "--json").json
    assert answer["unchanged"] and answer["refused"][0]["reason"] == "smaller than 4 nodes"
    jsonschema.validate(answer, {**SCHEMA, "anyOf": [{"$ref": "#/$defs/partition"}]})
    whole = run("partition", layers, "--backend", "onnxruntime", "-o", tmp_path / "out.onnx", "--json").json
    assert whole["engines"][0]["operators"] == {"Mul": 4, "Relu": 2, "Softmax": 1}
    jsonschema.validate(whole, {**SCHEMA, "anyOf": [{"$ref": "#/$defs/partition"}]})
    inlined = run("inline", tmp_path / "out.onnx", "--json").json
    assert inlined["calls"] == 1
    jsonschema.validate(inlined, {**SCHEMA, "anyOf": [{"$ref": "#/$defs/inline"}]})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["partition", "MODEL"], "--backend"),
        (["partition", "MODEL", "--backend", "nonsense"], "there is no backend nonsense; there are onnxruntime, openvino"),
        (["partition", "MODEL", "--backend", "onnxruntime", "-o", "MODEL"], "never overwritten"),
        (["partition", "missing.onnx", "--backend", "onnxruntime"], "there is no such file"),
        (["partition", "MODEL", "--backend", "onnxruntime", "--min-nodes", "0"], "--min-nodes"),
        (["inline", "missing.onnx"], "there is no such file"),
        (["inline", "MODEL", "-o", "no/such/folder/out.onnx"], "there is no folder"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else None,
)
def test_mistakes_are_one_message(run: Run, layers: Path, arguments: list[str], words: str) -> None:
    done = run(*(str(layers) if argument == "MODEL" else argument for argument in arguments))
    assert done.code == 2 and words in done.err and "Traceback" not in done.err


def test_the_expected_gain_decides_and_a_measurement_needs_verification(run: Run, layers: Path) -> None:
    given = ("partition", layers, "--backend", "onnxruntime", "--deny", "Softmax", "--dry-run")
    done = run(*given, "--gain", "0.1")
    assert done.code == 0 and "0 engines" in done.out and "10% of its work" in " ".join(done.out.split())
    assert "2 engines" in run(*given, "--gain", "inf").out
    assert "nan is not a number" in run(*given, "--gain", "nan").err
    refused = run(*given, "--measure", "--no-verify")
    assert refused.code == 2 and "--measure needs verification" in refused.err


def test_a_run_meets_the_expectations_that_it_writes(run: Run, layers: Path, tmp_path: Path) -> None:
    file, output = tmp_path / "expected.yaml", tmp_path / "out.onnx"
    assert run("partition", layers, *DENIED, "-o", output, "--write-expect", file).code == 0
    assert "engines: 2" in file.read_text() and "nodes: at most 3" in file.read_text() and "tolerance: " in file.read_text()
    again = run("partition", layers, *DENIED, "-o", output, "--expect", file)
    assert again.code == 0 and "3 of 3 met" in again.out


def test_a_partition_that_is_not_as_expected_is_not_written(run: Run, layers: Path, tmp_path: Path) -> None:
    """The message has the place in the file, the number found, and why there are no more engines."""
    file, output = tmp_path / "expected.yaml", tmp_path / "out.onnx"
    file.write_text("models:\n  layers.onnx:\n    engines: 1\n    nodes: at most 3\n", encoding="utf-8")
    done = run("partition", layers, *DENIED, "-o", output, "--expect", file)
    assert done.code == 1 and not output.exists() and "nothing written" in done.out
    assert "expected.yaml:3:" in done.out and "engines: expected 1, found 2" in done.out and "is among those denied" in done.out
    answer = run("partition", layers, *DENIED, "-o", output, "--expect", file, "--json")
    assert answer.code == 1 and [check["met"] for check in answer.json["expectations"]] == [False, True]
    jsonschema.validate(answer.json, {**SCHEMA, "anyOf": [{"$ref": "#/$defs/partition"}]})
    assert run("partition", layers, *DENIED, "--dry-run", "--expect", file).code == 1


def test_more_nodes_than_expected_have_the_operators_in_no_region_as_reasons(run: Run, layers: Path, tmp_path: Path) -> None:
    """The most frequent first, wherever it is in the model."""
    model = onnx.load(layers)
    model.graph.node[1].op_type, model.graph.node[1].input[:] = "Softmax", ["a"]
    model.graph.node[3].op_type = "Relu"
    onnx.save(model, layers)
    (tmp_path / "expected.yaml").write_text("models: {layers.onnx: {nodes: at most 1}}", encoding="utf-8")
    given = ("--backend", "onnxruntime", "--gain", "inf", "--min-nodes", 1, "--max-crossing", 9, "--dry-run")
    done = run("partition", layers, *given, "--deny", "Softmax", "--deny", "Relu", "--expect", tmp_path / "expected.yaml")
    reasons = done.out.partition("nodes: expected at most 1, found ")[2].splitlines()[1:3]
    assert [reason.split()[:2] for reason in reasons] == [["3", "Relu"], ["1", "Softmax"]], done.out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("models: {layers.onnx: {fusions: {gelu: 1}}}", "a partition has no `fusions`"),
        ("models: {layers.onnx: {near-misses: {}}}", "a partition has no `near-misses`"),
        ("models: {layers.onnx: {size: at most 1 KB}}", "a partition has no `size`"),
        ("models: {layers.onnx: {providers: [CPUExecutionProvider]}}", "a partition has no `providers`"),
        ("models: {layers.onnx: {engine: 1}}", "`engine` is not a key"),
        ("models: {other.onnx: {engines: 1}}", "there is no section for the model"),
    ],
)
def test_a_mistake_in_the_expectations_is_reported_first(run: Run, layers: Path, tmp_path: Path, text: str, said: str) -> None:
    file, output = tmp_path / "expected.yaml", tmp_path / "out.onnx"
    file.write_text(text, encoding="utf-8")
    done = run("partition", layers, *DENIED, "-o", output, "--expect", file)
    assert done.code == 2 and said in done.err and not output.exists()


def test_a_region_that_onnxruntime_runs_only_as_it_is(run: Run, tmp_path: Path) -> None:
    """Its optimisation raises an error for a Relu and a Clip of doubles."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (double[N, 4] x) => (double[N, 4] y)
      <double low = {-1}, double high = {6}> { a = Relu(x) y = Clip(a, low, high) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "double.onnx")
    given = ("--backend", "onnxruntime", "--min-nodes", "1", "--max-crossing", "99", "--no-verify")
    assert run("partition", tmp_path / "double.onnx", *given, "-o", tmp_path / "p.onnx").code == 0
    (y,) = EngineSession(tmp_path / "p.onnx").run(None, {"x": np.array([[-2.0, 0.5, 3.0, 9.0]])})
    assert y.tolist() == [[0.0, 0.5, 3.0, 6.0]]


def test_random_operators_stay_outside(run: Run, tmp_path: Path) -> None:
    """An engine would draw other numbers than the original, and could not be compared with it."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[N, 4] x) => (float[N, 4] y)
      { a = Exp(x) n = RandomNormalLike(a) s = Add(a, n) t = Tanh(s) y = Abs(t) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "noisy.onnx")
    given = ("--backend", "reference", "--min-nodes", "1", "--max-crossing", "99")
    done = run("partition", tmp_path / "noisy.onnx", *given, "-o", tmp_path / "p.onnx")
    assert done.code == 0 and "gives random results, which can't be compared inside an engine" in " ".join(done.out.split())
    assert [node.op_type for node in onnx.load(tmp_path / "p.onnx").graph.node] == ["Engine", "RandomNormalLike", "Engine"]


def test_a_second_backend_gets_what_the_first_leaves(run: Run, tmp_path: Path) -> None:
    model = ROOT / "sample_models" / "resnet_torchscript.onnx"
    npu = tmp_path / "npu.yaml"
    npu.write_text("id: npu\nsummary: Convolutions\nruns: onnxruntime\noperators: {Conv: , Relu: , BatchNormalization: }\n")
    given = ("--backend", npu, "--backend", "reference", "--min-nodes", "1", "--max-crossing", "9", "-o", tmp_path / "p.onnx")
    answer = run("partition", model, *given, "--json")
    assert answer.code == 0 and answer.json["verification"]["verdict"] == "equivalent"
    jsonschema.validate(answer.json, {**SCHEMA, "anyOf": [{"$ref": "#/$defs/partition"}]})
    engines = answer.json["engines"]
    first = [engine for engine in engines if engine["backend"] == "npu"]
    second = [engine for engine in engines if engine["backend"] == "reference"]
    assert first and second and len(first) + len(second) == len(engines)
    assert all(set(engine["operators"]) <= {"Conv", "Relu", "BatchNormalization"} for engine in first)
    assert not any({"Conv", "BatchNormalization"} & set(engine["operators"]) for engine in second)
    assert answer.json["nodes"]["after"] == len(engines), "between them they run everything"
    assert not [group for group in answer.json["unsupported"] if group["operator"] != "Constant"]
    report = run("partition", model, *given, "--dry-run").out.splitlines()
    assert any(line.split() == ["backend", f"{npu},", "reference"] for line in report)
    assert any(" npu " in line and "Conv" in line for line in report) and any(" reference " in line for line in report)


def test_a_backend_that_is_named_twice_is_a_mistake(run: Run, layers: Path, tmp_path: Path) -> None:
    done = run("partition", layers, "--backend", "reference", "--backend", "reference", "-o", tmp_path / "p.onnx")
    assert done.code == 2 and "the backend reference is named twice" in done.err and not (tmp_path / "p.onnx").exists()
