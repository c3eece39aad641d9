"""A Transpose that only moves axes of size 1 becomes a Reshape; a chain that adds and removes such axes is one Transpose.

A Gather of the only element along an axis becomes a Squeeze.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simplification.test_simplify import operators, parsed, run, simplified

RESHAPED = {
    "a batch of one behind the length": ("float[1, n, 8] x", "[1, 0, 2]", (1, 5, 8)),
    "heads of one token": ("float[b, 1, 4, 8] x", "[0, 2, 1, 3]", (2, 1, 4, 8)),
    "two axes at the end": ("float[3, 1, 4, 1] x", "[1, 0, 3, 2]", (3, 1, 4, 1)),
    "unknown sizes that stay in place": ("float[n, m, 1, 1, 3] x", "[0, 1, 3, 4, 2]", (2, 4, 1, 1, 3)),
}
KEPT = {
    "axes that change places": ("float[1, n, 8] x", "[0, 2, 1]", (1, 5, 8)),
    "sizes that may be one": ("float[b, n, 8] x", "[1, 0, 2]", (1, 5, 8)),
    "unknown sizes that no Reshape can name": ("float[1, n, m] x", "[1, 2, 0]", (1, 2, 3)),
    "an empty axis": ("float[1, 0, 8] x", "[1, 0, 2]", (1, 0, 8)),
}


def transposed(value: str, order: str) -> onnx.ModelProto:
    rank = value.count(",") + 1
    return parsed(f"t = Transpose<perm = {order}>(x) y = Neg(t)", value, f"float[{', '.join('ABCDE'[:rank])}] y", "float k = {1}")


@pytest.mark.parametrize(("value", "order", "shape"), RESHAPED.values(), ids=RESHAPED)
def test_moving_axes_of_size_one_is_a_reshape(value: str, order: str, shape: tuple[int, ...]) -> None:
    model = transposed(value, order)
    _, written = simplified(model)
    assert operators(written) == {"Reshape": 1, "Neg": 1}
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    np.testing.assert_array_equal(run(written, {"x": x})[0], run(model, {"x": x})[0])


@pytest.mark.parametrize(("value", "order", "shape"), KEPT.values(), ids=KEPT)
def test_other_transposes_stay(value: str, order: str, shape: tuple[int, ...]) -> None:
    model = transposed(value, order)
    _, written = simplified(model)
    assert operators(written) == {"Transpose": 1, "Neg": 1}
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    np.testing.assert_array_equal(run(written, {"x": x})[0], run(model, {"x": x})[0])


@given(st.data())
def test_any_transpose_computes_the_same(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.sampled_from([1, 1, 2, 3]), min_size=1, max_size=5))
    names = [data.draw(st.sampled_from([str(size), letter])) for size, letter in zip(sizes, "abcde", strict=False)]
    order = data.draw(st.permutations(range(len(sizes))))
    model = transposed(f"float[{', '.join(names)}] x", str(list(order)))
    _, written = simplified(model)
    x = np.arange(np.prod(sizes), dtype=np.float32).reshape(sizes)
    np.testing.assert_array_equal(run(written, {"x": x})[0], run(model, {"x": x})[0])


CHAINS = {
    "an axis for groups, as an einsum adds it": """u = Unsqueeze(x, two) t = Transpose<perm = [0, 2, 3, 1, 4]>(u)
        z = Squeeze(t, one)""",
    "the same by Reshapes": "u = Reshape(x, apart) t = Transpose<perm = [0, 2, 3, 1, 4]>(u) z = Reshape(t, merged)",
    "two Transposes and an axis between": """a = Transpose<perm = [1, 0, 2, 3]>(x) u = Unsqueeze(a, one)
        t = Transpose<perm = [3, 0, 1, 2, 4]>(u) z = Squeeze(t, two)""",
    "an axis that goes at one place and comes at another": """u = Reshape(x, apart) t = Transpose<perm = [4, 2, 1, 0, 3]>(u)
        z = Squeeze(t, four)""",
}
OTHERS = {
    "another reader of a value between": """u = Unsqueeze(x, two) t = Transpose<perm = [0, 2, 3, 1, 4]>(u) z = Squeeze(t, one)
        n = LpNormalization<axis = 2>(t) m = Squeeze(n, one) y = Sub(z, m)""",
    "an axis that stays": "u = Unsqueeze(x, two) t = Transpose<perm = [0, 2, 3, 1, 4]>(u) s = Softmax(t) y = Squeeze(s, one)",
    "axes that are merged": "u = Reshape(x, rows) t = Transpose<perm = [1, 0, 2]>(u) y = Unsqueeze(t, one)",
}
STORED = """int64[1] one = {1}, int64[1] two = {2}, int64[1] four = {4}, int64[5] apart = {0, 3, 4, 1, 5},
int64[4] merged = {-1, 4, 3, 5}, int64[3] rows = {0, 12, 5}"""


@pytest.mark.parametrize("body", CHAINS.values(), ids=CHAINS)
def test_a_chain_with_axes_of_size_one_is_one_transpose(body: str) -> None:
    model = parsed(f"{body} y = Softmax(z)", "float[n, 3, 4, 5] x", "float[A, B, C, D] y", STORED)
    _, written = simplified(model)
    assert operators(written) == {"Transpose": 1, "Softmax": 1}
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)
    np.testing.assert_array_equal(run(written, {"x": x})[0], run(model, {"x": x})[0])


@pytest.mark.parametrize("body", OTHERS.values(), ids=OTHERS)
def test_other_chains_stay(body: str) -> None:
    model = parsed(body, "float[n, 3, 4, 5] x", "float[A, B, C, D] y", STORED)
    _, written = simplified(model)
    assert operators(written) == operators(model)


@given(st.data())
def test_any_chain_computes_the_same(data: st.DataObject) -> None:
    sizes = [data.draw(st.sampled_from([1, 2, 3])) for _ in range(data.draw(st.integers(1, 3)))]
    names = [data.draw(st.sampled_from([str(size), letter])) for size, letter in zip(sizes, "abc", strict=False)]
    given, shape, body, stored, value = f"float[{', '.join(names)}] x", list(sizes), "", [], "x"
    for number in range(data.draw(st.integers(2, 5))):
        ways = ["Transpose", "Unsqueeze", *(["Squeeze"] if 1 in shape and len(shape) > 1 else [])]
        way, made = data.draw(st.sampled_from(ways)), f"v{number}"
        if way == "Transpose":
            order = data.draw(st.permutations(range(len(shape))))
            shape = [shape[axis] for axis in order]
            body += f"{made} = Transpose<perm = {list(order)}>({value}) "
        else:
            axes = range(len(shape) + 1) if way == "Unsqueeze" else [at for at, size in enumerate(shape) if size == 1]
            axis = data.draw(st.sampled_from(list(axes)))
            shape[axis : axis + (way == "Squeeze")] = [1] if way == "Unsqueeze" else []
            stored.append(f"int64[1] a{number} = {{{axis}}}")
            body += f"{made} = {way}({value}, a{number}) "
        value = made
    result = f"float[{', '.join('ABCDEFGH'[: len(shape)])}] y"
    model = parsed(f"{body} y = Neg({value})", given, result, ", ".join(stored) or "float k = {1}")
    _, written = simplified(model)
    assert sum(operators(written).values()) <= sum(operators(model).values())
    x = np.arange(np.prod(sizes), dtype=np.float32).reshape(sizes)
    np.testing.assert_array_equal(run(written, {"x": x})[0], run(model, {"x": x})[0])


GATHERED = {
    "the only token": ("float[b, 2, 1, 8] x", "{0}", 2),
    "the only token, from the end": ("float[b, 2, 1, 8] x", "{-1}", -2),
}
NOT_GATHERED = {
    "one of several": ("float[1, 2, 3, 8] x", "int64 i = {0}", 2),
    "one of an unknown number": ("float[1, 2, n, 8] x", "int64 i = {0}", 2),
    "a place that is not a scalar": ("float[1, 2, 1, 8] x", "int64[1, 1] i = {0}", 2),
}


def gathered(value: str, place: str, axis: int, opset: int = 17) -> onnx.ModelProto:
    result = "float[A, B, C, D, E] y" if place.startswith("int64[1, 1]") else "float[A, B, C] y"
    model = parsed(f"g = Gather<axis = {axis}>(x, i) y = Neg(g)", value, result, place)
    model.opset_import[0].version = opset
    return model


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize(("value", "place", "axis"), GATHERED.values(), ids=GATHERED)
def test_the_only_element_of_an_axis_is_a_squeeze(value: str, place: str, axis: int, opset: int) -> None:
    model = gathered(value, f"int64 i = {place}", axis, opset)
    written = simplified(model)[1]
    assert operators(written) == {"Squeeze": 1, "Neg": 1}
    x = np.random.default_rng(0).standard_normal((3, 2, 1, 8)).astype(np.float32)
    np.testing.assert_array_equal(run(written, {"x": x})[0], run(model, {"x": x})[0])


@pytest.mark.parametrize(("value", "place", "axis"), NOT_GATHERED.values(), ids=NOT_GATHERED)
def test_other_gathers_stay(value: str, place: str, axis: int) -> None:
    assert operators(simplified(gathered(value, place, axis))[1]) == {"Gather": 1, "Neg": 1}


NUMBERS = """int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] end = {100}, int64[1] rest = {-1},
int64 first = {0}, int64 second = {1}, int64 third = {2}"""
JOINED = """s = Shape(v) b = Gather(s, first) h = Gather(s, second) w = Gather(s, third) p = Mul(h, w)
n = Unsqueeze(b, zero) m = Unsqueeze(p, zero) """
TARGETS = {
    "height and width joined, as x.view(b, h * w, c)": (JOINED + "t = Concat<axis = 0>(n, m, four)", [0, -1, 4]),
    "sizes that are copied, and the -1 of flatten(2)": (
        "s = Shape(v) o = Slice(s, zero, two, zero) t = Concat<axis = 0>(o, rest)",
        [0, 0, -1],
    ),
}
NO_TARGETS = {
    "two sizes that are computed": JOINED + "d = Div(n, two) q = Mul(m, two) t = Concat<axis = 0>(d, q, four)",
    "a size that is copied from another place": JOINED
    + "k = Unsqueeze(h, zero) l = Mul(n, two) t = Concat<axis = 0>(k, l, rest)",
}
IMAGE = "float[b, h, w, 4] x"


def reshaped(body: str, value: str = IMAGE, reshape: str = "Reshape", made: str = "v = Neg(x)") -> onnx.ModelProto:
    return parsed(f"{made} {body} y = {reshape}(v, t)", value, "float[A, B, C] y", f"{NUMBERS}, int64[1] four = {{4}}")


@pytest.mark.parametrize(("body", "target"), TARGETS.values(), ids=TARGETS)
def test_a_size_that_is_not_copied_is_computed_from_the_others(body: str, target: list[int]) -> None:
    model = reshaped(body)
    _, written = simplified(model)
    assert operators(written) == {"Neg": 1, "Reshape": 1}
    stored = {one.name: onnx.numpy_helper.to_array(one).tolist() for one in written.graph.initializer}
    assert stored[written.graph.node[-1].input[1]] == target
    x = np.random.default_rng(0).standard_normal((2, 3, 5, 4)).astype(np.float32)
    np.testing.assert_array_equal(run(written, {"x": x})[0], run(model, {"x": x})[0])


@pytest.mark.parametrize("body", NO_TARGETS.values(), ids=NO_TARGETS)
def test_other_computed_targets_stay(body: str) -> None:
    assert "Concat" in operators(simplified(reshaped(body))[1])


@pytest.mark.parametrize("rows", [0, 2])
def test_a_computed_shape_with_a_rest_stays_with_allowzero(rows: int) -> None:
    """As torch.export writes x.flatten(2). For a batch of 0 onnxruntime computes the -1 with allowzero, and fails without it."""
    body, _ = TARGETS["sizes that are copied, and the -1 of flatten(2)"]
    model = reshaped(body, reshape="Reshape<allowzero = 1>")
    _, written = simplified(model)
    assert "Concat" in operators(written)
    x = np.random.default_rng(0).standard_normal((rows, 3, 5, 4)).astype(np.float32)
    np.testing.assert_array_equal(run(written, {"x": x})[0], run(model, {"x": x})[0])


@pytest.mark.parametrize("rows", [0, 2])
def test_sizes_that_are_all_copied_may_be_zero_with_allowzero(rows: int) -> None:
    body = "s = Shape(v) o = Slice(s, zero, two, zero) t = Concat<axis = 0>(o, eight)"
    inner = "int64[1] eight = {8}, int64[1] zero = {0}, int64[1] two = {2}"
    model = parsed(f"v = Neg(x) {body} y = Reshape<allowzero = 1>(v, t)", "float[b, h, 2, 4] x", "float[A, B, C] y", inner)
    _, written = simplified(model)
    assert operators(written) == {"Neg": 1, "Reshape": 1}
    x = np.ones((rows, 3, 2, 4), np.float32)
    np.testing.assert_array_equal(run(written, {"x": x})[0], run(model, {"x": x})[0])


def test_a_zero_does_not_copy_with_allowzero() -> None:
    body, _ = TARGETS["height and width joined, as x.view(b, h * w, c)"]
    assert "Concat" in operators(simplified(reshaped(body, reshape="Reshape<allowzero = 1>"))[1])


@pytest.mark.parametrize(("body", "target"), TARGETS.values(), ids=TARGETS)
def test_a_size_that_may_be_zero_is_copied_beside_a_computed_one_only_if_the_target_has_it(body: str, target: list[int]) -> None:
    """All rows but the first one: there may be one row alone. Without elements, -1 cannot be computed."""
    model, is_in_target = reshaped(body, made="v = Slice(x, one, end, zero)"), target.count(0) > 1
    written = simplified(model)[1]
    assert operators(written)["Concat"] == (0 if is_in_target else 1)
    x = np.random.default_rng(0).standard_normal((3 if is_in_target else 1, 3, 5, 4)).astype(np.float32)
    np.testing.assert_array_equal(run(written, {"x": x})[0], run(model, {"x": x})[0])


STEPS = {
    "axes that are added one after the other, as x[:, :, None, None]": (
        "u = Unsqueeze(x, two) z = Unsqueeze(u, three)",
        {"Unsqueeze": 1},
        [2, 3],
    ),
    "a later axis that comes first": ("u = Unsqueeze(x, two) z = Unsqueeze(u, zero)", {"Unsqueeze": 1}, [0, 3]),
    "axes from the end": ("u = Unsqueeze(x, last) z = Unsqueeze(u, last)", {"Unsqueeze": 1}, [2, 3]),
    "axes that are removed one after the other": (
        "r = ReduceSum(x, all) u = Squeeze(r, one) z = Squeeze(u, zero)",
        {"ReduceSum": 1, "Squeeze": 1},
        [0, 1],
    ),
}
NO_STEPS = {
    "another reader of the value between": "u = Unsqueeze(x, two) v = Unsqueeze(u, three) s = Softmax<axis = 1>(u) z = Mul(v, s)",
    "another operator": "u = Unsqueeze(x, two) s = LpNormalization<axis = 1>(u) z = Unsqueeze(s, three)",
}
PLACES = """int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3}, int64[1] last = {-1},
int64[2] all = {0, 1}"""


def stepwise(body: str) -> onnx.ModelProto:
    return parsed(f"{body} y = Neg(z)", "float[b, 4] x", "float y" if "ReduceSum" in body else "float[A, B, C, D] y", PLACES)


@pytest.mark.parametrize(("body", "left", "axes"), STEPS.values(), ids=STEPS)
def test_axes_that_are_added_or_removed_one_after_the_other_are_at_once(body: str, left: dict[str, int], axes: list[int]) -> None:
    model = stepwise(body)
    written = simplified(model)[1]
    assert operators(written) == {**left, "Neg": 1}
    stored = {one.name: onnx.numpy_helper.to_array(one).tolist() for one in written.graph.initializer}
    assert stored[written.graph.node[-2].input[1]] == axes
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    np.testing.assert_array_equal(run(written, {"x": x})[0], run(model, {"x": x})[0])


@pytest.mark.parametrize("body", NO_STEPS.values(), ids=NO_STEPS)
def test_other_axes_stay_where_they_are_added(body: str) -> None:
    assert operators(simplified(stepwise(body))[1])["Unsqueeze"] == 2


def test_a_size_is_gathered_as_a_vector() -> None:
    """The size of the batch, as `x.shape[0]` in a list of sizes."""
    body = "s = Shape(x) i = Constant<value = int64 {0}>() n = Gather(s, i) u = Unsqueeze(n, zero) y = Concat<axis = 0>(u, two)"
    model = parsed(body, "float[b, 4] x", "int64[2] y", PLACES)
    written = simplified(model)[1]
    assert operators(written) == {"Shape": 1, "Gather": 1, "Concat": 1}
    assert run(written, {"x": np.zeros((3, 4), np.float32)})[0].tolist() == [3, 2]
