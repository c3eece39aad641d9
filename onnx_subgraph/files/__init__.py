"""Load and save model files: the graph is an `onnx_ir.Model`. Files are checked before they are read, and appear whole or not."""
