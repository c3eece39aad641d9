"""Measures matching and rewriting: 10,000 nodes against the whole catalogue, growth to 100,000 nodes, and to 300 patterns.

    python benchmarks/matching.py [--nodes 10000] [--runs 5]

The first graph consists of the sample models, which exporters wrote, repeated side by side. In the second graph every node is in
a fusion: both normalizations, attention, GELU, SwiGLU, convolutions. It is denser than any model. Times are seconds of
processor time of `find` alone, which runs on one core: median (minimum to maximum). The number of function calls is the same on
every machine. Where it grows more slowly than the time, access to a larger memory takes the rest. The last two lines
measure all rounds of matching and rewriting for onnxruntime, with the patterns that `fuse` selects for it.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import count, cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.compose
import onnx_ir as ir

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from onnx_subgraph.files.models import load
from onnx_subgraph.language.library import load_patterns
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.language.term import Apply, Literal, Operator, walk
from onnx_subgraph.matching.find import find
from onnx_subgraph.model.opset import raise_opset
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.rewriting.costs import measured
from onnx_subgraph.rewriting.loadability import CPU, Loadability
from onnx_subgraph.rewriting.rounds import Rewriter

SAMPLES = Path(__file__).resolve().parents[1] / "sample_models"
OPSET = 20
WIDTH = 16
EVERYWHERE = frozenset({"Add", "Sub", "Mul", "Div", "Neg", "MatMul", "Reshape", "Transpose", "Cast", "Pow", "Sqrt", "Reciprocal"})
"""Common operators. A pattern with one of these changed would still be the same fusion."""


class Tape:
    """A graph under construction: `tape("Add", a, b)` appends a node and returns its value."""

    def __init__(self) -> None:
        self.nodes: list[ir.Node] = []
        self.initializers: list[ir.Value] = []
        self.draw = np.random.default_rng(0)

    def __call__(self, operator: str, *inputs: ir.Value, outputs: int = 1, **attributes: Any) -> Any:
        node = ir.node(operator, inputs, attributes or None, num_outputs=outputs, name=f"{operator}_{len(self.nodes)}")
        for number, output in enumerate(node.outputs):
            output.name = f"{node.name}_{number}"
        self.nodes.append(node)
        return node.outputs[0] if outputs == 1 else node.outputs

    def constant(self, value: Any, dtype: Any = np.float32) -> ir.Value:
        """An initializer of its own for `value`."""
        name = f"c{len(self.initializers)}"
        array = np.asarray(value, dtype)
        made = ir.Value(name=name, type=ir.TensorType(ir.DataType.from_numpy(array.dtype)), shape=ir.Shape(array.shape))
        made.const_value = ir.tensor(array, name=name)
        self.initializers.append(made)
        return made

    def weight(self, *shape: int) -> ir.Value:
        """A drawn weight."""
        return self.constant(np.abs(self.draw.standard_normal(shape)) + 0.1)


def exports(nodes: int) -> ir.Model:
    """A model of at least `nodes` nodes: copies of the sample models side by side, with inferred shapes."""
    parts = []
    for path in sorted(SAMPLES.glob("*.onnx")):
        part = load(path)
        if part.functions or any(True for _ in part.graph.subgraphs()):
            continue  # a prefix does not rename values in bodies
        parts.append(ir.to_proto(part if part.opset_imports[""] == OPSET else raise_opset(part, OPSET)))
    whole = onnx.ModelProto(ir_version=9, opset_import=[onnx.helper.make_opsetid("", OPSET)])
    whole.graph.name = "exports"
    for number, part in enumerate(cycle(parts)):
        if len(whole.graph.node) >= nodes:
            break
        graph = onnx.compose.add_prefix(part, f"copy{number}.").graph
        for field in ("node", "initializer", "input", "output", "value_info"):
            getattr(whole.graph, field).extend(getattr(graph, field))
    made = ir.from_proto(whole)
    infer_shapes(made)
    return made


def dense(nodes: int) -> ir.Model:
    """A model of at least `nodes` nodes, with inferred shapes: tokens[batch, seq, 16] and an image[batch, 16, 8, 8], float32."""
    tape = Tape()
    tokens = ir.val("tokens", shape=["batch", "seq", WIDTH], dtype=ir.DataType.FLOAT)
    image = ir.val("image", shape=["batch", WIDTH, 8, 8], dtype=ir.DataType.FLOAT)
    x, y = tokens, image
    while len(tape.nodes) < nodes:
        x = tape("Add", x, _attention(tape, _layer_norm(tape, x)))
        x = tape("Add", x, _gelu_layer(tape, _layer_norm(tape, x)))
        x = tape("Add", x, _swiglu(tape, _rms_norm(tape, x)))
        y = _residual(tape, y)
    graph = ir.Graph(
        [tokens, image], [x, y], nodes=tape.nodes, initializers=tape.initializers, opset_imports={"": 17}, name="mix"
    )
    made = ir.Model(graph, ir_version=9)
    infer_shapes(made)
    return made


def _layer_norm(tape: Tape, x: ir.Value) -> ir.Value:
    centred = tape("Sub", x, tape("ReduceMean", x, axes=[-1]))
    variance = tape("ReduceMean", tape("Pow", centred, tape.constant(2.0)), axes=[-1])
    normal = tape("Div", centred, tape("Sqrt", tape("Add", variance, tape.constant(1e-5))))
    return tape("Add", tape("Mul", normal, tape.weight(WIDTH)), tape.weight(WIDTH))


def _rms_norm(tape: Tape, x: ir.Value) -> ir.Value:
    mean = tape("ReduceMean", tape("Mul", x, x), axes=[-1])
    inverse = tape("Reciprocal", tape("Sqrt", tape("Add", mean, tape.constant(1e-6))))
    return tape("Mul", tape.weight(WIDTH), tape("Mul", x, inverse))


def _linear(tape: Tape, x: ir.Value) -> ir.Value:
    return tape("Add", tape("MatMul", x, tape.weight(WIDTH, WIDTH)), tape.weight(WIDTH))


def _attention(tape: Tape, x: ir.Value) -> ir.Value:
    split, merge = ([0, 0, 4, WIDTH // 4], [0, 0, WIDTH])

    def heads(perm: list[int]) -> ir.Value:
        return tape("Transpose", tape("Reshape", _linear(tape, x), tape.constant(split, np.int64)), perm=perm)

    q, k, v = heads([0, 2, 1, 3]), heads([0, 2, 3, 1]), heads([0, 2, 1, 3])
    p = tape("Softmax", tape("Div", tape("MatMul", q, k), tape.constant(2.0)), axis=-1)
    y = tape("Transpose", tape("MatMul", p, v), perm=[0, 2, 1, 3])
    return _linear(tape, tape("Reshape", y, tape.constant(merge, np.int64)))


def _gelu_layer(tape: Tape, x: ir.Value) -> ir.Value:
    y = _linear(tape, x)
    erf = tape("Erf", tape("Div", y, tape.constant(2**0.5)))
    y = tape("Mul", tape("Mul", y, tape("Add", erf, tape.constant(1.0))), tape.constant(0.5))
    return _linear(tape, y)


def _swiglu(tape: Tape, x: ir.Value) -> ir.Value:
    gate, up = tape("MatMul", x, tape.weight(WIDTH, WIDTH)), tape("MatMul", x, tape.weight(WIDTH, WIDTH))
    y = tape("Mul", tape("Mul", gate, tape("Sigmoid", gate)), up)
    return tape("MatMul", y, tape.weight(WIDTH, WIDTH))


def _residual(tape: Tape, x: ir.Value) -> ir.Value:
    def convolution(y: ir.Value) -> ir.Value:
        y = tape("Conv", y, tape.weight(WIDTH, WIDTH, 1, 1))
        return tape("BatchNormalization", y, *(tape.weight(WIDTH) for _ in range(4)))

    y = convolution(tape("Relu", convolution(x)))
    y = tape("Relu", tape("Add", x, y))
    z = tape("Conv", y, tape.weight(WIDTH, WIDTH, 1, 1), tape.weight(WIDTH))
    return tape("Mul", z, tape("Sigmoid", z))


def variants(patterns: Sequence[Pattern], change: Callable[[Pattern, int], Pattern | None]) -> Iterator[Pattern]:
    """An endless sequence of new patterns: each of `patterns` changed in turn, again and again."""
    for number in count(1):
        for pattern in patterns:
            changed = change(pattern, number)
            if changed is not None:
                yield replace(changed, id=f"{pattern.id}-{number}", order=pattern.order + number * len(patterns))


def other_operator(pattern: Pattern, number: int) -> Pattern | None:
    """The same formula with a vendor's operator, as in a pack of patterns for operators that this graph does not have."""
    terms = [t for a in pattern.match for t in walk(a.term)]
    operators = {o for t in terms if isinstance(t, Apply) for o in t.operators}
    subjects = {o for o in operators if o.name not in EVERYWHERE}
    if not subjects:
        return None
    vendor = f"vendor{number}"

    def renamed(node: Any) -> Any:
        if isinstance(node, Operator) and node in subjects:
            return replace(node, domain=vendor)
        return node

    return replace(pattern, match=_rebuild(pattern.match, renamed))


def other_constant(pattern: Pattern, number: int) -> Pattern | None:
    """The same formula with other numbers. Every anchor is tried again, so this is the worst case for a pack."""
    changed = False

    def scaled(node: Any) -> Any:
        nonlocal changed
        if isinstance(node, Literal) and isinstance(node.value, float) and node.value:
            changed = True
            return Literal(node.value * (1 + number / 10))
        return node

    match = _rebuild(pattern.match, scaled)
    return replace(pattern, match=match) if changed else None


def _rebuild(node: Any, change: Callable[[Any], Any]) -> Any:
    """`node` with `change` applied to every part, inner parts first."""
    if isinstance(node, tuple):
        return tuple(_rebuild(item, change) for item in node)
    if not is_dataclass(node) or isinstance(node, type):
        return node
    parts = {f.name: _rebuild(getattr(node, f.name), change) for f in fields(node) if f.name != "span"}
    return change(replace(node, **parts))


def measure(made: ir.Model, patterns: Sequence[Pattern], runs: int) -> tuple[list[float], int]:
    """Seconds of each run of `find` after a first one that is not timed, and the number of matches."""
    seconds = []
    matches = len(find(made, patterns).matches)
    for _ in range(runs):
        started = time.process_time()
        find(made, patterns)
        seconds.append(time.process_time() - started)
    return seconds, matches


def rewriting(made: ir.Model, patterns: Sequence[Pattern], runs: int) -> tuple[list[float], int]:
    """Seconds of each run of all rounds of matching and rewriting after a first one, and the number of rewrites."""
    loadability = [Loadability(CPU)]

    def rewriter() -> Rewriter:
        """A new one, which knows no outcome of an earlier run."""
        return Rewriter(patterns, "onnxruntime", loadability, costs=measured(), simplifying=True)

    seconds = []
    rewrites = len(rewriter()(made).rewrites)
    for _ in range(runs):
        started = time.process_time()
        rewriter()(made)
        seconds.append(time.process_time() - started)
    return seconds, rewrites


def calls(made: ir.Model, patterns: Sequence[Pattern]) -> int:
    """The number of function calls in one `find`, including functions written in C."""
    with cProfile.Profile() as profile:
        find(made, patterns)
    return pstats.Stats(profile).total_calls  # type: ignore[attr-defined,no-any-return]


def _line(what: str, seconds: list[float], count: int, counted: str = "matches") -> float:
    median = statistics.median(seconds)
    print(
        f"{what:70} {median:7.3f} s  ({min(seconds):.3f} to {max(seconds):.3f}, {len(seconds)} runs)  {count:6} {counted}",
        flush=True,
    )
    return median


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--nodes", type=int, default=10_000)
    arguments.add_argument("--runs", type=int, default=5)
    given = arguments.parse_args()
    library = load_patterns()
    catalogue, selected = library.patterns, library.selected("onnxruntime")
    small, large, full = exports(given.nodes), exports(10 * given.nodes), dense(given.nodes)
    sizes = [sum(1 for _ in m.graph) for m in (small, large)]
    one = _line(f"{sizes[0]} nodes, the catalogue's {len(catalogue)} patterns", *measure(small, catalogue, given.runs))
    ten = _line(f"{sizes[1]} nodes, the catalogue's {len(catalogue)} patterns", *measure(large, catalogue, given.runs))
    few_calls, many_calls = calls(small, catalogue), calls(large, catalogue)
    times = f"{ten / one:.1f} times the time and {many_calls / few_calls:.1f} times the calls"
    print(f"{'':4}{sizes[1] / sizes[0]:.1f} times the nodes cost {times}; {few_calls / sizes[0]:.0f} calls a node")
    _line(f"{sum(1 for _ in full.graph)} nodes, all part of fusions", *measure(full, catalogue, given.runs))
    print()
    few = list(catalogue)[:30]
    few += islice(variants(catalogue, other_operator), 30 - len(few))
    base = _line(f"{sizes[0]} nodes, {len(few)} patterns", *measure(small, few, given.runs))
    for words, change in (("about other operators", other_operator), ("with other constants, the worst case", other_constant)):
        many = [*few, *islice(variants(few, change), 300 - len(few))]
        cost = _line(f"{sizes[0]} nodes, {len(many)} patterns, {len(many) - len(few)} {words}", *measure(small, many, given.runs))
        print(f"{'':4}{len(many) / len(few):.0f} times the patterns cost {cost / base:.2f} times the time")
    print()
    for made, words in ((small, "rewritten"), (full, "all part of fusions, rewritten")):
        _line(f"{sum(1 for _ in made.graph)} nodes, {words}", *rewriting(made, selected, given.runs), "rewrites")


if __name__ == "__main__":
    main()
