"""Each equality of the language: the spellings that it makes equal, and similar graphs that must not match."""

from __future__ import annotations

import pytest

from tests.matching.graphs import found, matches, model, pattern

X = '{x: "float32[2, 8]"}'
AB = '{a: "float32[2, 8]", b: "float32[8, 4]"'
GELU = pattern("y = 0.5 * x * (1 + Erf(x / sqrt(2)))", "y = com.microsoft.Gelu(x)", example=X)
SIGMOID = pattern("y = x * Sigmoid(alpha * x)", "y = com.microsoft.QuickGelu(x, alpha=alpha)", example=X[:-1] + ", alpha: 1.7}")
RSQRT = pattern("y = x * (Exp(x) + eps) ** -0.5", "y = com.microsoft.QuickGelu(x, alpha=eps)", example=X[:-1] + ", eps: 1e-5}")
CUBE = pattern("y = Tanh(x + 0.044715 * x ** 3)", "y = com.microsoft.FastGelu(x)", example=X)
DIFFERENCE = pattern(
    "y = Exp(a - b * c)", "y = Exp(Sum(a, b, c))", example='{a: "float32[2, 8]", b: "float32[2, 8]", c: "float32[2, 8]"}'
)
SCALED = pattern(
    "y = scale * (a @ b)",
    "y = com.microsoft.FusedMatMul(a, b, alpha=scale)",
    example=AB + ", scale: 0.5}",
)
AFFINE = pattern(
    "y = Relu(a @ b + c)",
    "y = com.microsoft.FusedGemm(a, b, c)",
    example=AB + ', c: "float32[4]"}',
)
MEAN = pattern("y = Exp(ReduceMean(x, axes=[-1]))", "y = Exp(x)", example=X)
BOTH = pattern("y = Max(Relu(x), Tanh(x))", "y = Exp(x)", example=X)

C = "float half = {0.5}, float one = {1}, float two = {2}, float root = {1.4142135}, float inverse = {0.70710677}"

GELUS = {
    "as written": "h = Mul(half, x) d = Div(x, root) e = Erf(d) s = Add(one, e) y = Mul(h, s)",
    "other order": "d = Div(x, root) e = Erf(d) s = Add(e, one) p = Mul(s, x) y = Mul(p, half)",
    "other grouping": "d = Div(x, root) e = Erf(d) s = Add(e, one) p = Mul(s, half) y = Mul(x, p)",
    "reciprocal constant": "d = Mul(x, inverse) e = Erf(d) s = Add(e, one) p = Mul(s, half) y = Mul(x, p)",
    "division by two": "d = Mul(inverse, x) e = Erf(d) s = Add(e, one) p = Mul(s, x) y = Div(p, two)",
    "Reciprocal": "r = Reciprocal(root) d = Mul(x, r) e = Erf(d) s = Add(e, one) p = Mul(s, x) y = Div(p, two)",
    "Sqrt of a constant": "r = Sqrt(two) d = Div(x, r) e = Erf(d) s = Add(e, one) p = Mul(s, x) y = Div(p, two)",
    "minus minus": "m = Neg(one) d = Mul(x, inverse) e = Erf(d) s = Sub(e, m) p = Mul(s, x) y = Mul(p, half)",
    "Identity": "i = Identity(x) d = Div(i, root) e = Erf(d) j = Identity(e) s = Add(one, j) h = Mul(half, x) y = Mul(h, s)",
    "Dropout": "d = Div(x, root) e = Erf(d) s = Add(one, e) u = Dropout(s) h = Mul(half, x) y = Mul(h, u)",
    "Sum of two": "d = Div(x, root) e = Erf(d) s = Sum(one, e) h = Mul(half, x) y = Mul(h, s)",
    "CastLike of a constant": "k = CastLike(half, x) l = CastLike(one, x) d = Div(x, root) e = Erf(d) s = Add(l, e) "
    "h = Mul(k, x) y = Mul(h, s)",
    "computed twice": "a = Mul(x, x) b = Mul(x, x) d = Div(a, root) e = Erf(d) s = Add(one, e) h = Mul(half, b) y = Mul(h, s)",
    "Constant nodes": "k = Constant<value_float = 0.5>() l = Constant<value = float {1.0}>() d = Div(x, root) e = Erf(d) "
    "s = Add(e, l) "
    "p = Mul(s, x) y = Mul(p, k)",
    "ConstantOfShape": "n = Constant<value_ints = [1]>() k = ConstantOfShape<value = float[1] {0.5}>(n) d = Div(x, root) "
    "e = Erf(d) "
    "s = Add(e, one) p = Mul(s, x) y = Mul(p, k)",
}


@pytest.mark.parametrize("spelling", GELUS)
def test_a_product_matches_in_any_spelling(spelling: str) -> None:
    assert matches(GELU, model(GELUS[spelling], outputs="float[N, 8] y", constants=C)) == 1


@pytest.mark.parametrize(
    ("constants", "why"),
    [
        (C.replace("{0.5}", "{0.51}"), "0.51 is not 0.5"),
        (C.replace("{1.4142135}", "{1.42}"), "1.42 is not the root of two"),
        (C.replace("{1}", "{1.01}"), "1.01 is not 1"),
        (C.replace("float half = {0.5}", "float[1, 1, 1] half = {0.5}"), "a constant that raises the rank"),
        (C.replace("float root = {1.4142135}", "float[8] root = {1.4142, 1, 1, 1, 1, 1, 1, 1}"), "a vector is not a number"),
    ],
)
def test_another_constant_is_another_formula(constants: str, why: str) -> None:
    assert matches(GELU, model(GELUS["as written"], outputs="float[N, 8] y", constants=constants)) == 0, why


def test_constants_that_exporters_round_are_the_same_constant() -> None:
    constants = C.replace("1.4142135", "1.4142").replace("float half = {0.5}", "float[1] half = {0.5}")
    assert matches(GELU, model(GELUS["as written"], outputs="float[N, 8] y", constants=constants)) == 1


def test_an_overridable_initializer_is_not_a_constant() -> None:
    text = GELUS["as written"]
    assert matches(GELU, model(text, inputs="float[N, 8] x, float half", outputs="float[N, 8] y", constants=C)) == 0


def test_another_value_is_not_the_same_value() -> None:
    text = GELUS["as written"].replace("h = Mul(half, x)", "h = Mul(half, z)")
    assert matches(GELU, model(text, inputs="float[N, 8] x, float[N, 8] z", outputs="float[N, 8] y", constants=C)) == 0


@pytest.mark.parametrize(
    "text",
    [
        "m = Mul(x, two) s = Sigmoid(m) y = Mul(s, x)",
        "m = Div(x, half) s = Sigmoid(m) y = Mul(s, x)",
    ],
)
def test_a_name_binds_the_remaining_constant(text: str) -> None:
    result = model(text, outputs="float[N, 8] y", constants=C)
    assert matches(SIGMOID, result) == 1


def test_a_named_constant_must_be_in_the_graph() -> None:
    assert matches(SIGMOID, model("s = Sigmoid(x) y = Mul(x, s)", outputs="float[N, 8] y")) == 0


@pytest.mark.parametrize(
    "text",
    [
        "e = Exp(x) s = Add(e, half) r = Sqrt(s) y = Div(x, r)",
        "e = Exp(x) s = Add(half, e) r = Sqrt(s) i = Reciprocal(r) y = Mul(i, x)",
        "e = Exp(x) s = Add(half, e) r = Sqrt(s) i = Div(one, r) y = Mul(x, i)",
        "e = Exp(x) s = Add(half, e) i = Reciprocal(s) r = Sqrt(i) y = Mul(x, r)",
        "e = Exp(x) s = Add(half, e) p = Constant<value_float = -0.5>() r = Pow(s, p) y = Mul(x, r)",
        "e = Exp(x) s = Add(half, e) r = Pow(s, half) y = Div(x, r)",
    ],
)
def test_powers(text: str) -> None:
    assert matches(RSQRT, model(text, outputs="float[N, 8] y", constants=C)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "p = Pow(x, three) m = Mul(p, k) s = Add(x, m) y = Tanh(s)",
        "a = Mul(x, x) b = Mul(a, x) m = Mul(k, b) s = Add(m, x) y = Tanh(s)",
        "a = Mul(x, x) b = Mul(k, a) m = Mul(b, x) s = Add(m, x) y = Tanh(s)",
        "a = Pow(x, two) b = Mul(k, x) m = Mul(b, a) s = Add(m, x) y = Tanh(s)",
        "q = Pow(x, whole) m = Mul(q, k) s = Add(x, m) y = Tanh(s)",
    ],
)
def test_a_cube_is_a_power_or_a_product(text: str) -> None:
    constants = "float k = {0.044715}, float three = {3}, float two = {2}, int64 whole = {3}"
    assert matches(CUBE, model(text, outputs="float[N, 8] y", constants=constants)) == 1


QUOTIENTS = {
    "the operator": ("y = Abs(Div(x, k))", "q = Div(x, k) y = Abs(q)", 1),
    "a slash": ("y = x / k + z", "q = Div(x, k) y = Add(z, q)", 1),
    "a number": ("y = x / 3 + z", "q = Div(x, three) y = Add(q, z)", 1),
    "the operands in another order": ("y = Abs(Div(k, x))", "q = Div(x, k) y = Abs(q)", 1),
    "another number": ("y = x / 3 + z", "q = Div(x, k) y = Add(q, z)", 0),
    "a large number that is nearly the same": ("y = x / 1000001 + z", "q = Div(x, million) y = Add(q, z)", 0),
    "an operator before it": ("y = Abs(x) / k + z", "a = Abs(x) q = Div(a, k) y = Add(z, q)", 1),
    "a difference": ("y = Abs(x - k)", "q = Div(x, k) y = Abs(q)", 0),
    "a factor before it": ("y = x * z / k", "p = Mul(x, z) y = Div(p, k)", 0),
    "a factor behind it": ("y = x * z / k", "q = Div(x, k) y = Mul(q, z)", 0),
    "two divisors": ("y = x / (z * k)", "q = Div(x, z) y = Div(q, k)", 0),
}


@pytest.mark.parametrize(("formula", "text", "count"), QUOTIENTS.values(), ids=QUOTIENTS)
def test_a_quotient_of_integers_matches_alone(formula: str, text: str, count: int) -> None:
    """It rounds: 3 * (x / 3) is not x."""
    names = [name for name in "xzk" if name in formula]
    example = "{" + ", ".join(f'{name}: "int64[2, 3] in [1, 9]"' for name in names) + "}"
    graph = model(
        text, inputs="int64[2, 3] x, int64[2, 3] z, int64[2, 3] k", constants="int64 three = {3}, int64 million = {1000000}"
    )
    assert matches(pattern(formula, f"y = Max({', '.join(names)})", example=example), graph) == count


def test_a_quotient_of_integers_is_found_behind_what_changes_nothing() -> None:
    graph = model("q = Div(x, k) i = Identity(q) y = Abs(i)", inputs="int64[2, 3] x, int64[2, 3] k")
    probe = pattern("y = Abs(Div(x, k))", "y = Max(x, k)", example='{"x, k": "int64[2, 3] in [1, 9]"}')
    (match,) = found(probe, graph).matches
    assert [node.op_type for node in match.nodes] == ["Div", "Identity", "Abs"]


def test_a_square_is_no_cube() -> None:
    text = "p = Pow(x, two) m = Mul(p, k) s = Add(x, m) y = Tanh(s)"
    assert matches(CUBE, model(text, outputs="float[N, 8] y", constants="float k = {0.044715}, float two = {2}")) == 0


@pytest.mark.parametrize(
    "text",
    [
        "m = Mul(b, c) s = Sub(a, m) y = Exp(s)",
        "m = Mul(b, c) n = Neg(m) s = Add(a, n) y = Exp(s)",
        "n = Neg(c) m = Mul(n, b) s = Add(m, a) y = Exp(s)",
        "n = Mul(c, minus) m = Mul(n, b) s = Add(m, a) y = Exp(s)",
    ],
)
def test_a_difference_is_a_sum_with_a_sign(text: str) -> None:
    inputs = "float[N, 8] a, float[N, 8] b, float[N, 8] c"
    assert matches(DIFFERENCE, model(text, inputs=inputs, outputs="float[N, 8] y", constants="float minus = {-1}")) == 1


def test_a_sum_is_no_difference() -> None:
    inputs = "float[N, 8] a, float[N, 8] b, float[N, 8] c"
    assert matches(DIFFERENCE, model("m = Mul(b, c) s = Add(a, m) y = Exp(s)", inputs=inputs, outputs="float[N, 8] y")) == 0


@pytest.mark.parametrize(
    ("text", "scale"),
    [
        ("m = MatMul(a, b) y = Mul(m, half)", 0.5),
        ("m = MatMul(a, b) y = Div(m, two)", 0.5),
        ("s = Mul(a, half) y = MatMul(s, b)", 0.5),
        ("s = Mul(a, half) t = Mul(two, b) m = MatMul(s, t) y = Mul(m, half)", 0.5),
    ],
)
def test_scalars_move_through_linear_operators(text: str, scale: float) -> None:

    result = model(text, inputs="float[N, 8] a, float[8, 4] b", outputs="float[N, 4] y", constants=C)
    (match,) = found(SCALED, result).matches
    assert match.bindings["scale"] == pytest.approx(scale)
    assert match.bindings["a"] is result.graph.inputs[0]


@pytest.mark.parametrize("text", ["p = MatMul(a, b) s = Add(c, p) y = Relu(s)", "s = Gemm(a, b, c) y = Relu(s)"])
def test_gemm_is_a_product_and_a_sum(text: str) -> None:
    inputs = "float[N, 8] a, float[8, 4] b, float[4] c"
    assert matches(AFFINE, model(text, inputs=inputs, outputs="float[N, 4] y")) == 1


@pytest.mark.parametrize("attribute", ["transB = 1", "alpha = 0.5", "beta = 2.0"])
def test_a_gemm_with_other_attributes_is_not_affine(attribute: str) -> None:
    inputs = "float[N, 8] a, float[8, 8] b, float[8] c"
    assert matches(AFFINE, model(f"s = Gemm<{attribute}>(a, b, c) y = Relu(s)", inputs=inputs, outputs="float[N, 8] y")) == 0


@pytest.mark.parametrize("opset", [9, 13, 18])
@pytest.mark.parametrize(
    ("call", "shape", "count"),
    [
        ("ReduceMean(x, axes=[-1])", "N, 4, 8", 1),
        ("ReduceMean(x, axes=[-2, -1])", "N, 4, 8, 8", 1),
        ("ReduceMean(x, axes=_)", "N, 4, 8, 8, 8", 1),
        ("GlobalAveragePool(x)", "N, 4, 8", 1),
        ("ReduceMean(x, axes=[-1])", "N, 4, 8, 8", 0),
        ("ReduceMean(x, axes=[1, 2])", "N, 4, 8", 0),
        ("ReduceMean(x, axes=[-1], keepdims=0)", "N, 4, 8", 0),
        ("ReduceMean(x)", "N, 4, 8", 0),
        ("ReduceMean(x, **rest)", "N, 4, 8", 0),
        ("ReduceMax(x, axes=[-1])", "N, 4, 8", 0),
        ("ReduceMean(x, axes=_)", "", 0),
    ],
)
def test_a_global_average_pool_is_a_mean_over_the_axes_from_the_third_one_on(
    opset: int, call: str, shape: str, count: int
) -> None:
    """If its rank is known, and the pattern does not take the attributes of a ReduceMean."""
    made = "y = ReduceSum(x, **rest)" if "rest" in call else "y = Exp(x)"
    probe = pattern(f"y = Exp({call})", made, example='{x: "float32[2, 3, 4]"}')
    inputs = f"float[{shape}] x" if shape else "float[A, B, C] w, int64[R] sizes"
    text = "g = GlobalAveragePool(x) y = Exp(g)"
    graph = model(text if shape else f"x = Reshape(w, sizes) {text}", opset=opset, inputs=inputs)
    assert matches(probe, graph) == count


@pytest.mark.parametrize(
    ("opset", "text", "count"),
    [
        (13, "m = ReduceMean<axes = [-1]>(x) y = Exp(m)", 1),
        (13, "m = ReduceMean<axes = [1], keepdims = 1>(x) y = Exp(m)", 1),
        (18, "a = Constant<value_ints = [-1]>() m = ReduceMean(x, a) y = Exp(m)", 1),
        (18, "a = Constant<value_ints = [1]>() m = ReduceMean<noop_with_empty_axes = 0>(x, a) y = Exp(m)", 1),
        (13, "m = ReduceMean<axes = [0]>(x) y = Exp(m)", 0),
        (13, "m = ReduceMean(x) y = Exp(m)", 0),
        (13, "m = ReduceMean<axes = [-1], keepdims = 0>(x) y = Exp(m)", 0),
    ],
)
def test_schema_history_and_defaults(opset: int, text: str, count: int) -> None:
    assert matches(MEAN, model(text, opset=opset, outputs="float[N, M] y")) == count


def test_computed_axes_are_not_static() -> None:
    result = model("m = ReduceMean(x, a) y = Exp(m)", inputs="float[N, 8] x, int64[1] a", outputs="float[N, M] y")
    assert matches(MEAN, result) == 0


@pytest.mark.parametrize("text", ["r = Relu(x) t = Tanh(x) y = Max(r, t)", "r = Relu(x) t = Tanh(x) y = Max(t, r)"])
def test_commutative_operators_in_either_order(text: str) -> None:
    assert matches(BOTH, model(text, outputs="float[N, 8] y")) == 1


@pytest.mark.parametrize(
    ("opset", "axis", "count"), [(11, "axis = 1", 1), (11, "axis = 0", 0), (11, "axis = -1", 1), (13, "axis = 1", 1)]
)
def test_softmax_before_opset_13_only_where_both_meanings_agree(opset: int, axis: str, count: int) -> None:
    probe = pattern("y = Exp(Softmax(x, axis=-1))", "y = Exp(x)", example=X)
    assert matches(probe, model(f"s = Softmax<{axis}>(x) y = Exp(s)", opset=opset, outputs="float[N, 8] y")) == count


@pytest.mark.parametrize(("assumes", "count"), [("[finite]", 1), ("[]", 0)])
def test_a_nan_guard_is_looked_through_only_where_the_pattern_assumes_finite(assumes: str, count: int) -> None:
    probe = pattern("y = Relu(Exp(x))", "y = Exp(x)", example=X, assumes=assumes)
    text = "e = Exp(x) n = IsNaN(e) g = Where(n, zero, e) y = Relu(g)"
    assert matches(probe, model(text, outputs="float[N, 8] y", constants="float zero = {0}")) == count


def test_a_pattern_that_mentions_nan_matches_the_guard() -> None:
    formula = "e = Exp(x)\nempty = IsNaN(e)\ny = Relu(Where(empty, 0.0, e) | e)"
    probe = pattern(formula, "y = Exp(x)", example=X, assumes="[finite]", where="[empty is not None]")
    guarded = "e = Exp(x) n = IsNaN(e) g = Where(n, zero, e) y = Relu(g)"
    assert matches(probe, model(guarded, outputs="float[N, 8] y", constants="float zero = {0}")) == 1
    assert matches(probe, model("e = Exp(x) y = Relu(e)", outputs="float[N, 8] y")) == 0


@pytest.mark.parametrize(("mixed", "count"), [("true", 1), ("false", 0)])
def test_float_casts_are_looked_through_only_in_mixed_precision(mixed: str, count: int) -> None:
    probe = pattern("y = Relu(Exp(x))", "y = Exp(x)", example=X, **{"mixed-precision": mixed})
    text = "w = Cast<to = 1>(x) e = Exp(w) n = Cast<to = 10>(e) y = Relu(n)"
    assert matches(probe, model(text, inputs="float16[N, 8] x", outputs="float16[N, 8] y")) == count


BOUNDED = pattern("y = Exp(Max(x, low))", "y = LeakyRelu(x, alpha=low)", example=X[:-1] + ", low: 0.5}")
SIX = pattern("y = Exp(Min(x, 6))", "y = Exp(x)", example=X)


@pytest.mark.parametrize(("rank", "expected"), [("", 1), ("[1]", 1), ("[1, 1]", 1), ("[1, 1, 1]", 0)])
@pytest.mark.parametrize("order", ["x, k", "k, x"])
def test_a_number_as_an_argument_may_not_raise_the_rank(rank: str, expected: int, order: str) -> None:
    """`Max(x, low)` with a literal or captured number has x's rank. A constant of higher rank would raise the rank."""
    for probe, operator, number in ((BOUNDED, "Max", "0.5"), (SIX, "Min", "6.0")):
        graph = model(f"m = {operator}({order}) y = Exp(m)", constants=f"float{rank} k = {{{number}}}")
        assert matches(probe, graph) == expected


def test_a_number_of_some_rank_may_raise_a_rank_that_is_not_known() -> None:
    text = "s = Reshape(x, r) m = Max(s, k) y = Exp(m)"
    graph = model(text, inputs="float[N, 8] x, int64[R] r", constants="float[1] k = {0.5}")
    assert matches(BOUNDED, graph) == 0


@pytest.mark.parametrize(
    "text",
    [
        "m = Max(r, t) y = Max(m, e)",
        "m = Max(t, e) y = Max(r, m)",
        "m = Max(e, r) i = Identity(m) y = Max(t, i)",
        "y = Max(e, t, r)",
    ],
)
@pytest.mark.parametrize("formula", ["Max(Max(Relu(x), Tanh(x)), Exp(x))", "Max(Relu(x), Tanh(x), Exp(x))"])
def test_grouping_of_associative_operators(formula: str, text: str) -> None:
    probe = pattern(f"y = {formula}", "y = Exp(x)", example=X)
    graph = f"r = Relu(x) t = Tanh(x) e = Exp(x) {text}"
    assert matches(probe, model(graph, outputs="float[N, 8] y")) == 1
    assert matches(probe, model(graph.replace("Tanh", "Neg"), outputs="float[N, 8] y")) == 0


@pytest.mark.parametrize("text", ["m = And(a, b) y = And(m, c)", "m = And(c, b) y = And(a, m)"])
def test_grouping_of_logic(text: str) -> None:
    probe = pattern(
        "y = Not(And(And(p, Not(q)), r))", "y = Not(Xor(Xor(p, q), r))", example='{p: "bool[2]", q: "bool[2]", r: "bool[2]"}'
    )
    inputs = "bool[N] a, bool[N] x, bool[N] c"
    assert matches(probe, model(f"b = Not(x) {text} z = Not(y)", inputs=inputs, outputs="bool[N] z")) == 1


def test_a_captured_operator_may_be_neg() -> None:
    """`Neg` is a product only where it is called as nothing else."""
    probe = pattern("y = Exp(op[Neg](x))", "y = Exp(op(x))", example=X)
    assert matches(probe, model("a = Neg(x) y = Exp(a)", outputs="float[N, 8] y")) == 1


@pytest.mark.parametrize("formula", ["d = x - z\ny = d * d", "d = x - z\ny = d ** 2", "y = (x - z) * (x - z)"])
def test_the_square_of_a_sum_is_found_in_any_spelling(formula: str) -> None:
    square = pattern(formula, "y = Max(x, z)", example='{"x, z": "float32[2, 8]"}')
    inputs = "float[N, 8] x, float[N, 8] z"
    for nodes in ("d = Sub(x, z) y = Mul(d, d)", "d = Sub(x, z) y = Pow(d, two)", "d = Sub(x, z) e = Sub(x, z) y = Mul(d, e)"):
        assert matches(square, model(nodes, inputs=inputs, constants=C)) == 1
    assert matches(square, model("d = Sub(x, z) e = Sub(z, x) y = Mul(d, e)", inputs=inputs)) == 0


def test_sums_that_may_differ_are_no_square() -> None:
    product = pattern("y = (x - _) * (x - _)", "y = Tanh(x)", example='{"x": "float32[2, 8]"}')
    inputs = "float[N, 8] x, float[N, 8] a, float[N, 8] b"
    assert matches(product, model("d = Sub(x, a) e = Sub(x, b) y = Mul(d, e)", inputs=inputs)) == 1


OPPOSITE = "float[2] k = {3, -4}, float[2] n = {-3, 4}, float[2] m = {-3, 5}"
OPPOSITE_TEXT = "p = Mul(x, k) q = Mul(z, FACTOR) y = Add(p, q)"


@pytest.mark.parametrize(("factor", "is_first", "expected"), [("n", False, 1), ("n", True, 1), ("m", False, 0), ("k", False, 0)])
def test_a_constant_may_be_the_negative_of_another_one(factor: str, is_first: bool, expected: int) -> None:
    """`n` is -1 times `k`, whichever of them comes first; `m` differs in one element."""
    difference = pattern("y = x * k - z * k", "y = (x - z) * k", example='{"x, z": "float32[2, 2]", k: "float32[2] constant"}')
    text = OPPOSITE_TEXT.replace("FACTOR", factor)
    nodes = f"first = Mul(z, {factor}) {text}" if is_first else text
    outputs = "float[N, 2] y, float[N, 2] first" if is_first else "float[N, 2] y"
    made = model(nodes, inputs="float[N, 2] x, float[N, 2] z", outputs=outputs, constants=OPPOSITE)
    assert matches(difference, made) == expected


def test_an_overridable_constant_is_no_negative() -> None:
    difference = pattern("y = x * k - z * k", "y = (x - z) * k", example='{"x, z, k": "float32[2, 2]"}')
    inputs = "float[N, 2] x, float[N, 2] z, float[2] n"
    text = OPPOSITE_TEXT.replace("FACTOR", "n")
    assert matches(difference, model(text, inputs=inputs, outputs="float[N, 2] y", constants=OPPOSITE)) == 0


def test_a_constant_is_matched_as_it_is_first() -> None:
    """`n` is `k`'s negative, and yet a plain product with `n` stays one."""
    scaled = pattern("y = Exp(x * w)", "y = Exp(x + w)", example='{x: "float32[2, 2]", w: "float32[2] constant"}')
    text = "p = Mul(x, k) a = Exp(p) q = Mul(x, n) b = Exp(q)"
    made = model(text, inputs="float[N, 2] x", outputs="float[N, 2] a, float[N, 2] b", constants=OPPOSITE)
    assert {getattr(match.bindings["w"], "name", None) for match in found(scaled, made).matches} == {"k", "n"}
