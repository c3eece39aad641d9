"""Inferred shapes are right, are found in difficult graphs, and are never written."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from onnx_shape_inference import ShapeInferenceContext, _symbolic_shapes, registry

from onnx_subgraph import Options, fuse, load_patterns
from onnx_subgraph.model.axis_sizes import _floored
from onnx_subgraph.model.broadcasting import broadcast_dim
from onnx_subgraph.model.gaps import gaps
from onnx_subgraph.model.inference import _guarded
from onnx_subgraph.model.shapes import declared_only, dims, infer_shapes, restore_declared, same_dim, same_shape, values


def inferred(body: str, *, inputs: str = "float[batch, seq] x", opset: int = 17) -> ir.Model:
    model = ir.from_onnx_text(f'<ir_version: 8, opset_import: ["" : {opset}]> g ({inputs}) => (y) {body}')
    infer_shapes(model)
    return model


def shape(model: ir.Model, name: str) -> list[int | str | None]:
    (value,) = [value for value in values(model) if value.name == name]
    assert value.shape is not None, f"{name} has no shape"
    return [dim if isinstance(dim, int) else dim.value for dim in value.shape]


sizes = st.one_of(st.integers(1, 5), st.sampled_from(["a", "b", "c", "2*a", "a + b"]))


@example("c", "a + b", {"a": 1, "b": 1, "c": 1})
@given(sizes, sizes, st.fixed_dictionaries({name: st.integers(1, 4) for name in "abc"}))
def test_broadcasting_holds_for_every_size(left: int | str, right: int | str, bindings: dict[str, int]) -> None:
    """Law: the inferred dimension of a broadcast is what two dimensions give at run time, or is unknown."""
    a, b = (size if isinstance(size, int) else ir.SymbolicDim(size) for size in (left, right))
    result = broadcast_dim(ShapeInferenceContext(), a, b)
    at_a, at_b = (size if isinstance(size, int) else size.evaluate(bindings) for size in (a, b))
    if at_a == at_b or 1 in (at_a, at_b):
        assert result is not None
        size = result if isinstance(result, int) else result.evaluate(bindings)
        symbols = {*"abc"} & {*str(a), *str(b)}  # the maximum of three is unknown
        assert size == max(at_a, at_b) or (not isinstance(size, int) and len(symbols) > 2)


@given(sizes, sizes)
def test_same_dim_is_reflexive_and_symmetric(left: int | str, right: int | str) -> None:
    a, b = (size if isinstance(size, int) else ir.SymbolicDim(size) for size in (left, right))
    assert same_dim(a, a)
    assert same_dim(a, b) == same_dim(b, a)


def test_each_size_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sizes behind convolutions are long expressions, and fusing infers a model many times."""
    parsed: list[str] = []
    parse = _symbolic_shapes._ExpressionParser.parse
    monkeypatch.setattr(_symbolic_shapes._ExpressionParser, "parse", lambda self: parsed.append(self.text) or parse(self))
    pooled = "{ h = MaxPool<kernel_shape=[3], strides=[2]>(x) y = MaxPool<kernel_shape=[3]>(h) z = Relu(y) }"
    model = inferred(pooled, inputs="float[batch, 4, parsed_once] x")
    infer_shapes(model)
    infer_shapes(model)
    assert "parsed_once" in str(shape(model, "y")[2])
    assert sorted(parsed) == sorted(set(parsed))


def test_dimensions_are_compared_as_expressions() -> None:
    assert same_dim(ir.SymbolicDim("2*a + b"), ir.SymbolicDim("b + a*2"))
    assert not same_dim(ir.SymbolicDim("a"), ir.SymbolicDim("b"))
    assert not same_dim(ir.SymbolicDim(None), ir.SymbolicDim(None))
    assert not same_dim(ir.SymbolicDim("a"), 4)
    assert not same_dim(ir.SymbolicDim("batch size!"), ir.SymbolicDim("b"))
    assert same_shape(ir.Shape(["n", 4]), ir.Shape(["n", 4]))
    assert not same_shape(ir.Shape(["n", 4]), ir.Shape(["n", 4, 1]))
    assert not same_shape(None, None)
    assert dims(None) is None


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("floor(n/2 + 3)", "floor(n/2) + 3", True),
        ("2*floor(n/4) + m", "m + floor(n/4)*2", True),
        ("(n + 1)*(m + 2)", "m*n + 2*n + m + 2", True),
        ("(n**2 - 1)/(n - 1)", "n + 1", True),
        ("floor(n/2)*2", "n", False),
        ("floor((n + 1)/2)", "floor(n/2)", False),
        ("n + 1000000*m", "n + 1000000*m + 1", False),
    ],
)
def test_expressions_are_the_same_where_that_can_be_proved(left: str, right: str, same: bool) -> None:
    assert same_dim(ir.SymbolicDim(left), ir.SymbolicDim(right)) is same


def test_lengths_after_many_convolutions_are_told_apart_without_simplifying(monkeypatch: pytest.MonkeyPatch) -> None:
    """sympy takes seconds to simplify the length of a sound after seven strided convolutions."""

    def simplify(*_: object, **__: object) -> None:
        raise AssertionError("simplified")

    monkeypatch.setattr("sympy.simplify", simplify)
    length, longer = "t", "t"
    for stride in (5, 2, 2, 2, 2, 2, 2):
        length, longer = f"floor(({length} - 3)/{stride}) + 1", f"floor(({longer} - 2)/{stride}) + 1"
    assert not same_dim(ir.SymbolicDim(length), ir.SymbolicDim(f"Min({length}, {longer})"))
    assert same_dim(ir.SymbolicDim(f"{length} + b"), ir.SymbolicDim(f"b + {length}"))


@given(*[st.integers(1, 7)] * 3, *[st.integers(-5, 5)] * 3, st.integers(1, 200))
def test_joined_floors_hold_for_every_size(first: int, second: int, third: int, a: int, b: int, c: int, n: int) -> None:
    """Law: a size has the same value after its floors are joined. Lengths after strided convolutions keep one floor."""
    written = f"floor((floor((floor((n + {a})/{first}) + {b})/{second}) + {c})/{third})"
    joined = _floored(written)
    assert isinstance(joined, ir.SymbolicDim)
    assert joined.evaluate({"n": n}) == ((((n + a) // first) + b) // second + c) // third
    assert str(joined.value).count("floor") <= 1


@example(2, 3, 2, 1, 1, 3)
@example(3, 5, 1, 2, 0, 8)
@given(*[st.integers(1, 4)] * 4, st.integers(0, 5), st.integers(1, 60))
def test_floors_that_cannot_be_joined_keep_their_value(first: int, second: int, third: int, times: int, b: int, n: int) -> None:
    """floor(2 * floor(n/3) / 5) is not floor(2*n/15), and floor(floor(n/2)/3 + 1/2) is not floor(n/6 + 1/2)."""
    joined = _floored(f"floor({times}*floor(n/{first})/{second} + {b}/{third})")
    assert isinstance(joined, ir.SymbolicDim)
    assert joined.evaluate({"n": n}) == (times * (n // first) * third + b * second) // (second * third)


def test_an_exact_quotient_of_a_number_is_a_number() -> None:
    assert _floored("floor(12*batch/batch)") == 12


FRAMES = """{
    h = MaxPool<kernel_shape = [4], strides = [5]>(x)
    k = MaxPool<kernel_shape = [3], strides = [2]>(h)
    z = MaxPool<kernel_shape = [2], strides = [2]>(k)
    size = Shape<start = 2, end = 3>(z)
    axis = Constant<value_ints = [0]>()
    count = Squeeze(size, axis)
    zero = Constant<value_int = 0>()
    one = Constant<value_int = 1>()
    y = Range(zero, count, one)
}"""


def test_frames_of_a_sound_have_one_size() -> None:
    """wav2vec2 by torch's second exporter: a signal through strided convolutions, and its frames counted by Range for a mask."""
    model = inferred(FRAMES, inputs="float[batch, 4, samples] x")
    (_, _, frames) = shape(model, "z")
    assert isinstance(frames, str) and frames.count("floor") == 1
    assert shape(model, "y") == [frames]


def test_a_size_known_in_one_branch_says_nothing_about_the_other() -> None:
    """Only one of two branches runs. What is the size of an axis in one may be negative in the other."""
    model = inferred(
        """{
        y = If (c) <
            then_branch = one () => (float[batch, 4, p] u) { u = MaxPool<kernel_shape = [6]>(x) },
            else_branch = other () => (int64[q] v) {
                size = Shape<start = 2, end = 3>(x)
                axis = Constant<value_ints = [0]>()
                all = Squeeze(size, axis)
                five = Constant<value_int = 5>()
                count = Sub(all, five)
                zero = Constant<value_int = 0>()
                step = Constant<value_int = 1>()
                v = Range(zero, count, step)
            }>
    }""",
        inputs="float[batch, 4, seq] x, bool c",
    )
    assert shape(model, "u")[2] == "seq - 5"
    assert shape(model, "v") == ["Max(0, seq - 5)"]


@pytest.mark.parametrize(
    ("operands", "known"),
    [("first, two, k, first", []), ("first, two, last, k", [0]), ("k, two, last, first", [0]), ("first, k, last, first", [0])],
    ids=["axes", "steps", "starts", "ends"],
)
def test_a_slice_by_numbers_that_only_a_run_knows_has_an_unknown_size(operands: str, known: list[int]) -> None:
    """Axes that are given, but not known, are not the first ones. A graph of the soundness campaign had such axes."""
    constants = "first = Constant<value_ints = [1]>() two = Constant<value_ints = [2]>() last = Constant<value_ints = [1]>()"
    model = inferred(f"{{ {constants} y = Slice(x, {operands}) }}", inputs="float[3, 5] x, int64[1] k")
    sizes = shape(model, "y")
    assert len(sizes) == 2
    assert [axis for axis, size in enumerate(sizes) if isinstance(size, int)] == known


def test_two_symbols_do_not_broadcast_to_the_first() -> None:
    model = inferred("{ y = Add (x, z) }", inputs="float[batch, 4] x, float[other, 4] z")
    assert shape(model, "y") == ["Max(batch, other)", 4]


def test_a_maximum_does_not_grow_without_end() -> None:
    """Unknown dimensions accumulate along a residual stream. The cost of sympy's Max grows with their number squared."""
    context = ShapeInferenceContext({"": 17})
    a, b, c = map(ir.SymbolicDim, "abc")
    two = broadcast_dim(context, a, b)
    assert isinstance(two, ir.SymbolicDim) and two.value == "Max(a, b)"
    three = broadcast_dim(context, two, c)
    assert isinstance(three, ir.SymbolicDim) and str(three.value).isidentifier()
    assert three == broadcast_dim(context, c, two) == broadcast_dim(context, three, three)
    assert three not in (a, b, c)


def test_batches_of_a_fused_matmul_broadcast_like_those_of_a_matmul() -> None:
    inputs = "float[N, 2, 3, 4] a, float[M, 2, 5, 4] b"
    model = inferred("{ t = Transpose<perm = [0, 1, 3, 2]>(b) y = MatMul(a, t) }", inputs=inputs)
    fused = ir.from_onnx_text(
        '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> '
        f"g ({inputs}) => (y) {{ y = com.microsoft.FusedMatMul<transB = 1>(a, b) }}"
    )
    infer_shapes(fused)
    assert shape(fused, "y") == shape(model, "y") == ["Max(M, N)", 2, 3, 5]


@pytest.mark.parametrize(
    ("call", "inputs", "expected"),
    [
        (
            'com.microsoft.FusedConv<activation = "Relu", pads = [1, 1, 1, 1]>(a, b)',
            "float[N, 3, H, 8] a, float[5, 3, 3, 3] b",
            ["N", 5, "H", 8],
        ),
        ('com.microsoft.FusedGemm<activation = "Relu", transB = 1>(a, b)', "float[N, 3] a, float[7, 3] b", ["N", 7]),
    ],
)
def test_operators_that_onnxruntime_writes_have_shapes(call: str, inputs: str, expected: list[int | str]) -> None:
    """A model that onnxruntime optimised, or that this tool fused before, has them."""
    model = ir.from_onnx_text(
        f'<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> g ({inputs}) => (y) {{ y = {call} }}'
    )
    infer_shapes(model)
    assert shape(model, "y") == expected


def test_a_slice_of_a_symbolic_dimension_may_be_shorter_than_requested() -> None:
    model = inferred(
        "{ a = Constant <value_ints = [0]> () b = Constant <value_ints = [5]> () c = Constant <value_ints = [1]> () "
        "y = Slice (x, a, b, c) }"
    )
    assert shape(model, "y") == ["batch", "Min(5, seq)"]


@pytest.mark.parametrize(("start", "size"), [(0, "seq"), (2, "Max(0, seq - 2)")])
def test_a_slice_to_the_end_that_tf2onnx_writes_takes_the_rest(start: int, size: str) -> None:
    constants = f"int64[1] a = {{{start}}}, int64[1] b = {{1000000000}}, int64[1] c = {{1}}"
    model = ir.from_onnx_text(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[batch, seq] x) => (y) <{constants}> {{ y = Slice (x, a, b, c) }}'
    )
    infer_shapes(model)
    assert shape(model, "y") == ["batch", size]


@pytest.mark.parametrize(("start", "end", "step"), [(0, 6, 2), (2, 9, 3), (0, 5, 1)])
def test_so_may_a_slice_with_steps(start: int, end: int, step: int) -> None:
    constants = f"int64[1] a = {{{start}}}, int64[1] b = {{{end}}}, int64[1] axes = {{1}}, int64[1] steps = {{{step}}}"
    size = str(shape(inferred(f"<{constants}> {{ y = Slice(x, a, b, axes, steps) }}"), "y")[1])
    for length in range(1, 13):
        assert ir.SymbolicDim(size).evaluate({"seq": length}) == len(range(length)[start:end:step]), (size, length)


@pytest.mark.parametrize(("index", "repeated"), [(0, ["n", 2, 3]), (2, [1, 2, "3*n"]), (-1, [1, 2, "3*n"])])
def test_the_repeats_of_one_axis_as_torchscript_writes_them(index: int, repeated: list[object]) -> None:
    """`torch.repeat_interleave(x, n, dim)` makes the repeats by OneHot."""
    constants = f"int64[1] axis = {{{index}}}, int64 rank = {{3}}, int64[1] one = {{1}}, int64[1] flat = {{-1}}"
    text = "n = Shape(w) v = Concat<axis = 0>(one, n) h = OneHot(axis, rank, v) r = Reshape(h, flat) y = Tile(x, r)"
    model = inferred(f"<{constants}> {{ {text} }}", inputs="float[1, 2, 3] x, float[n] w")
    assert shape(model, "y") == repeated


def test_so_may_a_slice_before_opset_10() -> None:
    model = ir.from_onnx_text(
        '<ir_version: 8, opset_import: ["" : 9]> g (float[batch, seq] x) => (y) '
        "{ y = Slice<axes = [1], starts = [0], ends = [5]> (x) }"
    )
    infer_shapes(model)
    assert shape(model, "y") == ["batch", "Min(5, seq)"]


def test_unique_parts_along_an_axis_have_the_other_axes() -> None:
    y = shape(inferred("{ y = Unique<axis = -2>(x) }", inputs="float[2, N, 3] x"), "y")
    assert y[::2] == [2, 3] and y[1] not in (2, "N", None)
    assert len(shape(inferred("{ y = Unique(x) }", inputs="float[2, N, 3] x"), "y")) == 1


def test_elements_chosen_along_an_axis_have_the_rank_of_the_operand() -> None:
    given = "float[2, N, 3] x, bool[N] c"
    y = shape(inferred("{ y = Compress<axis = -2>(x, c) }", inputs=given), "y")
    assert y[::2] == [2, 3] and y[1] not in (2, "N", None)
    assert len(shape(inferred("{ y = Compress(x, c) }", inputs=given), "y")) == 1
    unknown = inferred("{ r = Reshape(x, s) y = Compress<axis = 1>(r, c) }", inputs="float[N] x, int64[rank] s, bool[M] c")
    assert all(node.outputs[0].shape is None for node in unknown.graph)


@pytest.mark.parametrize(
    ("call", "states", "results"),
    [
        ('y = Loop (n, "")', "", ""),
        ("y = Loop (n)", "", ""),
        ('z, y = Loop (n, "", x)', ", float[N, 4] s", "float[N, 4] s, "),
    ],
)
def test_a_loop_without_a_condition_has_results(call: str, states: str, results: str) -> None:
    body = f"b (int64 i, bool c{states}) => (bool k, {results}float[N, 4] v) {{ k = Identity (c) v = Exp (x) }}"
    model = inferred(f"{{ {call} <body = {body}> }}", inputs="float[N, 4] x, int64 n")
    assert shape(model, "y")[1:] == ["N", 4]
    _, operands = call.split("=")
    assert [len(node.inputs) for node in model.graph] == [operands.count(",") + 1]


def test_the_rank_after_a_squeeze_by_computed_axes_is_unknown() -> None:
    computed = inferred("{ b = Neg(a) y = Squeeze(x, b) }", inputs="float[N, 1] x, int64[1] a")
    assert next(node for node in computed.graph if node.op_type == "Squeeze").outputs[0].shape is None
    assert shape(inferred("{ a = Constant<value_ints = [1]>() y = Squeeze(x, a) }", inputs="float[N, 1] x"), "y") == ["N"]


def test_the_parts_of_a_split_by_computed_sizes_are_not_equal() -> None:
    for size in ("6", "N"):
        y, z = shapes_of_parts(inferred("{ y, z = Split(x, s) }", inputs=f"float[{size}] x, int64[2] s"))
        assert isinstance(y, str) and isinstance(z, str) and y != z
    held = "{ n = Shape(u) m = Shape(v) s = Concat<axis = 0>(n, m) y, z = Split(x, s) }"
    assert shapes_of_parts(inferred(held, inputs="float[T] x, float[A] u, float[B] v")) == ["A", "B"]
    of_shape = inferred("{ n = Shape(x) y, z = Split(n, s) r = ConstantOfShape(y) }", inputs="float[3, 4] x, int64[2] s")
    assert shapes_of_parts(of_shape)[0] != 1
    assert [node.outputs[0].shape for node in of_shape.graph if node.op_type == "ConstantOfShape"] == [None]


def shapes_of_parts(model: ir.Model) -> list[int | str | None]:
    return [dim for name in ("y", "z") for dim in shape(model, name)]


def test_the_rank_after_a_squeeze_without_axes_is_unknown_where_a_dimension_may_be_one() -> None:
    assert next(iter(inferred("{ y = Squeeze(x) }").graph)).outputs[0].shape is None
    assert shape(inferred("{ y = Squeeze(x) }", inputs="float[1, 3, 1, 4] x"), "y") == [3, 4]


@pytest.mark.parametrize(("x", "i", "found"), [("5", "3", [1, 3]), ("2,5", "3", [2, 3]), ("2,5", "3,2", [2, 6])])
def test_extracted_features_have_the_shape_that_onnxruntime_gives_them(x: str, i: str, found: list[int]) -> None:
    """Of a vector they are a row: a Reshape behind them that looked like one without effect was removed."""
    text = f"""<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]> g (float[{x}] x, int64[{i}] i) => (y) {{
      y = ai.onnx.ml.ArrayFeatureExtractor (x, i)
    }}"""
    model = ir.from_onnx_text(text)
    infer_shapes(model)
    assert shape(model, "y") == found
    feeds = {"x": np.zeros(tuple(map(int, x.split(","))), np.float32), "i": np.zeros(tuple(map(int, i.split(","))), np.int64)}
    (y,) = onnxruntime.InferenceSession(onnx.parser.parse_model(text).SerializeToString()).run(None, feeds)
    assert list(y.shape) == found


def test_no_size_follows_from_a_shape_that_a_run_can_override() -> None:
    """From IR version 4 on; before, every initializer had to be an input."""
    for version, sizes in [(8, None), (3, [2, 3])]:
        model = ir.from_onnx_text(
            f'<ir_version: {version}, opset_import: ["" : 9]> g (float[6] x, int64[2] s) => (y) <int64[2] s = {{2, 3}}> '
            "{ y = Reshape(x, s) }"
        )
        infer_shapes(model)
        found = next(iter(model.graph)).outputs[0].shape
        assert found is not None and [d if isinstance(d, int) else None for d in found] == (sizes or [None, None])
        assert model.graph.initializers["s"].const_value is not None, "the default stays"


def test_a_slice_of_unknown_size_keeps_the_other_axes() -> None:
    model = inferred(
        "<int64[1] axes = {-2}> { y = Slice(x, starts, ends, axes) }",
        inputs="float[batch, 1, seq, 8] x, int64[1] starts, int64[1] ends",
    )
    first, one, cut, last = shape(model, "y")
    assert (first, one, last) == ("batch", 1, 8)
    assert cut != "seq"


def test_the_shape_test_that_torchscript_writes_before_expand() -> None:
    """`Where(Equal(shape, -1), 1, shape)`: dimensions are never -1."""
    model = inferred(
        """{
        one = Constant <value_ints = [1]> ()
        s = Shape (x)
        full = Concat <axis = 0> (one, s)
        rank = Shape (full)
        ones = ConstantOfShape <value = int64[1] {1}> (rank)
        minus = Constant <value = int64 {-1}> ()
        minuses = Mul (ones, minus)
        unset = Equal (full, minuses)
        target = Where (unset, ones, full)
        y = Expand (x, target)
        }"""
    )
    assert shape(model, "y") == [1, "batch", "seq"]


def test_computed_paddings_are_followed() -> None:
    model = inferred(
        """{
        pads = Constant <value = int64[2, 2] {1, 2, 3, 4}> ()
        turned = Transpose <perm = [1, 0]> (pads)
        flat = Constant <value_ints = [-1]> ()
        list = Reshape (turned, flat)
        y = Pad (x, list)
        }""",
        inputs="float[2, 3] x",
    )
    assert shape(model, "y") == [2 + 1 + 2, 3 + 3 + 4]


def test_a_dimension_multiplied_and_divided_is_itself() -> None:
    model = inferred(
        """{
        s = Shape (x) i = Constant <value_int = 0> () n = Gather (s, i)
        eight = Constant <value_int = 8> () more = Mul (n, eight) again = Div (more, eight)
        zero = Constant <value_ints = [0]> () dim = Unsqueeze (again, zero) y = ConstantOfShape (dim)
        }"""
    )
    assert shape(model, "y") == ["batch"]


@pytest.mark.parametrize(("target", "known"), [("0, 0, 6", None), ("0, 2, 3", ["n", 2, 3]), ("2, 3, -1", [2, 3, "n"])])
def test_nothing_is_known_behind_a_reshape_that_can_not_run(target: str, known: list[int | str] | None) -> None:
    model = inferred(f"{{ s = Constant<value = int64[3] {{{target}}}>() r = Reshape(x, s) y = Relu(r) }}", inputs="float[n, 6] x")
    if known is None:
        (gap,) = gaps(model)
        assert "the number of elements differs" in gap.reason
    else:
        assert shape(model, "y") == known and not gaps(model)


@pytest.mark.parametrize(
    ("sizes", "known"),
    [
        ("Max (one, n)", ["n"]),
        ("Max (n, one)", ["n"]),
        ("Max (n, less, n)", ["n"]),
        ("Max (less, one)", [1]),
        ("Concat <axis = 0> (n, m)", ["n", "m"]),
        ("Max (two, n)", None),
        ("Max (n, m)", None),
        ("Max (one, difference)", None),
        ("Max (one, gap)", None),
        ("Max (nought, gap)", ["n - 1"]),
        ("Max (nought, difference)", None),
        ("Max (one, count)", None),
    ],
)
def test_the_largest_size_is_known_where_no_run_has_a_larger_one(sizes: str, known: list[str | int] | None) -> None:
    """Paddle expands to the maximum of sizes and the shape of the value, of which -1 stands for the size that it has."""
    text = f"""{{ one = Constant <value_ints = [1]> () two = Constant <value_ints = [2]> () less = Constant <value_ints = [-1]> ()
      n = Shape <end = 1> (x) m = Shape <start = 1> (x) difference = Sub (n, two) gap = Sub (n, one)
      nought = Constant <value_ints = [0]> () zero = Constant <value_float = 0.0> ()
      places = NonZero (x) count = Shape <start = 1> (places)
      s = {sizes} y = Expand (zero, s) }}"""
    model = inferred(text, inputs="float[n, m] x")
    found = shape(model, "y")
    assert found == known if known else not {"n", "m", "n - 1", "n - 2", 1, 2} & set(found)


@pytest.mark.parametrize(
    ("product", "known"),
    [
        ("ReduceProd <axes = [0]> (s)", ["2*batch*seq"]),
        ("ReduceProd (s)", ["2*batch*seq"]),
        ("ReduceProd <noop_with_empty_axes = 1> (s, zero)", ["2*batch*seq"]),
        ("ReduceProd <noop_with_empty_axes = 1> (s)", None),
        ("ReduceProd <noop_with_empty_axes = 1> (s, none)", None),
    ],
)
def test_the_product_of_sizes_is_a_size(product: str, known: list[str] | None) -> None:
    """tf2onnx joins the batch axes of an Einsum by such a product. Without axes and with noop it is the shape itself."""
    opset = 18 if "noop" in product else 17
    axes = "zero = Constant <value_ints = [0]> () none = Constant <value = int64[0] {}> ()"
    text = f"{{ {axes} s = Shape (x) p = {product} y = ConstantOfShape (p) }}"
    model = inferred(text, inputs="float[batch, seq, 2] x", opset=opset)
    found = next(value.shape for value in values(model) if value.name == "y")
    assert (None if found is None or len(found) != 1 else shape(model, "y")) == known


def test_stale_declarations_do_not_mislead() -> None:
    """Only the input's batch size was made symbolic. The file's declarations of inner values are wrong."""
    model = ir.from_onnx_text(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[batch, 4] x) => (float[1, 4] y) <float[1, 4] a>
        { a = Relu (x) y = Exp (a) }"""
    )
    infer_shapes(model)
    assert shape(model, "a") == ["batch", 4]


def test_declarations_fill_in_what_inference_does_not_know() -> None:
    model = ir.from_onnx_text(
        """<ir_version: 8, opset_import: ["" : 17, "my" : 1]> g (float[batch, 4] x) => (y) <float[batch, 7] a>
        { a = my.Unknown (x) y = Exp (a) }"""
    )
    infer_shapes(model)
    assert shape(model, "y") == ["batch", 7]


def test_nested_bodies_are_inferred() -> None:
    model = inferred(
        "{ y = If (c) <then_branch = t () => (p) { p = Relu (x) }, else_branch = e () => (q) { q = Exp (x) }> }",
        inputs="float[batch, 4] x, bool c",
    )
    assert shape(model, "p") == shape(model, "q") == shape(model, "y") == ["batch", 4]


@pytest.mark.parametrize(
    "body",
    [
        "{ y = Reshape (x) }",
        "{ y = Concat (x, x) }",
        "{ a = Constant <value_ints = [7, 7]> () y = Reshape (x, a) }",
        "{ y = Softmax <axis = 9> (x) }",
        "{ y = MatMul (x, x) }",
        "{ a = Constant <value_ints = [5, 5, 5]> () y = Expand (x, a) }",
        "{ y = NoSuchOperator (x) }",
        "{ y = Gather (x) }",
    ],
)
def test_an_unusual_node_leaves_a_gap_and_the_rest_is_inferred(body: str) -> None:
    model = inferred(body.replace("}", " rest = Relu (x) }"), inputs="float[2, 3] x")
    assert shape(model, "rest") == [2, 3]


def test_inferred_shapes_are_removed_and_restored() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[?, 4] x) => (float[?, 4] y) { a = Relu (x) y = Exp (a) }"""
    model = ir.from_onnx_text(text)
    before = ir.to_onnx_text(model)
    infer_shapes(model)
    assert ir.to_onnx_text(model) != before
    with declared_only(model):
        assert ir.to_onnx_text(model) == before
    assert dims(model.graph.node(0).outputs[0]) is not None
    infer_shapes(model)
    restore_declared(model)
    assert ir.to_onnx_text(model) == before


def test_new_values_keep_no_declaration_and_new_outputs_keep_theirs() -> None:
    model = inferred("{ a = Relu (x) y = Exp (a) }")
    old = model.graph.outputs[0]
    new = ir.node("Neg", [model.graph.inputs[0]])
    last = ir.node("Exp", [new.outputs[0]])
    model.graph.extend([new, last])
    old.name, last.outputs[0].name = "former", "y"
    model.graph.outputs[0] = last.outputs[0]
    infer_shapes(model)
    assert dims(new.outputs[0]) is not None
    with declared_only(model):
        assert dims(new.outputs[0]) is None
        assert dims(model.graph.outputs[0]) is None


def test_a_size_of_minus_one_is_unknown_and_kept_as_declared() -> None:
    """Hand-written files use -1 for "any", and onnxruntime accepts it."""
    model = inferred("{ y = Neg(x) }", inputs="float[batch, 4] x")
    graph = ir.to_proto(model).graph
    graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    again = ir.from_proto(onnx.helper.make_model(graph))
    infer_shapes(again)
    assert dims(again.graph.inputs[0]) == dims(again.graph.outputs[0])
    assert isinstance(again.graph.inputs[0].shape[0], ir.SymbolicDim)
    with declared_only(again):
        assert again.graph.inputs[0].shape == ir.Shape([-1, 4])


@pytest.mark.parametrize(
    ("opset", "scale", "result"), [(12, "float", "FLOAT"), (16, "float16", "FLOAT16"), (17, "float16", "FLOAT16")]
)
def test_layer_normalization_is_inferred_before_its_opset(opset: int, scale: str, result: str) -> None:
    """onnxruntime takes it at every opset. SimplifiedLayerNormalization has the dtype of its scale."""
    inputs = f"float16[batch, 4] x, {scale}[4] s"
    model = inferred("{ z = LayerNormalization(x, s) y = Neg(z) }", inputs=inputs, opset=opset)
    (z,) = [value for value in values(model) if value.name == "z"]
    assert shape(model, "z") == ["batch", 4]
    assert z.dtype is ir.DataType[result]


def test_a_vector_that_doubles_is_not_followed_element_by_element() -> None:
    """Forty Concats of a shape with itself would have more elements than fit in memory."""
    doubled = " ".join(f"c{i + 1} = Concat <axis = 0> (c{i}, c{i})" for i in range(40))
    model = inferred(f"{{ c0 = Shape (x) {doubled} y = Identity (c40) }}")
    assert shape(model, "c3") == [16]
    assert shape(model, "y") == [2**41]


def test_an_expression_that_doubles_becomes_a_symbol() -> None:
    """d · (d + 1), repeated forty times: as text it would have 10¹² characters."""
    steps = " ".join(f"e{i} = Add (d{i}, one) d{i + 1} = Mul (d{i}, e{i})" for i in range(40))
    start = "zero = Constant <value_int = 0> () one = Constant <value_int = 1> () s = Shape (x) d0 = Gather <axis = 0> (s, zero)"
    axis = "a = Constant <value_ints = [0]> () u = Unsqueeze (d40, a)"
    model = inferred(f"{{ {start} {steps} {axis} y = ConstantOfShape (u) }}")
    (size,) = shape(model, "y")
    assert isinstance(size, str) and size.isidentifier()


def test_a_power_in_a_size_is_not_computed() -> None:
    model = ir.from_onnx_text(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[N, 8] x) => (y) { t = Relu (x) y = Concat <axis = 1> (t, x) }'
    )
    model.graph.inputs[0].shape = ir.Shape(["9**9**9**9", 8])
    infer_shapes(model)
    first, width = shape(model, "y")
    assert (first, width) == (shape(model, "t")[0], 16)
    with declared_only(model):
        assert shape(model, "x")[0] == "9**9**9**9"


def test_slice_and_topk_take_attributes_before_opset_10() -> None:
    """PaddlePaddle exports opset 9, and slices shapes."""
    model = inferred(
        """{
        last = Slice <axes = [1], starts = [-3], ends = [9223372036854775807]> (x)
        s = Shape (x)
        cut = Slice <starts = [0], ends = [1]> (s)
        one = Constant <value = int64[1] {-1}> ()
        target = Concat <axis = 0> (cut, one)
        flat = Reshape (last, target)
        best, which = TopK <axis = 1, k = 2> (x)
        y = Identity (flat)
        }""",
        inputs="float[batch, 7, 4] x",
        opset=9,
    )
    assert shape(model, "last") == ["batch", 3, 4]
    assert shape(model, "flat") == ["batch", 12]
    assert shape(model, "best") == shape(model, "which") == ["batch", 2, 4]
    assert not gaps(model)


def test_a_gap_is_the_first_unknown_value() -> None:
    """Later nodes are not gaps, and neither is a size that is known only at run time."""
    model = ir.from_onnx_text(
        """<ir_version: 8, opset_import: ["" : 17, "com.acme" : 1]> g (float[n, 4] x, bool c, float w) => (y, z, u) {
        a = com.acme.Mystery (x)
        b = Relu (a)
        y = Neg (b)
        found = NonZero (x)
        z = Identity (found)
        p = If (c) <
          then_branch = t () => (r1) { r1 = Identity (x) },
          else_branch = e () => (r2) { r2 = ReduceSum <keepdims = 0> (x) }
        >
        u = Abs (p)
        }"""
    )
    infer_shapes(model)
    found = {gap.operator: gap for gap in gaps(model)}
    assert found.keys() == {"com.acme.Mystery", "If"}
    assert found["com.acme.Mystery"].behind == {"b", "y"}
    assert found["If"].reason == "its branches give results of different ranks"


def test_an_input_without_a_shape_is_a_gap() -> None:
    model = ir.from_onnx_text('<ir_version: 8, opset_import: ["" : 17]> g (float[n] x) => (y) { y = Relu (x) }')
    model.graph.inputs[0].shape = None
    infer_shapes(model)
    (gap,) = gaps(model)
    assert (gap.node, gap.reason, gap.change) == ("x", "the input declares no shape", "declare the shape of `x`")


def test_an_error_in_an_inference_rule_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = registry.get("", "Relu", version=17)

    def stumbles(*_: object) -> None:
        raise ValueError("seven")

    try:
        registry.register("", "Relu", 14)(partial(_guarded, stumbles))
        model = inferred("{ a = Relu (x) y = Abs (a) }")
    finally:
        registry.register("", "Relu", 14)(rule)
    (gap,) = gaps(model)
    assert (gap.node, gap.reason) == ("a", "its rule fails: ValueError: seven")


def test_a_constant_of_a_function_has_the_tensor_of_each_call() -> None:
    """Calls of one function with other tensors give other shapes, whichever comes first."""
    text = """<ir_version: 10, opset_import: ["" : 21, "own" : 1]>
    net (float[16] x) => (float[a, b] y, float[c, d] z) {
      y = own.shaped <shape: tensor = int64[2] {2, 8}> (x)
      z = own.shaped <shape: tensor = int64[2] {4, 4}> (x)
    }
    <domain: "own", opset_import: ["" : 21]>
    shaped <shape> (x) => (y) { s = Constant <value: tensor = @shape> ()  y = Reshape (x, s) }"""
    model = ir.from_proto(onnx.parser.parse_model(text))
    infer_shapes(model)
    assert [list(value.shape) for value in model.graph.outputs if value.shape is not None] == [[2, 8], [4, 4]]


def test_the_rank_of_an_if_is_not_that_of_one_branch() -> None:
    """A squeeze of all axes may leave any rank. The other branch declares one."""
    model = ir.from_onnx_text("""<ir_version: 8, opset_import: ["" : 17]> g (float[m, n] x, bool c, int64[k] sizes) => (y) {
      z = Reshape (x, sizes)
      y = If (c) <then_branch = a () => (b) { b = Squeeze (z) },
                  else_branch = d () => (float[l] e) { e = Reshape (x, sizes) }> }""")
    infer_shapes(model)
    assert model.graph.outputs[0].shape is None


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [(0, -(2**31), 1), (0, -(2**63), 1), (-7, -(2**63) + 1, -1), (-1, 2**31 - 1, -1), (-1, -4, -1), (-1, -5, -1), (5, -9, -2)],
)
@pytest.mark.parametrize("source", ["k", "s"], ids=["a constant", "a shape"])
def test_a_slice_beyond_the_ends_is_what_onnxruntime_takes(source: str, start: int, end: int, step: int, tmp_path: Path) -> None:
    """onnx's evaluator and the library of shapes take other parts of these."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[N, 3, H] x, int64[1] z) => (int64[q] y)
      <int64[3] k = {{2, 3, 4}}, int64[1] start = {{{start}}}, int64[1] end = {{{end}}}, int64[1] axis = {{0}},
       int64[1] step = {{{step}}}>
      {{ s = Shape (x)  v = Slice ({source}, start, end, axis, step)  y = Concat <axis = 0> (v, z) }}"""
    model = onnx.parser.parse_model(text)
    onnx.save(model, tmp_path / "m.onnx")
    fuse(tmp_path / "m.onnx", tmp_path / "o.onnx", load_patterns(), Options(verify=False))
    feeds = {"x": np.zeros((2, 3, 4), np.float32), "z": np.array([7])}
    plain = onnxruntime.SessionOptions()
    plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    before, after = (onnxruntime.InferenceSession(tmp_path / f"{name}.onnx", plain).run(None, feeds)[0].tolist() for name in "mo")
    assert before == after
