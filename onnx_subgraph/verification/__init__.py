"""Verification: whether two models compute the same, within the noise that the original model itself has in onnxruntime."""
