"""Layout: a chain of layout operators is one rearrangement, whatever its intermediate steps, also with symbolic dimensions."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from onnx_subgraph.errors import PatternError
from onnx_subgraph.matching.find import find
from onnx_subgraph.model.shapes import infer_shapes
from tests.matching.graphs import found, matches, model, pattern

HEADS = pattern(
    'y = Relu(rearrange(x, "b s (h d) -> b h s d"))',
    "y = com.microsoft.FusedMatMul(x, x, alpha=h)",
    example='{x: "float32[2, 3, 8]", h: 2}',
)
KEYS = pattern('y = Relu(rearrange(x, "b s (h d) -> b h d s"))', "y = Exp(x)", example='{x: "float32[2, 3, 8]", h: 2}')
SHAPES = (
    "int64[4] heads = {0, 0, 2, 4}, int64[4] explicit = {-1, 5, 2, 4}, int64[3] flat = {-1, 5, 4}, int64[4] back = {-1, 2, 5, 4}"
)
X = "float[B, 5, 8] x"


@pytest.mark.parametrize(
    "text",
    [
        "r = Reshape(x, heads) t = Transpose<perm = [0, 2, 1, 3]>(r) y = Relu(t)",
        "r = Reshape(x, explicit) t = Transpose<perm = [0, 2, 1, 3]>(r) y = Relu(t)",
        "i = Identity(x) r = Reshape(i, heads) j = Identity(r) t = Transpose<perm = [0, 2, 1, 3]>(j) y = Relu(t)",
        "r = Reshape(x, heads) a = Transpose<perm = [2, 0, 1, 3]>(r) t = Transpose<perm = [1, 0, 2, 3]>(a) y = Relu(t)",
        "r = Reshape(x, heads) t = Transpose<perm = [0, 2, 1, 3]>(r) f = Reshape(t, flat) g = Reshape(f, back) y = Relu(g)",
        (
            "n = Constant<value_ints = [0]>() r = Reshape(x, heads) t = Transpose<perm = [0, 2, 1, 3]>(r) u = Unsqueeze(t, n) "
            "s = Squeeze(u, n) y = Relu(s)"
        ),
    ],
)
def test_detours_are_the_same_rearrangement(text: str) -> None:
    (match,) = found(HEADS, model(text, inputs=X, outputs="float[B, 2, 5, 4] y", constants=SHAPES)).matches
    assert (match.bindings["h"], match.bindings["x"].name) == (2, "x")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "text",
    [
        "r = Reshape(x, heads) t = Transpose<perm = [0, 2, 3, 1]>(r) y = Relu(t)",
        "r = Reshape(x, heads) a = Transpose<perm = [0, 2, 1, 3]>(r) t = Transpose<perm = [0, 1, 3, 2]>(a) y = Relu(t)",
        (
            "r = Reshape(x, heads) a = Transpose<perm = [0, 2, 1, 3]>(r) f = Reshape(a, flat) g = Transpose<perm = [0, 2, 1]>(f) "
            "t = Reshape(g, turned) y = Relu(t)"
        ),
    ],
)
def test_any_way_to_transpose_a_key_matches(text: str) -> None:
    constants = SHAPES + ", int64[4] turned = {-1, 2, 4, 5}"
    assert matches(KEYS, model(text, inputs=X, outputs="float[B, 2, 4, 5] y", constants=constants)) == 1
    assert matches(HEADS, model(text, inputs=X, outputs="float[B, 2, 4, 5] y", constants=constants)) == 0


def test_a_quotient_by_one_at_the_edge_may_be_read_elsewhere() -> None:
    """diffusers divides the result of a residual block by one. What reads it rearranges it, and the next block adds to it."""
    text = "q = Div(x, one) r = Reshape(q, heads) t = Transpose<perm = [0, 2, 1, 3]>(r) y = Relu(t) e = Exp(q)"
    graph = model(text, inputs=X, outputs="float[B, 2, 5, 4] y, float[B, 5, 8] e", constants=SHAPES + ", float one = {1}")
    (match,) = found(HEADS, graph).matches
    assert [n.op_type for n in match.nodes] == ["Reshape", "Transpose", "Relu"]


def test_a_reshape_that_moves_data_is_no_transposition() -> None:
    text = "r = Reshape(x, back) y = Relu(r)"
    assert matches(HEADS, model(text, inputs=X, outputs="float[B, 2, 5, 4] y", constants=SHAPES)) == 0


def test_computed_shapes_are_followed() -> None:
    text = (
        "s = Shape(x) i0 = Constant<value_int = 0>() i1 = Constant<value_int = 1>() n = Constant<value_ints = [0]>() "
        "b0 = Gather(s, i0) b = Unsqueeze(b0, n) t0 = Gather(s, i1) t = Unsqueeze(t0, n) tail = Constant<value_ints = [2, 4]>() "
        "c = Concat<axis = 0>(b, t, tail) r = Reshape(x, c) z = Transpose<perm = [0, 2, 1, 3]>(r) y = Relu(z)"
    )
    graph = model(text, inputs="float[B, S, 8] x", outputs="float[B, 2, S, 4] y")
    assert matches(HEADS, graph) == 1


GLU = pattern(
    "a, b = split(x, axis=axis, parts=2)\ny = a * Sigmoid(b)",
    "y = Softmax(x, axis=axis)",
    example='{x: "float32[2, 8]", axis: -1}',
)
HALVES = (
    "int64[1] start = {0}, int64[1] middle = {4}, int64[1] end = {99}, "
    "int64[1] last = {-1}, int64[1] one = {1}, int64[1] two = {2}"
)


@pytest.mark.parametrize(
    ("text", "axis"),
    [
        ("a, b = Split<axis = 1, num_outputs = 2>(x) s = Sigmoid(b) y = Mul(a, s)", -2),
        ("a, b = Split<axis = -1, num_outputs = 2>(x) s = Sigmoid(b) y = Mul(a, s)", -1),
        ("a = Slice(x, start, middle, last) b = Slice(x, middle, end, last) s = Sigmoid(b) y = Mul(a, s)", -1),
        ("a = Slice(x, start, middle, two) b = Slice(x, middle, end, last) s = Sigmoid(b) y = Mul(s, a)", -1),
        ("a = Slice(x, start, middle, one) b = Slice(x, middle, end, one) s = Sigmoid(b) y = Mul(s, a)", -2),
    ],
)
def test_a_split_along_any_axis_says_which(text: str, axis: int) -> None:
    """A free name for the axis binds the axis of the Split, counted from the back."""
    graph = model(text, inputs="float[B, 8, 8] x", outputs="y", constants=HALVES)
    (match,) = found(GLU, graph).matches
    assert match.bindings["axis"] == axis


@pytest.mark.parametrize(
    "text",
    [
        "a = Slice(x, start, middle, last) b = Slice(x, middle, end, one) s = Sigmoid(b) y = Mul(a, s)",
        "a = Slice(x, middle, end, last) b = Slice(x, start, middle, last) s = Sigmoid(b) y = Mul(a, s)",
        "a, b, c = Split<axis = -1, num_outputs = 3>(x) s = Sigmoid(b) y = Mul(a, s)",
    ],
)
def test_parts_of_two_axes_or_in_another_order_are_no_split(text: str) -> None:
    assert matches(GLU, model(text, inputs="float[B, 8, 8] x", outputs="y", constants=HALVES)) == 0


UNEVEN = pattern(
    "a, b = split(x, axis=-1, sizes=sizes)\ny = Concat(b, a, axis=-1)",
    "y = Softmax(x, axis=first)",
    example='{x: "float32[2, 8]", sizes: [3, 5]}',
    let="first = sizes[0]",
)
EVEN = pattern(
    "a, _ = split(x, axis=-1, parts=parts)\ny = Relu(a)",
    "y = Softmax(x, axis=parts)",
    example='{x: "float32[2, 8]", parts: 2}',
)
CUTS = (
    "int64[1] start = {0}, int64[1] middle = {3}, int64[1] end = {99}, "
    "int64[1] last = {-1}, int64[1] late = {-4}, int64[2] s = {3, 5}"
)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("a, b = Split<axis = -1>(x, s) y = Concat<axis = -1>(b, a)", [3, 5]),
        ("a = Slice(x, start, middle, last) b = Slice(x, middle, end, last) y = Concat<axis = -1>(b, a)", [3, 5]),
        ("a = Slice(x, start, late, last) b = Slice(x, late, end, last) y = Concat<axis = -1>(b, a)", [4, 4]),
        ("a = Slice(x, start, middle, last) b = Slice(x, late, end, last) y = Concat<axis = -1>(b, a)", None),
        ("a = Slice(x, middle, late, last) b = Slice(x, late, end, last) y = Concat<axis = -1>(b, a)", None),
        ("a, b = Split<axis = 1>(x, s) y = Concat<axis = -1>(b, a)", None),
        ("b, a = Split<axis = -1>(x, s) y = Concat<axis = -1>(b, a)", None),
    ],
)
def test_a_name_for_the_sizes_of_a_split_is_bound_to_those_of_the_graph(text: str, sizes: list[int] | None) -> None:
    graph = model(text, inputs="float[B, 8, 8] x", outputs="y", constants=CUTS)
    assert [match.bindings["sizes"] for match in found(UNEVEN, graph).matches] == ([] if sizes is None else [tuple(sizes)])


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a, b, c, d = Split<axis = -1, num_outputs = 4>(x) y = Relu(a)", 4),
        ("a = Slice(x, start, late, last) y = Relu(a)", 2),
        ("a = Slice(x, start, middle, last) y = Relu(a)", None),
    ],
)
def test_a_name_for_the_number_of_parts_is_bound_to_that_of_the_graph(text: str, parts: int | None) -> None:
    graph = model(text, inputs="float[B, 8, 8] x", outputs="y", constants=CUTS)
    assert [match.bindings["parts"] for match in found(EVEN, graph).matches] == ([] if parts is None else [parts])


@pytest.mark.parametrize(
    "text",
    [
        "m = Mul(x, half) r = Reshape(m, heads) t = Transpose<perm = [0, 2, 1, 3]>(r) y = Relu(t)",
        "r = Reshape(x, heads) m = Mul(r, half) t = Transpose<perm = [0, 2, 1, 3]>(m) y = Relu(t)",
        "r = Reshape(x, heads) t = Transpose<perm = [0, 2, 1, 3]>(r) m = Mul(half, t) y = Relu(m)",
    ],
)
def test_a_scalar_moves_through_layout(text: str) -> None:
    probe = pattern(
        'y = Relu(scale * rearrange(x, "b s (h d) -> b h s d"))',
        "y = com.microsoft.FusedMatMul(x, x, alpha=scale)",
        example='{x: "float32[2, 3, 8]", h: 2, scale: 0.5}',
    )
    graph = model(text, inputs=X, outputs="float[B, 2, 5, 4] y", constants=SHAPES + ", float half = {0.5}")
    (match,) = found(probe, graph).matches
    assert match.bindings["scale"] == pytest.approx(0.5)
    assert match.bindings["x"] is graph.graph.inputs[0]


REPEATED = pattern('y = Relu(repeat(x, "b g t -> b (g r) t"))', "y = Exp(x)", example='{x: "float32[2, 2, 3]", r: 3}')
GROUPS = "int64[4] apart = {0, 0, 1, 5}, int64[4] times = {1, 1, 3, 1}, int64[3] joined = {0, -1, 5}"


@pytest.mark.parametrize(
    "text",
    [
        "u = Reshape(x, apart) e = Expand(u, times) j = Reshape(e, joined) y = Relu(j)",
        "u = Reshape(x, apart) e = Tile(u, times) j = Reshape(e, joined) y = Relu(j)",
        "u = Reshape(x, apart) e = Concat<axis = 2>(u, u, u) j = Reshape(e, joined) y = Relu(j)",
        # a value joined to itself, each time computed anew
        "u = Reshape(x, apart) v = Reshape(x, apart) e = Concat<axis = -2>(u, v, u) j = Reshape(e, joined) y = Relu(j)",
        (
            "n = Constant<value_ints = [2]>() u = Unsqueeze(x, n) i = Identity(u) e = Expand(i, times) j = Reshape(e, joined) "
            "y = Relu(j)"
        ),
    ],
)
def test_groups_repeated_anyhow(text: str) -> None:
    (match,) = found(REPEATED, model(text, inputs="float[B, 2, 5] x", outputs="float[B, 6, 5] y", constants=GROUPS)).matches
    assert (match.bindings["r"], match.bindings["x"].name) == (3, "x")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "text",
    [
        # all groups repeated as a whole: (r g), another order
        "t = Constant<value_ints = [1, 3, 1]>() j = Tile(x, t) y = Relu(j)",
        (
            "o = Constant<value_ints = [0, 1, 2, 5]>() u = Reshape(x, o) t = Constant<value_ints = [1, 3, 1, 1]>() "
            "e = Expand(u, t) j = Reshape(e, joined) y = Relu(j)"
        ),
        "e = Concat<axis = 1>(x, x, x) y = Relu(e)",
        # one of the joined values is another one
        "u = Reshape(x, apart) v = Neg(u) e = Concat<axis = 2>(u, u, v) j = Reshape(e, joined) y = Relu(j)",
        # nothing is repeated
        "u = Reshape(x, apart) j = Reshape(u, joined) y = Relu(j)",
    ],
)
def test_another_order_of_repeated_groups_does_not_match(text: str) -> None:
    graph = model(text, inputs="float[B, 2, 5] x", outputs="y", constants=GROUPS)
    assert matches(REPEATED, graph) == 0


UNCHANGED = pattern('y = Relu(rearrange(x, "... -> ..."))', "y = Relu(x)", example='{x: "float32[2, 3, 8]"}')


@pytest.mark.parametrize(
    ("text", "found_any"),
    [
        ("a = Transpose<perm = [1, 0, 2]>(x) b = Transpose<perm = [1, 0, 2]>(a) y = Relu(b)", True),
        ("r = Reshape(x, heads) t = Transpose<perm = [0, 1, 2, 3]>(r) j = Reshape(t, whole) y = Relu(j)", True),
        ("r = Reshape(x, heads) t = Transpose<perm = [0, 1, 3, 2]>(r) j = Reshape(t, whole) y = Relu(j)", False),
        ("a = Transpose<perm = [1, 0, 2]>(x) y = Relu(a)", False),
        ("y = Relu(x)", False),
    ],
)
def test_an_identity_rearrangement_matches(text: str, *, found_any: bool) -> None:
    graph = model(text, inputs=X, outputs="y", constants=SHAPES + ", int64[3] whole = {0, 0, 8}")
    assert matches(UNCHANGED, graph) == int(found_any)


PAIR = pattern(
    'a, b = split(x, axis=-1, parts=2)\ny = rearrange(a, "... f 1 -> ... f") * Sigmoid(rearrange(b, "... f 1 -> ... f"))',
    "y = ReduceSum(x, axes=[-1], keepdims=0)",
    example='{x: "float32[2, 3, 2]"}',
)
THIRD = pattern(
    '_, b, _ = split(x, axis=0, parts=3)\ny = Relu(rearrange(b, "1 n f -> n f"))',
    "y = Expand(ReduceSum(x, axes=[0, 1, 2], keepdims=0), shape)",
    example='{x: "float32[3, 2, 4]"}',
    let="shape = [n, f]",
)
PLACES = """int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64 minus = {-1}, int64 beyond = {3}, int64 below = {-4},
  int64[1] flat = {1}, int64[1] last = {-1}"""


@pytest.mark.parametrize(
    ("dims", "text", "found_any"),
    [
        ("B, 2, 2", "a = Gather<axis = -1>(x, zero) b = Gather<axis = -1>(x, one) {rest}", True),
        ("B, 2, 2", "a = Gather<axis = 2>(x, zero) b = Gather<axis = -1>(x, minus) {rest}", True),
        ("2, 2", "a = Gather<axis = 1>(x, zero) b = Gather<axis = 1>(x, one) {rest}", True),
        (
            "B, 2, 2",
            "p, q = Split<axis = 2, num_outputs = 2>(x) a = Squeeze(p, last) b = Gather<axis = 2>(x, one) {rest}",
            True,
        ),
        ("B, 2, 2", "a = Gather<axis = -1>(x, one) b = Gather<axis = -1>(x, zero) {rest}", False),
        ("B, 2, 2", "a = Gather<axis = -1>(x, zero) b = Gather<axis = 1>(x, one) {rest}", False),
        ("B, 2, 2", "a = Gather<axis = 1>(x, zero) b = Gather<axis = 1>(x, one) {rest}", False),
        ("B, 2, 3", "a = Gather<axis = -1>(x, zero) b = Gather<axis = -1>(x, one) {rest}", False),
        ("B, 2, F", "a = Gather<axis = -1>(x, zero) b = Gather<axis = -1>(x, one) {rest}", False),
        ("B, 2, 0", "a = Gather<axis = -1>(x, zero) b = Gather<axis = -1>(x, one) {rest}", False),
        ("B, 2, 2", "a = Gather<axis = -1>(x, zero) b = Gather<axis = -1>(x, beyond) {rest}", False),
        ("B, 2, 2", "a = Gather<axis = -1>(x, below) b = Gather<axis = -1>(x, one) {rest}", False),
        ("B, 2, 2", "a = Gather<axis = -1>(x, zero) w = Neg(x) b = Gather<axis = -1>(w, one) {rest}", False),
    ],
)
def test_one_element_of_an_axis_is_a_part_without_the_axis(dims: str, text: str, *, found_any: bool) -> None:
    """A Gather at a scalar is a part of a split without its axis: `x[..., 0]` and `x[..., 1]`."""
    rest = text.format(rest="s = Sigmoid(b) y = Mul(a, s)")
    assert matches(PAIR, model(rest, inputs=f"float[{dims}] x", outputs="y", constants=PLACES)) == int(found_any)


@pytest.mark.parametrize(
    ("gather", "found_any"),
    [("Gather(x, one)", True), ("Gather(x, two)", False), ("Gather(x, flat)", False), ("Gather<axis = 1>(x, one)", False)],
)
def test_an_element_of_an_axis_names_the_axes_that_are_left(gather: str, *, found_any: bool) -> None:
    graph = model(f"b = {gather} y = Relu(b)", inputs="float[3, 3, 4] x", outputs="y", constants=PLACES)
    named = [(match.bindings["n"], match.bindings["f"]) for match in found(THIRD, graph).matches]
    assert named == ([(3, 4)] if found_any else [])


PARTS = pattern(
    'y = Relu(rearrange(x, "... (p f) -> ... p f"))',
    'y = rearrange(Relu(x), "... (p f) -> ... p f", p=2)',
    example='{x: "float32[2, 3, 8]"}',
)


@pytest.mark.parametrize(
    ("dims", "shape", "perm", "found_any"),
    [
        ("8", "2, 4", "", True),
        ("B, 8", "0, 2, 4", "", True),
        ("B, 3, 8", "0, 0, 2, 4", "", True),
        ("B, C, 3, 8", "0, 0, 0, 2, 4", "", True),
        ("B, C, 3, 8", "0, 0, 3, 4, 2", "0, 1, 2, 4, 3", False),  # neighbours are parts, not halves
        ("B, 3, 8", "0, 3, 2, 4", "1, 0, 2, 3", False),  # the first axes change places
        ("B, 6, 4", "0, 3, 2, 4", "", False),  # another axis is split
    ],
)
def test_an_ellipsis_stands_for_any_number_of_first_axes(dims: str, shape: str, perm: str, *, found_any: bool) -> None:
    rank = shape.count(",") + 1
    moved = f"t = Transpose<perm = [{perm}]>(r) y = Relu(t)" if perm else "y = Relu(r)"
    constants = f"int64[{rank}] parts = {{{shape}}}"
    graph = model(f"r = Reshape(x, parts) {moved}", inputs=f"float[{dims}] x", outputs="y", constants=constants)
    assert matches(PARTS, graph) == int(found_any)


def test_no_reason_names_an_axis_of_an_ellipsis() -> None:
    graph = model("r = Reshape(x, n) y = Relu(r)", inputs="float[2, 3, 8] x", outputs="y", constants="int64[4] n = {3, 2, 2, 4}")
    (miss,) = find(graph, [PARTS], thorough=True).near_misses
    assert miss.expected.startswith("an axis ...") and "ellipsis" not in f"{miss}"


@pytest.mark.parametrize(
    ("recipe", "mistake"),
    [
        ("b ... f -> b f ...", "at the beginning of both sides"),
        ("... f -> f", "at the beginning of both sides"),
        ("ellipsis0 f -> f ellipsis0", "can't name an axis"),
    ],
)
def test_an_ellipsis_elsewhere_is_an_error(recipe: str, mistake: str) -> None:
    with pytest.raises(PatternError, match=mistake):
        pattern(f'y = Relu(rearrange(x, "{recipe}"))', "y = Relu(x)", example='{x: "float32[2, 3, 8]"}')


def test_sizes_are_factored_over_sums_of_symbols() -> None:
    """The length of a cache is a sum, and a Reshape multiplies it out."""
    text = "r = Reshape(x, heads) t = Transpose<perm = [0, 2, 1, 3]>(r) y = Relu(t)"
    graph = model(text, inputs=X, outputs="y", constants="int64[4] heads = {0, 0, 2, 4}")
    graph.graph.inputs[0].shape = ir.Shape(["B", "past + seq", 8])
    infer_shapes(graph)
    assert matches(HEADS, graph) == 1


SHARED = pattern("t = Exp(f)\n  y = x * t", "y = Sub(x, f)", example='{x: "float32[2, 8]", f: "float32[2, 8]"}', shares="[t]")


def test_a_value_in_shares_may_have_other_readers_and_is_then_kept() -> None:
    text = "t = Exp(f) y = Mul(x, t) z = Mul(w, t)"
    graph = model(text, inputs="float[N, 8] x, float[N, 8] w, float[N, 8] f", outputs="y, z")
    both = found(SHARED, graph).matches
    assert [[n.op_type for n in match.nodes] for match in both] == [["Mul"], ["Mul"]]


def test_a_value_outside_shares_may_not_have_other_readers() -> None:
    unshared = pattern("t = Exp(f)\n  y = x * t", "y = Sub(x, f)", example='{x: "float32[2, 8]", f: "float32[2, 8]"}')
    text = "t = Exp(f) y = Mul(x, t) z = Relu(t)"
    graph = model(text, inputs="float[N, 8] x, float[N, 8] f", outputs="y, z")
    assert matches(unshared, graph) == 0
    assert matches(SHARED, graph) == 1
