"""Partial evaluation gives the same model with fewer nodes: what it computes is exact, and unknown values stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from onnx_subgraph.model.shapes import declared_only, infer_shapes
from onnx_subgraph.simplification.simplify import NOTHING, Simplified, simplify

X = "float[N, 4, 6] x"


def parsed(body: str, inputs: str = X, outputs: str = "float[A, B, C] y", weights: str = "") -> onnx.ModelProto:
    stored = f"<{weights}>" if weights else ""
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => ({outputs}) {stored} {{ {body} }}')


def simplified(proto: onnx.ModelProto, change: Callable[[ir.Model], Simplified] = simplify) -> tuple[Simplified, onnx.ModelProto]:
    model = ir.from_proto(proto)
    infer_shapes(model)
    found = change(model)
    with declared_only(model):
        written = ir.to_proto(model)
    onnx.checker.check_model(written)
    return found, written


def run(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def operators(proto: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in proto.graph.node if node.op_type != "Constant")


SHAPES = """s = Shape(x)
zero = Constant<value = int64[1] {0}>()
one = Constant<value = int64[1] {1}>()
two = Constant<value = int64[1] {2}>()
"""
AXIS = "zero = Constant<value = int64[1] {0}>() two = Constant<value = int64[1] {2}>()\n"
CASES = {
    "the size of a known axis": (SHAPES + "c = Gather(s, one) f = Cast<to = 1>(c) y = Mul(x, f)", {"Mul": 1}),
    "a Reshape to what one unknown dimension leaves": (
        SHAPES + "n = Gather(s, zero) c = Gather(s, one) d = Gather(s, two) t = Concat<axis = 0>(n, d, c) y = Reshape(x, t)",
        {"Reshape": 1},
    ),
    "a Reshape to the shape that is there": (SHAPES + "r = Reshape(x, s) y = Relu(r)", {"Relu": 1}),
    "a Cast to the type that is there": ("c = Cast<to = 1>(x) y = Relu(c)", {"Relu": 1}),
    "an Identity in front of an output": ("r = Relu(x) y = Identity(r)", {"Relu": 1}),
    "a Pad by nothing": ("p = Constant<value = int64[6] {0, 0, 0, 0, 0, 0}>() q = Pad(x, p) y = Relu(q)", {"Relu": 1}),
    "axes of a mean that come back": (
        "a = Constant<value = int64[1] {2}>() r = ReduceMean<axes = [2], keepdims = 0>(x) t = Unsqueeze(r, a) y = Sub(x, t)",
        {"ReduceMean": 1, "Sub": 1},
    ),
    "axes of a mean that come back by its own sizes": (
        """one = Constant<value = int64[1] {1}>() r = ReduceMean<axes = [2], keepdims = 0>(x) q = Shape(r)
        t = Concat<axis = 0>(q, one) b = Reshape<allowzero = 0>(r, t) y = Sub(x, b)""",
        {"ReduceMean": 1, "Sub": 1},
    ),
    "axes of a sum that a Reshape gives back": (
        SHAPES + "a = Constant<value = int64[2] {-1, 1}>() r = ReduceSum<keepdims = 0>(x, a) "
        "n = Gather(s, zero) t = Concat<axis = 0>(n, one, one) b = Reshape(r, t) y = Sub(x, b)",
        {"ReduceSum": 1, "Sub": 1},
    ),
    "axes of a mean and a variance that come back, as in Flax's LayerNorm": (
        """a = Constant<value = int64[1] {2}>() six = Constant<value = float {6}>() none = Constant<value = float {0}>()
        t = ReduceSum<keepdims = 0>(x, a) m = Div(t, six) p = Mul(x, x) q = ReduceSum<keepdims = 0>(p, a) n = Div(q, six)
        s = Mul(m, m) d = Sub(n, s) v = Max(none, d) k = Unsqueeze(m, a) c = Sub(x, k) w = Unsqueeze(v, a) y = Div(c, w)""",
        {"ReduceSum": 2, "Div": 3, "Mul": 2, "Sub": 2, "Max": 1},
    ),
    "axes of a maximum that come back, with what JAX's maximum starts from": (
        """low = Constant<value_float = -inf>() r = ReduceMax<axes = [2], keepdims = 0>(x) m = Max(low, r)
        a = Constant<value = int64[1] {2}>() t = Unsqueeze(m, a) y = Sub(x, t)""",
        {"ReduceMax": 1, "Sub": 1},
    ),
    "a minimum with infinity": ("high = Constant<value_float = inf>() m = Min(x, high) y = Relu(m)", {"Relu": 1}),
    "a Where whose condition is constant": (
        "yes = Constant<value = bool[1] {1}>() low = Constant<value = float {-9}>() w = Where(yes, x, low) y = Relu(w)",
        {"Relu": 1},
    ),
    "a Where whose condition is a constant false": (
        "no = Constant<value = bool {0}>() low = Constant<value = float {-9}>() w = Where(no, low, x) y = Relu(w)",
        {"Relu": 1},
    ),
    "rows that are put into a constant": (
        """z = Constant<value = float[6] {1, 2, 3, 4, 5, 6}>() i = Constant<value = int64[2, 1] {1, 3}>()
        u = Constant<value = float[2] {0, 0}>() b = ScatterND(z, i, u) y = Add(x, b)""",
        {"Add": 1},
    ),
    "an If of the rank": (
        """s = Shape(x) r = Size(s) three = Constant<value = int64 {3}>() is = Equal(r, three)
        y = If(is) <then_branch = a () => (float[A, B, C] t) { t = Relu(x) },
                    else_branch = b () => (float[A, B, C] t) { u = Neg(x) t = Abs(u) }>""",
        {"Relu": 1},
    ),
    "an If in an If": (
        """s = Shape(x) r = Size(s) three = Constant<value = int64 {3}>() is = Equal(r, three) not = Not(is)
        y = If(is) <then_branch = a () => (float[A, B, C] t) {
                        t = If(not) <then_branch = c () => (float[A, B, C] v) { v = Neg(x) },
                                     else_branch = d () => (float[A, B, C] v) { v = Abs(x) }> },
                    else_branch = b () => (float[A, B, C] t) { u = Neg(x) t = Abs(u) }>""",
        {"Abs": 1},
    ),
}


@pytest.mark.parametrize(("body", "left"), CASES.values(), ids=CASES)
def test_known_values_are_folded_and_the_model_computes_the_same(body: str, left: dict[str, int]) -> None:
    proto = parsed(body)
    found, written = simplified(proto)
    assert operators(written) == left and found
    assert [value.name for value in written.graph.output] == ["y"]
    for rows in (1, 3):
        feeds = {"x": np.random.default_rng(rows).standard_normal((rows, 4, 6)).astype(np.float32)}
        (before,), (after,) = run(proto, feeds), run(written, feeds)
        assert np.array_equal(before, after)


@pytest.mark.parametrize(
    "body",
    [
        SHAPES + "n = Gather(s, zero) f = Cast<to = 1>(n) y = Mul(x, f)",
        SHAPES + "n = Gather(s, zero) t = Concat<axis = 0>(two, n, n) y = Reshape(x, t)",
        AXIS + "r = ReduceMax<axes = [2], keepdims = 0>(x) t = Unsqueeze(r, zero) y = Relu(t)",
        AXIS + "r = ReduceMax<axes = [2], keepdims = 0>(x) t = Unsqueeze(r, two) u = Softmax(r) y = Mul(t, u)",
        AXIS + "r = ReduceMax<axes = [2], keepdims = 0>(x) e = Exp(r) t = Unsqueeze(r, two) u = Unsqueeze(e, zero) y = Mul(t, u)",
        AXIS
        + """r = ReduceMax<axes = [2], keepdims = 0>(x) q = ReduceMax<axes = [1], keepdims = 0>(x) z = ReduceMax<axes = [1]>(x)
        c = Concat<axis = 1>(q, r) m = Mul(c, c) t = Unsqueeze(r, two) u = Unsqueeze(m, two) y = Mul(t, z)""",
        """a = Constant<value = int64[1] {2}>() k = Constant<value = float[1, 1, 1] {2}>()
        r = ReduceMax<axes = [2], keepdims = 0>(x) e = Mul(r, k) f = Mul(r, r) t = Unsqueeze(f, a) y = Mul(t, e)""",
        "c = Cast<to = 10>(x) d = Cast<to = 1>(c) y = Relu(d)",
        "c = Constant<value = bool[2,1,1,1] {1, 1}>() low = Constant<value = float {-9}>() w = Where(c, x, low) y = ReduceSum(w)",
        "c = Constant<value = bool[6] {1, 1, 0, 1, 1, 1}>() low = Constant<value = float {-9}>() y = Where(c, x, low)",
        "a = Constant<value = float {0.1}>() b = Constant<value = float {0.2}>() c = Exp(a) d = Mul(b, c) y = Mul(x, d)",
        "high = Constant<value_float = inf>() y = Max(x, high)",
        """z = Constant<value = float[6] {1, 2, 3, 4, 5, 6}>() i = Constant<value = int64[2, 1] {1, 3}>()
        u = Constant<value = float[2] {0.1, 0.2}>() b = ScatterND<reduction = "add">(z, i, u) y = Add(x, b)""",
    ],
    ids=[
        "a free size",
        "two free sizes in other places",
        "another axis",
        "a reduction with another reader",
        "axes that come back in two places",
        "a reduction that is joined to another",
        "a number that adds an axis",
        "a Cast that rounds",
        "a constant condition that broadcasts",
        "a condition that is true for some elements",
        "arithmetic on floats",
        "a maximum with infinity",
        "floats that are added to a constant",
    ],
)
def test_unknown_or_differently_rounded_values_stay(body: str) -> None:
    proto = parsed(body)
    found, written = simplified(proto)
    assert found == NOTHING and operators(written) == operators(proto)


def test_an_initializer_that_is_an_input_is_not_constant() -> None:
    body = """y = If(c) <then_branch = a () => (float[A, B, C] t) { t = Relu(x) },
                         else_branch = b () => (float[A, B, C] t) { t = Neg(x) }>"""
    overridable = parsed(body, f"{X}, bool c", weights="bool c = {1}")
    assert simplified(overridable)[0] == NOTHING
    assert simplified(parsed(body, weights="bool c = {1}"))[0].branches == 1


def test_large_results_are_not_stored() -> None:
    """A node that expands a few numbers does not make the file larger."""
    body = "n = Constant<value = int64[1] {4096}>() z = ConstantOfShape(n) y = Concat<axis = 0>(x, z)"
    proto = parsed(body, "float[4096] x", "float[A] y")
    assert simplified(proto)[0] == NOTHING


def test_quantized_weights_stay_quantized() -> None:
    proto = parsed(
        "d = DequantizeLinear(w, s, z) y = MatMul(x, d)",
        "float[N, 2] x",
        "float[N, 2] y",
        "uint8[2, 2] w = {1, 2, 3, 4}, float s = {0.5}, uint8 z = {1}",
    )
    assert simplified(proto)[0] == NOTHING


def test_branches_with_equal_names_keep_their_values_apart() -> None:
    proto = parsed(
        """s = Shape(x) r = Size(s) three = Constant<value = int64 {3}>() is = Equal(r, three)
        p = If(is) <then_branch = a () => (float[A, B, C] t) { t = Relu(x) },
                    else_branch = b () => (float[A, B, C] t) { t = Neg(x) }>
        y = If(c) <then_branch = d () => (float[A, B, C] t) { t = Abs(p) },
                   else_branch = e () => (float[A, B, C] t) { t = Neg(p) }>""",
        f"{X}, bool c",
    )
    found, written = simplified(proto)
    assert found.branches == 1 and operators(written) == {"Relu": 1, "If": 1}
    feeds = {"x": np.linspace(-1, 1, 48, dtype=np.float32).reshape(2, 4, 6)}
    for choice in (True, False):
        given = feeds | {"c": np.array(choice)}
        assert np.array_equal(run(proto, given)[0], run(written, given)[0])


def test_two_ifs_with_equal_names_inside_keep_their_values_apart() -> None:
    chosen = """If(c) <then_branch = a () => (float[A, B, C] t) { k = OPERATOR(x) t = Mul(k, s) },
                          else_branch = b () => (float[A, B, C] t) { k = Neg(s) t = Mul(k, s) }>"""
    ifs = f"p = {chosen.replace('OPERATOR', 'Exp')} q = {chosen.replace('OPERATOR', 'Sin')}"
    proto = parsed(f"s = Sigmoid(x) {ifs} y = Add(p, q)", weights="bool c = {1}")
    found, written = simplified(proto)
    assert found.branches == 2
    onnx.checker.check_model(written)
    feeds = {"x": np.linspace(-1, 1, 48, dtype=np.float32).reshape(2, 4, 6)}
    assert np.array_equal(run(proto, feeds)[0], run(written, feeds)[0])


@given(st.permutations(range(3)), st.sets(st.integers(0, 2)), st.integers(0, 3), st.booleans())
def test_a_reshape_of_gathered_sizes_gives_the_same_for_every_batch(
    order: list[int], known: set[int], rows: int, zero: bool
) -> None:
    """Whichever dimensions are symbolic, and also if one of them is zero."""
    assume(zero or rows or order == [0, 1, 2])  # in other places a zero would copy another dimension
    sizes = {0: rows, 1: 4, 2: 6}
    declared = ", ".join(str(sizes[axis]) if axis in known else f"D{axis}" for axis in range(3))
    picks = " ".join(f"i{axis} = Constant<value = int64[1] {{{axis}}}>() g{axis} = Gather(s, i{axis})" for axis in range(3))
    joined = ", ".join(f"g{axis}" for axis in order)
    reshape = "Reshape<allowzero = 1>" if zero else "Reshape"
    proto = parsed(f"s = Shape(x) {picks} t = Concat<axis = 0>({joined}) y = {reshape}(x, t)", f"float[{declared}] x")
    _, written = simplified(proto)
    feeds = {"x": np.arange(rows * 24, dtype=np.float32).reshape(rows, 4, 6)}
    assert np.array_equal(run(proto, feeds)[0], run(written, feeds)[0])


def test_only_declared_input_shapes_are_trusted() -> None:
    """The file declares one row for an inner value, as it was when traced. onnxruntime treats that as a hint."""
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (bool[N] kept, float[N, 4] x) => (float[1, 4] y) <float[1, 4] some> {
            some = Compress<axis = 0>(x, kept) s = Shape(some) all = Constant<value = int64[1] {-1}>()
            flat = Reshape(some, all) y = Reshape(flat, s)
        }"""
    )
    _, written = simplified(proto)
    feeds = {"kept": np.array([True, False, True]), "x": np.arange(12, dtype=np.float32).reshape(3, 4)}
    assert np.array_equal(run(proto, feeds)[0], run(written, feeds)[0])


def test_simplifying_is_idempotent() -> None:
    proto = parsed(CASES["an If in an If"][0])
    _, once = simplified(proto)
    assert simplified(once)[0] == NOTHING


BRANCHES = """f = If (c) <then_branch = t () => (p) { m = MatMul (x, w) p = Add (m, both) },
  else_branch = e () => (q) { n = MatMul (x, v) q = Add (n, both) }> y = Relu (f)"""


STORED = ", ".join(f"float[6, 6] {name} = {{{', '.join(map(str, range(n, n + 36)))}}}" for n, name in enumerate("wv"))


def weights_of(proto: onnx.ModelProto) -> dict[str, list[str]]:
    """The names of the initializers of each graph."""
    found = {proto.graph.name: [one.name for one in proto.graph.initializer]}
    for node in proto.graph.node:
        found |= {a.g.name: [one.name for one in a.g.initializer] for a in node.attribute if a.type == onnx.AttributeProto.GRAPH}
    return found


@pytest.mark.parametrize("output", ["float[4, 12] y", "float[M, 12] y"])
def test_a_result_has_the_declared_sizes_also_if_another_value_takes_its_place(output: str) -> None:
    """The target of the Reshape may be any. Sizes that were known before are known after, so a second run finds no more."""
    model = ir.from_proto(parsed("r = Reshape(x, n) y = Identity(r)", "float[2, 4, 6] x, int64[2] n", output))
    infer_shapes(model)
    before = model.graph.outputs[0].shape
    assert simplify(model).passed == 1
    (node,) = model.graph
    assert node.outputs[0].shape == before and before[1] == 12


def test_a_weight_that_one_body_alone_reads_moves_there() -> None:
    proto = parsed(BRANCHES, f"{X}, bool c", weights=f"{STORED}, float both = {{2}}")
    found, written = simplified(proto)
    assert found == Simplified(captured=2)
    assert weights_of(written) == {"g": ["both"], "t": ["w"], "e": ["v"]}
    x = np.arange(24, dtype=np.float32).reshape(1, 4, 6)
    for branch in (True, False):
        feeds = {"x": x, "c": np.array(branch)}
        np.testing.assert_array_equal(run(written, feeds)[0], run(proto, feeds)[0])


@pytest.mark.parametrize("held", ["input", "output", "outside"])
def test_a_weight_that_others_need_stays(held: str) -> None:
    proto = parsed(
        BRANCHES + (" z = MatMul (x, w)" if held == "outside" else ""), f"{X}, bool c", weights=f"{STORED}, float both = {{2}}"
    )
    declared = onnx.helper.make_tensor_value_info(
        "z" if held == "outside" else "w", onnx.TensorProto.FLOAT, ["N", 4, 6] if held == "outside" else [6, 6]
    )
    (proto.graph.input if held == "input" else proto.graph.output).append(declared)
    found, written = simplified(proto)
    assert found.captured == 1
    assert weights_of(written) == {"g": ["w", "both"], "t": [], "e": ["v"]}


def test_external_data_stays_where_it_is() -> None:
    model = ir.from_proto(parsed(BRANCHES, f"{X}, bool c", weights=f"{STORED}, float both = {{2}}"))
    for name in ("w", "v"):
        model.graph.initializers[name].const_value = ir.ExternalTensor(
            "data", 0, 144, ir.DataType.FLOAT, shape=ir.Shape([6, 6]), name=name
        )
    assert not simplify(model)


def test_a_constant_is_not_stored_as_another_type_that_the_file_declares() -> None:
    body = "a = Constant <value_ints = [2]> () s = Neg (a) y = Mul (x, s)"
    model = ir.from_proto(parsed(body, "int64[1] x", "int64[1] y", "float16[1] s"))
    infer_shapes(model)
    simplify(model)
    assert "Neg" in [node.op_type for node in model.graph]


def mean_with(target: str, axis: int = 1, opset: int = 17) -> onnx.ModelProto:
    """A mean over one axis of images of any size, and a Reshape that puts the axis back."""
    text = f"""one = Constant <value = int64[1] {{1}}> () r = ReduceMean <axes = [{axis}], keepdims = 0> (x) {target}
    b = Reshape (r, t) y = Sub (x, b)"""
    proto = parsed(text, "float[N, 4, H, W] x", "float[A, B, C, D] y, int64[E] z")
    proto.opset_import[0].version = opset
    return proto


BETWEEN = "p = Shape <end = 1> (r) q = Shape <start = -2> (r) t = Concat <axis = 0> (p, one, q) z = Shape <start = 1, end = 3>(r)"
BEHIND = "z = Shape (r) t = Concat <axis = 0> (z, one)"
APART = f"{BETWEEN.partition('z =')[0]} z = Shape (r)"


@pytest.mark.parametrize(("target", "axis"), [(BETWEEN, 1), (BEHIND, 3)])
def test_sizes_behind_a_mean_are_the_same_when_it_keeps_its_axes(target: str, axis: int) -> None:
    proto = mean_with(target, axis)
    written = simplified(proto)[1]
    assert operators(written) == {"ReduceMean": 1, "Sub": 1, "Shape": 1}
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 4, 3, 5), np.float32)}
    for before, after in zip(run(proto, feeds), run(written, feeds), strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize(
    ("target", "axis", "opset"), [(APART, 1, 17), (BEHIND, 3, 14)], ids=["sizes that are apart then", "no start before opset 15"]
)
def test_an_axis_stays_dropped_where_a_shape_needs_it(target: str, axis: int, opset: int) -> None:
    written = simplified(mean_with(target, axis, opset))[1]
    (mean,) = (node for node in written.graph.node if node.op_type == "ReduceMean")
    assert next(attribute.i for attribute in mean.attribute if attribute.name == "keepdims") == 0


def test_the_axes_of_an_output_stay_dropped() -> None:
    body = "r = ReduceMax <axes = [2], keepdims = 0> (x) e = Exp (r) t = Unsqueeze (e, a) y = Sub (x, t)"
    body = f"a = Constant <value = int64[1] {{2}}> () {body}"
    proto = parsed(body, outputs="float[A, B, C] y, float[N, 4] e")
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 4, 6), np.float32)}
    for before, after in zip(run(proto, feeds), run(simplified(proto)[1], feeds), strict=True):
        np.testing.assert_array_equal(before, after)


def test_a_weight_that_identities_share_is_stored_once() -> None:
    model = parsed(
        "a = Identity(w) b = Identity(w) p = Mul(x, a) y = Mul(p, b)", "float[N, 3] x", "float[N, 3] y", "float[3] w = {1, 2, 3}"
    )
    _, written = simplified(model)
    assert [node.op_type for node in written.graph.node] == ["Mul", "Mul"]
    assert [list(node.input) for node in written.graph.node] == [["x", "w"], ["p", "w"]]


def constants_of(proto: onnx.ModelProto) -> tuple[list[str], dict[str, list[float]]]:
    """The results of Constant nodes, and the elements of each initializer."""
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor).reshape(-1).tolist() for tensor in proto.graph.initializer}
    return [node.output[0] for node in proto.graph.node if node.op_type == "Constant"], stored


def test_what_is_computed_is_stored_once_and_what_the_file_has_stays() -> None:
    """Two Reshapes get the same known sizes. The addend is a Constant of the file."""
    body = f"""{SHAPES} seven = Constant<value = float {{7}}>() k = Add(x, seven)
        n = Gather(s, zero) c = Gather(s, one) d = Gather(s, two) t = Concat<axis = 0>(n, d, c) v = Concat<axis = 0>(n, d, c)
        a = Reshape(x, t) b = Reshape(k, v) y = Add(a, b)"""
    _, written = simplified(parsed(body))
    nodes, stored = constants_of(written)
    assert operators(written) == {"Reshape": 2, "Add": 2}
    assert "seven" in nodes and set(nodes) <= {"zero", "one", "two", "seven"}
    assert [len(sizes) for sizes in stored.values()] == [3]


def test_the_shape_of_what_rounds_is_computed() -> None:
    """Its elements are not the same, bit for bit, whoever computes them; the sizes are."""
    proto = parsed("h = Softmax(x) s = Shape(h) f = Cast<to = 1>(s) y = Mul(h, f)", inputs="float[2, 4, 3] x")
    assert operators(simplified(proto)[1]) == {"Softmax": 1, "Mul": 1}


def test_before_ir_version_4_what_is_computed_stays_a_node() -> None:
    """An initializer had to be a graph input then."""
    proto = parsed("s = Shape(x) f = Cast<to = 1>(s) y = Mul(x, f)", inputs="float[2, 4, 3] x")
    assert constants_of(simplified(proto)[1]) == ([], {"f": [2.0, 4.0, 3.0]})
    proto.ir_version, proto.opset_import[0].version = 3, 8
    assert constants_of(simplified(proto)[1]) == (["f"], {})


def test_a_computed_output_stays_a_node_and_keeps_its_name() -> None:
    _, written = simplified(
        parsed(
            "y = Relu(x) s = Shape(x) n = Slice(s, one, two)",
            weights="int64[1] one = {1}, int64[1] two = {2}",
            outputs="float[A, B, C] y, int64[1] n",
        )
    )
    assert constants_of(written)[0] == ["n"] and [value.name for value in written.graph.output] == ["y", "n"]


@pytest.mark.parametrize(("rest", "mask"), [("", "m"), ("q = Not(m)", "q")], ids=["an output", "read"])
def test_an_output_stays_that_its_node_gives_beside_another_result(rest: str, mask: str) -> None:
    proto = parsed(f"r = Relu(x) y, m = Dropout(r) {rest}", outputs=f"float[A, B, C] y, bool[D, E, F] {mask}")
    _, after = simplified(proto)
    assert operators(after)["Dropout"] == 1
    feeds = {"x": np.random.default_rng(0).normal(size=(3, 4, 6)).astype(np.float32)}
    for one, two in zip(run(proto, feeds), run(after, feeds), strict=True):
        np.testing.assert_array_equal(one, two)


def test_what_a_body_computes_is_stored_in_the_body() -> None:
    body = """t = Cast<to = 9>(k)
        y = If(t) <then_branch = a () => (float[A, B, C] u) { u = Relu(x) },
                   else_branch = b () => (float[A, B, C] u) { s = Shape(x) one = Constant<value = int64 {1}>() g = Gather(s, one)
                                                              c = Cast<to = 1>(g) u = Div(x, c) }>"""
    _, written = simplified(parsed(body, inputs=f"{X}, float k"))
    branch = next(a.g for node in written.graph.node for a in node.attribute if a.name == "else_branch")
    assert [onnx.numpy_helper.to_array(tensor).item() for tensor in branch.initializer] == [4.0]
    assert [node.op_type for node in branch.node] == ["Div"]
    feeds = {"x": np.ones((2, 4, 6), np.float32), "k": np.array(0, np.float32)}
    assert np.array_equal(run(written, feeds)[0], feeds["x"] / 4)
