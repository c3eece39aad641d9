"""Verification: whether two models compute the same, judged by onnxruntime and the noise of the model itself."""
