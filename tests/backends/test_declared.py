"""A YAML file declares what a backend supports. Every rule in it is applied, and a mistake is shown with its place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from onnx_subgraph.backends.registry import find_backend
from onnx_subgraph.errors import PatternError, UsageError
from onnx_subgraph.partitioning.choice import partition_model
from onnx_subgraph.partitioning.worth import RegionLimits
from tests.partitioning.models import parsed, run

FILE = """
id: camera-npu
summary: What the NPU of the camera runs
runs: reference
dtypes: [float32]
operators:
  Conv: {attributes: {group: 1, strides: 1..2}}
  Softmax: {dtypes: [float32, float16], attributes: {axis: [-1, 3]}}
  Relu:
"""
MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
camera (float[batch, 2, 8, 8] x) => (DTYPE[batch, 2, 8, 8] y)
<float[2, 2, 1, 1] w = {1.0, 2.0, 3.0, 4.0}>
{
  a = Conv <group = 1, strides = [1, 1]> (x, w)
  b = Relu (a)
  NODES
}
"""


def declared(folder: Path, text: str = FILE) -> str:
    path = folder / "camera_npu.yaml"
    path.write_text(text.lstrip(), encoding="utf-8")
    return str(path)


def reasons(folder: Path, nodes: str, dtype: str = "float", text: str = FILE) -> set[str]:
    model = parsed(MODEL.replace("NODES", nodes).replace("DTYPE", dtype))
    return {
        group.reason for group in partition_model(model, find_backend(declared(folder, text)), RegionLimits(1, 9)).unsupported
    }


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ("y = Softmax <axis = 3> (b)", None),
        ("y = Softmax (b)", None),
        ("y = Softmax <axis = 1> (b)", "Softmax has axis=1, not -1 or 3"),
        ("y = Tanh (b)", "camera-npu does not run Tanh"),
        ("c = Conv <strides = [1, 3], pads = [0, 0, 0, 14]> (b, w)  y = Relu (c)", "Conv has strides=[1, 3], not 1..2"),
        ("c = Conv (b, w)  y = Relu (c)", "Conv leaves strides open"),
        ("c = Cast <to = 11> (b)  d = Relu (c)  y = Cast <to = 1> (d)", "Relu may not be float64, only float32"),
    ],
)
def test_the_broken_rule_is_the_reason(nodes: str, reason: str | None, tmp_path: Path) -> None:
    found = reasons(tmp_path, nodes)
    assert reason in found if reason else not found


def test_its_regions_are_run_by_the_backend_that_it_names(tmp_path: Path) -> None:
    backend = find_backend(declared(tmp_path))
    model = parsed(MODEL.replace("NODES", "y = Softmax (b)").replace("DTYPE", "float"))
    feeds = {"x": np.linspace(-1, 1, 128, dtype=np.float32).reshape(1, 2, 8, 8)}
    expected = run(model, feeds)[0]
    partition = partition_model(model, backend, RegionLimits(1, 9))
    (engine,) = [node for node in partition.model.graph if node.op_type == "Engine"]
    assert engine.attributes["backend"].value == "reference"  # the file need not exist when the model runs
    np.testing.assert_allclose(run(ir.from_proto(ir.to_proto(partition.model)), feeds)[0], expected)


MISTAKES = {
    "a key": (FILE.replace("runs:", "run:"), 3, "`run` is not a key of a backend", "did you mean `runs`?"),
    "an operator": (FILE.replace("Softmax:", "SoftMax:"), 7, "`SoftMax` is no operator", "did you mean `Softmax`?"),
    "an attribute": (FILE.replace("strides", "stride"), 6, "Conv has no attribute `stride`", "did you mean `strides`?"),
    "a dtype": (FILE.replace("float16", "half"), 7, "`half` is no dtype", None),
    "a range": (FILE.replace("1..2", "2..1"), 6, "`2..1` holds no number", "write `1..2`"),
    "a rule": (FILE.replace("Relu:", "Relu: yes"), 8, "the limits of `Relu` are not a mapping", "write nothing after the `:`"),
    "operators": (FILE[: FILE.index("operators")], 1, "`operators` is missing", "add `operators:`"),
    "the id": (FILE.replace("camera-npu", "npu"), 1, "the id `npu` does not fit the file's name", None),
}


@pytest.mark.parametrize(("text", "line", "words", "hint"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_shown_with_its_place(text: str, line: int, words: str, hint: str | None, tmp_path: Path) -> None:
    with pytest.raises(PatternError) as raised:
        find_backend(declared(tmp_path, text))
    assert raised.value.message == words and raised.value.span is not None and raised.value.span.line == line
    assert hint is None or hint in (raised.value.hint or "")
    assert "^" in str(raised.value)


def test_a_file_that_names_another_file_or_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no backend camera_npu.yaml"):
        find_backend(declared(tmp_path, FILE.replace("runs: reference", "runs: camera_npu.yaml")))
    with pytest.raises(PatternError, match="cannot read"):
        find_backend(str(tmp_path / "missing.yaml"))


@pytest.mark.parametrize(
    ("common", "relu", "reason"),
    [
        ("rank: 4", "", None),
        ("rank: 1..3", "{rank: [2, 4]}", "Conv has a value of rank 4, not 1..3"),
        ("rank: 4", "{rank: 1..3}", "Relu has a value of rank 4, not 1..3"),
        ("sizes: 1..8", "", "Relu has a size that is open, not 1..8"),
        ("", "{constants: [X]}", "Relu has an input X that is no constant"),
    ],
)
def test_limits_on_ranks_sizes_and_constants_are_applied(common: str, relu: str, reason: str | None, tmp_path: Path) -> None:
    """A rule for all operators applies to each, unless the operator's own entry replaces it."""
    text = FILE.replace("operators:", f"{common}\noperators:").replace("Relu:", f"Relu: {relu}")
    found = reasons(tmp_path, "y = Relu (b)", text=text.replace("Conv: {", "Conv: {constants: [W, B], "))
    assert reason in found if reason else not found


def test_a_size_that_is_too_large_is_named(tmp_path: Path) -> None:
    model = parsed(MODEL.replace("NODES", "y = Relu (b)").replace("DTYPE", "float").replace("batch", "1"))
    text = FILE.replace("operators:", "sizes: 1..4\noperators:")
    partition = partition_model(model, find_backend(declared(tmp_path, text)), RegionLimits(1, 9))
    assert {group.reason for group in partition.unsupported} == {
        "Conv has the size 8, not 1..4",
        "Relu has the size 8, not 1..4",
    }


def test_an_input_that_an_operator_does_not_have_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(PatternError, match="Relu has no input `W`"):
        find_backend(declared(tmp_path, FILE.replace("Relu:", "Relu: {constants: [W]}")))


def test_a_device_and_a_precision_are_named_where_the_backend_is(tmp_path: Path) -> None:
    """The file gives a backend's options in the same form as the command line."""
    backend = find_backend(declared(tmp_path, FILE.replace("runs: reference", "runs: onnxruntime:CPUExecutionProvider")))
    assert backend.name == "onnxruntime:CPUExecutionProvider"
    with pytest.raises(UsageError, match="takes no options"):
        find_backend(declared(tmp_path, FILE.replace("runs: reference", "runs: reference:GPU")))
