"""Partial evaluation: compute before the run what depends only on constants and known dimensions.

Exporters write arithmetic on shapes, branches on ranks, and Reshapes that change nothing. Runtimes remove some of this when they
load a model, but less inside the branches of an If. This pass is exact: integers and booleans are computed; floats are only moved
or cast. It uses shapes that follow from the inputs, not declared ones. A result larger than its operands is not stored
(`LARGEST`), nor that of DequantizeLinear and similar operators, whose operands are small on purpose.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import astuple, dataclass

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.folding import is_exact, is_reproducible
from onnx_subgraph.model.naming import name_apart
from onnx_subgraph.model.nested import graph_around, within, within_proved
from onnx_subgraph.model.shapes import SHAPE_DATA, infer_shapes, proved_only, same_shape
from onnx_subgraph.model.surgery import as_initializers, constant, remove, replace, store, sweep
from onnx_subgraph.model.uniform import element
from onnx_subgraph.operators.elementwise import REARRANGING
from onnx_subgraph.simplification.assignments import as_joined, written
from onnx_subgraph.simplification.branches import decide
from onnx_subgraph.simplification.captured import move_captured_weights
from onnx_subgraph.simplification.choices import as_chosen, as_where, is_within
from onnx_subgraph.simplification.enlarged import mix_before_enlarging
from onnx_subgraph.simplification.equal_sizes import read_once
from onnx_subgraph.simplification.expands import leave_out_expands
from onnx_subgraph.simplification.gathers import as_compress, as_gather, as_unsqueeze
from onnx_subgraph.simplification.joined_sizes import as_concat
from onnx_subgraph.simplification.joins import as_parts
from onnx_subgraph.simplification.kept_axes import keep_axes
from onnx_subgraph.simplification.layouts import move_across
from onnx_subgraph.simplification.moved_sizes import as_sizes
from onnx_subgraph.simplification.negative_indices import negative_indices
from onnx_subgraph.simplification.reshaping import as_one_step, as_reshape, as_squeeze, as_transpose, target
from onnx_subgraph.simplification.resizes import as_scaled
from onnx_subgraph.simplification.rows import narrow
from onnx_subgraph.simplification.selected_sums import as_reduced
from onnx_subgraph.simplification.sequences import as_tensors
from onnx_subgraph.simplification.shuffles import as_shuffle
from onnx_subgraph.simplification.slices import as_fewer_axes
from onnx_subgraph.simplification.unrolled import as_whole
from onnx_subgraph.simplification.zero_addends import leave_out_zero_addends

LARGEST = 1024
"""A constant up to this size in bytes may be larger than the operands it is computed from."""
_MOST_PASSES = 8
"""A removed If or a known shape allows more to be simplified; real models need three passes."""


@dataclass(frozen=True, slots=True)
class Simplified:
    """What was simplified.

    computed: nodes whose results are now constants. passed: nodes that changed nothing, or gave a size again.
    branches: Ifs replaced by one of their branches. targets: Reshapes with a shape that is now constant. captured: weights that
    moved into the body that reads them. simpler: nodes replaced by simpler ones. narrowed: nodes that compute only the one row
    that is read. removed: the total decrease in the number of nodes.
    """

    computed: int = 0
    passed: int = 0
    branches: int = 0
    targets: int = 0
    removed: int = 0
    captured: int = 0
    simpler: int = 0
    narrowed: int = 0

    def __bool__(self) -> bool:
        return self != NOTHING

    def __add__(self, later: Simplified) -> Simplified:
        return Simplified(*map(sum, zip(astuple(self), astuple(later), strict=True)))


NOTHING = Simplified()


def simplify(model: ir.Model) -> Simplified:
    """Simplify the main graph and its bodies. Changes `model`, whose shapes must be inferred."""
    before, counts = number_of_nodes(model), Counter[str]()
    old = frozenset(node for graph in model.graphs() for node in graph)
    with proved_only(model):
        counts += _passes(model)
        counts["passed"] += sum(map(read_once, within_proved(model.graph)))
        if done := +Counter(narrowed=narrow(model, Constants(model)), simpler=mix_before_enlarging(model, Constants(model))):
            infer_shapes(model)
            counts += done + _passes(model)
    captured = move_captured_weights(model)
    if not any(counts.values()) and not captured:
        return NOTHING
    name_apart(model, old)
    as_initializers(model, old)
    removed = before - number_of_nodes(model)
    return Simplified(**counts, removed=removed, captured=captured)


def _passes(model: ir.Model) -> Counter[str]:
    """Simplify until nothing changes. Returns how often each simplification was applied."""
    counts = Counter[str]()
    for _ in range(_MOST_PASSES):
        done = Pass(model).run() or _left_out(model, Constants(model))
        if not any(done.values()):
            break
        counts += done
        infer_shapes(model)
    return counts


def _left_out(model: ir.Model, constants: Constants) -> Counter[str]:
    """Leave out what only repeats elements, and sums with 0. Returns how often each simplification was applied."""
    return Counter(simpler=leave_out_expands(model, constants), passed=leave_out_zero_addends(model, constants))


class Pass:
    """One pass over a model: simplify what is known, and remove nodes without readers at once."""

    def __init__(self, model: ir.Model) -> None:
        self._model = model
        self._constants = Constants(model)
        self._counts: Counter[str] = Counter()
        self._produced: set[ir.Node] = set()
        shapes = (value.shape for value in model.graph.inputs)
        self._proved = set(within_proved(model.graph))
        self._names = {dim.value for shape in shapes for dim in shape or () if isinstance(dim, ir.SymbolicDim) and dim.value}

    def run(self) -> Counter[str]:
        """Run the pass. Returns how often each simplification was applied."""
        graphs = within(self._model.graph)
        if found := decide(self._model, self._constants, graphs):
            self._counts["branches"] += found  # shapes in the inlined branch must be inferred first
            return self._counts
        for graph in graphs:
            for node in tuple(graph):
                if node.graph is graph and node not in self._produced and not node.domain:
                    self._simplify(node)
        return self._counts

    def join(self) -> int:
        """Join what parts of a value give, and simplify nothing else. Returns how often it did."""
        for graph in within(self._model.graph):
            for node in tuple(graph):
                if node.graph is graph and (nodes := as_joined(self._constants, node) or as_whole(self._constants, node)):
                    self._replace(node, nodes)
        return self._counts["simpler"]

    def _simplify(self, node: ir.Node) -> None:
        if node.op_type == "Constant" or self._compute(node) or self._rewrite(node):
            return
        for output in node.outputs:
            source = self._constants.see_through(self._operand_given(output) or output)
            if source is not output and self._bypass(node, output, source):
                return
        if node.op_type in ("Reshape", "Unsqueeze") and self._keep_axes(node):
            return
        if node.op_type in REARRANGING and (moved := move_across(self._constants, node)):
            self._counts["passed"] += moved
            return
        if node.op_type == "Reshape":
            self._fix_target(node)

    def _operand_given(self, value: ir.Value) -> ir.Value | None:
        """The operand that a Where gives everywhere, because its condition is one number, or a Clip whose bounds it is within.

        Also what a ScatterND or ScatterElements writes everywhere, and indices that may be negative; None for other values. The
        matcher does not look through such nodes: bodies of standard operators have a Where.
        """
        node = value.producer()
        if node is None or node.domain or not node.inputs or node.inputs[0] is None:
            return None
        if node.op_type not in ("Where", "Clip"):
            return written(self._constants, node)
        if node.op_type == "Clip":
            return node.inputs[0] if is_within(self._constants, node.inputs[0], node) else None
        condition = element(self._constants, node.inputs[0])
        if condition is None:
            return negative_indices(self._constants, node, is_proved=node.graph in self._proved)
        source = node.inputs[1 if condition else 2]
        return source if source is not None and source.dtype == value.dtype and same_shape(source, value) else None

    def _compute(self, node: ir.Node) -> bool:
        """Replace a node with known results by constants. Returns whether it did. An Identity would store its constant twice."""
        wanted = [output for output in node.outputs if output.uses() or output.is_graph_output()]
        if node.op_type == "Identity" or not wanted or not all(self._constants.is_constant(output) for output in wanted):
            return False
        arrays = [self._constants.array(output) for output in wanted]
        read = sum(0 if value is None or (a := self._constants.array(value)) is None else a.nbytes for value in node.inputs)
        if not all(array is not None and is_exact(node, array) and array.nbytes <= max(LARGEST, read) for array in arrays):
            return False
        if any(v.dtype is not None and a is not None and v.dtype.numpy() != a.dtype for v, a in zip(wanted, arrays, strict=True)):
            return False  # the file declares another type than the operator gives, which onnxruntime refuses
        if not all(is_reproducible(value) for value in node.inputs if value is not None and self._constants.is_constant(value)):
            return False  # a Shape reads no elements: its operand need not be known
        self._produced.update(store(output, array) for output, array in zip(wanted, arrays, strict=True) if array is not None)
        remove(node)
        self._counts["computed"] += 1
        return True

    def _rewrite(self, node: ir.Node) -> bool:
        """Replace a node by simpler ones with the same result. Returns whether it did."""
        constants = self._constants
        if parts := as_parts(constants, node) or as_tensors(constants, node):
            self._replace_results(node, parts)
            return True
        nodes = (
            as_where(constants, node)
            or as_chosen(constants, node)
            or as_reshape(node, constants.opset(node))
            or as_fewer_axes(constants, node)
            or as_transpose(constants, node)
            or as_squeeze(constants, node)
            or as_one_step(constants, node)
            or as_gather(constants, node)
            or as_compress(node)
            or as_scaled(constants, node)
            or as_shuffle(constants, node)
            or as_sizes(constants, node)
            or as_reduced(constants, node)
        )
        if not nodes and node.graph in self._proved:
            nodes = as_unsqueeze(constants, node) or as_concat(constants, node)
        if nodes:
            self._replace(node, nodes)
        return bool(nodes)

    def _replace(self, node: ir.Node, nodes: list[ir.Node]) -> None:
        """Replace a node by others, of which the last one gives its result."""
        self._replace_results(node, {node.outputs[0]: nodes})

    def _replace_results(self, node: ir.Node, made: dict[ir.Value, list[ir.Node]]) -> None:
        """Replace a node by others. made: its results that are read → nodes of which the last one gives it."""
        for result, nodes in made.items():
            graph_around(node).insert_before(node, nodes)
            self._produced.update(nodes)
            for one in nodes:
                one.metadata_props.update(node.metadata_props)  # its module, and the user's nodes that it stands for
                one.meta.update(node.meta)
            replace(result, nodes[-1].outputs[0])
        remove(node)
        self._counts["simpler"] += 1

    def _bypass(self, node: ir.Node, output: ir.Value, source: ir.Value) -> bool:
        """Make the readers of a node's result read its source, and remove the node. Returns whether it did."""
        if output.is_graph_output():
            producer = source.producer()
            if producer is None or producer.graph is not node.graph or source.is_graph_output():
                return False
            if any(other.uses() or other.is_graph_output() for other in node.outputs if other is not output):
                return False  # the node stays for its other results, and so does the name of this one
            replace(output, source)
        elif output.uses():
            output.replace_all_uses_with(source)
        else:
            return False
        remove(node)
        self._counts["passed"] += 1
        return True

    def _keep_axes(self, node: ir.Node) -> bool:
        """Let reductions keep the axes that this node puts back, if all readers do. Returns whether it removed such nodes."""
        removed = False
        for end in keep_axes(self._constants, node):
            source = end.inputs[0]
            removed |= source is not None and self._bypass(end, end.outputs[0], source)
        return removed

    def _fix_target(self, node: ir.Node) -> None:
        """Give a Reshape a constant shape if at most one unknown dimension is not the operand's at the same place (`target`).

        A dimension is copied then, with allowzero too, unless there is a -1: that is right with allowzero where one is 0, and an
        error without.
        """
        source, shape = node.inputs[0], node.inputs[1]
        if source is None or shape is None or self._constants.is_constant(shape):
            return
        requested, allows_zero = shape.meta.get(SHAPE_DATA, ()), node.attributes.get("allowzero")
        numbers = target(source.shape, node.outputs[0].shape, requested, self._names)
        if numbers is None:
            return
        if 0 in numbers and allows_zero is not None:
            if allows_zero.is_ref() or (allows_zero.as_int() and -1 in numbers):
                return
            del node.attributes["allowzero"]
        made = constant(np.array(numbers, np.int64), f"{node.outputs[0].name}__shape")
        graph_around(node).insert_before(node, made)
        node.replace_input_with(1, made.outputs[0])
        sweep([shape])
        self._counts["targets"] += 1


def number_of_nodes(model: ir.Model) -> int:
    """The number of nodes that are not constants, with those of bodies."""
    return sum(node.op_type != "Constant" for node in model.graph.all_nodes())
