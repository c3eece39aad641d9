"""The noise of a model: how far its outputs move when the roundings inside it change.

A fused operator computes the same formula in another order and rounds in other places. So every float result inside the model may
move by one or two units in the last place, and a fusion may change the outputs as much as these moves do. That is measured by
Monte Carlo arithmetic (D. S. Parker, "Monte Carlo Arithmetic", UCLA CSD-970002, 1997): in a copy of the model, results are
multiplied by 1 - u * eps, with a new u from [0, 1] for each element and run. The model with optimisation on is one more sample.
(The factor moves towards zero, so that the lowest number, which is used in masks, stays finite.)

onnxruntime's Sigmoid adds one half to an odd function, so its absolute error is half an ulp of one even for tiny results; it is
moved by as much. The error of its STFT is relative to the largest bin, not to each bin: four units in the last place for frames
of a power of two; otherwise half a unit for each element of a frame, because it computes all angles in float32 (measured for 320
to 1,920 elements). The error of a sum of thousands of terms is relative to all of them (`sums`).

Only results that depend on a float input, a table lookup or a sum of products are moved. Positions, masks and bucket numbers that
a model computes from shapes and integers are rounded the same in every form of the graph. Moving them would push exact values
(log(16) / log(128) * 8) across the integer to which they are truncated, and count that damage as noise. Nor are exact results
moved (`rounded`) that are whole numbers (`whole_numbers`), such as a count of votes, or that something is decided by.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.nested import bodies, graph_of, operands, within
from onnx_subgraph.model.shapes import copied
from onnx_subgraph.verification.rounded import OPSET, deciding, where_rounded
from onnx_subgraph.verification.sums import summed
from onnx_subgraph.verification.whole_numbers import whole_numbers

_EPSILON = {
    ir.DataType.FLOAT: 2.0**-23,
    ir.DataType.FLOAT16: 2.0**-10,
    ir.DataType.BFLOAT16: 2.0**-7,
    ir.DataType.DOUBLE: 2.0**-52,
}

_COMPUTED = {ir.DataType.BFLOAT16: ir.DataType.FLOAT}
"""The type in which a value is moved, if it is not its own: onnxruntime casts bfloat16 on the CPU and does not multiply it."""


def _operators(names: str) -> frozenset[str]:
    return frozenset(names.split())


_PRODUCTS = _operators(
    "MatMul Gemm Conv ConvTranspose Einsum LSTM GRU RNN DynamicQuantizeLSTM Attention MultiHeadAttention FusedMatMul "
    "LayerNormalization SimplifiedLayerNormalization SkipLayerNormalization SkipSimplifiedLayerNormalization RMSNormalization "
    "GroupNormalization InstanceNormalization BatchNormalization EmbedLayerNormalization GroupQueryAttention"
)
"""Sums of many terms: the order of their roundings differs between kernels, whatever their operands depend on."""

_EXACT = _operators(
    "Identity Cast CastLike Reshape Transpose Unsqueeze Squeeze Flatten Slice Split Concat Expand Tile Pad Gather GatherElements "
    "GatherND ScatterND ScatterElements Scatter Neg Abs Relu Max Min Clip Where Floor Ceil Round Sign Constant ConstantOfShape "
    "Shape Size Range MaxPool GlobalMaxPool DepthToSpace SpaceToDepth TopK OneHot Trilu EyeLike Dropout ReduceMax ReduceMin "
    "QuantizeLinear DequantizeLinear SequenceAt SequenceConstruct SplitToSequence ConcatFromSequence Optional NonZero "
    "RandomNormal RandomNormalLike RandomUniform RandomUniformLike Bernoulli Multinomial Not And Or Equal Greater Less"
)
"""Operators that move, select or clip values without rounding; except a Cast to a narrower float type."""


_AROUND_HALF = _operators("Sigmoid")
"""Operators whose kernels round a sum with one half, so that their error is absolute."""


_TRANSFORM = "STFT"
_UNITS_OF_FFT = 4
"""The error of a transform whose size is a power of two, in units in the last place of the largest bin."""


def dependent(model: ir.Model) -> set[ir.Value]:
    """The float values that depend on a float input of the model, on a table lookup, or on a sum of products."""
    tainted = {value for value in model.graph.inputs if value.dtype in _EPSILON and not value.is_initializer()}
    nodes, known = nodes_of(model), -1
    while known < len(tainted):  # a Loop hands results to its next round, and a function to its calls
        known = len(tainted)
        for node in nodes:
            tainted.update(formal for formal, given in _handed(node, model) if given in tainted)
            function = model.functions.get(node.op_identifier())
            read = operands(node) if function is None else (*operands(node), *function.outputs)
            if node.op_type in _PRODUCTS or _looks_up(node) or any(value in tainted for value in read):
                tainted.update(node.outputs)
    return {value for value in tainted if value.dtype in _EPSILON}


Select = Callable[[ir.Model], Collection[ir.Value]]
"""The values of a model that noise may move."""


def add_noise(model: ir.Model, seed: int, among: Select = dependent, units: float = 1.0) -> int:
    """Add noise to the float results of all graphs and functions, in place. Returns the number of changed results.

    Every run of the changed model draws new numbers; a new session of it repeats them. among: which values may be changed.
    units: the largest change, in units in the last place.
    """
    chosen, nodes = among(model), nodes_of(model)
    whole = whole_numbers(nodes)
    exact = whole | deciding(nodes, rounds)
    moved = 0
    for value in [value for value in model.graph.inputs if value in chosen]:
        moved += _move(model.graph, model.opset_imports, value, seed + moved, units)
    for graph, opsets in _graphs(model):
        tells = opsets.get("", 1) >= OPSET
        for node in [node for node in graph if rounds(node)]:
            for value in node.outputs:
                if value in chosen and value.dtype in _EPSILON and (tells or value not in whole):
                    moved += _move(graph, opsets, value, seed + moved, units, tells and value in exact)
        for node in [node for node in graph if any(value in chosen and value not in whole for value in node.outputs)]:
            moved += _move_terms(graph, opsets, node, seed + moved)
    return moved


def noisy(model: ir.Model, seed: int, among: Select = dependent, units: float = 1.0) -> ir.Model | str:
    """A copy of the model with noise, or the reason why there is none; then noise is measured in another way."""
    copy = copied(model)
    try:
        return copy if add_noise(copy, seed, among, units) else "no result of the model is of floats"
    except Exception as error:  # onnx_ir can't change this model
        return str(error)


def rounds(node: ir.Node) -> bool:
    """Whether the results of the node are rounded, so that noise moves them."""
    return node.op_type not in _EXACT or _looks_up(node) or _narrows(node)


def nodes_of(model: ir.Model) -> list[ir.Node]:
    """The nodes of all graphs and functions."""
    return [node for graph, _ in _graphs(model) for node in graph]


def _graphs(model: ir.Model) -> list[tuple[ir.Graph, Mapping[str, int]]]:
    """The main graph and those of functions, with their bodies; and the opsets of each."""
    owners: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    return [(graph, owner.opset_imports or model.opset_imports) for owner in owners for graph in within(graph_of(owner))]


def _handed(node: ir.Node, model: ir.Model) -> Iterator[tuple[ir.Value, ir.Value | None]]:
    """The inputs of the node's function and bodies, each with a value that it gets."""
    function = model.functions.get(node.op_identifier())
    if function is not None:
        yield from zip(function.inputs, node.inputs, strict=False)
    for body in bodies(node):
        yield from zip(body.inputs, node.inputs, strict=False)
        states = body.inputs[1:] if node.op_type == "Loop" else body.inputs[: -node.attributes.get_int("num_scan_inputs", 0)]
        yield from zip(states, body.outputs, strict=False)


def _looks_up(node: ir.Node) -> bool:
    """Whether the node reads rows of a float table at computed indices: an embedding."""
    if node.op_type != "Gather" or node.inputs[0] is None or node.inputs[1] is None:
        return False
    return node.inputs[0].is_initializer() and not node.inputs[1].is_initializer() and node.inputs[0].dtype in _EPSILON


def _narrows(node: ir.Node) -> bool:
    """Whether the node rounds to a narrower float type. A fused operator that computes in one precision may not round there."""
    if node.op_type not in ("Cast", "CastLike"):
        return False
    (source, result), widths = (node.inputs[0], node.outputs[0]), _EPSILON
    if source is None or source.dtype not in widths or result.dtype not in widths:
        return False
    return widths[result.dtype] > widths[source.dtype]


def _move(
    graph: ir.Graph, opsets: Mapping[str, int], value: ir.Value, seed: int, units: float, may_be_exact: bool = False
) -> int:
    """Replace `value` by value * Cast(1 - units * eps * u), for all its uses. Returns 1, or 0 where nothing uses it.

    may_be_exact: move only the elements that were rounded.
    """
    uses, is_output = list(value.uses()), value.is_graph_output()
    if (not uses and not is_output) or value.dtype is None or isinstance(value.type, (ir.SequenceType, ir.OptionalType)):
        return 0
    dtype = _COMPUTED.get(value.dtype, value.dtype)
    nodes = [] if dtype is value.dtype else [ir.node("Cast", [value], {"to": int(dtype)})]
    plain = nodes[-1].outputs[0] if nodes else value
    nodes += _factor(plain, dtype, units * _EPSILON[value.dtype], seed, opsets.get("", 1))
    if (producer := value.producer()) is not None and may_be_exact:
        nodes += where_rounded(producer, plain, nodes[-1].outputs[0], dtype)
    factor = nodes[-1].outputs[0]
    nodes.append(ir.node("Mul", [plain, factor]))
    if producer is not None and producer.op_type in _AROUND_HALF:
        nodes += _half_of_the_rest(factor, nodes[-1].outputs[0], dtype)
    if producer is not None and producer.op_type == _TRANSFORM:
        nodes += _of_the_largest(factor, nodes[-1].outputs[0], plain, dtype, _units(value))
    if dtype is not value.dtype:
        nodes.append(ir.node("Cast", nodes[-1].outputs, {"to": int(value.dtype)}))
    moved = nodes[-1].outputs[0]
    moved.dtype, moved.shape = value.dtype, value.shape
    for number, node in enumerate(nodes):
        node.name = f"{value.name}__noise_{number}"
        node.outputs[0].name = f"{value.name}__noise_{number}"
    for user, index in uses:
        user.replace_input_with(index, moved)
    if producer is None:
        first = next(iter(graph), None)
        if first is None:
            graph.extend(nodes)
        else:
            graph.insert_before(first, nodes)
    else:
        graph.insert_after(producer, nodes)
    if is_output:
        _rename_output(graph, value, moved)
    return 1


def _move_terms(graph: ir.Graph, opsets: Mapping[str, int], node: ir.Node, seed: int) -> int:
    """Move an operand of a sum of many terms up and down, for this node only. Returns 1, or 0 where it is no such sum."""
    (index, units), dtype = summed(node), node.outputs[0].dtype
    value = node.inputs[index] if units else None
    if value is None or dtype not in (ir.DataType.FLOAT, ir.DataType.DOUBLE) or value.dtype is not dtype:
        return 0
    step = units * _EPSILON[dtype]
    half = ir.node("Constant", [], {"value": ir.tensor(np.asarray(step / 2, dtype.numpy()))})
    nodes = [*_factor(value, dtype, step, seed, opsets.get("", 1)), half]
    nodes.append(ir.node("Add", [nodes[-2].outputs[0], half.outputs[0]]))
    nodes.append(ir.node("Mul", [value, nodes[-1].outputs[0]]))
    for number, one in enumerate(nodes):
        one.name = one.outputs[0].name = f"{node.outputs[0].name}__terms_{number}"
    graph.insert_before(node, nodes)
    node.replace_input_with(index, nodes[-1].outputs[0])
    return 1


def _factor(value: ir.Value, dtype: ir.DataType, step: float, seed: int, opset: int) -> list[ir.Node]:
    """Nodes whose last output has the value's shape and this dtype and is 1 - step * u, rounded once from float32 or float64."""
    wide = ir.DataType.DOUBLE if dtype is ir.DataType.DOUBLE else ir.DataType.FLOAT
    scattered = seed * 10368889 % (1 << 24)  # onnxruntime's generator starts similarly from neighbouring seeds

    def constant(array: object) -> ir.Node:
        return ir.node("Constant", [], {"value": ir.tensor(np.asarray(array))})

    if opset >= 22:
        # onnxruntime has no kernel for the random operators of opset 22, but it has one for Dropout, which turns a into 0 or 2a
        shape, half, train = ir.node("Shape", [value]), constant(np.float32(0.5)), constant(True)
        filled = ir.node("ConstantOfShape", shape.outputs, {"value": ir.tensor(np.asarray([step / 2.0], wide.numpy()))})
        draw = ir.node("Dropout", [filled.outputs[0], half.outputs[0], train.outputs[0]], {"seed": scattered})
        nodes = [shape, half, train, filled, draw]
    elif wide is ir.DataType.DOUBLE:
        limits = {"dtype": int(wide), "low": 0.0, "high": step, "seed": float(scattered)}
        nodes = [ir.node("RandomUniformLike", [value], limits)]
    else:
        limits = {"dtype": int(wide), "low": 1.0 - step, "high": 1.0, "seed": float(scattered)}
        nodes = [ir.node("RandomUniformLike", [value], limits)]
    if opset >= 22 or wide is ir.DataType.DOUBLE:
        one = constant(np.asarray(1.0, wide.numpy()))
        nodes += [one, ir.node("Sub", [one.outputs[0], nodes[-1].outputs[0]])]
    if dtype is not wide:
        nodes.append(ir.node("Cast", nodes[-1].outputs, {"to": int(dtype)}))
    return nodes


def _half_of_the_rest(factor: ir.Value, moved: ir.Value, dtype: ir.DataType) -> list[ir.Node]:
    """Nodes whose last output is `moved` + (1 - factor) / 2."""
    one, half = (ir.node("Constant", [], {"value": ir.tensor(np.asarray(number, dtype.numpy()))}) for number in (1.0, 0.5))
    rest = ir.node("Sub", [one.outputs[0], factor])
    added = ir.node("Mul", [rest.outputs[0], half.outputs[0]])
    return [one, half, rest, added, ir.node("Add", [moved, added.outputs[0]])]


def _units(spectrum: ir.Value) -> float:
    """The error of a one-sided spectrum [batch, frames, bins, 2], in units in the last place of the largest bin."""
    bins = None if spectrum.shape is None else spectrum.shape[-2]
    half = bins - 1 if isinstance(bins, int) else 0
    return float(half) if half & (half - 1) else _UNITS_OF_FFT


def _of_the_largest(factor: ir.Value, moved: ir.Value, value: ir.Value, dtype: ir.DataType, units: float) -> list[ir.Node]:
    """Nodes whose last output is `moved` + units * (1 - factor) * the largest magnitude of `value`."""
    one, times = (ir.node("Constant", [], {"value": ir.tensor(np.asarray(n, dtype.numpy()))}) for n in (1.0, units))
    rest = ir.node("Sub", [one.outputs[0], factor])
    size = ir.node("Abs", [value])
    largest = ir.node("ReduceMax", size.outputs, {"keepdims": 1})
    most = ir.node("Mul", [largest.outputs[0], times.outputs[0]])
    added = ir.node("Mul", [rest.outputs[0], most.outputs[0]])
    return [one, times, rest, size, largest, most, added, ir.node("Add", [moved, added.outputs[0]])]


def _rename_output(graph: ir.Graph, value: ir.Value, moved: ir.Value) -> None:
    """Give the moved value the output's place and name, and the original another name. Graph inputs are not renamed."""
    if value.is_graph_input():
        return
    name = value.name
    value.name = f"{name}__plain"
    moved.name = name
    moved.type = value.type
    for index, output in enumerate(graph.outputs):
        if output is value:
            graph.outputs[index] = moved
