"""Fragments: facts about their values do not depend on the time of the query."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnx_subgraph.emitting.fragment import Fragment


def value(name: str, *shape: int | str) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(shape))


@pytest.mark.parametrize("asked", [False, True], ids=["at the end", "after each node"])
def test_sizes_are_the_same_at_any_time(asked: bool) -> None:
    fragment = Fragment({"": 18}, lambda _: None)
    query, mask = (fragment.stand_in(v) for v in (value("q", "batch", "seq", 8), value("m", "batch", 1, "seq", "seq")))

    def node(operator: str, *inputs: ir.Value, **attributes: int) -> ir.Value:
        (result,) = fragment.node(operator, inputs, [ir.AttrInt64(name, number) for name, number in attributes.items()])
        if asked:
            fragment.infer()
        return result

    length = node("Shape", query, start=1, end=2)
    ones = fragment.constant(np.array([1, 1], np.int64))
    result = node("Expand", mask, node("Concat", ones, length, length, axis=0))
    fragment.infer()
    assert str(result.shape) == "[batch,1,seq,seq]"
    assert not any(o.metadata_props or o.const_value is not None for n in fragment.nodes for o in n.outputs)
