"""Seeds for the random operators in parts of a model, which would draw the same numbers without them.

onnxruntime seeds a random node by a number of the process plus the index of the node in its session (`GetRandomSeed()` and
`Index()` in its kernels). Each part between engines is a session of its own, so nodes of different parts have the same index. The
seeds given here depend on the number of the process too: `onnxruntime.set_seed` repeats them, and two sessions of a model draw
alike, as they do in onnxruntime.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from onnx_subgraph.backends.backend import Backend
from onnx_subgraph.backends.subgraph import Subgraph
from onnx_subgraph.errors import ModelError

BY_INDEX = frozenset(("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"))
"""The operators of the standard that onnxruntime seeds by the index of their node. All take a number as `seed`."""
_SEEDS = 1 << 24
"""The seeds are smaller, so that a float32, as which the operators take them, is exact."""


def inline_drawing(model: ir.Model) -> None:
    """Inline the functions that draw random numbers without a seed, so that each of their calls can have its own.

    Raises ModelError where one can't be inlined.
    """
    drawing: set[ir.OperatorIdentifier] = set()

    def is_new(function: ir.Function) -> bool:
        nodes = function.all_nodes() if function.identifier() not in drawing else ()
        return any(_needs_seed(node) or node.op_identifier() in drawing for node in nodes)

    while more := {function.identifier() for function in model.functions.values() if is_new(function)}:
        drawing |= more

    def draws(function: ir.Function) -> bool:
        return function.identifier() in drawing

    if not drawing:
        return
    try:
        InlinePass(draws)(model)
    except (ValueError, ir.passes.InvariantError, ir.passes.PassError) as error:
        problem = f"a function that draws random numbers can't be inlined: {error}"
        raise ModelError(problem, hint="give the function and the model the same opset") from error


def _needs_seed(node: ir.Node) -> bool:
    """Whether onnxruntime seeds this node by its index."""
    return node.op_type in BY_INDEX and not node.domain and "seed" not in node.attributes


def seeds(plain: Backend) -> Iterator[int]:
    """Seeds that differ from each other. plain: the backend that runs the random nodes; its own draws decide which seeds."""
    draw = ir.node("RandomUniform", [], {"shape": [8]})
    (drawn,) = draw.outputs
    drawn.name, drawn.type, drawn.shape = "drawn", ir.TensorType(ir.DataType.FLOAT), ir.Shape([8])
    model = ir.Model(ir.Graph([], [drawn], nodes=[draw], opset_imports={"": 17}, name="seeds"), ir_version=8)
    (numbers,) = plain.run(plain.compile(Subgraph("seeds", "", model), ()), ())
    generator, given = np.random.default_rng(np.asarray(numbers, np.float32).view(np.uint32)), set[int]()
    while True:
        if (seed := int(generator.integers(1, _SEEDS))) not in given:
            given.add(seed)
            yield seed


def give_seeds(graph: ir.Graph, numbers: Iterator[int]) -> None:
    """Write one of the numbers into each random node of the graph, and of the bodies in it, that has no seed."""
    for node in graph.all_nodes():
        if _needs_seed(node):
            node.attributes["seed"] = ir.AttrFloat32("seed", float(next(numbers)))
