"""Feeds fit the model: indices in range, masks with a one, equal sizes for equal names, and equal feeds for equal seeds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_subgraph.errors import UsageError
from onnx_subgraph.inputs.feeds import draw_feeds, read_feeds
from onnx_subgraph.inputs.sizes import (
    FIRST,
    MOST_ELEMENTS,
    SECOND,
    USUAL,
    assignments,
    elements_of,
    resolve,
    symbols,
    with_ones,
)
from onnx_subgraph.verification.search import trials

HEADER = '<ir_version: 8, opset_import: ["" : 17]>'

SEEDS = st.integers(0, 200)


def model(text: str, **weights: np.ndarray) -> ir.Model:
    return ir.from_onnx_text(f"{HEADER} {text}", [ir.tensor(array, name=name) for name, array in weights.items()])


def table(rows: int) -> np.ndarray:
    return np.zeros((rows, 2), np.float32)


EMBEDDING = {
    "Gather": ("y = Gather(t, ids)", 50, 0),
    "Gather after movers": (
        "c = Cast<to = 7>(ids) a = Constant<value = int64[1] {0}>() u = Unsqueeze(c, a) y = Gather(t, u)",
        50,
        0,
    ),
    "Gather after a shift": ("two = Constant<value = int64 {2}>() s = Add(ids, two) y = Gather(t, s)", 48, -2),
    "Gather after a shift back": ("two = Constant<value = int64 {2}>() s = Sub(ids, two) y = Gather(t, s)", 52, 2),
    "GatherElements": ("y = GatherElements(t, ids)", 50, 0),
    "OneHot": ("d = Constant<value = int64 {9}>() v = Constant<value = float[2] {0.0, 1.0}>() y = OneHot(ids, d, v)", 9, 0),
}


@pytest.mark.parametrize("name", EMBEDDING)
@given(seed=SEEDS)
def test_indices_are_in_range(name: str, seed: int) -> None:
    body, high, low = EMBEDDING[name]
    weights = {"t": table(50)} if "t," in body else {}
    text = f"g (int64[batch, seq] ids) => (float[a, b, c] y) {{ {body} }}"
    ids = draw_feeds(model(text, **weights), {"batch": 40, "seq": 30}, seed)["ids"]
    assert ids.dtype == np.int64
    assert ids.min() >= max(0, low)
    assert ids.max() < high
    assert ids.max() > high // 2  # and they use the whole range


def test_the_smallest_table_bounds_an_index() -> None:
    text = "g (int64[n] ids) => (float[n, 2] y) { p = Gather(a, ids) q = Gather(b, ids) y = Add(p, q) }"
    ids = draw_feeds(model(text, a=table(1000), b=table(3)), {"n": 100})["ids"]
    assert set(ids.tolist()) == {0, 1, 2}


def test_an_index_is_followed_into_a_function() -> None:
    text = """g (int64[n] ids) => (float[n, 2] y) { y = f.Embed(t, ids) }
        <domain: "f", opset_import: ["" : 17]> Embed (t, i) => (y) {
            c = Constant<value = float[4] {0.0, 1.0, 2.0, 3.0}>()
            y = Gather(c, i)
        }"""
    text = text.replace("float[n, 2] y", "float[n] y")
    m = ir.from_onnx_text('<ir_version: 8, opset_import: ["" : 17, "f" : 1]> ' + text, [ir.tensor(table(50), name="t")])
    shape = ir.Shape([4])
    next(iter(next(iter(m.functions.values())))).outputs[0].shape = shape
    assert draw_feeds(m, {"n": 100})["ids"].max() < 4


MASKS = {
    "cast to bool": "int64[n, seq] m) => (float[batch, seq] y) { b = Cast<to = 9>(m) y = Where(b, t, t) }",
    "one minus": "int64[n, seq] m) => (float[b, s] y) { f = Cast<to = 1>(m) o = Constant<value = float {1.0}>() y = Sub(o, f) }",
    "a large negative number": "float[n, seq] m) => (float[b, s] y) { k = Constant<value = float {-10000.0}>() y = Mul(m, k) }",
    "compared with zero": "int64[n, seq] m) => (bool[batch, seq] y) { z = Constant<value = int64 {0}>() y = Equal(m, z) }",
    "a boolean": "bool[batch, seq] m) => (float[batch, seq] y) { y = Where(m, t, t) }",
}


@pytest.mark.parametrize("name", MASKS)
@given(seed=SEEDS, length=st.integers(1, 20))
def test_masks_are_zeros_and_ones_with_a_one_in_each_row(name: str, seed: int, length: int) -> None:
    body = MASKS[name]
    weights = {"t": np.zeros((1, 1), np.float32)} if "t, t" in body else {}
    mask = draw_feeds(model(f"g ({body}", **weights), {"n": 3, "batch": 3, "seq": length}, seed)["m"]
    assert set(np.unique(mask).tolist()) <= {0, 1}
    assert mask.any(axis=-1).all()


def test_masks_have_padding_at_the_right_at_the_left_and_holes() -> None:
    m = model(f"g ({MASKS['one minus']}")
    right, left, _, holes = (draw_feeds(m, {"n": 4, "seq": 40}, seed)["m"] for seed in range(4))
    assert (np.diff(right, axis=-1) <= 0).all() and right[0].all() and not right.all()
    assert (np.diff(left, axis=-1) >= 0).all() and not left.all()
    assert {-1, 1} <= set(np.diff(holes, axis=-1).reshape(-1).tolist())


@given(seed=SEEDS)
def test_equal_seeds_give_equal_feeds_and_others_differ(seed: int) -> None:
    m = model("g (float[n, 4] x, float[n, 4] z) => (float[n, 4] y) { y = Add(x, z) }")
    first, again, other = (draw_feeds(m, {"n": 3}, s) for s in (seed, seed, seed + 1))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["x"], other["x"])
    assert not np.array_equal(first["x"], first["z"])


def test_positions_count_up_within_their_table() -> None:
    text = "g (int64[batch, seq] position_ids) => (float[a, b, c] y) { y = Gather(t, position_ids) }"
    ids = draw_feeds(model(text, t=table(20)), {"batch": 2, "seq": 12})["position_ids"]
    assert (np.diff(ids, axis=-1) == 1).all()
    assert 0 <= ids.min() <= ids.max() < 20


def test_a_length_is_small_and_positive() -> None:
    text = (
        "g (int64 n) => (int64[m] y) { z = Constant<value = int64 {0}>() o = Constant<value = int64 {1}>() y = Range(z, n, o) }"
    )
    assert all(1 <= int(draw_feeds(model(text), {}, seed)["n"]) < 10 for seed in range(20))


@pytest.mark.parametrize("name", ["sound_lens", "length", "audio_lengths"])
@given(seed=SEEDS, size=st.integers(1, 300))
def test_a_length_of_an_input_is_at_most_the_length_of_the_input(name: str, seed: int, size: int) -> None:
    """One row has the full length. An index computed from the length is inside the input."""
    text = f"""
      g (float[b, n] sound, int64[b] {name}) => (float[b, 1] y) {{
        one = Constant<value = int64[1] {{1}}>() column = Unsqueeze({name}, one) last = Sub(column, one)
        y = GatherElements<axis = 1>(sound, last)
      }}
    """
    lengths = draw_feeds(model(text), {"b": 3, "n": size}, seed)[name]
    assert lengths[0] == size and (lengths >= 1).all() and (lengths <= size).all()


def test_a_length_beside_two_inputs_may_be_that_of_either() -> None:
    text = "g (float[b, n] x, float[b, m] z, int64[b] length) => (int64[b] y) { y = Neg(length) }"
    assert draw_feeds(model(text), {"b": 3, "n": 200, "m": 300})["length"].max() < 10


def test_an_input_n_beside_a_batch_n_is_no_length() -> None:
    roles = symbols(model("g (float[batch_size, N] x, float[N, 3] y) => (float[batch_size, N] z) { z = Neg(x) }").graph.inputs)
    assert roles == {"batch_size": "batch", "N": "length"}


def test_the_nodes_and_edges_of_a_graph_are_no_batch() -> None:
    """A network of graphs was compared on graphs of one node and one edge."""
    text = "g (float[num_nodes, 8] x, int64[2, num_edges] e) => (float[num_nodes, 8] y) { y = Neg(x) }"
    assert symbols(model(text).graph.inputs) == {"num_nodes": "length", "num_edges": "length"}
    assert symbols(model("g (float[N, 3] y) => (float[N, 3] z) { z = Neg(y) }").graph.inputs) == {"N": "batch"}


def test_overridable_initializers_keep_their_default_in_even_seeds_only() -> None:
    m = model("g (float[n, 2] x, float[2] s = {1.0, -2.0}) => (float[n, 2] y) { y = Mul(x, s) }")
    assert "s" not in draw_feeds(m, {"n": 1}, 0)
    other = draw_feeds(m, {"n": 1}, 1)["s"]
    assert other.dtype == np.float32
    assert (np.sign(other) == [1, -1]).all()
    assert not np.array_equal(other, [1.0, -2.0])


def test_equal_names_get_equal_sizes_and_different_names_different_ones() -> None:
    inputs = "float[batch, seq] x, float[batch, past] z, float[batch, past_plus_seq] m"
    m = model(f"g ({inputs}) => (float[batch, k] y) {{ y = Concat<axis = 1>(x, z) }}")
    assert set(symbols(m.graph.inputs)) == {"batch", "seq", "past"}
    for likely in (FIRST, SECOND, USUAL):
        sizes = next(assignments(m.graph.inputs, {}, likely))
        assert likely is USUAL or len(set(sizes.values())) == 3
        feeds = draw_feeds(m, sizes)
        assert feeds["x"].shape[0] == feeds["z"].shape[0]
        assert feeds["m"].shape[1] == feeds["x"].shape[1] + feeds["z"].shape[1]


@pytest.mark.parametrize("rank", [4, 5, 6])
def test_guessed_sizes_fit_into_memory(rank: int) -> None:
    """One size of 512 for each of five dimensions would take 137 GB."""
    dims = ", ".join("?" * rank)
    m = model(f"g (float[{dims}] x) => (float[{dims}] y) {{ y = Relu(x) }}")
    for likely in (FIRST, SECOND, USUAL):
        tried = [elements_of(m.graph.inputs[0], sizes) for sizes in trials(m, {}, likely)]
        assert len(tried) > 5
        assert max(tried) <= MOST_ELEMENTS


def test_a_shape_of_the_user_may_be_large() -> None:
    m = model("g (float[?, ?, ?] x) => (float[?, ?, ?] y) { y = Relu(x) }")
    assert [elements_of(m.graph.inputs[0], sizes) for sizes in trials(m, {"x": (1, 8192, 8192)}, FIRST)] == [8192**2]


@pytest.mark.parametrize(
    ("name", "size"),
    [
        *(("a", 3), ("a + b", 7), ("2*a", 6), ("b // 2", 2), ("a / 2", 1), ("b - 1", 3), ("a_plus_b", 7)),
        *(("Max(a, b)", 4), ("Max(_d3, a)", 3), ("Max(Max(_d3, _d4), b - 1)", 3), ("Min(a, b)", 3)),
    ],
)
def test_dimension_names_that_are_expressions_are_computed(name: str, size: int) -> None:
    assert resolve({"a": 3, "b": 4}, name) == size


@pytest.mark.parametrize(
    "name", ["c", "a + c", "a +", "__import__('os')", "a if b else 1", "b // 0", "x.y", "", "Max(c, d)", "Min(a, c)", "abs(a)"]
)
def test_dimension_names_that_only_look_like_expressions(name: str) -> None:
    assert resolve({"a": 3, "b": 4}, name) is None


ADD = "g (float[n, 3] x) => (float[n, 3] y) { y = Add(x, x) }"


@pytest.mark.parametrize(
    ("shape", "message"),
    [({"z": (1, 3)}, "no input"), ({"x": (1, 2, 3)}, "3 dimensions"), ({"x": (1, 4)}, "size 4")],
)
def test_shapes_that_do_not_fit_are_refused(shape: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        next(assignments(model(ADD).graph.inputs, shape))


def test_shapes_of_the_user_are_kept() -> None:
    assert all(sizes["n"] == 17 for sizes in assignments(model(ADD).graph.inputs, {"x": (17, 3)}))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "x is missing"),
        ({"x": np.zeros((1, 3), np.float64)}, "float64"),
        ({"x": np.zeros((1, 4), np.float32)}, "size 4"),
        ({"x": np.zeros(3, np.float32)}, "1 dimensions"),
        ({"x": np.zeros((1, 3), np.float32), "z": np.zeros(1)}, "z is no input"),
    ],
)
def test_feeds_that_do_not_fit_are_named(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    np.savez(tmp_path / "feeds.npz", **arrays)
    with pytest.raises(UsageError, match=message):
        read_feeds(tmp_path / "feeds.npz", model(ADD).graph.inputs)


def test_no_pickled_data_is_loaded(tmp_path: Path) -> None:
    np.savez(tmp_path / "feeds.npz", x=np.array([{"a": 1}], dtype=object))
    with pytest.raises(UsageError, match=r"can't be read"):
        read_feeds(tmp_path / "feeds.npz", model(ADD).graph.inputs)


@pytest.mark.parametrize("content", [b"", b"no archive"])
def test_a_file_that_is_not_an_archive_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "feeds.npz"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"feeds\.npz"):
        read_feeds(path, model(ADD).graph.inputs)


def test_an_input_without_possible_feeds_is_an_error() -> None:
    m = model(ADD)
    m.graph.inputs[0].type = ir.OptionalType(ir.TensorType(ir.DataType.FLOAT))
    with pytest.raises(UsageError, match="Optional"):
        draw_feeds(m, {"n": 1})


RATES = """
    g (float[a, b] x, float[c, 4] state, int64 rate) => (float[a, b] y) {
        sixteen = Constant <value = int64 {16000}> ()
        fast = Equal (rate, sixteen)
        y = If (fast) <then_branch = t () => (float p) { p = Neg (x) }, else_branch = e () => (float q) { q = Abs (x) }>
    }"""


def test_a_number_that_chooses_between_branches_chooses_both() -> None:
    chosen = [int(draw_feeds(model(RATES), {"a": 1, "b": 1, "c": 1}, seed)["rate"]) == 16000 for seed in range(4)]
    assert chosen == [True, False, True, False]


def test_a_chunk_of_a_signal_is_fed_with_a_small_state() -> None:
    text = "g (float[batch, length] x, float[2, other, 4] state) => (float[batch, length] y) { y = Neg (x) }"
    offered = list(assignments(list(model(text).graph.inputs), {}))
    assert {"batch": 2, "length": 512, "other": 2} in offered
    assert {"batch": 3, "length": 512, "other": 3} in list(assignments(list(model(text).graph.inputs), {}, SECOND))


def test_of_the_dimensions_of_two_inputs_each_is_one_while_the_other_is_not() -> None:
    text = "g (float[batch, past] x, float[other_batch, s] y, float[batch, t] w) => (float z) { z = ReduceSum(x) }"
    inputs = model(text).graph.inputs
    sizes = {"batch": 2, "past": 5, "other_batch": 2, "s": 7, "t": 11}
    assert list(with_ones(inputs, {}, sizes)) == [
        {"batch": 2, "past": 5, "other_batch": 1, "s": 7, "t": 1},
        {"batch": 1, "past": 5, "other_batch": 2, "s": 1, "t": 11},
    ]
    assert list(with_ones(inputs, {"y": (2, 7)}, sizes)) == [], (
        "sizes that the user gave stay, and of the rest no two inputs share a role"
    )


def test_dimensions_of_one_input_are_not_compared() -> None:
    inputs = model("g (float[batch, 3, height, width] x) => (float z) { z = ReduceSum(x) }").graph.inputs
    assert list(with_ones(inputs, {}, {"batch": 2, "height": 64, "width": 96})) == []


def test_floats_that_are_only_compared_may_be_other_numbers() -> None:
    """A LeakyRelu of a table reads as a mask: nothing but the comparison says what x is."""
    leaky = model(
        """g (float[N, 8] x) => (float[N, 8] y) <float zero = {0}, float k = {0.1}>
        { c = Greater(x, zero) s = Mul(x, k) y = Where(c, x, s) }"""
    )
    found = [draw_feeds(leaky, {"N": 4}, seed)["x"] for seed in range(4)]
    assert all(set(np.unique(x)) <= {0, 1} for x in found[:2])
    assert all((x < 0).any() and (x == 0).any() and (x == 1).any() for x in found[2:])


@pytest.mark.parametrize("element", ["uint16", "int16", "int32", "uint32", "uint64"])
def test_wide_integers_have_both_signs_or_all_values(element: str) -> None:
    """Of 16 bits there are few enough to draw all; none of a larger type is one that wrapped around."""
    found = draw_feeds(model(f"g ({element}[900] x) => ({element}[900] y) {{ y = Identity(x) }}"), {}, 0, "wide")["x"]
    if "16" in element:
        assert np.ptp(found.astype(np.int64)) > 60_000
    else:
        assert 900 < found.max() < 1000 and (found.min() < -900 if element == "int32" else found.min() < 100)


def test_a_size_of_two_axes_is_no_batch() -> None:
    """The height and the width of an image may have one name."""
    assert symbols(model("g (float[S, S] x) => (float[S, S] y) { y = Neg(x) }").graph.inputs) == {"S": "length"}
    assert symbols(model("g (float[1, 3, H, H] x) => (float[1, 3, H, H] y) { y = Neg(x) }").graph.inputs) == {"H": "image"}


@pytest.mark.parametrize("length", [0, 1, 2, 7])
def test_rows_of_free_masks_are_of_all_kinds(length: int) -> None:
    """Every other row of a mask of numbers is one; positions begin elsewhere in each row."""
    shape = f"[8, {length}]"
    inputs = f"bool{shape} mask, int64{shape} m_mask, int64{shape} position_ids"
    feeds = draw_feeds(model(f"g ({inputs}) => (bool{shape} y) {{ y = Not(mask) }}"), {}, 96, "free")
    rows = [tuple(row) for row in feeds["mask"]]
    if length > 1:
        assert not rows[0][0] and all(rows[2]) and not rows[3][-1], "padded at the left, without a 0, padded at the right"
        assert set(feeds["m_mask"][::2].reshape(-1).tolist()) <= {0, 1} and np.ptp(feeds["m_mask"][1::2]) > 100
        assert (np.diff(feeds["position_ids"]) == 1).all() and len(set(feeds["position_ids"][:, 0].tolist())) > 1
    assert feeds["mask"].shape == (8, length)


def test_wide_floats_of_16_bits_are_smaller() -> None:
    both = model("g (float16[N, 8] h, float[N, 8] x) => (float16[N, 8] y, float[N, 8] z) { y = Abs(h) z = Abs(x) }")
    found = draw_feeds(both, {"N": 64}, 0, "wide")
    assert 6 < np.abs(found["h"]).max() < 64 < np.abs(found["x"]).max()
