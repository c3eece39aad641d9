"""Mix the channels of an image before it is enlarged.

Decoders enlarge small images to the size of the largest one, put all side by side, and mix their channels by a 1 × 1 convolution.
Interpolation treats all channels alike, so the channels of a small image can be mixed before it is enlarged, and the images are
added. The sums of the convolution are the same in another order.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.broadcasting import Dim
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.nested import graph_around
from onnx_subgraph.model.shapes import same_dim
from onnx_subgraph.model.surgery import constant, remove_all, replace, sliced

_WITHOUT_REGION = 13
"""The first opset in which the region of a Resize may be left out."""
_LEAST_GAIN = 2
"""The least factor by which an image must be enlarged."""
MOST_RESULTS = 2
"""The most results of the convolution for each channel of the image. They are enlarged in place of the channels, so with more the
gain is small (`benchmarks/enlarged.md`)."""
_ALIKE = ("linear", "nearest")
"""The modes of a Resize whose weights sum to 1, or that have none."""
_CHANNELS = 1


@dataclass(frozen=True, slots=True)
class _Part:
    """One of the images side by side. value: the image, or the small one. start, end: its channels. resize: what enlarges it."""

    value: ir.Value
    start: int
    end: int
    resize: ir.Node | None = None


def mix_before_enlarging(model: ir.Model, constants: Constants) -> int:
    """Mix channels before images are enlarged. Changes `model`. Returns how many convolutions were replaced.

    Only the main graph. Shapes must follow from the inputs (`proved_only`).
    """
    replaced = 0
    for node in tuple(model.graph):
        if node.graph is not None and (parts := _parts(constants, node)):
            _rewrite(node, parts)
            replaced += 1
    return replaced


def _parts(constants: Constants, node: ir.Node) -> list[_Part]:
    """The images side by side that a convolution mixes, if it pays to mix one before it is enlarged; else []."""
    if not _mixes(constants, node):
        return []
    weights, whole = node.inputs[1], node.inputs[0]
    joined = None if whole is None else whole.producer()
    assert weights is not None and whole is not None
    parts, start = list[_Part](), 0
    if joined is not None and joined.op_type == "Concat" and not joined.domain and not whole.is_graph_output():
        if joined.attributes.get_int("axis", 0) not in (_CHANNELS, -3) or not all(
            _mixes(constants, use.node) for use in whole.uses()
        ):
            return []
        images = joined.inputs
    else:
        images = (whole,)
    for image in images:
        channels = None if image is None or image.shape is None or len(image.shape) != 4 else image.shape[_CHANNELS]
        if image is None or not isinstance(channels, int):
            return []
        parts.append(_part(constants, image, start, start + channels, weights))
        start += channels
    return parts if any(part.resize is not None for part in parts) else []


def _mixes(constants: Constants, node: ir.Node) -> bool:
    """Whether a node is a 1 × 1 convolution with weights of its own, maybe with a Relu."""
    if (node.op_type, node.domain) not in (("Conv", ""), ("FusedConv", "com.microsoft")) or len(node.inputs) > 3:
        return False
    image, weights = node.inputs[:2]
    if image is None or weights is None or weights.shape is None or not constants.is_constant(weights):
        return False
    if image.dtype != ir.DataType.FLOAT or constants.opset(node) < _WITHOUT_REGION:
        return False
    lists = {name: node.attributes.get_ints(name, ()) for name in ("pads", "strides")}
    is_small = tuple(weights.shape[2:]) == (1, 1) and not any(lists["pads"]) and all(step == 1 for step in lists["strides"])
    whole = node.attributes.get_int("group", 1) == 1 and node.attributes.get_string("auto_pad", "NOTSET") in ("NOTSET", "VALID")
    return is_small and whole and _activation(node) in ("", "Relu")


def _activation(node: ir.Node) -> str:
    return node.attributes.get_string("activation", "")


def _part(constants: Constants, image: ir.Value, start: int, end: int, weights: ir.Value) -> _Part:
    """The image, with what enlarges it if that can come later."""
    node = image.producer()
    is_read = image.is_graph_output() or len(image.uses()) > 1
    if node is None or node.op_type != "Resize" or node.domain or is_read or not _treats_channels_alike(constants, node):
        return _Part(image, start, end)
    small = node.inputs[0]
    assert small is not None and small.shape is not None and image.shape is not None and weights.shape is not None
    before, after = (_known([shape[2], shape[3]]) for shape in (small.shape, image.shape))
    is_larger = before is None or after is None or after >= _LEAST_GAIN * before
    results = weights.shape[0]
    if not is_larger or not isinstance(results, int) or results > MOST_RESULTS * (end - start):
        return _Part(image, start, end)
    return _Part(small, start, end, node)


def _known(dims: list[Dim]) -> int | None:
    numbers = [dim for dim in dims if isinstance(dim, int)]
    return prod(numbers) if len(numbers) == len(dims) else None


def _treats_channels_alike(constants: Constants, node: ir.Node) -> bool:
    """Whether a Resize enlarges images, and each channel by the same weights, which sum to 1."""
    small, result = node.inputs[0], node.outputs[0]
    if small is None or small.shape is None or result.shape is None or len(small.shape) != 4 or len(node.inputs) < 3:
        return False
    if not same_dim(small.shape[_CHANNELS], result.shape[_CHANNELS]) or "axes" in node.attributes:
        return False
    if node.attributes.get_string("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize":
        return False
    scales = node.inputs[2]
    factors = None if scales is None else constants.array(scales)
    has_sizes = len(node.inputs) > 3 and node.inputs[3] is not None
    is_one = has_sizes or (factors is not None and factors.size == 4 and factors[_CHANNELS] == 1)
    return is_one and node.attributes.get_string("mode", "nearest") in _ALIKE


# Rewriting


def _rewrite(node: ir.Node, parts: list[_Part]) -> None:
    """Put the sum of a convolution of each small image, and of the others together, in the place of a node."""
    graph, result, name = graph_around(node), node.outputs[0], str(node.name or node.outputs[0].name)
    weights, bias = node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else None
    assert weights is not None and weights.shape is not None
    nodes, total = list[ir.Node](), list[ir.Value]()
    large = [part for part in parts if part.resize is None]
    groups = ([large] if large else []) + [[part] for part in parts if part.resize is not None]
    for index, group in enumerate(groups):
        own = f"{name}_{index}"
        image = _joined(nodes, [part.value for part in group], f"{own}_images")
        weights_of = [_slice(nodes, weights, part.start, part.end, _CHANNELS, f"{own}_{part.start}") for part in group]
        columns = _joined(nodes, weights_of, f"{own}_weights")
        mixed = _add(nodes, "Conv", [image, columns, *([bias] if bias is not None and not index else [])], own)
        total.append(mixed if group[0].resize is None else _enlarged(nodes, mixed, group[0].resize, weights, own))
    value = total[0]
    for index, other in enumerate(total[1:]):
        value = _add(nodes, "Add", [value, other], f"{name}_sum_{index}")
    if _activation(node):
        value = _add(nodes, _activation(node), [value], f"{name}_activation")
    graph.insert_before(node, nodes)
    for one in nodes:
        one.metadata_props.update(node.metadata_props)
    replace(result, value)
    remove_all([node])


def _add(nodes: list[ir.Node], operator: str, inputs: list[ir.Value | None], name: str, *attributes: ir.Attr) -> ir.Value:
    nodes.append(ir.Node("", operator, inputs, attributes, name=name))
    result = nodes[-1].outputs[0]
    result.name = f"{name}__{operator.lower()}"
    return result


def _joined(nodes: list[ir.Node], values: list[ir.Value], name: str) -> ir.Value:
    if len(values) == 1:
        return values[0]
    return _add(nodes, "Concat", [*values], name, ir.AttrInt64("axis", _CHANNELS))


def _slice(nodes: list[ir.Node], value: ir.Value, start: int, end: int, axis: int, name: str) -> ir.Value:
    nodes += sliced(value, start, end, axis, name)
    return nodes[-1].outputs[0]


def _enlarged(nodes: list[ir.Node], value: ir.Value, resize: ir.Node, weights: ir.Value, name: str) -> ir.Value:
    """The mixed channels, enlarged as the image was."""
    assert weights.shape is not None
    inputs = list(resize.inputs)
    inputs[:2] = [value, None]
    if len(inputs) > 3 and inputs[3] is not None:
        sizes = inputs[3]
        results = constant(np.array([weights.shape[0]], np.int64), f"{name}_results")
        nodes.append(results)
        first, last = _slice(nodes, sizes, 0, 1, 0, f"{name}_batch"), _slice(nodes, sizes, 2, 4, 0, f"{name}_size")
        inputs[3] = _add(nodes, "Concat", [first, results.outputs[0], last], f"{name}_sizes", ir.AttrInt64("axis", 0))
    return _add(nodes, "Resize", inputs, f"{name}_enlarged", *resize.attributes.values())
