"""onnx's reference evaluator, in float64 and with onnxruntime's operators: the truth for comparisons."""
