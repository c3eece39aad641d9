"""Make a model static: fix the free dimensions of its inputs, and fold everything that becomes constant.

Exporters write arithmetic on shapes (Shape, Gather, Concat, Reshape) because sizes may change. With fixed sizes this arithmetic
folds to constants, and patterns that need known sizes can match.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir
from onnx_ir.passes import common

from onnx_subgraph.errors import UsageError
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.dimension_names import Dim, is_expression, name_of, outer, shown
from onnx_subgraph.model.nested import bodies, within
from onnx_subgraph.model.shapes import DECLARED, infer_shapes, remember_declared, values
from onnx_subgraph.model.surgery import store

Shapes = Mapping[str, tuple[int, ...]]
"""Input → shape."""


def specialize(model: ir.Model, shapes: Shapes) -> None:
    """Fix the free dimensions given by `shapes`, and fold what becomes constant. Changes `model`; raises as `fix_dimensions`.

    The inputs and outputs, their names and their order stay. A dimension that `shapes` does not determine stays free.
    """
    fix_dimensions(model, shapes)
    infer_shapes(model)
    fold(model)
    infer_shapes(model)


def fix_dimensions(model: ir.Model, shapes: Shapes) -> None:
    """Declare the inputs of `model` with these shapes, and replace the names of their dimensions by these sizes everywhere.

    Raises UsageError for an unknown input, a shape that does not fit its input, or a name with two sizes.
    """
    remember_declared(model)
    inputs = {str(value.name): value for value in model.graph.inputs}
    sizes: dict[str, int] = {}
    fixed_by: dict[str, str] = {}
    for name, shape in shapes.items():
        if name not in inputs:
            hint = f"its inputs are {', '.join(inputs)}" if inputs else "it has no inputs: leave --shape out"
            raise UsageError(f"the model has no input {name!r}", hint=hint)
        declared = inputs[name].shape
        if declared is not None and not _fits(declared, shape):
            raise UsageError(
                f"the input {name!r} is declared {shown(declared)}, which {_spelled(shape)} does not fit",
                hint=f"give {len(declared)} sizes, and keep the declared ones",
            )
        for dim, size in zip(declared or (), shape, strict=False):
            if isinstance(dim, int) or dim.value is None:
                continue
            if sizes.setdefault(dim.value, size) != size:
                raise UsageError(
                    f"{fixed_by[dim.value]!r} makes the dimension {name_of(dim)} {sizes[dim.value]}, "
                    f"and {name!r} makes it {size}",
                    hint="dimensions of one name have one size",
                )
            fixed_by.setdefault(dim.value, name)
    repeated = _repeated(model)
    for value in values(model):
        value.shape = _sized(value.shape, sizes)
        if DECLARED in value.meta and value not in repeated:
            type_, shape_ = value.meta[DECLARED]
            value.meta[DECLARED] = (type_, _declared(shape_, _outer(sizes)))
    as_declared = _outer(sizes)
    outputs = model.meta.get(DECLARED, {})
    for output, (type_, shape_) in outputs.items():
        outputs[output] = (type_, _declared(shape_, as_declared))
    for name, shape in shapes.items():
        inputs[name].shape = ir.Shape(shape)
        if DECLARED in inputs[name].meta:
            inputs[name].meta[DECLARED] = (inputs[name].meta[DECLARED][0], ir.Shape(shape))


def fold(model: ir.Model) -> None:
    """Replace constant values by `Constant` nodes, and remove what is no longer read.

    Only values up to 1 MiB are computed; weights stay as they are.
    """
    constants = Constants(model)
    owners: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    for owner in owners:
        for node in tuple(owner.all_nodes()):
            if node.op_type != "Constant" or node.domain:
                _fold(node, constants)
    common.RemoveUnusedNodesPass()(model)


def _fold(node: ir.Node, constants: Constants) -> None:
    """Replace the node's results by constants if all that are read can be computed."""
    wanted = [output for output in node.outputs if output.uses() or output.is_graph_output()]
    known = {output: array for output in wanted if (array := constants.array(output)) is not None}
    if len(known) == len(wanted):
        for output, array in known.items():
            store(output, array)


def _fits(declared: ir.Shape, shape: tuple[int, ...]) -> bool:
    return len(declared) == len(shape) and all(
        not isinstance(dim, int) or dim < 0 or dim == size for dim, size in zip(declared, shape, strict=True)
    )


def _repeated(model: ir.Model) -> set[ir.Value]:
    """The values in bodies of Loop and Scan. Their declarations stay as they are in the file.

    onnxruntime builds the stack of a Loop of no steps from them, and the sizes that are free in it are 0.
    """
    owners = (model.graph, *(function.graph for function in model.functions.values()))
    loops = (node for owner in owners for graph in within(owner) for node in graph if node.op_type in ("Loop", "Scan"))
    inner = (graph for node in loops for body in bodies(node) for graph in within(body))
    return {value for graph in inner for value in (*graph.inputs, *(output for node in graph for output in node.outputs))}


def _outer(sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes by the file's names of the dimensions."""
    return {outer(name): size for name, size in sizes.items()}


def _declared(shape: ir.Shape | None, sizes: Mapping[str, int]) -> ir.Shape | None:
    """As `_sized`, for a shape with the file's names. A name that is no expression of others ("batch size") stays."""
    if shape is None:
        return None
    return ir.Shape([dim if _is_only_a_name(dim, sizes) else _size(dim, sizes) for dim in shape])


def _is_only_a_name(dim: Dim, sizes: Mapping[str, int]) -> bool:
    return not isinstance(dim, int) and dim.value is not None and dim.value not in sizes and not is_expression(dim.value, sizes)


def _sized(shape: ir.Shape | None, sizes: Mapping[str, int]) -> ir.Shape | None:
    if shape is None or all(isinstance(dim, int) for dim in shape):
        return shape
    return ir.Shape([_size(dim, sizes) for dim in shape])


def _size(dim: Dim, sizes: Mapping[str, int]) -> Dim:
    """A dimension with these sizes inserted: a number where all its names have a size."""
    if isinstance(dim, int) or dim.value is None:
        return dim
    if dim.value in sizes or dim.value.isidentifier():
        return sizes.get(dim.value, dim)
    try:
        size = dim.evaluate(sizes)
    except Exception:  # sympy raises many types, also for a division by zero
        return dim
    return size if isinstance(size, int) else dim


def _spelled(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "a scalar"
