"""A gather whose indices count along all axes of a matrix is an Unsqueeze of it; a gather of anything else stays."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.simplification.gathers import as_unsqueeze
from tests.simplification.test_simplify import operators, parsed, run, simplified

X = "float[N, T] x"
NUMBERS = """int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64[1] flat = {-1},
  int64[3] behind_rows = {1, 2, 3}, int64[3] before_columns = {0, 1, 2}, int64[1] last = {4}"""
SIZES = """s = Shape(x) n = Gather(s, zero) t = Gather(s, one)
  rows = Range(zero, n, one) row = Unsqueeze(rows, behind_rows)
  columns = Range(zero, t, one) column = Unsqueeze(columns, before_columns)
"""
PAIRS = """m = Max(row, column) places = Shape(m) r = Expand(row, places) c = Expand(column, places)
  r1 = Unsqueeze(r, last) c1 = Unsqueeze(c, last) pairs = Concat<axis = -1>(r1, c1) g = GatherND(x, pairs) y = Neg(g)"""
FLAT = """f = Flatten<axis = 2>(x) k = Mul(row, t) i = Add(column, k) g = Gather(f, i) l = Reshape(g, flat) places = Shape(i)
  u = Reshape(l, places) y = Neg(u)"""


def of(body: str, inputs: str = X, opset: int = 17) -> onnx.ModelProto:
    model = parsed(SIZES + body, inputs, "float[A, B, C, D] y", NUMBERS)
    model.opset_import[0].version = opset
    return model


def feeds(model: onnx.ModelProto, sizes: tuple[int, int] = (3, 5)) -> dict[str, np.ndarray]:
    names = [value.name for value in model.graph.input]
    return {name: np.random.default_rng(0).standard_normal((sizes[0], sizes[1])).astype(np.float32) for name in names}


@pytest.mark.parametrize("body", [PAIRS, FLAT], ids=["pairs", "flat"])
@pytest.mark.parametrize("sizes", [(3, 5), (1, 1), (1, 4), (4, 1)])
def test_a_gather_of_all_elements_is_an_unsqueeze(body: str, sizes: tuple[int, int]) -> None:
    model = of(body)
    found, written = simplified(model)
    assert found.simpler and operators(written) == {"Unsqueeze": 1, "Neg": 1}
    assert np.array_equal(run(written, feeds(model, sizes))[0], run(model, feeds(model, sizes))[0])


@pytest.mark.parametrize("body", [PAIRS, FLAT], ids=["pairs", "flat"])
def test_a_gather_of_all_elements_of_a_batch_of_one_is_an_unsqueeze(body: str) -> None:
    """There the indices of rows do not count: they are all 0."""
    model = of(body, "float[1, T] x")
    found, written = simplified(model)
    assert found.simpler and operators(written) == {"Unsqueeze": 1, "Neg": 1}
    assert np.array_equal(run(written, feeds(model, (1, 5)))[0], run(model, feeds(model, (1, 5)))[0])


@pytest.mark.parametrize(
    ("body", "inputs"),
    [
        (PAIRS.replace("Expand(row, places)", "Expand(begin, places)"), "float[2, T] x"),
        (PAIRS.replace("Max(row", "Max(begin").replace("Expand(row", "Expand(begin"), "float[1, T] x"),
        (FLAT.replace("Add(column, k)", "Add(column, begin)"), "float[2, T] x"),
        (FLAT.replace("Add(column, k)", "Add(column, column)"), "float[1, T] x"),
    ],
    ids=["the first of two rows", "a row that is not there", "the first row of two, flat", "every second column"],
)
def test_a_gather_of_one_row_of_others_stays(body: str, inputs: str) -> None:
    offset = "zero" if "[2" in inputs else "one"
    begin = f"begin = Unsqueeze({offset}, before) "
    model = parsed(SIZES + begin + body, inputs, "float[A, B, C, D] y", f"{NUMBERS}, int64[4] before = {{0, 1, 2, 3}}")
    _, written = simplified(model)
    assert operators(written)["GatherND"] + operators(written)["Gather"] >= 1


ROWS = "places = Unsqueeze(i, at) g = GatherND{batch}(x, places) y = Neg(g)"


def rows(at: str, batch: str = "", x: str = "float[7, T] x", opset: int = 17) -> onnx.ModelProto:
    text = ROWS.format(batch=batch)
    return parsed(text, f"{x}, int64[A, 3] i", "float[A, 3, *] y".replace(", *", ", T"), f"int64[1] at = {{{at}}}")


@pytest.mark.parametrize("at", ["-1", "2"])
def test_a_gather_of_rows_needs_no_axis_of_indices(at: str) -> None:
    model = rows(at)
    found, written = simplified(model)
    assert found.simpler and operators(written) == {"Gather": 1, "Neg": 1}
    given = {"x": np.arange(14, dtype=np.float32).reshape(7, 2), "i": np.array([[0, 6, -1], [3, -7, 2]])}
    assert np.array_equal(run(written, given)[0], run(model, given)[0])


@pytest.mark.parametrize(("at", "batch"), [("1", ""), ("-1", "<batch_dims = 1>")])
def test_other_gathers_of_rows_stay(at: str, batch: str) -> None:
    _, written = simplified(rows(at, batch, "float[A, 3, T] x"))
    assert operators(written)["GatherND"] == 1


CHOSEN = {
    "GatherND": "p = NonZero(m) t = Transpose<perm = [1, 0]>(p) y = GatherND(x, t)",
    "TorchScript's spelling": "p = NonZero(m) t = Transpose<perm = [1, 0]>(p) i = Squeeze(t, one) y = Gather<axis = 0>(x, i)",
    "a Squeeze of the places": "p = NonZero(m) i = Squeeze(p, zero) y = Gather(x, i)",
    "a Reshape of the places": "p = NonZero(m) t = Reshape(p, column) y = GatherND(x, t)",
    "two values": """p = NonZero(m) t = Transpose<perm = [1, 0]>(p) g = GatherND(x, t) z = Neg(x) h = GatherND(z, t)
    y = Sub(g, h)""",
}
NOT_CHOSEN = {
    "columns": "p = NonZero(m) i = Squeeze(p, zero) t = Softmax(x) g = Gather<axis = 1>(t, i)",
    "elements of a matrix": "d = Cast<to = 9>(x) p = NonZero(d) t = Transpose<perm = [1, 0]>(p) g = GatherND(x, t)",
    "places of numbers": "f = Cast<to = 1>(m) p = NonZero(f) i = Squeeze(p, zero) g = Gather(x, i)",
    "places that are read elsewhere": """p = NonZero(m) i = Squeeze(p, zero) h = Gather(x, i) k = Cast<to = 1>(p)
    g = MatMul(k, h)""",
    "a matrix of places": "p = NonZero(m) g = Gather(x, p)",
    "places in a matrix, in one row": "d = Cast<to = 9>(x) p = NonZero(d) i = Reshape(p, all) g = Gather(x, i)",
    "places in another order": """p = NonZero(m) r = Reshape(p, pairs) t = Transpose<perm = [1, 0]>(r) i = Reshape(t, all)
    g = Gather(x, i)""",
    "one element": "p = NonZero(m) g = GatherND(x, p)",
    "places of places": """p = NonZero(m) i = Squeeze(p, zero) h = Gather(x, i) j = Gather(i, zero) k = Cast<to = 1>(j)
    g = Mul(h, k)""",
    "changed places": "p = NonZero(m) i = Squeeze(p, zero) k = Neg(i) g = Gather(x, k)",
}


def of_mask(body: str, output: str) -> onnx.ModelProto:
    weights = "int64[1] zero = {0}, int64[1] one = {1}, int64[2] column = {-1, 1}, int64[1] all = {-1}, int64[2] pairs = {2, -1}"
    return parsed(body, "float[N, 2] x, bool[N] m", output, weights)


@pytest.mark.parametrize("body", CHOSEN.values(), ids=CHOSEN)
@pytest.mark.parametrize("mask", [[True, False, True], [False, False, False], [True, True, True]])
def test_rows_that_a_mask_chooses_are_compressed(body: str, mask: list[bool]) -> None:
    model = of_mask(body, "float[K, 2] y")
    _, written = simplified(model)
    assert not {"NonZero", "Gather", "GatherND"} & operators(written).keys()
    given = {"x": np.arange(6, dtype=np.float32).reshape(3, 2), "m": np.array(mask)}
    assert np.array_equal(run(written, given)[0], run(model, given)[0])


@pytest.mark.parametrize("body", NOT_CHOSEN.values(), ids=NOT_CHOSEN)
def test_what_is_not_rows_of_a_mask_stays(body: str) -> None:
    _, written = simplified(of_mask(f"{body} y = ReduceMax<keepdims = 0>(g)", "float y"))
    assert "Compress" not in operators(written)


def test_places_that_are_a_result_are_computed_once() -> None:
    _, written = simplified(of_mask("p = NonZero(m) i = Squeeze(p, zero) y = Gather(x, i)", "float[K, 2] y, int64[K] i"))
    assert operators(written)["Gather"] == 1 and "Compress" not in operators(written)


@pytest.mark.parametrize("body", [PAIRS, FLAT], ids=["pairs", "flat"])
@pytest.mark.parametrize("inputs", ["float[N, 5] x", "float[3, T] x", "float[3, 5] x"])
def test_indices_along_a_fixed_size_are_constants(body: str, inputs: str) -> None:
    model = of(body, inputs)
    _, written = simplified(model)
    assert operators(written)["Neg"] == 1 and not {"GatherND", "Gather", "Range"} & operators(written).keys()
    assert np.array_equal(run(written, feeds(model))[0], run(model, feeds(model))[0])


@pytest.mark.parametrize("body", [PAIRS, FLAT], ids=["pairs", "flat"])
def test_columns_whose_number_is_another_size_are_gathered(body: str) -> None:
    """The length of a mask has its own name where a model has a cache."""
    other = "w = Shape(x) v = Gather(w, one) " + body.replace("Mul(row, t)", "Mul(row, v)")
    model = parsed(
        SIZES.replace("t = Gather(s, one)", "o = Shape(z) t = Gather(o, one)") + other,
        "float[N, T] x, float[N, S] z",
        "float[A, B, C, D] y",
        NUMBERS,
    )
    _, written = simplified(model)
    left = operators(written)
    assert left["GatherND"] == 0 and left["Mul"] == 0 and left["Max"] == 0
    x, z = np.arange(15, dtype=np.float32).reshape(3, 5), np.zeros((3, 4), np.float32)
    assert np.array_equal(run(written, {"x": x, "z": z})[0], run(model, {"x": x, "z": z})[0])


@pytest.mark.parametrize(
    "body",
    [
        PAIRS.replace("Concat<axis = -1>(r1, c1)", "Concat<axis = -1>(c1, r1)"),
        PAIRS.replace("Expand(column, places)", "Expand(row, places)"),
        PAIRS.replace("m = Max", "a = Add(column, one) o = Max(column, zero) b = Sub(a, one) m = Max").replace(
            "Expand(column,", "Expand(b,"
        ),
        PAIRS.replace("r = Expand(row, places)", "h = Mul(row, zero) r = Expand(h, places)"),
        FLAT.replace("Mul(row, t)", "Mul(row, n)"),
        FLAT.replace("Add(column, k)", "Add(row, k)"),
        FLAT.replace("f = Flatten<axis = 2>(x)", "e = Transpose(x) f = Flatten<axis = 2>(e)"),
        FLAT.replace("f = Flatten<axis = 2>(x)", "d = Concat<axis = 1>(x, x) f = Flatten<axis = 2>(d)"),
    ],
    ids=["swapped", "rows twice", "a difference", "one row", "another stride", "rows only", "transposed", "a wider matrix"],
)
def test_other_gathers_stay(body: str) -> None:
    model = of(body)
    _, written = simplified(model)
    kinds = ("GatherND", "Gather")
    assert sum(operators(written)[k] for k in kinds) >= 1
    data = feeds(model, (4, 4))
    assert np.array_equal(run(written, data)[0], run(model, data)[0])


@pytest.mark.parametrize("begin", ["one", "two"])
def test_indices_that_begin_later_are_not_all(begin: str) -> None:
    model = parsed(
        SIZES.replace("columns = Range(zero, t, one)", f"columns = Range({begin}, t, one)") + PAIRS,
        X,
        "float[A, B, C, D] y",
        NUMBERS,
    )
    _, written = simplified(model)
    assert operators(written)["GatherND"] == 1
    assert np.array_equal(run(written, feeds(model))[0], run(model, feeds(model))[0])


def test_every_second_index_is_not_all() -> None:
    model = parsed(
        SIZES.replace("columns = Range(zero, t, one)", "columns = Range(zero, t, two)") + PAIRS, X, "float[A, B, C, D] y", NUMBERS
    )
    _, written = simplified(model)
    assert operators(written)["GatherND"] == 1
    assert np.array_equal(run(written, feeds(model))[0], run(model, feeds(model))[0])


def test_a_length_that_is_a_quotient_of_sizes_is_that_length() -> None:
    """GPT-2 reshapes its mask to (batch, -1), and torch computes the -1."""
    model = of(PAIRS)
    sizes = SIZES.replace("t = Gather(s, one)", "o = Gather(s, one) p = Mul(n, o) t = Div(p, n)")
    other = parsed(sizes + PAIRS, X, "float[A, B, C, D] y", NUMBERS)
    _, written = simplified(other)
    assert operators(written) == {"Unsqueeze": 1, "Neg": 1}
    assert np.array_equal(run(written, feeds(other))[0], run(model, feeds(model))[0])


@pytest.mark.parametrize("length", ["p = Mul(o, o) t = Div(p, n)", "p = Add(n, o) t = Div(p, n)"])
def test_other_quotients_are_not(length: str) -> None:
    other = parsed(SIZES.replace("t = Gather(s, one)", f"o = Gather(s, one) {length}") + PAIRS, X, "float[A, B, C, D] y", NUMBERS)
    _, written = simplified(other)
    assert operators(written)["Div"] == 1


def test_one_index_for_all_columns_is_not_all_of_them() -> None:
    model = of(
        PAIRS.replace(
            "c = Expand(column, places)", "f = Range(zero, one, one) h = Unsqueeze(f, before_columns) c = Expand(h, places)"
        )
    )
    _, written = simplified(model)
    assert operators(written)["GatherND"] == 1
    assert np.array_equal(run(written, feeds(model))[0], run(model, feeds(model))[0])


def test_fewer_rows_than_the_matrix_has_are_not_all() -> None:
    sizes = SIZES.replace("n = Gather(s, zero)", "o = Shape(z) n = Gather(o, zero)")
    model = parsed(sizes + PAIRS, "float[N, T] x, float[M, T] z", "float[A, B, C, D] y", NUMBERS)
    _, written = simplified(model)
    assert operators(written)["GatherND"] == 1
    data = {"x": np.arange(20, dtype=np.float32).reshape(4, 5), "z": np.zeros((2, 5), np.float32)}
    assert np.array_equal(run(written, data)[0], run(model, data)[0])


@pytest.mark.parametrize(
    "body",
    [
        PAIRS.replace("c = Expand(column, places)", "h = Add(column, column) c = Expand(h, places)"),
        FLAT.replace("k = Mul(row, t)", "h = Add(row, one) k = Mul(h, t)"),
    ],
    ids=["every second column", "from the second row"],
)
def test_indices_beyond_the_matrix_stay(body: str) -> None:
    _, written = simplified(of(body))
    assert operators(written)["GatherND"] + operators(written)["Gather"] >= 1 and operators(written)["Unsqueeze"] > 1


def test_pairs_of_columns_of_one_row_are_no_columns() -> None:
    """The one row is given two columns, so that what is gathered has two elements."""
    body = "f = Reshape(x, pair) g = Gather(f, column) y = Neg(g)"
    model = parsed(
        SIZES.replace("t = Gather(s, one)", "o = Shape(z) t = Gather(o, one)") + body,
        "float[1, T] x, float[1, S] z",
        "float[A, B, C, D, 2] y",
        f"{NUMBERS}, int64[2] pair = {{-1, 2}}",
    )
    _, written = simplified(model)
    data = {"x": np.arange(8, dtype=np.float32).reshape(1, 8), "z": np.zeros((1, 3), np.float32)}
    assert operators(written)["Reshape"] == 1
    assert np.array_equal(run(written, data)[0], run(model, data)[0])


def test_a_quotient_that_is_no_size_is_unknown() -> None:
    model = ir.from_proto(of("p = Add(n, t) q = Div(p, n) r = Range(zero, q, one) y = Identity(r)"))
    infer_shapes(model)
    made = next(node for node in model.graph if node.outputs[0].name == "r").outputs[0]
    assert made.shape is not None and "/" not in str(made.shape[0])


def test_a_value_of_unknown_rank_gets_no_axes() -> None:
    """It may have an axis of size 1 already."""
    model = ir.from_proto(of("y = Neg(row)"))
    infer_shapes(model)
    (x,) = model.graph.inputs
    x.shape = None
    node = ir.Node("", "Reshape", [x, ir.Value(name="t", type=ir.TensorType(ir.DataType.INT64))])
    node.outputs[0].shape = ir.Shape([1, 1])
    assert as_unsqueeze(Constants(model), node) == []
    x.shape = ir.Shape([])
    assert [made.op_type for made in as_unsqueeze(Constants(model), node)] == ["Constant", "Unsqueeze"]


def test_the_module_of_a_gather_stays() -> None:
    model = of(PAIRS)
    gather = next(node for node in model.graph.node if node.op_type == "GatherND")
    gather.metadata_props.add(key="namespace", value="model.mask")
    _, written = simplified(model)
    (made,) = [node for node in written.graph.node if node.op_type == "Unsqueeze"]
    assert [(p.key, p.value) for p in made.metadata_props] == [("namespace", "model.mask")]


def test_before_opset_13_the_axes_are_an_attribute() -> None:
    body = SIZES + PAIRS
    for name, axes in (("behind_rows", "[1, 2, 3]"), ("before_columns", "[0, 1, 2]"), ("last", "[4]")):
        for line in list(body.split("Unsqueeze(")):
            source = line.split(")")[0]
            if source.endswith(f", {name}"):
                body = body.replace(f"Unsqueeze({source})", f"Unsqueeze<axes = {axes}>({source.split(',')[0]})")
    model = parsed(body, X, "float[A, B, C, D] y", NUMBERS)
    model.opset_import[0].version = 12
    _, written = simplified(model)
    assert operators(written) == {"Unsqueeze": 1, "Neg": 1}
    assert np.array_equal(run(written, feeds(model))[0], run(model, feeds(model))[0])


@given(st.lists(st.sampled_from(["N", "T", "1"]), min_size=1, max_size=5), st.data())
def test_reshapes_that_only_add_axes_are_an_unsqueeze(shape: list[str], data: st.DataObject) -> None:
    """Whatever stands between: the result has the elements in their order, and the sizes of the value with axes of size 1."""
    value = [dim for dim in shape if dim != "1"]
    assume(value and len(value) < len(shape) and len(set(value)) == len(value))
    parts = [
        "Constant<value = int64[1] {1}>()"
        if dim == "1"
        else f"Shape<start = {value.index(dim)}, end = {value.index(dim) + 1}>(x)"
        for dim in shape
    ]
    lines = " ".join(f"p{i} = {part}" for i, part in enumerate(parts))
    target = f"t = Concat<axis = 0>({', '.join(f'p{i}' for i in range(len(parts)))})"
    steps = ["x", *("f" for _ in range(data.draw(st.integers(0, 1)))), "r"]
    middle = " ".join(f"{after} = Reshape({before}, {'flat' if after == 'f' else 't'})" for before, after in pairwise(steps))
    model = parsed(f"{lines} {target} {middle} y = Neg(r)", f"float[{', '.join(value)}] x", "float y", NUMBERS)
    _, written = simplified(model)
    x = np.random.default_rng(0).standard_normal([3 if dim == "N" else 5 for dim in value]).astype(np.float32)
    assert np.array_equal(run(written, {"x": x})[0], run(model, {"x": x})[0])
    assert operators(written) == {"Unsqueeze": 1, "Neg": 1}
