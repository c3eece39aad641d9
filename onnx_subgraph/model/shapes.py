"""Infer types and symbolic shapes for every value of a model, without changing what the file declares.

onnx-shape-inference does the work; `inference` guards and extends it. Declarations of inner values are often stale (a batch
size edited only at the inputs). So an inferred dimension overrides a declared one, and a declared one fills in what inference
does not know. The values hold the inferred types and shapes while the tool works; `declared_only` restores the declarations for
writing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

import onnx_ir as ir

from onnx_subgraph.model import dimension_names
from onnx_subgraph.model.defaults import with_default
from onnx_subgraph.model.dimension_names import Dim
from onnx_subgraph.model.dimensions import same_expression, symbols
from onnx_subgraph.model.gaps import PROBLEM
from onnx_subgraph.model.loop_states import LoopState, loop_states
from onnx_subgraph.model.nested import within
from onnx_subgraph.model.quiet import quiet

DECLARED = "onnx_subgraph.declared"
"""Key in `Value.meta`: the (type, shape) that the file declares for the value."""

SHAPE_DATA = "onnx_subgraph.shape_data"
"""Key in `Value.meta`: the elements (int or SymbolicDim) of a small integer tensor known from inference, as a flat tuple."""

_INFERRED = "onnx_subgraph.inferred"


def infer_shapes(model: ir.Model) -> None:
    """Infer the dtype and symbolic shape of every value of the graph and its nested bodies, as far as they can be known.

    Never raises on a loaded model: what cannot be inferred stays as declared, or unknown (`gaps`). May be called again after a
    rewrite. Values in bodies of model-local functions get what all calls agree on.
    """
    import onnx_shape_inference

    from onnx_subgraph.model import inference
    from onnx_subgraph.model.local_functions import infer_local_functions

    inference.install()
    remember_declared(model)
    model.meta[_INFERRED] = True
    model.meta.pop(PROBLEM, None)
    constants = {id(value) for value in values(model) if value.const_value is not None}
    for value in values(model):  # each inference makes new names, which may be those that an earlier one gave to other sizes
        value.meta.pop(SHAPE_DATA, None)
    try:
        with quiet("onnx_shape_inference"), _without_defaults(model):
            onnx_shape_inference.infer_symbolic_shapes(model, warn_on_missing=False)
            infer_local_functions(model, lambda body: onnx_shape_inference.infer_symbolic_shapes(body, warn_on_missing=False))
    except Exception as error:  # Keep what was inferred so far and record the error.
        model.meta[PROBLEM] = f"{type(error).__name__}: {error}".splitlines()[0]
        shape_constants(model)
    finally:
        _clean(model, constants)
        _imply(model)


def is_inferred(model: ir.Model) -> bool:
    """Whether `infer_shapes` was called for the model, or for the one that it is a copy of."""
    return bool(model.meta.get(_INFERRED))


def is_settled(model: ir.Model) -> bool:
    """Whether types and shapes of all values follow from those of the inputs, so that to infer them again tells nothing new.

    A name that only inference or an output has may be replaced: it stands for something that could not be told.
    """
    every = list(values(model))
    if any(value.dtype is None or value.shape is None for value in every):
        return False
    named = {name for value in model.graph.inputs for dim in value.shape or () for name in symbols(dim)}
    return all(isinstance(dim, int) or symbols(dim) <= named for value in every for dim in value.shape or ())


@contextmanager
def _without_defaults(model: ir.Model) -> Iterator[None]:
    """Within the block the defaults of inputs are hidden, so that no shape follows from one."""
    defaults = {value: value.const_value for value in with_default(model)}
    for value in defaults:
        value.const_value = None
    try:
        yield
    finally:
        for value, tensor in defaults.items():
            value.const_value = tensor


def shape_constants(model: ir.Model) -> None:
    """Give constants the type and shape of their tensors, which are always known."""
    for value in values(model):
        tensor = ir.convenience.get_const_tensor(value) if value.shape is None or value.dtype is None else None
        if tensor is not None:
            value.type, value.shape = ir.TensorType(tensor.dtype), ir.Shape(tensor.shape.numpy())


def remember_declared(model: ir.Model, undeclared: Iterable[ir.Value] = ()) -> None:
    """Record the current type and shape of every value as declared by its file; values in `undeclared` have no declaration.

    The record has the file's names of dimensions. Afterwards the values' dimensions have names that the algebra of shapes accepts
    (`dimension_names`). An existing record is kept. After inference no records are added: a value without one is new.
    """
    if is_inferred(model):
        return
    for value in undeclared:
        value.meta.setdefault(DECLARED, (None, None))
    every = list(values(model))
    for value in every:
        if DECLARED not in value.meta:
            value.meta[DECLARED] = (value.type, value.shape)
    outputs = model.meta.setdefault(DECLARED, {})
    for value in model.graph.outputs:
        outputs.setdefault(value.name, value.meta[DECLARED])
    _rename_dimensions([(value, shape) for value in every if (shape := value.meta[DECLARED][1]) is not None])


def _rename_dimensions(declared: Sequence[tuple[ir.Value, ir.Shape]]) -> None:
    """Rename the declared dimensions to names that the algebra of shapes accepts (`dimension_names`)."""
    odd = [(value, shape) for value, shape in declared if not dimension_names.are_plain(shape) and value.shape == shape]
    if odd:
        names = {dim.value for _, shape in declared for dim in shape if isinstance(dim, ir.SymbolicDim) and dim.value}
        for value, shape in odd:
            value.shape = dimension_names.renamed(shape, names)


def restore_declared(model: ir.Model) -> None:
    """Remove what inference added, permanently. New outputs have the declared type, other new values none.

    Results of onnxruntime's operators keep their type, without a shape: tools that infer types by the standard alone stop there.
    """
    if not is_inferred(model):
        # Initializers get a type and shape from their tensors on loading; those are not declarations either.
        for value in values(model):
            if DECLARED in value.meta:
                value.type, value.shape = value.meta[DECLARED]
        return
    outputs = model.meta.get(DECLARED, {})
    ends = {id(value) for graph in model.graphs() for value in (*graph.inputs, *graph.outputs)}
    for function, inside in scopes(model):
        for value in inside:
            is_end = id(value) in ends
            inferred = value.type if function is None and not is_end and _is_contrib(value.producer()) else None
            if DECLARED in value.meta:
                value.type, value.shape = value.meta[DECLARED]
            elif value.name in outputs and value.is_graph_output():
                value.type, value.shape = outputs[value.name]
            elif not is_end:
                value.type = value.shape = None
            value.type = value.type or inferred


def _is_contrib(node: ir.Node | None) -> bool:
    """Whether a node has an operator that onnxruntime adds to the standard."""
    return node is not None and node.domain == "com.microsoft"


def copied(model: ir.Model) -> ir.Model:
    """A copy of a model with its record of declared types and shapes, which `ir.Model.clone` drops."""
    copy = model.clone()
    copy.meta.update(model.meta)
    return copy


@contextmanager
def declared_only(model: ir.Model) -> Iterator[None]:
    """Within the block values have their declared types and shapes; afterwards the inferred ones are restored."""
    inferred = [(value, value.type, value.shape) for value in values(model)]
    restore_declared(model)
    try:
        yield
    finally:
        for value, type_, shape in inferred:
            value.type, value.shape = type_, shape


@contextmanager
def proved_only(model: ir.Model) -> Iterator[None]:
    """Within the block shapes follow from the inputs alone, not from declarations of other values.

    Runtimes treat those declarations as hints, and files become stale: a model exported for one size still declares it after its
    inputs got symbolic dimensions. The state of a Loop has the sizes that its steps keep. Afterwards values whose shape stayed
    unknown have their old shape, and results of graphs their old sizes, also if another value took the place of one.
    """
    states = tuple(loop_states(model))
    given = {value for graph in model.graphs() for value in (*graph.inputs, *graph.initializers.values())}
    given -= {state.before for state in states}
    known = {value: value.shape for value in values(model) if value not in given}
    ends = [(graph, [value.shape for value in graph.outputs]) for graph in model.graphs()]
    claims = bool(states) or any(value.meta.get(DECLARED, (None, None))[1] is not None for value in known)
    if claims:
        _infer_anew(model, known, states)
    yield
    for value, shape in known.items() if claims else ():
        value.shape = shape if value.shape is None else value.shape
    for graph, shapes in ends if claims else ():
        for value, shape in zip(graph.outputs, shapes, strict=False):  # a body that took the place of its If has none left
            value.shape = _filled(value.shape, shape)


def _infer_anew(model: ir.Model, known: Collection[ir.Value], states: Sequence[LoopState]) -> None:
    """Infer the shapes of all values in `known`, whatever they were.

    What a Loop carries has the sizes of its operand, except those that a step may change. Ranks are taken to be kept.
    """
    changed: set[tuple[ir.Value, int]] = set()
    while True:
        sizes = {state.before: dims(state.before) or () for state in states}
        for value in known:
            value.shape = None
        for value in {value: None for value, _ in changed}:
            value.shape = ir.Shape(ir.SymbolicDim(None) if (value, i) in changed else d for i, d in enumerate(sizes[value]))
        infer_shapes(model)
        more = {(state.before, axis) for state in states for axis in state.changed(same_dim)} - changed
        if not more:
            return
        changed |= more


def _filled(shape: ir.Shape | None, other: ir.Shape | None) -> ir.Shape | None:
    """A shape with the sizes of another one in place of unknown ones."""
    if shape is None or other is None or len(shape) != len(other):
        return shape or other
    pairs = zip(shape.dims, other.dims, strict=True)
    return ir.Shape([a if isinstance(a, int) or dimension_names.name_of(a) is not None else b for a, b in pairs])


def values(model: ir.Model) -> Iterator[ir.Value]:
    """Every value of the main graph, nested bodies and functions, without repetition."""
    for _, inside in scopes(model):
        yield from inside


def scopes(model: ir.Model) -> Iterator[tuple[ir.OperatorIdentifier | None, Collection[ir.Value]]]:
    """The values of the main graph with its nested bodies (None), then of each function. Each is a separate scope of names."""
    owners: dict[ir.OperatorIdentifier | None, ir.Graph] = {None: model.graph}
    owners |= {identifier: function.graph for identifier, function in model.functions.items()}
    for owner, graph in owners.items():
        yield owner, dict.fromkeys(value for one in within(graph) for value in _values(one))


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs
    yield from graph.outputs


def _clean(model: ir.Model, constants: set[int]) -> None:
    """Remove what inference leaves on the values: metadata that would be written, and constants on node outputs."""
    from onnx_shape_inference import SYM_DATA_KEY

    for value in values(model):
        data = value.metadata_props.pop(SYM_DATA_KEY, None) if value.metadata_props else None
        if data is not None:
            value.meta[SHAPE_DATA] = tuple(item if isinstance(item, int) else ir.SymbolicDim(item) for item in json.loads(data))
        if value.const_value is not None and id(value) not in constants and not value.is_initializer():
            value.const_value = None


def _imply(model: ir.Model) -> None:
    """Replace sizes by those that they equal in every run (`implied_sizes`)."""
    from onnx_subgraph.model.implied_sizes import implied_sizes, replaced

    if not (implied := implied_sizes(model.graph)):
        return
    for value in (value for graph in within(model.graph) for node in graph for value in node.outputs):
        if value.shape is not None:
            value.shape = ir.Shape([replaced(implied, dim) for dim in value.shape])
        if (data := value.meta.get(SHAPE_DATA)) is not None:
            value.meta[SHAPE_DATA] = tuple(replaced(implied, dim) for dim in data)


def dims(value: ir.Value | None) -> tuple[Dim, ...] | None:
    """The dimensions of a value, None where its rank is unknown. An unknown dimension is a SymbolicDim with value None."""
    return None if value is None or value.shape is None else tuple(value.shape.dims)


def same_dim(a: Dim, b: Dim) -> bool:
    """Whether two dimensions are provably equal: the same number, or expressions that simplify to the same."""
    if isinstance(a, int) or isinstance(b, int):
        return isinstance(a, int) and isinstance(b, int) and a == b
    if a.value is None or b.value is None:
        return False
    return a.value == b.value or same_expression(a, b)


def same_shape(a: ir.Value | ir.Shape | None, b: ir.Value | ir.Shape | None) -> bool:
    """Whether two values or shapes provably have the same shape: equal rank and equal dimensions."""
    shape_a = a.shape if isinstance(a, ir.Value) else a
    shape_b = b.shape if isinstance(b, ir.Value) else b
    if shape_a is None or shape_b is None or len(shape_a) != len(shape_b):
        return False
    return all(same_dim(dim_a, dim_b) for dim_a, dim_b in zip(shape_a, shape_b, strict=True))
