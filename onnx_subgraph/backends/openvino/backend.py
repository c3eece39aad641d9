"""Regions compiled by OpenVINO: read by its ONNX frontend, given their shapes, compiled for a device.

The converters are the frontend's own, and so is the answer to what is supported: a node is asked for as a model of one node.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from onnx_subgraph.backends.array import Array
from onnx_subgraph.backends.backend import Backend, Declined, Signature, plain_array
from onnx_subgraph.backends.openvino.integers import Limits, computes_as_onnxruntime, limits
from onnx_subgraph.backends.openvino.loading import load
from onnx_subgraph.backends.single import SingleNode
from onnx_subgraph.errors import UsageError

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_subgraph.backends.subgraph import Subgraph


_ROOM = 2**31 - (1 << 26)
"""Bytes of weights that fit into a protobuf, with room for the graph itself."""
PRECISIONS = ("f32", "f16", "bf16")
"""What OpenVINO may compute in."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled model. inputs, outputs: OpenVINO's index of each, in our order. idle: requests that nobody is using.

    limits: position of an input → its least and largest number.
    """

    model: Any
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    limits: tuple[tuple[int, Limits], ...]
    idle: deque[Any] = field(default_factory=deque)


class OpenVino(Backend):
    """OpenVINO on `device`. config: properties of the compiled model, as OpenVINO names them, over ours.

    Ours compute in float32: left to itself OpenVINO takes bfloat16 where the processor has it, and the results are then
    further from onnxruntime's than verification allows.
    """

    name = "openvino"
    dynamic = True
    gain = 0.1  # benchmarks/engines.md: from nothing to two fifths

    def __init__(self, device: str = "CPU", config: dict[str, Any] | None = None) -> None:
        try:
            openvino = load()
        except ImportError as error:
            raise UsageError(
                f"backend openvino needs the package openvino: {error}", hint="pip install 'onnx-subgraph[openvino]'"
            ) from error
        self._openvino = openvino
        self._core = openvino.Core()
        self._device = device
        self._config = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"} | (config or {})
        self._answers: dict[object, bool] = {}
        settings = ",".join(f"{key}={value}" for key, value in sorted(self._config.items()))
        if device != "CPU":  # no list of devices is asked for: that loads all plugins, and what they leave behind crashes on ^C
            try:
                self._core.get_property(device, "FULL_DEVICE_NAME")
            except Exception as error:  # a plain RuntimeError
                hint = f"CPU is always there, others need their plugin and driver; precisions are {', '.join(PRECISIONS)}"
                raise UsageError(f"OpenVINO has no device {device} here", hint=hint) from error
        self.version = f"{openvino.__version__} {device} {settings}"

    @classmethod
    def configured(cls, options: str) -> OpenVino:
        """A device and a precision, separated by a comma; either may be left out: `GPU`, `bf16`, `GPU,f16`."""
        given = options.split(",")
        precisions = [one for one in given if one in PRECISIONS]
        devices = [one for one in given if one not in PRECISIONS]
        if len(precisions) > 1 or len(devices) > 1 or "" in given:
            hint = f"write a device, one of {', '.join(PRECISIONS)}, or both: openvino:GPU,f16"
            raise UsageError(f"openvino:{options} is no device and precision", hint=hint)
        config = {"INFERENCE_PRECISION_HINT": precisions[0]} if precisions else None
        return cls(devices[0] if devices else "CPU", config)

    @property
    def coarser(self) -> tuple[str, ...]:
        """In the narrow type that the device has."""
        if self._config["INFERENCE_PRECISION_HINT"] != "f32":
            return ()
        return ("openvino:bf16",) if self._device == "CPU" else (f"openvino:{self._device},f16",)

    def supports(self, node: ir.Node) -> bool:
        """Whether the frontend converts the node, the device runs what it becomes, and its integers are right (`integers`)."""
        single = SingleNode.of(node)
        if single is None or not computes_as_onnxruntime(node):
            return False
        if single.key not in self._answers:
            self._answers[single.key] = self._converts(single)
        return self._answers[single.key]

    def reason(self, node: ir.Node) -> str:
        """Why a node is not supported."""
        plain = super().reason(node)
        return plain if computes_as_onnxruntime(node) else f"{plain} with integers that may need more than 32 bits"

    def compile(self, subgraph: Subgraph, signature: Signature) -> Compiled:
        """The region for these shapes. A size of 0 is left open: OpenVINO may divide by it. `run` declines empty arrays."""
        model = self._read(subgraph)
        sizes = (tuple(size or -1 for size in shape) for _, shape in signature)  # -1 is OpenVINO's any size
        model.reshape({name: list(shape) for name, shape in zip(subgraph.inputs, sizes, strict=True)})
        return self._ready(self._core.compile_model(model, self._device, self._config), subgraph)

    def run(self, compiled: Compiled, inputs: Sequence[Array]) -> Sequence[Array]:
        """The outputs of a request of its own, which is kept for the next run.

        Raises Declined for empty arrays, and for numbers out of `limits`.
        """
        if not all(array.size for array in inputs):
            raise Declined("has an empty input")
        for place, (low, high) in compiled.limits:
            array = inputs[place]
            if array.min() < low or array.max() > high:
                raise Declined(f"has numbers outside of {low} to {high}")
        try:
            request = compiled.idle.pop()
        except IndexError:
            request = compiled.model.create_infer_request()
        # OpenVINO shares no memory that it might not write to; the arrays are held here, because a request does not hold them
        arrays = [np.require(plain_array(array), requirements="W") for array in inputs]
        for index, array in zip(compiled.inputs, arrays, strict=True):
            request.set_input_tensor(index, self._openvino.Tensor(array, shared_memory=True))
        request.infer()
        outputs = [np.array(request.get_output_tensor(index).data) for index in compiled.outputs]
        compiled.idle.append(request)  # one that failed is not used again
        return outputs

    def save(self, compiled: Compiled) -> bytes | None:
        """OpenVINO's own form of the compiled model."""
        content: bytes = compiled.model.export_model().getvalue()
        return content

    def restore(self, content: bytes, subgraph: Subgraph, signature: Signature) -> Compiled:
        """The model from OpenVINO's own form."""
        return self._ready(self._core.import_model(content, self._device, self._config), subgraph)

    def _read(self, subgraph: Subgraph) -> Any:
        """The region as OpenVINO's model. It takes no data file outside of the working directory, so weights come in memory."""
        if subgraph.nbytes < _ROOM:
            return self._core.read_model(subgraph.serialized(whole=True))
        content, weights = subgraph.opened()
        model = self._core.read_model(content)
        for parameter in model.get_parameters():
            name = next((name for name in parameter.output(0).names if name in weights), None)
            if name is not None:
                array = weights[name]  # OpenVINO shares no memory that it might not write to, such as a mapped file
                constant = self._openvino.opset13.constant(array, shared_memory=bool(array.flags.writeable))
                parameter.output(0).replace(constant.output(0))
                model.remove_parameter(parameter)
        model.validate_nodes_and_infer_types()
        return model

    def _ready(self, model: Any, subgraph: Subgraph) -> Compiled:
        inputs = {name: index for index, port in enumerate(model.inputs) for name in port.names}
        outputs = {name: index for index, port in enumerate(model.outputs) for name in port.names}
        bounded = limits(subgraph.model)
        return Compiled(
            model,
            tuple(inputs[name] for name in subgraph.inputs),
            tuple(outputs[name] for name in subgraph.outputs),
            tuple((place, bounded[name]) for place, name in enumerate(subgraph.inputs) if name in bounded),
        )

    def _converts(self, single: SingleNode) -> bool:
        try:
            model = self._core.read_model(single.serialized())
            # The CPU runs whatever the frontend converts, and asking it takes six times as long.
            answered = None if self._device == "CPU" else self._core.query_model(model, self._device)
        except Exception:  # its exceptions are plain RuntimeErrors and its own OpConversionFailure
            return False
        return answered is None or all(operation.get_friendly_name() in answered for operation in model.get_ops())
