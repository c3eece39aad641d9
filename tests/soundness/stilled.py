"""A model whose random operators give numbers determined by their names and sizes, so that two models can be compared.

The numbers of a node depend on its name: its result may get the name of a graph output. If two random nodes are merged, their
numbers change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from zlib import crc32

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnx_subgraph.operators.randomness import RANDOM


def stilled(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with deterministic nodes for RandomNormalLike, RandomUniformLike, Bernoulli and Dropout in training.

    The first three declare their dtype: types are not inferred through operators of other domains.
    """
    if not any(_is_random(n) for n in _nodes(model.graph.node)):
        return model
    made = onnx.ModelProto()
    made.CopyFrom(model)
    nodes = [step for n in made.graph.node for step in (_steps(n) if _is_random(n) else [n])]
    copies = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
    del made.graph.node[:]
    made.graph.node.extend(copies)
    return made


def _nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            yield from _nodes(attribute.g.node)


def _is_random(node: onnx.NodeProto) -> bool:
    trains = len(node.input) > 2 and bool(node.input[2])
    return node.op_type in RANDOM and not node.domain and (trains or node.op_type != "Dropout")


def _steps(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """What gives its result: sines of 1, 2, 3, … from a phase of its own on; where they are above zero for what draws two."""
    result, read = node.output[0], node.input[0]
    kind = next((a.i for a in node.attribute if a.name == "dtype"), onnx.TensorProto.FLOAT)
    phase = float(crc32((node.name or result).encode()) % 1000)

    def name(part: str) -> str:
        return f"{result}__{part}"

    def constant(part: str, value: object) -> onnx.NodeProto:
        return helper.make_node("Constant", [], [name(part)], value=numpy_helper.from_array(np.asarray(value)))

    def step(operator: str, reads: list[str], part: str, **attributes: int) -> onnx.NodeProto:
        return helper.make_node(operator, reads, [name(part)], **attributes)

    yield step("Shape", [read], "shape")
    yield step("Size", [read], "size")
    yield constant("zero", np.int64(0))
    yield constant("one", np.int64(1))
    yield step("Range", [name("zero"), name("size"), name("one")], "range")
    yield step("Cast", [name("range")], "counted", to=1)
    yield constant("phase", np.float32(phase + 1))
    yield step("Add", [name("counted"), name("phase")], "angles")
    yield step("Sin", [name("angles")], "sines")
    yield step("Reshape", [name("sines"), name("shape")], "shaped")
    if node.op_type not in ("Bernoulli", "Dropout"):
        yield helper.make_node("Cast", [name("shaped")], [result], to=kind)
        return
    yield constant("level", np.float32(0))
    yield step("Greater", [name("shaped"), name("level")], "kept")
    if node.op_type == "Bernoulli":
        yield helper.make_node("Cast", [name("kept")], [result], to=kind)
        return
    yield step("Sub", [read, read], "nothing")
    yield helper.make_node("Where", [name("kept"), read, name("nothing")], [result])
