"""A scalar in a pattern: sentences may combine its facts and its value, wherever else it is used."""

from __future__ import annotations

from itertools import cycle

import pytest

from onnx_subgraph.errors import PatternError
from onnx_subgraph.facts import Facts, Number
from onnx_subgraph.matching.normalise import normalise
from onnx_subgraph.model.constants import Constants
from tests.matching.graphs import found, matches, model, pattern

STANDING = {
    "a factor": ("y = Tanh(x * k)", "t = Mul(x, k) y = Tanh(t)"),
    "an addend": ("y = Tanh(x + k)", "t = Add(k, x) y = Tanh(t)"),
    "a divisor": ("y = Tanh(x / k)", "t = Div(x, k) y = Tanh(t)"),
    "what is taken away": ("y = Tanh(x - k)", "t = Sub(x, k) y = Tanh(t)"),
    "an operand": ("y = Tanh(Max(x, k))", "t = Max(x, k) y = Tanh(t)"),
    "in two places": ("y = Tanh(x * k) + k", "t = Mul(x, k) u = Tanh(t) y = Add(u, k)"),
    "the product of two": ("y = Tanh(x * k)", "s = Mul(x, root) t = Mul(root, s) y = Tanh(t)"),
}
USED = {"nowhere": "y = Elu(x)", "as a value": "y = Relu(Mul(x, k))", "as an attribute": "y = LeakyRelu(x, alpha=k)"}
FACTS = [
    "k.is_scalar",
    "k.is_constant",
    "k.rank == 0",
    "k.dtype == float32",
    "k.shape == []",
    "not k.is_output",
    "not k.is_doubled",
    "k.lower_bound > 1",
    "k.magnitude < 3",
]
VALUES = ["k.value > 1", "k > 1", "k.value == 2"]
CONSTANTS = "float k = {2.0}, float root = {1.41421356}"
EXAMPLE = '{x: "float32[2, 8]", k: 2.0}'


@pytest.mark.parametrize("used", USED)
@pytest.mark.parametrize("standing", STANDING)
def test_facts_and_value_of_a_scalar_combine(standing: str, used: str) -> None:
    formula, text = STANDING[standing]
    graph = model(text, constants=CONSTANTS)
    sentences = [[half] for half in (*FACTS, *VALUES)]
    for fact, value in zip(FACTS, cycle(VALUES), strict=False):
        sentences += [[f"{fact} and {value}"], [f"{value} and {fact}"], [fact, value]]
    for where in sentences:
        assert matches(pattern(formula, USED[used], example=EXAMPLE, where=str(where)), graph) == 1, where


@pytest.mark.parametrize(
    ("formula", "text", "count"),
    [
        ("y = Tanh(-(k * x))", "m = Mul(x, k) n = Neg(m) y = Tanh(n)", 1),
        ("y = Tanh(-(k * x))", "n = Mul(x, minus) m = Mul(n, k) y = Tanh(m)", 1),
        ("y = Tanh(-(k * x))", "m = Mul(k, x) n = Mul(minus, m) y = Tanh(n)", 1),
        ("y = Tanh(x + k + 1)", "s = Add(x, one) t = Add(k, s) y = Tanh(t)", 1),
        ("y = Tanh(x - k + 1)", "s = Sub(x, k) t = Add(one, s) y = Tanh(t)", 1),
        ("y = Tanh(Sigmoid(k * x))", "m = Mul(x, k) n = Neg(m) e = Exp(n) s = Add(e, one) d = Div(one, s) y = Tanh(d)", 1),
        ("y = Tanh(-(k * x))", "m = Mul(x, k) y = Tanh(m)", 0),
        ("y = Tanh(x + k + 1)", "s = Add(x, two) t = Add(k, s) y = Tanh(t)", 0),
    ],
)
def test_a_name_stands_for_a_constant_beside_a_number(formula: str, text: str, count: int) -> None:
    """The number is one of the constants, or what they leave; the name is another one, as a value."""
    constants = "float k = {1.7}, float minus = {-1}, float one = {1}, float two = {2}"
    probe = pattern(formula, "y = Max(x, k)", example=EXAMPLE)
    bound = [{match.bindings[name].name for name in "xk"} for match in found(probe, model(text, constants=constants)).matches]
    assert bound == [{"x", "k"}] * count  # in either order


@pytest.mark.parametrize(
    ("sentence", "why", "change"),
    [
        ("k.is_scalar and k.value > 3", "`k.value > 3` is false: k.value is 2", "let k.value be more than 3"),
        ("k.value > 1 and k.rank == 1", "`k.rank == 1` is false: k.rank is 0", "let k.rank be 1"),
        ("k.dtype == float16 and k > 1", "`k.dtype == float16` is false: k.dtype is float32", "let k.dtype be float16"),
    ],
)
def test_a_near_miss_names_the_half_that_is_false(sentence: str, why: str, change: str) -> None:
    probe = pattern("y = Tanh(x * k)", "y = LeakyRelu(x, alpha=k)", example=EXAMPLE, where=f"['{sentence}']")
    (miss,) = found(probe, model("t = Mul(x, k) y = Tanh(t)", constants=CONSTANTS)).near_misses
    assert why in miss.found
    assert change in miss.change


def test_the_rank_of_a_stored_constant_can_be_asked() -> None:
    probe = pattern("y = Tanh(x * k)", "y = LeakyRelu(x, alpha=k)", example=EXAMPLE, where="[k.rank == 1 and k.value > 1]")
    assert matches(probe, model("t = Mul(x, k) y = Tanh(t)", constants="float[1] k = {2.0}")) == 1
    assert matches(probe, model("t = Mul(x, k) y = Tanh(t)", constants=CONSTANTS)) == 0


def test_a_name_that_let_sets_to_a_constant_has_its_value() -> None:
    probe = pattern(
        "y = Tanh(Max(x, k))", "y = LeakyRelu(x, alpha=slope)", example=EXAMPLE, let="|\n  slope = k", where="[slope > 1]"
    )
    (match,) = found(probe, model("t = Max(x, k) y = Tanh(t)", constants=CONSTANTS)).matches
    assert match.bindings["slope"] == 2.0


def test_an_attribute_has_the_facts_of_its_value() -> None:
    formula, example = "y = Exp(ReduceMean(x, axes=axes, keepdims=1))", '{x: "float32[2, 8]", axes: [-1]}'
    graph = model("m = ReduceMean<axes = [1]>(x) y = Exp(m)", opset=17)
    for where, count in (("axes.rank == 1 and axes.is_constant", 1), ("axes.shape == [1]", 1), ("axes.rank == 0", 0)):
        assert matches(pattern(formula, "y = Exp(x)", example=example, where=f"['{where}']"), graph) == count
    (miss,) = found(pattern(formula, "y = Exp(x)", example=example, where="[axes.dtype == int64]"), graph).near_misses
    assert "`axes` is no value of the graph and has no dtype" in miss.found


@pytest.mark.parametrize(
    ("text", "count"),
    [("s = Sigmoid(x) y = Tanh(s)", 1), ("s = Tanh(x) t = Sub(s, k) y = Tanh(t)", 1), ("s = Mul(x, k) y = Tanh(s)", 0)],
    ids=["a gate", "too low", "not known"],
)
def test_a_lower_bound_is_that_of_any_run(text: str, count: int) -> None:
    probe = pattern("y = Tanh(z)", "y = Elu(z)", example='{z: "float32[2, 8]"}', where="[z.lower_bound > -2.5]")
    low = pattern(
        "y = Tanh(z)", "y = Elu(z)", example='{z: "float32[2, 8]"}', where="[z.lower_bound < -2.5 or z.lower_bound >= -1]"
    )
    graph = model(text, constants=CONSTANTS)
    assert (matches(probe, graph), matches(low, graph)) == ((0, 1) if "Sub" in text else (count, count))


def test_the_magnitude_of_a_constant_is_its_largest_absolute_value() -> None:
    graph = model(
        'i = Cast <to = 3> (low) s = Constant <value = string[1] {"a"}> () e = Constant <value = float[0] {}> () y = Add (x, k)',
        constants="float[2] k = {-3, 2}, float low = {-128}",
    )
    constants = Constants(graph)
    values = {v.name: v for node in graph.graph for v in (*node.inputs, *node.outputs) if v is not None}
    found = {name: Facts(constants, values[name]).magnitude for name in ("k", "i", "e", "s", "x")}
    assert found == {"k": 3.0, "i": 128.0, "e": 0.0, "s": None, "x": None}
    assert Number(-2.0, "float32", ()).magnitude == 2.0


@pytest.mark.parametrize(
    ("formula", "what"),
    [
        ("(1e200 * x) ** 2", "product"),
        ("Div(x, 0)", "product"),
        ("Mul(x, 0)", "product"),
        ("x - inf", "sum"),
        ("x * inf", "product"),
    ],
)
def test_constants_that_are_0_or_infinite_are_refused_with_their_place(formula: str, what: str) -> None:
    with pytest.raises(PatternError, match=f"the {what} is .*infinite") as raised:
        normalise(pattern(f"y = Tanh({formula})", "y = Abs(x)", example='{x: "float32[2]"}'))
    assert raised.value.span is not None
