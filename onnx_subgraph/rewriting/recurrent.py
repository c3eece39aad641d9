"""Replace Loops that are recurrent networks by LSTM, GRU and RNN. tf2onnx exports Keras networks as such Loops.

Such a Loop counts its steps up to the length of a sequence, and reads one row of it in each step. It carries the cell's states,
and its weights unchanged. `step` turns a step into a formula, and `cells` compares that with the formulas of the operators. A
Loop that does anything else, such as skipping masked steps, is left unchanged. A replaced Loop is a rewrite like any other: it is
verified and undone separately.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import onnx_ir as ir

from onnx_subgraph.matching.origin import REPLACES, label
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.dimension_names import Dim
from onnx_subgraph.model.gaps import DECLARE
from onnx_subgraph.model.nested import graph_around, reads, within
from onnx_subgraph.model.shapes import same_dim
from onnx_subgraph.model.surgery import constant, remove, replace, squeeze, unsqueeze
from onnx_subgraph.regions.ground import PATTERN
from onnx_subgraph.rewriting.apply import Barred, Record
from onnx_subgraph.rewriting.cells import NEVER_EMPTY, Cell, cell_of
from onnx_subgraph.rewriting.cutting import Cutting, between, cut
from onnx_subgraph.rewriting.loadability import Loadability, Operand
from onnx_subgraph.rewriting.outline import Outline
from onnx_subgraph.rewriting.rewrite import Place, Rewrite, Skip
from onnx_subgraph.rewriting.step import Next, Number, Step, Symbol, Term
from onnx_subgraph.rewriting.trips import makes_all_steps

NAME = "recurrent"
"""The id of such a rewrite, in place of a pattern's id."""


@dataclass(frozen=True, slots=True)
class Recurrent:
    """A Loop that became an operator. nodes: the number of nodes of the Loop, including its body."""

    rewrite: Rewrite
    nodes: int

    @property
    def operator(self) -> str:
        """LSTM, GRU or RNN."""
        return self.rewrite.op

    @property
    def loop(self) -> str:
        """The name of the Loop."""
        return self.rewrite.root


def make_recurrent(
    model: ir.Model,
    loadability: Sequence[Loadability] = (),
    barred: Barred = lambda place: (),
    record: Record | None = None,
    tell: Callable[[Skip], None] = lambda skip: None,
) -> tuple[Recurrent, ...]:
    """Replace the Loops that are recurrent operators, if all providers load those. Returns the replaced Loops.

    Changes `model`, whose shapes must be inferred. barred: what may not be replaced. record: is called with each cutting. tell:
    is called for each Loop that stays although its step is that of an operator.
    """
    constants = Constants(model)
    opset = model.opset_imports.get("", 0)
    nodes = [node for graph in within(model.graph) for node in graph]
    loops = [node for node in nodes if node.op_type == "Loop" and not node.domain]
    outline = Outline(model) if loops else None
    found: list[Recurrent] = []
    gone: set[ir.Graph] = set()
    for node in loops:
        loop = None if node.graph in gone else _Loop.read(node, constants, opset)
        if isinstance(loop, Skip):
            tell(loop)
            continue
        if outline is None or loop is None or any(loop.is_refused_by(provider, opset) for provider in loadability):
            continue
        wrong = barred(loop.place(outline))
        if wrong is not None and (loop.cell.operator, "") not in wrong:
            gone.update(within(loop.body))
            found.append(loop.replaced(outline, constants, opset, record))
    return tuple(found)


@dataclass(frozen=True)
class _Loop:
    """A Loop that is a recurrent operator over a sequence. All of its scan outputs are the hidden states."""

    node: ir.Node
    body: ir.Graph
    cell: Cell
    sequence: ir.Value

    @classmethod
    def read(cls, node: ir.Node, constants: Constants, opset: int) -> _Loop | Skip | None:
        """The Loop as a recurrent operator. If only its step is that of one: why it stays. None for any other Loop."""
        body = node.attributes["body"].as_graph()
        carried = len(body.inputs) - 2
        states = dict(zip(body.inputs[2:], zip(node.inputs[2:], body.outputs[1 : 1 + carried], strict=True), strict=True))
        given: dict[ir.Value, Term] = {body.inputs[0]: Symbol("step", body.inputs[0]), body.inputs[1]: Number(np.array(True))}
        steps: list[ir.Value] = []
        for value, (first, then) in states.items():
            if first is None:
                return None
            if constants.see_through(then) is value:
                array = constants.array(first)
                given[value] = Symbol("length", first) if array is None else Number(array)
            elif value.dtype in (ir.DataType.INT32, ir.DataType.INT64) and constants.scalar(first) == 0:
                given[value] = Symbol("step", value)
                steps.append(value)
            else:
                given[value] = Symbol("state", value)
        step = Step(body, constants, opset, given)
        kept = {term: step.term(states[value][1]) for value, term in given.items() if _is_state(term)}
        counts = all(isinstance(step.term(states[value][1]), Next) for value in steps)
        formula = {term: then for term, then in kept.items() if isinstance(term, Symbol) and then is not None}
        cell = cell_of(formula) if counts and len(formula) == len(kept) else None
        if cell is None or step.sequence is None or cell.weight.dtype != np.float32:
            return None
        loop = cls(node, body, cell, step.sequence)
        listed = all(step.term(value) is formula[cell.states[0]] for value in body.outputs[1 + carried :])
        if not listed or not all(map(loop._count_is_unread, steps)):
            return loop._kept("it gives other results than the operator")
        if not makes_all_steps(node, step, constants, loop._length):
            return loop._kept("its steps may be more or fewer than the rows of its sequence", is_unknown=loop._is_dynamic)
        if loop._is_dynamic and (cell.operator in NEVER_EMPTY or loop._last_states_are_read()):
            return loop._kept(f"onnxruntime's {cell.operator} is wrong for a sequence without rows", is_unknown=True)
        return (
            loop if loop._fits() else loop._kept("its sequence and states may not be of the operator's shapes", is_unknown=True)
        )

    # Conditions besides the formula

    @property
    def _length(self) -> Dim | None:
        """The length of the sequence; None where it is not known."""
        return None if self.sequence.shape is None else self.sequence.shape[0]

    @property
    def _is_dynamic(self) -> bool:
        return not isinstance(self._length, int)

    def _kept(self, why: str, *, is_unknown: bool = False) -> Skip:
        """Why the Loop stays. is_unknown: whether a fixed shape may change that."""
        return Skip(NAME, label(self.node), why, change=DECLARE if is_unknown else "")

    def _fits(self) -> bool:
        """Whether the sequence is (steps, batch, inputs), and the initial states are (batch, hidden)."""
        shape = self.sequence.shape
        if shape is None or len(shape) != 3 or shape[2] != self.cell.weight.shape[2]:
            return False
        expected = (shape[1], self.cell.recurrence.shape[2])
        return all(
            first.shape is not None and len(first.shape) == 2 and all(map(same_dim, first.shape, expected))
            for first in map(self._first, self.cell.states)
        )

    def _last_states_are_read(self) -> bool:
        """Whether the last states are read."""
        last = [self.node.outputs[list(self.body.inputs).index(state.value) - 2] for state in self.cell.states]
        return any(value.uses() or value.is_graph_output() for value in last)

    def _count_is_unread(self, steps: ir.Value) -> bool:
        """Whether the number of steps is unread; the operator has no such output."""
        counted = self.node.outputs[list(self.body.inputs).index(steps) - 2]
        return not (counted.uses() or counted.is_graph_output())

    def _first(self, state: Symbol) -> ir.Value:
        first = self.node.inputs[list(self.body.inputs).index(state.value)]
        assert first is not None
        return first

    # The replacement

    def is_refused_by(self, provider: Loadability, opset: int) -> bool:
        """Whether a provider does not load the operator."""
        three, two, states = Operand(ir.DataType.FLOAT, 3), Operand(ir.DataType.FLOAT, 2), len(self.cell.states)
        operands = (three, three, three, two, None, *[three] * states)
        results = (Operand(ir.DataType.FLOAT, 4), *[three] * states)
        attributes = [ir.convenience.convert_attribute(name, value) for name, value in self._attributes.items()]
        return provider.reason(self.cell.operator, "", opset, operands, results, attributes) is not None

    @property
    def _attributes(self) -> dict[str, int | list[str]]:
        return {"hidden_size": self.cell.recurrence.shape[2], **self.cell.attributes}

    @property
    def graph(self) -> ir.Graph:
        """The graph that the Loop is in."""
        return graph_around(self.node)

    @property
    def results(self) -> list[ir.Value]:
        """The results of the Loop that are read."""
        return [value for value in self.node.outputs if value.uses() or value.is_graph_output()]

    def place(self, outline: Outline) -> Place:
        """A key of the rewrite that is the same in every run."""
        return Place(NAME, outline.scope(self.graph), tuple(str(value.name) for value in self.results))

    def replaced(self, outline: Outline, constants: Constants, opset: int, record: Record | None) -> Recurrent:
        """Commit the rewrite and pass its cutting to `record`."""
        place, name, graph = self.place(outline), label(self.node), self.graph
        assumes = self.cell.assumes(None if self.sequence.shape is None else self.sequence.shape[1])
        rewrite = Rewrite(NAME, self.cell.operator, name, (name,), 1, root=name, place=place, assumes=assumes)
        recurrent = Recurrent(rewrite, 1 + len(self.body))

        def cut_out(nodes: Sequence[ir.Node], results: Sequence[ir.Value]) -> ir.Model:
            return cut([n for n in (*counting, *nodes) if n.graph is graph], results, graph, outline, constants.tensor)

        counting = self._counting(constants) if record is not None else []
        before = cut_out([self.node], self.results) if record is not None else None
        nodes, results = self._commit(graph, opset)
        if record is not None and before is not None:
            record(
                Cutting(recurrent.rewrite, before, cut_out(nodes, results), tuple((result, result) for result in place.results))
            )
        return recurrent

    def _counting(self, constants: Constants) -> list[ir.Node]:
        """The nodes that compute the number of steps from the sequence."""
        read = [v for v in reads(self.node) if v is not self.sequence and constants.tensor(v) is None]
        nodes = between([self.sequence], read, self.graph, constants.tensor)
        return [node for node in self.graph if node in nodes]

    def _commit(self, graph: ir.Graph, opset: int) -> tuple[list[ir.Node], list[ir.Value]]:
        """Replace the Loop by the operator; every result keeps its name. Returns the new nodes and their results."""
        cell, node = self.cell, self.node
        states = [unsqueeze(self._first(state), [0], opset, "") for state in cell.states]
        arrays = [constant(array, "") for array in (cell.weight, cell.recurrence, cell.bias)]
        inputs = [self.sequence, *(c.outputs[0] for c in arrays), None, *(s[-1].outputs[0] for s in states)]
        made = ir.node(cell.operator, inputs, self._attributes, num_outputs=1 + len(cell.states), name=label(node))
        last = [squeeze(output, [0], opset, "") for output in made.outputs[1:]]
        listed = squeeze(made.outputs[0], [1], opset, "")
        sources = {state.value: nodes[-1].outputs[0] for state, nodes in zip(cell.states, last, strict=True)}
        first = dict(zip(self.body.inputs[2:], node.inputs[2:], strict=True))
        gives = [sources.get(value, first[value]) for value in self.body.inputs[2:]]
        gives += [listed[-1].outputs[0]] * (len(node.outputs) - len(gives))
        handed = {value: ir.node("Identity", [gives[value.index() or 0]]) for value in self.results}
        nodes = [*chain(*states), *arrays, made, *chain(*last), *listed, *handed.values()]
        for number, inner in enumerate(nodes):
            inner.name = made.name if inner is made else None
            if inner.op_type != "Constant":
                inner.metadata_props[PATTERN], inner.metadata_props[REPLACES] = NAME, json.dumps([label(node)])
            for index, output in enumerate(inner.outputs):
                output.name = f"{label(node)}__{cell.operator}_{number}_{index}"
        graph.insert_before(node, nodes)
        for result, same in handed.items():
            replace(result, same.outputs[0])
        remove(node)
        return nodes, [same.outputs[0] for same in handed.values()]


def _is_state(term: Term) -> bool:
    return isinstance(term, Symbol) and term.kind == "state"
