"""Sequences whose tensors are known become tensors; others stay. What is computed is the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from onnx_subgraph import Options, fuse, load_patterns
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.simplification.simplify import simplify
from tests.simplification.test_simplify import operators, parsed, run, simplified

X = "float[N, 6] x"
WEIGHTS = """int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64 last = {-1}, int64[3] sizes = {1, 3, 2},
  int64[1] all = {6}, int64[2] wrong = {7, -1}, int64 four = {4}"""
SPLIT = "s = SplitToSequence<axis = 1>(x, two) "
BODY = "body = each (float[N, M] a, float[N, M] b, float[N, K] c) => (float[N, L] d, float[N, M] e)"
KNOWN = {
    "parts of one size": SPLIT + "p = SequenceAt(s, zero) q = SequenceAt(s, last) y = Sub(p, q)",
    "parts of sizes": "s = SplitToSequence<axis = -1>(x, sizes) p = SequenceAt(s, one) q = SequenceAt(s, zero) y = Sub(p, q)",
    "a shorter last part": "s = SplitToSequence<axis = 1>(x, four) y = SequenceAt(s, last)",
    "parts that keep their axis": "s = SplitToSequence<axis = 1, keepdims = 0>(x, sizes) y = SequenceAt(s, one)",
    "one part": "s = SplitToSequence<axis = 1>(x, all) p = SequenceAt(s, zero) y = Neg(p)",
    "elements": "s = SplitToSequence<axis = 1, keepdims = 0>(x) p = SequenceAt(s, last) q = SequenceAt(s, one) y = Sub(p, q)",
    "elements with their axis": "s = SplitToSequence<axis = 1>(x) p = SequenceAt(s, last) q = SequenceAt(s, two) y = Sub(p, q)",
    "rows": "s = SplitToSequence<keepdims = 0>(x) p = SequenceAt(s, last) q = SequenceAt(s, one) y = Sub(p, q)",
    "rows with their axis": "s = SplitToSequence(x) p = SequenceAt(s, last) q = SequenceAt(s, one) y = Sub(p, q)",
    "pairs of rows": "s = SplitToSequence(x, two) p = SequenceAt(s, one) y = Neg(p)",
    "a list": "n = Neg(x) s = SequenceConstruct(x, n, x) p = SequenceAt(s, one) q = SequenceAt(s, last) y = Mul(p, q)",
    "all parts": SPLIT + "y = ConcatFromSequence<axis = 1>(s)",
    "parts along a new axis": SPLIT + "y = ConcatFromSequence<axis = -1, new_axis = 1>(s)",
    "parts along a new first axis": "n = Neg(x) s = SequenceConstruct(x, n) y = ConcatFromSequence<axis = 0, new_axis = 1>(s)",
    "how many there are": SPLIT + "n = SequenceLength(s) f = Cast<to = 1>(n) y = Mul(x, f)",
    "a list that grows": """s = SequenceEmpty() n = Neg(x) a = SequenceInsert(s, x) b = SequenceInsert(a, n, zero)
      c = SequenceInsert(b, x, last) d = SequenceInsert(c, n) e = Identity(d) y = ConcatFromSequence<axis = 1>(e)""",
    "a list that shrinks": """n = Neg(x) s = SequenceConstruct(x, n, x) t = SequenceErase(s) e = SequenceErase(t, zero)
      y = SequenceAt(e, zero)""",
    "a body for each": SPLIT
    + f"""m, k = SequenceMap<{BODY} {{ d = Concat<axis = 1>(a, c) e = Sub(b, a) }}>(s, s, x)
      p = ConcatFromSequence<axis = 1>(m) q = SequenceAt(k, one) y = Concat<axis = 1>(p, q)""",
    "a body with a constant of its own": SPLIT
    + """m = SequenceMap<body = each (float[N, M] a) => (float[N, M] d) <float k = {3}> { d = Mul(a, k) }>(s)
      y = ConcatFromSequence<axis = 1>(m)""",
    "a body that gives its operand": SPLIT
    + """m = SequenceMap<body = each (float[N, M] a) => (float[N, M] d) { d = Identity(a) }>(s)
      y = ConcatFromSequence<axis = 1>(m)""",
    "a body that is its operand": SPLIT
    + """m = SequenceMap<body = each (float[N, M] a) => (float[N, M] a) { }>(s)
      y = ConcatFromSequence<axis = 1>(m)""",
    "in a branch": """r = ReduceMax<keepdims = 0>(x) c = Cast<to = 9>(r) y = If(c) <then_branch = t () => (float[N, 2] u)
      { s = SplitToSequence<axis = 1>(x, two) u = SequenceAt(s, one) }, else_branch = e () => (float[N, 2] v)
      { s = SplitToSequence<axis = 1>(x, two) v = SequenceAt(s, two) }>""",
}
UNKNOWN = {
    "a position that is computed": SPLIT
    + "r = ReduceSum<keepdims = 0>(x) i = Sign(r) j = Cast<to = 7>(i) k = Abs(j) y = SequenceAt(s, k)",
    "the last of pairs of rows": "s = SplitToSequence(x, two) y = SequenceAt(s, last)",
    "all of any number of rows": "s = SplitToSequence(x) y = ConcatFromSequence<axis = 1>(s)",
    "the number of rows": "s = SplitToSequence(x) n = SequenceLength(s) f = Cast<to = 1>(n) y = Mul(x, f)",
    "a size that is computed": """n = Shape<start = 0, end = 1>(x) t = Squeeze(n) s = SplitToSequence<axis = 1>(x, t)
      y = SequenceAt(s, zero)""",
    "a body for each of any number": """s = SplitToSequence(x)
      m = SequenceMap<body = each (float[A, B] a) => (float[A, B] d) { d = Neg(a) }>(s) y = ConcatFromSequence<axis = 0>(m)""",
    "one more than there are": SPLIT + "p = SequenceInsert(s, x, four) y = SequenceAt(p, zero)",
    "an insertion at a place that is computed": """r = ReduceSum<keepdims = 0>(x) i = Sign(r) j = Cast<to = 7>(i)
      s = SequenceConstruct(x, x) t = SequenceInsert(s, x, j) y = SequenceAt(t, zero)""",
    "parts that onnxruntime takes the axis from": "s = SplitToSequence<axis = 1, keepdims = 0>(x, one) y = SequenceAt(s, zero)",
    "one that was removed": SPLIT + "t = SequenceErase(s) y = SequenceAt(t, two)",
    "one fewer than none": "s = SequenceConstruct(x) t = SequenceErase(s) e = SequenceErase(t) y = SequenceAt(e, zero)",
    "parts of no size": "s = SplitToSequence<axis = 1>(x, zero) y = SequenceAt(s, zero)",
    "parts of a size below 0": "s = SplitToSequence<axis = 1>(x, wrong) y = SequenceAt(s, zero)",
    "a body for two lists of other lengths": SPLIT
    + f"""t = SequenceConstruct(x) m, k = SequenceMap<{BODY} {{ d = Neg(a) e = Neg(b) }}>(s, t, x)
      y = ConcatFromSequence<axis = 1>(m)""",
    "a body of more operands": SPLIT
    + f"m, k = SequenceMap<{BODY} {{ d = Neg(a) e = Neg(b) }}>(s, x) y = ConcatFromSequence<axis = 1>(m)",
    "a body with a branch": SPLIT
    + """m = SequenceMap<body = each (float[N, M] a) => (float[N, M] d) { r = ReduceMax<keepdims = 0>(a) c = Cast<to = 9>(r)
      d = If(c) <then_branch = t () => (float[N, M] u) { u = Neg(a) }, else_branch = e () => (float[N, M] v) { v = Abs(a) }> }>(s)
      y = ConcatFromSequence<axis = 1>(m)""",
    "a body for very many": f"""s = SequenceConstruct({", ".join(65 * ["x"])})
      m = SequenceMap<body = each (float[N, M] a) => (float[N, M] d) {{ d = Neg(a) }}>(s) y = ConcatFromSequence<axis = 1>(m)""",
    "none": "s = SequenceEmpty() y = SequenceAt(s, zero)",
}


RANKS = {"elements": 1, "rows": 1, "parts along a new axis": 3, "parts along a new first axis": 3}
"""How many axes the output has, if not two."""


def of(what: str) -> onnx.ModelProto:
    axes = ", ".join("ABC"[: RANKS.get(what, 2)])
    return parsed((KNOWN | UNKNOWN)[what], X, f"float[{axes}] y", WEIGHTS)


def is_of_sequences(operator: str) -> bool:
    return "Sequence" in operator


def feeds(rows: int = 2) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(0).standard_normal((rows, 6)).astype(np.float32)}


@pytest.mark.parametrize("what", KNOWN)
def test_known_tensors_of_sequences_are_read_directly(what: str) -> None:
    model = of(what)
    found, written = simplified(model)
    assert found.simpler and "Sequence" not in str(written.graph.node)
    for rows in (2, 3, 4) if what != "pairs of rows" else (3, 4):
        assert np.array_equal(run(written, feeds(rows))[0], run(model, feeds(rows))[0])


@pytest.mark.parametrize("what", UNKNOWN)
def test_other_sequences_stay(what: str) -> None:
    model = of(what)
    _, written = simplified(model)
    assert {k: n for k, n in operators(written).items() if is_of_sequences(k)} == {
        k: n for k, n in operators(model).items() if is_of_sequences(k)
    }


@pytest.mark.parametrize(
    "body",
    [
        "s = own.SplitToSequence<axis = 1>(x, two) y = SequenceAt(s, zero)",
        "s = own.SplitToSequence<axis = 1>(x, two) y = ConcatFromSequence<axis = 1>(s)",
        "s = own.SequenceConstruct(x) y = SequenceAt(s, zero)",
        "s = SequenceConstruct(x) t = own.SequenceInsert(s, x) y = SequenceAt(t, zero)",
        "s = SequenceConstruct(x) y = own.SequenceAt(s, zero)",
    ],
)
def test_operators_of_another_domain_mean_something_else(body: str) -> None:
    model = parsed(body, X, "float[A, B] y", WEIGHTS)
    model.opset_import.add(domain="own", version=1)
    assert operators(simplified(model)[1]) == operators(model)


def test_a_long_list_takes_no_long_time() -> None:
    """Each of these tensors is looked for in the list."""
    inserts = " ".join(f"s{i + 1} = SequenceInsert(s{i}, x)" for i in range(200))
    taken = " ".join(f"p{i} = SequenceAt(s200, zero)" for i in range(200))
    sums = f"y = Sum({', '.join(f'p{i}' for i in range(200))})"
    model = parsed(f"s0 = SequenceConstruct(x) {inserts} {taken} {sums}", X, "float[A, B] y", WEIGHTS)
    assert operators(simplified(model)[1]) == {"Sum": 1}


PLACES = st.sampled_from(["zero", "one", "two", "last", "before"])
BEGIN = st.sampled_from(
    [
        "SplitToSequence<axis = 1>(x, two)",
        "SplitToSequence<axis = 1>(x, four)",
        "SplitToSequence<axis = -1>(x, sizes)",
        "SplitToSequence(x, two)",
        "SplitToSequence(x)",
        "SplitToSequence<keepdims = 0>(x)",
        "SplitToSequence<axis = 1, keepdims = 0>(x)",
        "SequenceConstruct(x, n)",
        "SequenceEmpty()",
    ]
)
CHANGES = st.one_of(
    st.builds("SequenceInsert({{}}, {}, {})".format, st.sampled_from("xn"), PLACES),
    st.builds("SequenceInsert({{}}, {})".format, st.sampled_from("xn")),
    st.builds("SequenceErase({{}}, {})".format, PLACES),
    st.sampled_from(
        ["SequenceErase({})", "Identity({})", "SequenceMap<body = each (float[] a) => (float[] d) {{ d = Abs(a) }}>({})"]
    ),
)
END = st.one_of(
    st.builds("SequenceAt({{}}, {})".format, PLACES),
    st.sampled_from(["SequenceLength({})", "ConcatFromSequence<axis = 0>({})", "ConcatFromSequence<axis = 0, new_axis = 1>({})"]),
)


def result(model: onnx.ModelProto, rows: int) -> np.ndarray | None:
    """The output of a model; None where a tensor is asked for that is not there."""
    try:
        return run(model, feeds(rows))[0]
    except Exception:  # onnxruntime's errors have no other common base
        return None


@given(BEGIN, st.lists(CHANGES, max_size=4), END, st.integers(1, 4))
def test_what_is_read_of_a_sequence_stays_the_same(begin: str, changes: list[str], end: str, rows: int) -> None:
    lines = [f"s0 = {begin}", *(f"s{i + 1} = {change.format(f's{i}')}" for i, change in enumerate(changes))]
    body = " ".join(["n = Neg(x)", *lines, f"y = {end.format(f's{len(changes)}')}"])
    kind = "int64" if "Length" in end else "float"
    model = parsed(body, X, f"{kind}[] y", f"{WEIGHTS}, int64 before = {{-2}}")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    expected = result(model, rows)
    assume(expected is not None)
    found = ir.from_proto(model)
    infer_shapes(found)
    simplify(found)
    assert np.array_equal(result(ir.to_proto(found), rows), expected)


def test_copies_of_a_body_share_its_weights() -> None:
    body = (
        SPLIT
        + """m = SequenceMap<body = each (float[N, M] a) => (float[N, L] d) { d = MatMul(a, w) }>(s)
      y = ConcatFromSequence<axis = 1>(m)"""
    )
    model = parsed(body, X, "float[A, B] y", WEIGHTS)
    each = next(node for node in model.graph.node if node.op_type == "SequenceMap").attribute[0].g
    each.initializer.append(onnx.numpy_helper.from_array(np.ones((2, 500), np.float32), "w"))
    _, written = simplified(model)
    assert operators(written)["MatMul"] == 3
    assert [tensor.dims[:] for tensor in written.graph.initializer if len(tensor.dims) == 2] == [[2, 500]]
    assert np.array_equal(run(written, feeds())[0], run(model, feeds())[0])


@pytest.mark.parametrize("unknown", [0, 1])
def test_a_body_for_what_may_be_no_sequence_stays(unknown: int) -> None:
    """The type of what an unknown operator gives is not known."""
    lists = ["s", "s"]
    lists[unknown] = "t"
    body = f"""{SPLIT} t = own.Same(s)
      m, k = SequenceMap<{BODY} {{ d = Concat<axis = 1>(a, c) e = Sub(b, a) }}>({", ".join(lists)}, x)
      y = ConcatFromSequence<axis = 1>(m)"""
    model = parsed(body, X, "float[A, B] y", WEIGHTS)
    model.opset_import.add(domain="own", version=1)
    assert operators(simplified(model)[1])["SequenceMap"] == 1


ATTENTION = """<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, length, 64] x) => (float[batch, length, 64] y)
<float[64, 192] w, int64 size = {64}, int64 i = {0}, int64 j = {1}, int64 k = {2}, int64[4] heads = {0, 0, 4, 16},
 int64[3] whole = {0, 0, 64}, float f = {0.25}>
{ p = MatMul(x, w) s = SplitToSequence<axis = -1>(p, size) q = SequenceAt(s, i) r = SequenceAt(s, j) v = SequenceAt(s, k)
  q1 = Reshape(q, heads) r1 = Reshape(r, heads) v1 = Reshape(v, heads)
  q2 = Transpose<perm = [0, 2, 1, 3]>(q1) r2 = Transpose<perm = [0, 2, 3, 1]>(r1) v2 = Transpose<perm = [0, 2, 1, 3]>(v1)
  a = MatMul(q2, r2) b = Mul(a, f) c = Softmax<axis = -1>(b) d = MatMul(c, v2)
  e = Transpose<perm = [0, 2, 1, 3]>(d) y = Reshape(e, whole) }
"""


def test_attention_of_a_split_projection_is_found(tmp_path: Path) -> None:
    """As TorchScript exports `chunk` where it does not know the size."""
    model = onnx.parser.parse_model(ATTENTION)
    weights = np.random.default_rng(0).standard_normal((64, 192)).astype(np.float32) / 8
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save(model, path := tmp_path / "m.onnx")
    result = fuse(path, tmp_path / "o.onnx", load_patterns(), Options())
    assert result.verdict.verdict == "equivalent"
    left = operators(onnx.load(tmp_path / "o.onnx"))
    assert sum(n for name, n in left.items() if "Attention" in name) == 1 and not any(map(is_of_sequences, left))
