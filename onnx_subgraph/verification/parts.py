"""The parts of an output: results that the end of the model joins without computing. Each is judged on its own scale.

A detector joins boxes of hundreds of pixels and scores below one. On the scale of the boxes, no error of a score would show.

A copy of the model has an output of labels in the place of each output that joins several results: each element is the number of
the result that the element of the output comes from. The labels have the shapes of the results and are moved as these are, so
onnxruntime folds the copy of a model of fixed shapes into constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from onnx_subgraph.verification.case import Case
from onnx_subgraph.verification.sessions import Failure, Session, run

LEAST = 16
"""The fewest elements of a part: a few draws of noise do not show how far fewer elements go."""
MOST = 64
"""The most results that an output may join; more are the steps of one computation."""
_MOVED = {
    **dict.fromkeys(("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Split", "Expand"), (0,)),
    **dict.fromkeys(("Cast", "Compress", "Dropout", "Tile", "Gather", "GatherElements", "GatherND"), (0,)),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), (0,)),
    **dict.fromkeys(("ScatterND", "ScatterElements"), (0, 2)),
}
"""Operator → the operands whose elements it moves. Concat moves all of them."""
_LABEL = "onnx_subgraph_label_"
_FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


def note_parts(cases: Sequence[Case], model: ir.Model, opened: Callable[[ir.Model], Session | Failure]) -> None:
    """Set the parts of outputs in the cases. model: what the cases feed. opened: a session of a changed copy of it."""
    if not _joining(model):
        return
    names = _label(copy := model.clone())
    session = opened(copy)
    for case in cases:
        labels = session if isinstance(session, Failure) else run(session, case.fed_to(session))
        for name, label in () if isinstance(labels, Failure) else zip(names, labels.values(), strict=True):
            masks = [label == number for number in np.unique(label)]
            if label.shape == np.shape(case.outputs[name]) and len(masks) > 1:
                case.parts[name] = tuple(mask for mask in masks if mask.sum() >= LEAST)


def _label(model: ir.Model) -> list[str]:
    """Make the labels of the outputs that join results the only outputs of a model. Returns the names of these outputs."""
    joining = _joining(model)
    nodes = {value.producer() for tail in joining.values() for value, moved in tail.items() if moved}
    labels: dict[ir.Value, ir.Value] = {}
    for number, result in enumerate(dict.fromkeys(one for tail in joining.values() for one, moved in tail.items() if not moved)):
        shape = ir.node("Shape", [result], name=f"{_LABEL}{number}_shape")
        filled = ir.node("ConstantOfShape", shape.outputs, {"value": ir.tensor([float(number)])}, name=f"{_LABEL}{number}")
        model.graph.extend([shape, filled])
        labels[result] = filled.outputs[0]
    for node in [node for node in model.graph if node in nodes]:
        moved = _moved(node)
        inputs = [labels[value] if index in moved and value is not None else value for index, value in enumerate(node.inputs)]
        same = node.op_type == "Cast"
        operator, attributes = ("Identity", []) if same else (node.op_type, list(node.attributes.values()))
        model.graph.append(again := ir.Node("", operator, inputs, attributes, num_outputs=len(node.outputs)))
        labels.update(zip(node.outputs, again.outputs, strict=True))
    model.graph.outputs.clear()
    for number, output in enumerate(joining):
        model.graph.outputs.append(label := labels[output])
        label.name, label.dtype = f"{_LABEL}output{number}", ir.DataType.FLOAT
    return [str(output.name) for output in joining]


def _joining(model: ir.Model) -> dict[ir.Value, dict[ir.Value, bool]]:
    """The outputs that join several results, but not too many, each with its tail. Inputs and weights alone are no results."""
    tails = {output: _tail(output) for output in model.graph.outputs}
    results = {output: [value for value, moved in tail.items() if not moved] for output, tail in tails.items()}
    return {
        output: tails[output]
        for output, joined in results.items()
        if len(joined) <= MOST and sum(_is_computed(value) for value in joined) > 1
    }


def _is_computed(value: ir.Value) -> bool:
    return (node := value.producer()) is not None and node.op_type not in ("Constant", "ConstantOfShape")


def _tail(output: ir.Value) -> dict[ir.Value, bool]:
    """The values that are moved to an output, each with whether its own node only moves elements; the others are results."""
    found: dict[ir.Value, bool] = {}
    left = [output]
    while left:
        value = left.pop()
        if value not in found:
            node = value.producer()
            operands = [] if node is None else [node.inputs[index] for index in _moved(node)]
            found[value] = bool(operands)
            left += [one for one in operands if one is not None]
    return found


def _moved(node: ir.Node) -> tuple[int, ...]:
    """The operands of floats whose elements a node moves, if it does nothing else; () if it computes."""
    adds = node.attributes.get_string("reduction", "none") != "none"
    if node.domain or adds or not all(value.dtype in _FLOATS for value in node.outputs):
        return ()
    if node.op_type == "Concat":
        return tuple(range(len(node.inputs)))
    return _MOVED.get(node.op_type, ())
