"""An Expand goes where its readers broadcast, and what is between is computed on fewer elements, with the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simplification.test_simplify import operators, parsed, run, simplified

HEADS, WIDTH, STATE = 3, 4, 5
MAMBA_2 = """
  wide = Expand(dt, heads) biased = Add(wide, bias) rate = Softplus(biased) step = Unsqueeze(rate, last)
  decays = Mul(step, a) gate = Exp(decays) kept = Mul(state, gate)
  rows = Mul(step, b) columns = Unsqueeze(v, last) new = Mul(rows, columns) y = Add(kept, new)
"""


def mamba_2(bias: list[float]) -> onnx.ModelProto:
    """The state of Mamba-2 behind one token, as transformers writes it. bias: of each head and element."""
    inputs = f"float[N, {HEADS}, 1] dt, float[N, {HEADS}, {WIDTH}, {STATE}] state"
    inputs += f", float[N, {HEADS}, 1, {STATE}] b, float[N, {HEADS}, {WIDTH}] v"
    weights = f"int64[3] heads = {{1, 1, {WIDTH}}}, int64[1] last = {{3}}, float[{HEADS}, {WIDTH}] bias = {{{numbers(bias)}}}"
    decays = [-float(head + 1) for head in range(HEADS) for _ in range(WIDTH * STATE)]
    weights += f", float[{HEADS}, {WIDTH}, {STATE}] a = {{{numbers(decays)}}}"
    return parsed(MAMBA_2, inputs, "float[A, B, C, D] y", weights)


def numbers(values: list[float]) -> str:
    return ", ".join(str(value) for value in values)


def drawn(proto: onnx.ModelProto, unknown: int = 2) -> dict[str, np.ndarray]:
    draw, feeds = np.random.default_rng(0), {}
    for value in proto.graph.input:
        shape = [dim.dim_value or unknown for dim in value.type.tensor_type.shape.dim]
        feeds[value.name] = draw.standard_normal(shape).astype(np.float32)
    return feeds


def same(proto: onnx.ModelProto, feeds: dict[str, np.ndarray] | None = None) -> onnx.ModelProto:
    """The model simplified, which computes the same, but for how a kernel rounds the last elements of a row."""
    written = simplified(proto)[1]
    feeds = drawn(proto) if feeds is None else feeds
    for before, after in zip(run(proto, feeds), run(written, feeds), strict=True):
        assert before.shape == after.shape
        np.testing.assert_allclose(after, before, rtol=1e-6, atol=1e-7)
    return written


def test_a_rate_of_each_head_stays_one_number_of_each_head() -> None:
    """Constants whose elements are the same along an axis are narrow, too."""
    proto = mamba_2([float(head) for head in range(HEADS) for _ in range(WIDTH)])
    written = same(proto)
    assert "Expand" not in operators(written)
    stored = {tuple(weight.dims) for weight in written.graph.initializer if weight.data_type == onnx.TensorProto.FLOAT}
    assert stored == {(HEADS, 1), (HEADS, 1, 1)}


def test_a_constant_with_different_elements_is_wide() -> None:
    written = same(mamba_2([float(n) for n in range(HEADS * WIDTH)]))
    assert "Expand" not in operators(written)  # the sum broadcasts
    assert {tuple(weight.dims) for weight in written.graph.initializer} >= {(HEADS, WIDTH), (HEADS, WIDTH, STATE)}


def test_zeros_of_both_signs_are_different() -> None:
    weights = "int64[2] s = {2, 3}, float[2, 3] z = {0, -0.0, 0, 0, 0, 0}, float[2, 3] e = {1, 1, 1, 2, 2, 2}"
    proto = parsed("w = Expand(x, s) m = Mul(w, z) y = Div(e, m)", "float[2, 1] x", "float[A, B] y", weights)
    written = same(proto, {"x": np.array([[1], [-1]], np.float32)})
    assert "Expand" not in operators(written)


STAYING = {
    "a sum along the expanded axis needs the expanded value": (
        "w = Expand(x, s) m = ReduceSum(w, first) e = Exp(w) a = Add(m, z) y = Add(a, e)",
        "float[1, 4] x, float[3, 4] z",
        {"Expand": 1, "ReduceSum": 1, "Exp": 1, "Add": 2},
    ),
    "a sum along an axis that the value lacks needs the expanded value": (
        "w = Expand(x, square) m = ReduceSum(w, first) y = Add(m, z)",
        "float[4] x, float[4, 4] z",
        {"Expand": 1, "ReduceSum": 1, "Add": 1},
    ),
    "a sum along all axes needs the expanded value": (
        "w = Expand(x, s) m = ReduceSum(w) y = Add(m, z)",
        "float[1, 4] x, float[3, 4] z",
        {"Expand": 1, "ReduceSum": 1, "Add": 1},
    ),
    "the result is the expanded value": ("r = Relu(x) y = Expand(r, s)", "float[1, 4] x", {"Relu": 1, "Expand": 1}),
    "there would be as many behind it": ("w = Expand(x, s) y = Relu(w)", "float[1, 4] x", {"Expand": 1, "Relu": 1}),
    "PRelu has the shape of its first operand": (
        "w = Expand(x, s) y = PRelu(w, z)",
        "float[1, 4] x, float[3, 4] z",
        {"Expand": 1, "PRelu": 1},
    ),
    "an If reads it": (
        """w = Expand(x, s) r = ReduceSum<keepdims = 0>(z)
        k = Cast<to = 9>(r) y = If(k)
        <then_branch = t () => (float[A, B] p) { p = Relu(w) }, else_branch = e () => (float[A, B] q) { q = Neg(z) }>""",
        "float[1, 4] x, float[3, 4] z",
        {"Expand": 1, "ReduceSum": 1, "Cast": 1, "If": 1},
    ),
    "the size of the other operand is not known to be that of the result": (
        "w = Expand(x, s) y = Add(w, z)",
        "float[1, 4] x, float[K, 4] z",
        {"Expand": 1, "Add": 1},
    ),
}


@pytest.mark.parametrize("why", STAYING)
def test_an_expand_stays_where(why: str) -> None:
    body, inputs, expected = STAYING[why]
    proto = parsed(body, inputs, "float[A, B] y", "int64[2] s = {3, 4}, int64[2] square = {4, 4}, int64[1] first = {0}")
    assert operators(same(proto, drawn(proto, 3))) == expected


@pytest.mark.parametrize("keeps", [0, 1])
def test_a_mask_is_pooled_without_copies_of_it(keeps: int) -> None:
    """Sentence encoders expand the mask to all elements of a token, and divide by how many it has."""
    body = f"""w = Expand(mask, shape) p = Mul(x, w) n = ReduceSum<keepdims = {keeps}>(p, second)
      d = ReduceSum<keepdims = {keeps}>(w, second) c = Clip(d, low) y = Div(n, c)"""
    inputs = "float[N, L, 1] mask, float[N, L, 8] x"
    output = "float[N, 1, 8] y" if keeps else "float[N, 8] y"
    proto = parsed(f"shape = Shape(x) {body}", inputs, output, "int64[1] second = {1}, float low = {1e-9}")
    assert operators(same(proto, drawn(proto, 3))) == {"Mul": 1, "ReduceSum": 2, "Clip": 1, "Div": 1}


@pytest.mark.parametrize(("axis", "count"), [(1, 0), (2, 1), (-1, 1), (0, 0)])
def test_a_sum_along_an_axis_that_is_not_expanded_is_narrow(axis: int, count: int) -> None:
    body = "w = Expand(x, s) m = ReduceMax(w, axis) y = Add(m, z)".replace("(w, axis)", f"<axes = [{axis}]>(w)")
    proto = parsed(body, "float[2, 3, 1] x, float[2, 3, 4] z", "float[A, B, C] y", "int64[3] s = {2, 3, 4}")
    assert operators(same(proto)).get("Expand", 0) == count


def test_two_expanded_operands_are_expanded_once_behind() -> None:
    proto = parsed(
        "v = Expand(x, s) w = Expand(z, s) y = Mul(v, w)", "float[3, 1] x, float[3, 1] z", "float[A, B] y", "int64[2] s = {3, 4}"
    )
    written = same(proto)
    assert [node.op_type for node in written.graph.node] == ["Mul", "Expand"]


def test_a_symbolic_batch_comes_from_the_other_operand() -> None:
    sizes = "n = Shape<start = 0, end = 1>(z) r = Constant<value = int64[2] {4, 6}>() s = Concat<axis = 0>(n, r)"
    proto = parsed(f"{sizes} w = Expand(x, s) y = Add(z, w)", "float[1, 4, 1] x, float[N, 4, 6] z")
    assert operators(same(proto)) == {"Add": 1}


def test_a_tile_of_one_element_of_an_axis_is_an_expand() -> None:
    """As TSLib restores the scale of a series: std[:, 0, :].unsqueeze(1).repeat(1, length, 1)."""
    proto = parsed("t = Tile(x, r) y = Mul(z, t)", "float[N, 1, 4] x, float[N, 3, 4] z", weights="int64[3] r = {1, 3, 1}")
    assert operators(same(proto)) == {"Mul": 1}


@pytest.mark.parametrize(("sizes", "other"), [("N, 2, 4", "N, 4, 4"), ("N, 1, 4", "M, 2, 4"), ("N, K, 4", "N, K, 4")])
def test_other_tiles_stay(sizes: str, other: str) -> None:
    """An axis of two elements that is repeated, and another operand that may have one row, and a repeated unknown axis."""
    proto = parsed("t = Tile(x, r) y = Mul(z, t)", f"float[{sizes}] x, float[{other}] z", weights="int64[3] r = {1, 2, 1}")
    assert operators(simplified(proto)[1]) == {"Tile": 1, "Mul": 1}


NUMBER = "s = Shape(x) k = ConstantOfShape<value = float[1] {-9}>(s) "


def test_a_number_for_each_element_is_one_number() -> None:
    """As torch.where(mask, scores, -9 * torch.ones_like(scores))."""
    proto = parsed(
        f"{NUMBER} m = Mul(k, two) y = Where(c, x, m)", "float[N, 4] x, bool[N, 4] c", "float[A, B] y", "float two = {2}"
    )
    written = simplified(proto)[1]
    assert operators(written) == {"Mul": 1, "Where": 1}
    feeds = {"x": np.ones((3, 4), np.float32), "c": np.eye(3, 4, dtype=bool)}
    np.testing.assert_array_equal(run(written, feeds)[0], run(proto, feeds)[0])


@pytest.mark.parametrize("body", ["y = Where(c, z, k)", "e = Exp(k) y = Concat<axis = 0>(e, x)", "y = Neg(k)"])
def test_a_number_for_each_element_stays_where_it_gives_the_shape(body: str) -> None:
    proto = parsed(NUMBER + body, "float[N, 4] x, bool c, float[1, 4] z", "float[A, B] y")
    assert operators(simplified(proto)[1])["ConstantOfShape"] == 1


@pytest.mark.parametrize("axes", ["0", "1", "2", "0, 1", "1, 2", "0, 3", "-1", "2, 3, 4"])
def test_axes_are_added_to_a_value_that_lacks_its_first_axes(axes: str) -> None:
    rank = 2 + len(axes.split(","))
    weights = f"int64[2] s = {{3, 4}}, int64[{rank - 2}] at = {{{axes}}}"
    wide = [int(axis) % rank for axis in axes.split(",")]
    sizes = iter((3, 4))
    shape = ", ".join("1" if axis in wide else str(next(sizes)) for axis in range(rank))
    proto = parsed(
        "w = Expand(x, s) u = Unsqueeze(w, at) e = Exp(u) y = Add(e, z)", f"float[4] x, float[{shape}] z", "float y", weights
    )
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    proto = onnx.shape_inference.infer_shapes(proto)
    assert "Expand" not in operators(same(proto))


SIZES = st.sampled_from([1, 3])
KINDS = [
    "Expand",
    "Expand",
    "Number",
    "Add",
    "Mul",
    "Exp",
    "Neg",
    "Max",
    "Clip",
    "Unsqueeze",
    "Softmax",
    "ReduceMean",
    "ReduceMax",
]


@given(data=st.data())
def test_any_graph_of_elementwise_operators_computes_the_same(data: Any) -> None:
    """Expands of values of any shape, and operators on one, two or three of the values before."""
    shapes = data.draw(st.lists(st.lists(SIZES, min_size=0, max_size=3), min_size=2, max_size=4))
    inputs = ", ".join(f"float[{', '.join(map(str, shape))}] v{n}" if shape else f"float v{n}" for n, shape in enumerate(shapes))
    body, count = "", len(shapes)
    for _ in range(data.draw(st.integers(2, 7))):
        kind = data.draw(st.sampled_from(KINDS))
        arity = {"Add": 2, "Mul": 2, "Max": 3}.get(kind, 1)
        operands = [f"v{data.draw(st.integers(0, count - 1))}" for _ in range(arity)]
        operands += {"Expand": ["wide"], "Unsqueeze": ["first"], "Clip": ["low"]}.get(kind, [])
        if kind.startswith("Reduce"):
            kind += f"<axes = [{data.draw(st.integers(-1, 1))}], keepdims = {data.draw(st.integers(0, 1))}>"
        if kind == "Number":
            body += f"s{count} = Shape({operands[0]}) v{count} = ConstantOfShape<value = float[1] {{0.5}}>(s{count}) "
        else:
            body += f"v{count} = {kind}({', '.join(operands)}) "
        count += 1
    proto = parsed(
        body + f"y = Add(v{count - 1}, v{count - 2})",
        inputs,
        "float y",
        "int64[3] wide = {3, 3, 3}, int64[1] first = {0}, float low = {0.1}",
    )
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    proto = onnx.shape_inference.infer_shapes(proto)
    try:
        run(proto, drawn(proto))
    except Exception:  # Softmax of a number, or an axis that is not there
        return
    same(proto)
