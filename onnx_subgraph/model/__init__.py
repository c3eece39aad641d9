"""Load and save models; find constants, symbolic shapes and opsets. The graph is `onnx_ir.Model`; there is no second IR."""
