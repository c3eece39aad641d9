"""A size that several nodes compute is read from the first; sizes that only look equal are not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnx_subgraph import Options, fuse, load_patterns
from tests.simplification.test_simplify import parsed, run, simplified

LENGTHS = """e = Exp(x) s = Shape(x) n = Gather(s, one) a = Range(zero, n, step)
  t = Shape(e) m = Gather(t, one) b = Range(zero, m, step) u = Add(a, b) y = Identity(u)"""
NUMBERS = "int64 one = {1}, int64 zero = {0}, int64 step = {1}"


def operators(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


def test_a_size_is_read_from_the_first_value_that_holds_it() -> None:
    model = parsed(LENGTHS, "float[N, S, 6] x", "int64[S] y", NUMBERS)
    found, written = simplified(model)
    assert found.passed and operators(written)["Gather"] == 1 and operators(written)["Shape"] == 1
    x = np.ones((2, 5, 6), np.float32)
    assert np.array_equal(run(written, {"x": x})[0], run(model, {"x": x})[0])


NARROW = """e = Exp(x) s = Shape(x) n = Gather(s, axis) a = Expand(half, n)
  t = Shape(e) c = Cast<to = 6>(t) m = Slice(c, axis, two, nought) k = Concat<axis = 0>(m, six) r = Cast<to = 7>(k)
  d = Expand(half, r) u = Add(a, d) y = Identity(u)"""
NARROW_NUMBERS = "float half = {0.5}, int64[1] axis = {1}, int64[1] two = {2}, int64[1] nought = {0}, int32[1] six = {1}"


def test_a_size_in_int32_is_a_cast_of_the_one_in_int64() -> None:
    """As in TensorFlow's shapes. Nothing else then reads the shape of an inner value, which a pattern could need."""
    model = parsed(NARROW, "float[N, S, 6] x", "float[S, S] y", NARROW_NUMBERS)
    found, written = simplified(model)
    assert found.passed and operators(written)["Shape"] == 1 and operators(written)["Slice"] == 0
    assert len(written.graph.node) < len(model.graph.node) and "Exp" not in operators(written)
    x = np.ones((2, 5, 6), np.float32)
    assert np.array_equal(run(written, {"x": x})[0], run(model, {"x": x})[0])
    again, same = simplified(written)
    assert not again and same == written


def test_a_size_in_int64_is_no_cast_of_the_one_in_int32() -> None:
    """Elements over the range of int32 would be lost."""
    body = """c = Cast<to = 6>(s) m = Slice(c, axis, two, nought) k = Concat<axis = 0>(m, six) r = Cast<to = 7>(k)
      d = Expand(half, r) e = Exp(x) t = Shape(e) n = Slice(t, axis, two, nought) a = Expand(half, n) u = Add(a, d)"""
    model = parsed(f"s = Shape(x) {body} y = Identity(u)", "float[N, S, 6] x", "float[S, S] y", NARROW_NUMBERS)
    _, written = simplified(model)
    assert operators(written)["Slice"] == 2 and operators(written)["Shape"] == 1


@pytest.mark.parametrize(
    ("body", "inputs"),
    [
        (LENGTHS.replace("Shape(e)", "Shape(z)"), "float[N, S, 6] x, float[N, T, 6] z"),
        (LENGTHS.replace("m = Gather(t, one)", "m = Gather(t, zero)"), "float[N, S, 6] x"),
        (LENGTHS.replace("Shape(e)", "Shape(c)").replace("e = Exp(x)", "c = NonZero(x)"), "float[N, S, 6] x"),
    ],
    ids=["another name", "another axis", "a size that only a run knows"],
)
def test_sizes_that_may_differ_stay(body: str, inputs: str) -> None:
    body = body.replace("u = Add(a, b) y = Identity(u)", "y = Concat <axis = 0> (a, b)")
    _, written = simplified(parsed(body, inputs, "int64[K] y", NUMBERS))
    assert operators(written)["Gather"] == 2 and operators(written)["Range"] == 2


def test_an_output_keeps_its_own_value() -> None:
    body = """e = Exp(x) s = Shape(x) n = Gather(s, one) t = Shape(e) y = Gather(t, one)
      z = Range(zero, y, step) u = Range(zero, n, step)"""
    model = parsed(body, "float[N, S, 6] x", "int64 y, int64[S] z, int64[S] u", NUMBERS)
    _, written = simplified(model)
    x = np.ones((2, 5, 6), np.float32)
    assert [int(run(written, {"x": x})[0]), len(run(written, {"x": x})[1])] == [5, 5]


def test_a_size_in_the_body_of_a_loop_may_change() -> None:
    """The value that grows is declared with the name of its first size."""
    body = """most = Constant <value = int64 {2}> () true = Constant <value = bool {1}> ()
      w, y = Loop (most, true, x) <body = b (int64 i, bool go, float[S, 6] v) => (bool on, float[S, 6] grown, int64[K] count) {
        on = Identity (go) grown = Concat <axis = 0> (v, v)
        s = Shape(v) n = Gather(s, nought) t = Shape(x) m = Gather(t, nought)
        p = Unsqueeze(n, first) q = Unsqueeze(m, first) count = Concat <axis = 0> (p, q) }>"""
    model = parsed(body, "float[S, 6] x", "int64[A, B] y", "int64 nought = {0}, int64[1] first = {0}")
    _, written = simplified(model)
    assert run(written, {"x": np.ones((3, 6), np.float32)})[0].tolist() == [[3, 3], [6, 3]]


@pytest.mark.parametrize(
    "body",
    [
        (
            "y = If (go) <then_branch = t () => (int64[K] p) {{ {0} p = Concat <axis = 0> (a, b) }},"
            " else_branch = e () => (int64[K] q) {{ q = Identity(first) }}>"
        ),
        (
            "y = Loop (most, go) <body = b (int64 i, bool on) => (bool still, int64[K] p) {{ still = Identity(on) {0}"
            " p = Concat <axis = 0> (a, b) }}>"
        ),
    ],
    ids=["If", "Loop"],
)
def test_a_size_of_the_input_is_read_once_in_a_body(body: str) -> None:
    """Masks of each layer are one mask there too, and a Loop of steps has what one step has."""
    sizes = "s = Shape(x) n = Gather(s, nought) e = Exp(x) t = Shape(e) m = Gather(t, nought) "
    ranges = "u = Unsqueeze(n, first) v = Unsqueeze(m, first) a = Mul(u, u) b = Mul(v, v)"
    numbers = "int64 nought = {0}, int64[1] first = {0}, int64 most = {2}"
    model = parsed(
        body.format(sizes + ranges), "float[S, 6] x, bool go", "int64[A] y" if "If" in body else "int64[B, A] y", numbers
    )
    _, written = simplified(model)
    inner = [node.op_type for part in written.graph.node for attribute in part.attribute for node in attribute.g.node]
    assert inner.count("Mul") == inner.count("Shape") == 1, inner
    np.testing.assert_array_equal(
        *(run(one, {"x": np.ones((3, 6), np.float32), "go": np.array(True)})[0] for one in (model, written))
    )


def test_masks_that_each_layer_computes_again_are_computed_once(tmp_path: Path) -> None:
    """As in T5 and GPT-2 from the TorchScript exporter, which takes the length of each layer from its own queries."""
    layers = "".join(
        f"""q{n} = MatMul(x{n}, w) s{n} = Shape(q{n}) l{n} = Gather(s{n}, axis) p{n} = Range(zero, l{n}, one)
        r{n} = Unsqueeze(p{n}, last) c{n} = Unsqueeze(p{n}, first) k{n} = LessOrEqual(r{n}, c{n})
        t{n} = Transpose <perm = [0, 1, 3, 2]> (q{n}) d{n} = MatMul(q{n}, t{n}) m{n} = Where(k{n}, d{n}, low)
        a{n} = Softmax <axis = -1> (m{n}) x{n + 1} = MatMul(a{n}, x{n}) """
        for n in range(3)
    )
    weights = (
        "int64 axis = {2}, int64 one = {1}, int64 zero = {0}, int64[1] last = {1}, int64[1] first = {0}, float low = {-1e30}"
    )
    inputs = "float[b, 2, s, 8] x, float[8, 8] w"
    text = parsed(f"x0 = Identity(x) {layers} y = Identity(x3)", inputs, "float[b, 2, s, 8] y", weights)
    onnx.save(text, tmp_path / "m.onnx")
    result = fuse(tmp_path / "m.onnx", None, load_patterns(), Options(dry_run=True))
    assert result.verdict.verdict == "equivalent"
    assert result.operators_after["LessOrEqual"] == 1 and result.operators_after["Range"] == 1, result.operators_after
