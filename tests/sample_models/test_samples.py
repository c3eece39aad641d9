"""The sample models are as their README says: small, real exports that run, without traces of the exporting machine."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import onnxruntime
import pytest

FOLDER = Path(__file__).parents[2] / "sample_models"
MODELS = sorted(path for path in FOLDER.glob("*.onnx") if not path.name.endswith(".fused.onnx"))  # a visitor's own files
ROWS = dict(re.findall(r"^\| `(\w+\.onnx)` \|(.*)\|$", (FOLDER / "README.md").read_text(encoding="utf-8"), re.MULTILINE))


def test_the_readme_lists_every_model_and_nothing_else() -> None:
    assert set(ROWS) == {path.name for path in MODELS}
    assert {path.stem.rpartition("_")[2] for path in MODELS} >= {"dynamo", "torchscript"}


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_a_sample_is_small_well_formed_and_loads(path: Path) -> None:
    content = path.read_bytes()
    assert len(content) < 1_000_000
    assert not re.search(rb"/home/|/work|/tmp/|site-packages|\.py\b", content)
    model = onnx.load_from_string(content)
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_a_sample_is_as_its_row_says(path: Path) -> None:
    model = onnx.load(path)
    _, _, opset, nodes, functions, *_ = (cell.strip() for cell in ROWS[path.name].split("|"))
    assert [i.version for i in model.opset_import if i.domain == ""] == [int(opset)]
    assert len(model.functions) == int(functions)
    assert _count(model.graph.node) + sum(_count(f.node) for f in model.functions) == int(nodes)


def _count(nodes: object) -> int:
    return sum(1 + sum(_count(a.g.node) for a in node.attribute) for node in nodes)  # type: ignore[attr-defined]
