"""Models from onnxruntime's own quantizer: every integer product is fused with its scales."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx
import pytest
from onnxruntime.quantization import QuantType, quantize_dynamic

from onnx_subgraph import Options, fuse, load_patterns

SAMPLES = Path(__file__).resolve().parents[2] / "sample_models"


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("name", ["bert_torchscript", "t5_dynamo"])
def test_every_product_of_integers_is_fused(name: str, per_channel: bool, tmp_path: Path) -> None:
    quantized = tmp_path / "quantized.onnx"
    weights = QuantType.QUInt8 if per_channel else QuantType.QInt8
    quantize_dynamic(SAMPLES / f"{name}.onnx", quantized, weight_type=weights, per_channel=per_channel)
    products = _operators(quantized)["MatMulInteger"]
    result = fuse(quantized, tmp_path / "fused.onnx", load_patterns(), Options())
    assert result.output is not None and result.verdict.verdict == "equivalent" and result.verdict.strength == "kernel"
    left = _operators(result.output)
    assert products == left["DynamicQuantizeMatMul"] + left["MatMulIntegerToFloat"] and left["MatMulInteger"] == 0
    assert left["DynamicQuantizeLinear"] < _operators(quantized)["DynamicQuantizeLinear"]


def _operators(path: Path) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load(path).graph.node)
