"""Adds of all elements along some axes are one ReduceSum; other sums stay."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simplification.test_simplify import operators, parsed, run, simplified


def summed(
    sizes: tuple[int, ...], axes: tuple[int, ...], places: list[tuple[int, ...]], *, typed: str = "float", more: str = ""
) -> onnx.ModelProto:
    """A model that adds these elements along these axes one by one, as torch.export writes it: the last axis is taken last."""
    body, terms = "", []
    for number, place in enumerate(places):
        value, left = "x", list(range(len(sizes)))
        for step, (axis, index) in enumerate(zip(axes, place, strict=True)):
            body += f"i{number}_{step} = Constant<value = int64 {{{index}}}>() "
            body += f"v{number}_{step} = Gather<axis = {left.index(axis)}>({value}, i{number}_{step}) "
            value = f"v{number}_{step}"
            left.remove(axis)
        terms.append(value)
    total = terms[0]
    for number, term in enumerate(terms[1:]):
        body += f"t{number} = Add({total}, {term}) "
        total = f"t{number}"
    shape = ", ".join(str(size) for axis, size in enumerate(sizes) if axis not in axes)
    return parsed(f"{body} y = Abs({total}) {more}", f"{typed}[{', '.join(map(str, sizes))}] x", f"{typed}[{shape}] y")


def same(proto: onnx.ModelProto, sizes: tuple[int, ...]) -> dict[str, int]:
    """The operators of the simplified model, which computes the same."""
    written = simplified(proto)[1]
    x = np.random.default_rng(0).standard_normal(sizes).astype(np.float32)
    (before,), (after,) = run(proto, {"x": x}), run(written, {"x": x})
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)
    return operators(written)


@given(st.data())
def test_the_elements_along_any_axes_in_any_order_are_one_sum(data: st.DataObject) -> None:
    sizes = tuple(data.draw(st.lists(st.integers(2, 3), min_size=3, max_size=4)))
    axes = tuple(data.draw(st.permutations(range(len(sizes))))[: data.draw(st.integers(2, 2))])
    places = data.draw(st.permutations(list(product(*(range(sizes[axis]) for axis in axes)))))
    signed = [
        tuple(index - data.draw(st.sampled_from([0, sizes[a]])) for a, index in zip(axes, place, strict=True)) for place in places
    ]
    assert same(summed(sizes, axes, signed), sizes) == {"ReduceSum": 1, "Abs": 1}


ALL = list(product(range(2), range(3)))


@pytest.mark.parametrize(
    "places",
    [ALL[:-1], [*ALL[:-1], ALL[0]], [*ALL[:-1], (0, -3)], [*ALL, ALL[0]], ALL[1:]],
    ids=["one is missing", "one is taken twice", "one is taken from the end too", "one is added twice", "the first is missing"],
)
def test_a_sum_of_other_elements_stays(places: list[tuple[int, ...]]) -> None:
    assert "ReduceSum" not in same(summed((4, 2, 3), (1, 2), places), (4, 2, 3))


def test_a_sum_of_three_elements_stays() -> None:
    """It can be a part of a formula."""
    assert "ReduceSum" not in same(summed((4, 3), (1,), [(0,), (1,), (2,)]), (4, 3))


def test_a_part_of_a_value_is_summed_along_one_axis() -> None:
    """Here, all addends are of the second row."""
    proto = summed((4, 5), (1,), [(index,) for index in range(5)])
    proto.graph.input[0].type.tensor_type.shape.dim.insert(1, onnx.TensorShapeProto.Dimension(dim_value=2))
    rows = onnx.parser.parse_graph(
        """g (float[4, 2, 5] x) => (float[4, 5] r) <int64 one = {1}> { r = Gather<axis = 1>(x, one) }"""
    )
    for node in proto.graph.node:
        node.input[:] = ["r" if name == "x" else name for name in node.input]
    proto.graph.node.insert(0, rows.node[0])
    proto.graph.initializer.extend(rows.initializer)
    assert same(proto, (4, 2, 5)) == {"Gather": 1, "ReduceSum": 1, "Abs": 1}


def test_a_sum_that_something_else_reads_in_between_stays() -> None:
    proto = summed((4, 2, 3), (1, 2), ALL)
    proto.graph.node.append(onnx.helper.make_node("Neg", ["t2"], ["z"]))
    proto.graph.output.append(onnx.helper.make_tensor_value_info("z", 1, [4]))
    assert "ReduceSum" not in operators(simplified(proto)[1])
