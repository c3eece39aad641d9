"""Models from onnxruntime's own quantizers: integer products are fused with their scales, packed ones with their bias."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx
import pytest
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

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


def test_every_bias_of_a_product_with_weights_of_4_bits_is_fused(tmp_path: Path) -> None:
    quantizer = MatMulNBitsQuantizer(onnx.load(SAMPLES / "bert_torchscript.onnx"), block_size=32, is_symmetric=True)
    quantizer.process()
    quantizer.model.save_model_to_file(str(tmp_path / "quantized.onnx"))
    result = fuse(tmp_path / "quantized.onnx", tmp_path / "fused.onnx", load_patterns(), Options())
    assert result.output is not None and result.verdict.verdict == "equivalent" and result.verdict.strength == "kernel"
    products = [node for node in onnx.load(result.output).graph.node if node.op_type == "MatMulNBits"]
    assert products and all(len(node.input) == 6 for node in products)


def _operators(path: Path) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load(path).graph.node)
