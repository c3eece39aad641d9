"""What is known of a model: constants, symbolic shapes, opsets. The graph is `onnx_ir.Model`; there is no second IR."""
