"""Sizes that an exporter fixed are found from onnxruntime's error messages: a batch, a length, their product, a past length."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_subgraph.files.models import load
from onnx_subgraph.inputs.fitting import broadcast, concatenate, evaluated, multiply, reshape
from onnx_subgraph.inputs.refusal import Refusals
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.verification.cases import Case
from onnx_subgraph.verification.reference import Reference
from onnx_subgraph.verification.sessions import Failure
from onnx_subgraph.verification.trial import CPU

HEAD = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> g '

BAKED: dict[str, tuple[str, dict[str, int]]] = {
    "a batch and a length": (
        "(float[batch, seq, 64] x) => (float[a, b, c, d] y) <int64[4] s = {3, 20, 4, 16}> { y = Reshape(x, s) }",
        {"batch": 3, "seq": 20},
    ),
    "two lengths, in one product": (
        """(float[batch, lq, 64] q, float[batch, lk, 64] k) => (float[a, b, c, d] y)
        <int64[4] sq = {1, 10, 4, 16}, int64[4] sk = {1, 24, 4, 16}> {
          q4 = Reshape(q, sq) qt = Transpose <perm = [0, 2, 1, 3]> (q4)
          k4 = Reshape(k, sk) kt = Transpose <perm = [0, 2, 3, 1]> (k4)
          y = MatMul(qt, kt)
        }""",
        {"batch": 1, "lq": 10, "lk": 24},
    ),
    "a product of batch and length, and each behind it": (
        """(float[batch, seq, 8] x, float[8, 8] w) => (float[a, b, 8] y) <int64[2] s = {60, 8}, int64[3] t = {5, 12, 8}> {
          f = Reshape(x, s) m = MatMul(f, w) u = Reshape(m, t) y = Add(u, x)
        }""",
        {"batch": 5, "seq": 12},
    ),
    "a batch times heads": (
        """(float[seq, batch, 32] x) => (float[a, b, c] y) <int64[3] s = {9, 6, 16}> {
          r = Reshape(x, s) y = Transpose <perm = [1, 0, 2]> (r)
        }""",
        {"seq": 9, "batch": 3},
    ),
    "a past that is put before the present": (
        """(float[batch, seq, 32] x, float[batch, 2, past, 16] p) => (float[a, b, c] y)
        <int64[4] s = {3, 5, 2, 16}, int64[3] t = {6, 17, 16}> {
          r = Reshape(x, s) k = Transpose <perm = [0, 2, 1, 3]> (r) all = Concat <axis = 2> (p, k) y = Reshape(all, t)
        }""",
        {"batch": 3, "seq": 5, "past": 12},
    ),
    "the length of a mask": (
        """(float[batch, seq, 32] x, float[batch, total] m) => (float[a, b, c] y) <int64[3] s = {3, 5, 32}, int64[1] one = {1}> {
          r = Reshape(x, s) t = Transpose <perm = [0, 2, 1]> (r) c = MatMul(r, t) u = Unsqueeze(m, one) y = Add(c, u)
        }""",
        {"batch": 3, "seq": 5, "total": 5},
    ),
    "a batch where the length is left open": (
        """(float[batch, seq, 64] x, float[batch, 4, past, 16] p) => (float[a, b, c, d] y) <int64[4] s = {3, -1, 4, 16}> {
          r = Reshape(x, s) k = Transpose <perm = [0, 2, 1, 3]> (r) y = Concat <axis = 2> (p, k)
        }""",
        {"batch": 3, "seq": 7, "past": 5},
    ),
    "inputs of names that say nothing": (
        """(float[N, M, 64] x, float[K, L, 64] z) => (float[a, b, c, d] y) <int64[4] s = {3, 20, 4, 16}> {
          u = Reshape(x, s) v = Reshape(z, s) y = Add(u, v)
        }""",
        {"N": 3, "M": 20, "K": 3, "L": 20},
    ),
    "the size of an image": (
        """(float[n, 3, h, w] x, float[8, 3, 3, 3] k) => (float[a, b] y) <int64[2] s = {3, 392}> {
          c = Conv <strides = [4, 4], pads = [1, 1, 1, 1]> (x, k) y = Reshape(c, s)
        }""",
        {"n": 3, "h": 28, "w": 28},
    ),
    "what is expanded": (
        """(float[batch, seq] x) => (float[a, b, c] y) <int64[1] one = {1}, int64[3] s = {3, 20, 20}> {
          u = Unsqueeze(x, one) y = Expand(u, s)
        }""",
        {"batch": 3, "seq": 20},
    ),
    "a length in a shape that is computed": (
        """(float[batch, seq, 64] x) => (float[a, b, c, d] y) <int64 zero = {0}, int64[1] ax = {0}, int64[3] t = {20, 4, 16}> {
          shape = Shape(x) b0 = Gather(shape, zero) b1 = Unsqueeze(b0, ax) s = Concat <axis = 0> (b1, t) y = Reshape(x, s)
        }""",
        {"batch": 2, "seq": 20},
    ),
    "a batch of one that is squeezed": (
        """(float[batch, seq, 64] x) => (float[a, b, c] y) <int64[1] ax = {0}, int64[3] s = {18, 4, 16}> {
          r = Squeeze(x, ax) y = Reshape(r, s)
        }""",
        {"batch": 1, "seq": 18},
    ),
    "parts": (
        """(float[batch, seq, 8] x) => (float[a, b, c] y, float[d, e, f] z) <int64[2] s = {9, 14}> {
          y, z = Split <axis = 1> (x, s)
        }""",
        {"batch": 2, "seq": 23},
    ),
    "the channels of a convolution, and the sizes that leave its window a place": (
        """(float[n, c, length] x, float[4, 6, 30] k) => (float[a, b, d] y) { y = Conv(x, k) }""",
        {"n": 2, "c": 6, "length": 30},
    ),
    "the features of a recurrent network that reads backwards": (
        """(float[length, batch, features] x, float[1, 12, 40] w, float[1, 12, 3] r, float[1, 5, 3] h, float[1, 5, 3] c) => (y)
        <int64[1] last = {-1}, int64[1] end = {-9223372036854775807}, int64[1] zero = {0}, int64[1] back = {-1}> {
          z = Slice(x, last, end, zero, back) y = LSTM <hidden_size = 3> (z, w, r, , , h, c)
        }""",
        {"length": 7, "batch": 5, "features": 40},
    ),
    "the features of a quantized recurrent network": (
        """(float[length, batch, features] x, int8[1, 40, 12] w, int8[1, 3, 12] r, float[1, 5, 3] h) => (y)
        <float[1] s = {0.1}, int8[1] o = {0}> {
          y = com.microsoft.DynamicQuantizeLSTM <hidden_size = 3> (x, w, r, , , h, , , s, o, s, o)
        }""",
        {"length": 7, "batch": 5, "features": 40},
    ),
    "the operand of a product": (
        """(float[batch, features] x, float[40, 8] w, float[8] b) => (float[a, c] y) { y = Gemm(x, w, b) }""",
        {"batch": 2, "features": 40},
    ),
}


def written(text: str, folder: Path) -> Path:
    onnx.save(onnx.parser.parse_model(HEAD + text), folder / "m.onnx")
    return folder / "m.onnx"


def first_case(path: Path, **shapes: tuple[int, ...]) -> Case:
    cases = Reference(path, shapes=shapes).cases(CPU)
    assert not isinstance(cases, Failure), cases.message
    return cases[0]


@pytest.mark.parametrize(("text", "sizes"), BAKED.values(), ids=BAKED.keys())
def test_sizes_fixed_by_tracing_are_found(tmp_path: Path, text: str, sizes: dict[str, int]) -> None:
    assert first_case(written(text, tmp_path)).sizes == sizes


def test_sizes_fixed_inside_a_branch_are_found(tmp_path: Path) -> None:
    text = """(float[batch, seq, 8] x, bool go) => (float[a, b, c] y) {
      y = If (go) <
        then_branch = t () => (float[d, e, f] p) <int64[3] s = {3, 20, 8}> { p = Reshape(x, s) },
        else_branch = e () => (float[d, e, f] q) <int64[3] r = {3, 20, 8}> { q = Reshape(x, r) }
      >
    }"""
    assert first_case(written(text, tmp_path)).sizes == {"batch": 3, "seq": 20}


def test_the_size_of_a_table_is_found_and_not_a_size_of_one(tmp_path: Path) -> None:
    """With one row Softmax is constant, and no error of the scores would show."""
    text = """(float[N, 1, S, 4] q, float[N, 1, 4, S] k) => (p)
    <float half = {0.5}, int64[2] a = {0, 0}, int64[2] axes = {0, 1}> {
      s = MatMul(q, k) t = Mul(s, half) sh = Shape<start = 2, end = 3>(q) e = Concat<axis = 0>(sh, sh)
      one = Constant<value_float = 1.0>() eight = Constant<value_ints = [8, 8]>() full = Expand(one, eight)
      cut = Slice(full, a, e, axes) u = Add(t, cut) p = Softmax<axis = -1>(u) }"""
    assert first_case(written(text, tmp_path)).sizes["S"] == 8


def test_the_users_size_is_kept(tmp_path: Path) -> None:
    path = written("(float[batch, seq, 64] x) => (float[a, b, c] y) <int64[3] s = {60, 4, 16}> { y = Reshape(x, s) }", tmp_path)
    assert first_case(path, x=(4, 15, 64)).sizes == {"batch": 4, "seq": 15}
    refused = Reference(path, shapes={"x": (4, 16, 64)}).cases(CPU)
    assert isinstance(refused, Failure)
    assert refused.message.startswith("the original model does not run on the shapes given; give its shapes with --shape")


def test_a_shape_that_inference_does_not_know_is_read_from_the_message(tmp_path: Path) -> None:
    """NonZero's result has an unknown length. Numbers in the message that are sizes of the model are used."""
    path = written(
        "(float[batch, seq, 64] x) => (float[a, b, c, d] y) <int64[4] s = {3, 20, 4, 16}> { y = Reshape(x, s) }", tmp_path
    )
    model = load(path)  # without inference
    for node in model.graph:
        node.inputs[0].shape = None
    refusals = Refusals(model)
    said = "Non-zero status code returned while running Reshape node. Name:'' Status Message: "
    trials = refusals.guided([{"batch": 2, "seq": 7}])
    assert next(trials) == {"batch": 2, "seq": 7}
    refusals.learn(f"{said} Input shape:{{2,7,64}}, requested shape:{{3,20,4,16}}", {"batch": 2, "seq": 7})
    assert next(trials) == {"batch": 3, "seq": 20}


def test_the_node_behind_one_that_onnxruntime_made_is_found(tmp_path: Path) -> None:
    """With optimisation, a MatMul and an Add are one FusedGemm, of a name that the model does not have."""
    path = written("(float[n, c] x, float[40, 8] w) => (float[n, 8] y) { y = MatMul(x, w) }", tmp_path)
    model = load(path)
    refusals = Refusals(model)
    trials = refusals.guided([{"n": 2, "c": 7}])
    next(trials)
    refusals.learn("while running FusedGemm node. Name:'m/MatMulAddFusion' Status Message: …", {"n": 2, "c": 7})
    assert next(trials) == {"n": 2, "c": 40}


def test_refused_sizes_are_not_run_again(tmp_path: Path) -> None:
    model = load(written(BAKED["a batch and a length"][0], tmp_path))
    infer_shapes(model)
    refusals = Refusals(model)
    refusals.learn("while running Reshape node. Name:'' Status Message: …", {"batch": 2, "seq": 7})
    trials = [{"batch": 2, "seq": size} for size in range(1, 40)]
    assert {"batch": 2, "seq": 7} not in list(refusals.guided(trials))


SQUARE = """(float[batch, channels, height, width] x, float[8, 3, 8, 8] w) => (float y) {
  c = Conv <strides = [8, 8], kernel_shape = [8, 8]> (x, w)
  sides = Shape <start = 2, end = 3> (c)  f = Cast <to = 1> (sides)  half = Constant <value_float = 0.5> ()  h = Mul (f, half)
  o = Floor (h)  i = Cast <to = 7> (o)  two = Constant <value_int = 2> ()  even = Mul (i, two)
  first = Shape <start = 0, end = 2> (c)  target = Concat <axis = 0> (first, even, even)  q = Reshape (c, target)
  y = ReduceSum <keepdims = 0> (q)
}"""


def test_channels_of_a_quantized_convolution_and_product_are_found(tmp_path: Path) -> None:
    text = """(uint8[batch, channels, 16, 16] x, uint8[rows, width] z) => (int32[a, b, c, d] y, int32[e, f] p)
    <uint8[1, 3, 1, 1] w = {1, 2, 3}, uint8[5, 1] v = {1, 2, 3, 4, 5}, uint8 zero = {3}> {
      y = ConvInteger (x, w, zero, zero)  p = MatMulInteger (z, v, zero, zero)
    }"""
    sizes = first_case(written(text, tmp_path)).sizes
    assert (sizes["channels"], sizes["width"]) == (3, 5)


def test_the_channels_of_images_are_settled_and_the_sides_go_on(tmp_path: Path) -> None:
    """The image must be square. The shape that is asked for depends on its height, so it forbids no other height."""
    sizes = first_case(written(SQUARE, tmp_path)).sizes
    assert sizes["channels"] == 3 and sizes["height"] // 8 == sizes["width"] // 8


def test_a_length_that_only_the_message_tells_is_found_for_each_batch(tmp_path: Path) -> None:
    """The shape that is asked for is computed in the run, from a count of elements."""
    path = written(
        """(float[batch, length, 64] x, float[36] ones) => (float[a, b, c, d] y) <int64[1] flat = {-1}, int64[2] rest = {6, 64}> {
          found = NonZero (ones)  n = Shape <start = 1, end = 2> (found)  six = Constant <value_ints = [6]> ()
          side = Div (n, six)
          first = Shape <start = 0, end = 1> (x)  target = Concat <axis = 0> (first, side, rest)  y = Reshape (x, target)
        }""",
        tmp_path,
    )
    cases = Reference(path).cases(CPU)
    assert not isinstance(cases, Failure), cases.message
    assert {(case.sizes["batch"], case.sizes["length"]) for case in cases} >= {(2, 36), (1, 36)}


def test_a_size_is_settled_only_if_the_others_do_not_matter(tmp_path: Path) -> None:
    model = load(written("(float[n, c, s] x, float[8, 3, 5] w) => (float[n, 8, r] y) { y = Conv (x, w) }", tmp_path))
    refusals = Refusals(model)
    refusals.learn("while running Conv node. Name:'' Status Message: …", {"n": 2, "c": 7, "s": 9})
    trials = [{"n": 1, "c": size, "s": size} for size in (64, 32)]
    assert list(refusals.guided(trials))[-1] == {"n": 1, "c": 3, "s": 32}
    model = load(written(BAKED["a batch and a length"][0], tmp_path))
    infer_shapes(model)
    refusals = Refusals(model)
    refusals.learn("while running Reshape node. Name:'' Status Message: …", {"batch": 3, "seq": 7})
    assert list(refusals.guided([{"batch": 3, "seq": 20}, {"batch": 4, "seq": 15}]))[-1] == {"batch": 4, "seq": 15}


def test_channels_that_the_user_chose_are_not_changed(tmp_path: Path) -> None:
    model = load(written("(float[n, c, s] x, float[8, 3, 5] w) => (float[n, 8, r] y) { y = Conv (x, w) }", tmp_path))
    refusals = Refusals(model, fixed={"c"})
    refusals.learn("while running Conv node. Name:'' Status Message: …", {"n": 2, "c": 7, "s": 9})
    assert list(refusals.guided([{"n": 1, "c": 7, "s": 64}, {"n": 2, "c": 7, "s": 32}])) == []


def test_a_shape_that_one_run_asked_for_forbids_no_other_length(tmp_path: Path) -> None:
    text = """(float[batch, length, 64] x, int64[4] target) => (float[a, b, c, d] y) { y = Reshape (x, target) }"""
    refusals = Refusals(load(written(text, tmp_path)))
    said = "while running Reshape node. Name:'' Status Message: … Input shape:{2,7,64}, requested shape:{2,6,6,64}"
    refusals.learn(said, {"batch": 2, "length": 7})
    found = list(refusals.guided([{"batch": 2, "length": 9}, {"batch": 2, "length": 11}]))
    assert {"batch": 2, "length": 36} in found and found[-1] == {"batch": 2, "length": 11}


def test_a_message_without_sizes_changes_nothing(tmp_path: Path) -> None:
    model = load(written("(float[n] x) => (float[n] y) { y = Abs(x) }", tmp_path))
    refusals = Refusals(model)
    trials = [{"n": 2}, {"n": 3}]
    seen = []
    for trial in refusals.guided(trials):
        seen.append(trial)
        refusals.learn("while running Abs node. Name:'' Status Message: no", trial)
        refusals.learn("out of memory", trial)
    assert seen == trials


SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)


def test_equal_sizes_are_a_sign_of_a_fit_but_ones_are_not() -> None:
    assert broadcast((2, 8, 8), (8, 8)) == 2 and broadcast((2, 1, 1), (1, 1), ()) == 0
    assert broadcast((8,), (1,)) == 0 and broadcast((8,), (7,)) is None


@given(SIZES, SIZES)
def test_arrays_fit_exactly_when_numpy_broadcasts_them(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    import numpy as np

    x, z = np.zeros(a), np.zeros(b)

    def takes(call: object) -> bool:
        try:
            call()  # type: ignore[operator]
        except ValueError:
            return False
        return True

    assert (broadcast(a, b) is not None) == takes(lambda: np.broadcast_shapes(a, b))
    assert (reshape(a, b) is not None) == takes(lambda: x.reshape(b))
    assert (reshape(a, (-1, *b)) is not None) == takes(lambda: x.reshape((-1, *b)))
    assert (concatenate(0, a, b) is not None) == takes(lambda: np.concatenate([x, z]))
    assert (multiply(a, b) is not None) == takes(lambda: x @ z)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("batch*seq", 21),
        ("past + 5", 9),
        ("floor(seq/4 - 1/4) + 1", 2),
        ("Max(batch, seq - 5)", 3),
        ("seq/2", None),
        ("Mod(seq, 4)", 3),
        ("-batch + seq", 4),
        ("unheard_of", None),
        ("batch[0]", None),
        ("__import__('os')", None),
        ("((", None),
    ],
)
def test_an_expression_is_computed_or_unknown(expression: str, value: int | None) -> None:
    assert evaluated(expression, {"batch": 3, "seq": 7, "past": 4}) == value
