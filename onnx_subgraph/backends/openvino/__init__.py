"""The backend `openvino` (`pip install onnx-subgraph[openvino]`); nothing outside this folder knows OpenVINO."""

from onnx_subgraph.backends.openvino.backend import OpenVino

__all__ = ["OpenVino"]
