"""Models for `fuses` and `keeps`, cut out of a place where the unit stands."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from onnx_subgraph.mining.mine import Occurrence
from onnx_subgraph.model.element_types import FLOATS

MOST_ELEMENTS = 16
"""Elements of a constant that a case writes out; a larger one is an input of it."""


def cut_out(place: Occurrence) -> onnx.ModelProto | None:
    """The nodes of a place as a model; None where they read shapes that are computed outside, or have bodies."""
    view, nodes = place.place.view, place.nodes
    names: dict[ir.Value, str] = {}
    inputs, initializers, written = [], [], []
    made = {value for node in nodes for value in node.outputs}
    for node in nodes:
        for value in (v if v is None else view.through(v)[0] for v in node.inputs):
            if value is None or value in made or value in names:
                continue
            names[value] = f"v{len(names)}"
            array = view.constants.array(value) if view.constants.is_constant(value) else None
            if array is not None and array.size <= MOST_ELEMENTS:
                initializers.append(numpy_helper.from_array(np.asarray(array), names[value]))
            elif value.dtype in FLOATS and value.shape is not None:
                dims = [d if isinstance(d, int) else d.value for d in value.shape]
                inputs.append(helper.make_tensor_value_info(names[value], int(value.dtype), [_dimension(d) for d in dims]))
            else:
                return None
        names.update({value: f"v{len(names) + i}" for i, value in enumerate(node.outputs)})
        proto = ir.to_proto(node)
        plain = [names[view.through(v)[0]] if v is not None else "" for v in node.inputs]
        made_here = helper.make_node(node.op_type, plain, [names[v] for v in node.outputs], domain=node.domain)
        made_here.attribute.extend(proto.attribute)
        written.append(made_here)
    outputs = [
        helper.make_tensor_value_info(
            names[v], int(v.dtype or 1), [_dimension(d if isinstance(d, int) else d.value) for d in v.shape or ()]
        )
        for v in place.leaving
    ]
    graph = helper.make_graph(written, "place", inputs, outputs, initializers)
    domains = {node.domain for node in nodes}
    imports = [helper.make_opsetid(d, view.opsets.get(d, 1)) for d in sorted(domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8 if view.opsets.get("", 1) < 21 else 10)


def changed(model: onnx.ModelProto) -> list[tuple[float, onnx.ModelProto]]:
    """The model with one of its numbers half as large again, for each of them that may be; and that number."""
    found = []
    for position, tensor in enumerate(model.graph.initializer):
        array = numpy_helper.to_array(tensor)
        if array.size != 1 or array.dtype.kind != "f":
            continue
        with np.errstate(over="ignore"):
            larger = array * array.dtype.type(1.5)
        if np.isfinite(larger):
            copy = onnx.ModelProto.FromString(model.SerializeToString())
            copy.graph.initializer[position].CopyFrom(numpy_helper.from_array(larger, tensor.name))
            found.append((float(array.item()), copy))
    return found


def _dimension(dim: int | str | None) -> int | str | None:
    """A dimension that the text form can write: an expression is one that is not known."""
    return dim if dim is None or isinstance(dim, int) or dim.isidentifier() else None
