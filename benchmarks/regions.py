"""Measures what regions cost for graphs of several shapes: to grow, to find by a pattern, and to replace by functions.

    python benchmarks/regions.py [--nodes 100000] [--runs 3]

A line has the shape of the graph and its elementwise part. Times are seconds of processor time: median (minimum to maximum). The
ratio beside it is to the time of a graph with a tenth of the nodes, where 10 is linear. The two are timed in turn.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Iterator

import onnx_ir as ir

from onnx_subgraph.language.reading import parse_pattern
from onnx_subgraph.matching.find import find
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.regions.region import grow
from onnx_subgraph.rewriting.apply import apply

Sources = Callable[[int], Iterator[int]]
"""Node → the nodes that it reads; a negative number is the graph's input."""
PATTERN = parse_pattern(
    """
id: sample
summary: Elementwise operators
grow:
  select: node.is_elementwise
  input: producer.is_elementwise
  output: consumer.is_elementwise
  keep: region.size >= 2
replace: {function: Elementwise}
""",
    "patterns/group/sample.yaml",
)
WIDTH = 50


def shapes(size: int) -> dict[str, tuple[Sources, Callable[[int], bool]]]:
    """Shape → what each node reads, and which nodes are elementwise."""
    draw = random.Random(0)
    near = [(i - WIDTH, draw.randrange(max(0, i - WIDTH), i) if i else -1) for i in range(size)]
    half = size // 2
    marks = [draw.random() < 0.7 for _ in range(size)]
    return {
        "chain, all": (lambda i: iter((i - 1,)), lambda i: True),
        "chain, every other": (lambda i: iter((i - 1,)), lambda i: i % 2 == 0),
        "chain, two of three": (lambda i: iter((i - 1,)), lambda i: i % 3 != 0),
        "fan out and in, all": (
            lambda i: iter((0 if i else -1,) if i <= half else (2 * (i - half) - 1, 2 * (i - half))),
            lambda i: True,
        ),
        "fan out and in, all but one leaf": (
            lambda i: iter((0 if i else -1,) if i <= half else (2 * (i - half) - 1, 2 * (i - half))),
            lambda i: i != half // 2,
        ),
        "ladder, all": (lambda i: iter((i - 2, i - 1 if i % 2 else i - 2)), lambda i: True),
        "ladder, one rail and every other rung": (
            lambda i: iter((i - 2, i - 1 if i % 2 else i - 2)),
            lambda i: i % 2 == 0 or i % 4 == 1,
        ),
        "grid, checkerboard": (
            lambda i: iter((i - 1 if i % WIDTH else -1, i - WIDTH)),
            lambda i: (i // WIDTH + i % WIDTH) % 2 == 0,
        ),
        "grid, two of three": (lambda i: iter((i - 1 if i % WIDTH else -1, i - WIDTH)), lambda i: i % 3 != 0),
        "random, 70 %": (lambda i: iter(near[i]), lambda i: marks[i]),
    }


def model(size: int, sources: Sources, is_elementwise: Callable[[int], bool]) -> ir.Model:
    """A graph of `size` nodes: Add if elementwise, else MatMul."""
    kind = ir.TensorType(ir.DataType.FLOAT)
    entry = ir.Value(name="x", type=kind, shape=ir.Shape([8, 8]))
    values: list[ir.Value] = []
    nodes: list[ir.Node] = []
    for index in range(size):
        read = [values[s] if s >= 0 else entry for s in sources(index)]
        value = ir.Value(name=f"v{index}", type=kind, shape=ir.Shape([8, 8]))
        nodes.append(
            ir.Node("", "Add" if is_elementwise(index) else "MatMul", [*read, *read][:2], outputs=[value], name=f"n{index}")
        )
        values.append(value)
    ends = [v for v in values if not v.uses()]
    return ir.Model(ir.Graph([entry], ends, nodes=nodes, opset_imports={"": 20}, name="g"), ir_version=10)


def seconds(work: Callable[[], object]) -> float:
    """Seconds of processor time that `work` takes."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def measured(size: int, name: str) -> tuple[float, float, float, int, int]:
    """Seconds to grow, to find by a pattern and to replace; the number of regions, and the size of the largest."""
    made = model(size, *shapes(size)[name])
    regions = grow(made.graph, lambda node: node.op_type == "Add")
    growing = seconds(lambda: grow(made.graph, lambda node: node.op_type == "Add"))
    constants = Constants(made)
    begun = time.process_time()
    found = find(made, [PATTERN], constants=constants)
    finding = time.process_time() - begun
    replacing = seconds(lambda: apply(made, found.matches, target="function", loadability=[], constants=constants))
    return growing, finding, replacing, len(regions), max(len(r.nodes) for r in regions)


def row(name: str, size: int, runs: int) -> str:
    """One line of the table."""
    taken = [(measured(size, name), measured(size // 10, name)) for _ in range(runs)]
    cells = [name, f"{taken[0][0][3]}", f"{taken[0][0][4]}"]
    for column in range(3):
        large = [big[column] for big, _ in taken]
        ratio = statistics.median(big[column] / small[column] for big, small in taken)
        cells.append(f"{statistics.median(large):.2f} ({min(large):.2f}–{max(large):.2f})")
        cells.append(f"{ratio:.0f}")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    print(f"| shape, {given.nodes} nodes | regions | largest | grow, s | × | find, s | × | replace, s | × |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in shapes(10):
        print(row(name, given.nodes, given.runs), flush=True)


if __name__ == "__main__":
    main()
