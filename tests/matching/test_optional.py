"""Laws of optional names: `b?` is an input, addend or factor that may be absent. Otherwise the formula means the same."""

from __future__ import annotations

import re

import numpy as np
import pytest

from onnx_subgraph.matching.find import find
from onnx_subgraph.proving import prove
from tests.matching.graphs import found, matches, model, pattern
from tests.proving.patterns import written
from tests.rewriting.stage import pattern as staged
from tests.rewriting.stage import rewritten

HEAD = '<ir_version: 8, opset_import: ["": 17]>'
CONV = f"{HEAD} g (float[1, 2, 4, 4] x, float[3, 2, 1, 1] w, float[3] b) => (float[1, 3, 4, 4] y)"
FEEDS = {n: np.arange(1, 1 + np.prod(s), dtype=np.float32).reshape(s) for n, s in {"x": (2, 3), "z": (2, 3), "b": (3,)}.items()}
IMAGE = '{x: "float32[1, 2, 4, 4]", w: "float32[3, 2, 1, 1]", b: "float32[3]"}'
ROWS = f"{HEAD} g (float[2, 3] x, float[2, 3] z, float[3] b) => (float[2, 3] y) <float two = {{2.0}}>"
EIGHT = '{x: "float32[2, 8]", b: "float32[8]"}'
OF_RANK_1 = "float[8] b = {1, 2, 3, 4, 5, 6, 7, 8}"
ITEMS = {
    "an addend": (
        "y = Tanh(x + b?)",
        {"s = Add(x, b) y = Tanh(s)": True, "y = Tanh(x)": True, "s = Mul(x, b) y = Tanh(s)": False},
    ),
    "what is taken away": ("y = Tanh(x - b?)", {"s = Sub(x, b) y = Tanh(s)": True, "y = Tanh(x)": True}),
    "a factor": ("y = Tanh(x * b?)", {"s = Mul(b, x) y = Tanh(s)": True, "y = Tanh(x)": True}),
    "a divisor": ("y = Tanh(x / b?)", {"s = Div(x, b) y = Tanh(s)": True, "y = Tanh(x)": True}),
    "the first item": (
        "y = Tanh(b? - Relu(x))",
        {"r = Relu(x) s = Sub(b, r) y = Tanh(s)": True, "r = Relu(x) s = Neg(r) y = Tanh(s)": True},
    ),
    "a factor beside an addend": (
        "y = Tanh(z? * Relu(x) + b?)",
        {
            "r = Relu(x) m = Mul(r, z) s = Add(b, m) y = Tanh(s)": True,
            "r = Relu(x) m = Mul(r, z) y = Tanh(m)": True,
            "r = Relu(x) s = Add(b, r) y = Tanh(s)": True,
            "r = Relu(x) y = Tanh(r)": True,
            "y = Tanh(x)": False,
        },
    ),
    "the result of a line": (
        "e = Exp(b)\ny = Tanh(x + e?)",
        {"e = Exp(b) s = Add(x, e) y = Tanh(s)": True, "y = Tanh(x)": True},
    ),
    "a chain that the graph groups otherwise": (
        "e = b - Exp(z)\ny = Tanh(x + e?)",
        {"e = Exp(z) t = Add(x, b) s = Sub(t, e) y = Tanh(s)": True, "y = Tanh(x)": True},
    ),
}


def values(formula: str) -> str:
    """The example for these names of a formula."""
    shapes = {"x": "float32[2, 3]", "z": "float32[2, 3]", "b": "float32[3]"}
    return "{" + ", ".join(f'{n}: "{s}"' for n, s in shapes.items() if re.search(rf"\b{n}\b", formula)) + "}"


@pytest.mark.parametrize("item", ITEMS)
def test_an_item_of_a_sum_or_product_may_be_absent(item: str) -> None:
    formula, graphs = ITEMS[item]
    probe = staged(formula, example=values(formula))
    for text, is_match in graphs.items():
        stage = rewritten(f"{ROWS} {{ {text} }}", probe, target="function")
        whole = [n.op_type for n in stage.model.graph] == ["Fused"]
        assert whole is is_match, text
        if is_match:
            stage.agrees(FEEDS)


@pytest.mark.parametrize(("inputs", "given"), [("x, w, b", 3), ("x, w", 2), ("x, w, ", 2)])
def test_an_optional_input_may_be_left_out(inputs: str, given: int) -> None:
    fused = 'y = com.microsoft.FusedConv(x, w, b, activation="Relu", **rest)'
    conv = staged("c = Conv(x, w, b?, **rest)\ny = Relu(c)", example=IMAGE, onnxruntime=fused)
    (node,) = rewritten(f"{CONV} {{ c = Conv({inputs}) y = Relu(c) }}", conv).model.graph
    assert node.op_type == "FusedConv" and len(node.inputs) == given


def test_an_optional_input_may_come_before_one_that_is_present() -> None:
    bounded = staged("y = Relu(Clip(x, low?, high?))", example='{x: "float32[2]", low: "float32[]", high: "float32[]"}')
    for inputs in ("x", "x, low", "x, , high", "x, low, high"):
        text = f"{HEAD} g (float[N] x, float low, float high) => (float[N] y) {{ c = Clip({inputs}) y = Relu(c) }}"
        assert len(rewritten(text, bounded, target="function").matches) == 1, inputs


@pytest.mark.parametrize(
    ("text", "scale"),
    [
        ("m = Mul(x, two) y = Tanh(m)", 2.0),
        ("m = Mul(two, x) n = Mul(m, two) y = Tanh(n)", 4.0),
        ("m = Div(x, two) y = Tanh(m)", 0.5),
        ("y = Tanh(x)", None),
    ],
)
def test_an_optional_number_binds_the_remaining_constant_or_nothing(text: str, scale: float | None) -> None:
    """A name for a number binds the constants of a product as one number. Without constants it is absent."""
    probe = pattern(
        "y = Tanh(k? * x)",
        "y = LeakyRelu(x, alpha=a)",
        example='{x: "float32[2, 8]", k: 2.0}',
        let="a = 0.1 if k is None else k.value",
    )
    (match,) = found(probe, model(text, constants="float two = {2.0}")).matches
    assert match.bindings.get("k") == scale


@pytest.mark.parametrize("name", ["k", "b"])
def test_a_name_is_absent_everywhere_or_nowhere(name: str) -> None:
    """`k? * a + k? * b` has one scale for both terms. A graph that scales only one of them does not match."""
    uses = "y = LeakyRelu(Sum(x, z), alpha=a)" if name == "k" else "y = Sum(x, z, b)"
    more = {"let": "a = 0.1 if k is None else k.value"} if name == "k" else {}
    example = (
        '{x: "float32[2, 8]", z: "float32[2, 8]", k: 2.0}'
        if name == "k"
        else '{x: "float32[2, 8]", z: "float32[2, 8]", b: "float32[8]"}'
    )
    probe = pattern(f"y = {name}? * Tanh(x) + {name}? * Relu(z)", uses, example=example, **more)
    constants = {"k": "float k = {2.0}", "b": "float[8] b = {1, 2, 3, 4, 5, 6, 7, 8}"}[name]
    inputs = "float[N, 8] x, float[N, 8] z"
    both = f"t = Tanh(x) r = Relu(z) m = Mul(t, {name}) n = Mul({name}, r) y = Add(m, n)"
    one = f"t = Tanh(x) r = Relu(z) m = Mul(t, {name}) y = Add(m, r)"
    other = f"t = Tanh(x) r = Relu(z) n = Mul(r, {name}) y = Add(t, n)"
    neither = "t = Tanh(x) r = Relu(z) y = Add(t, r)"
    for text, expected in {both: 1, one: 0, other: 0, neither: 1}.items():
        assert matches(probe, model(text, inputs=inputs, constants=constants)) == expected, text


def test_a_sentence_asks_whether_an_optional_name_is_present() -> None:
    probe = pattern("y = Tanh(x + b?)", "y = Relu(x)", example=EIGHT, where="[b is not None and b.rank == 1]")
    assert matches(probe, model("s = Add(x, b) y = Tanh(s)", constants=OF_RANK_1)) == 1
    assert matches(probe, model("y = Tanh(x)")) == 0


@pytest.mark.parametrize(("text", "operators"), [("s = Add(x, b) y = Tanh(s)", ["Relu", "Add"]), ("y = Tanh(x)", ["Relu"])])
def test_an_optional_item_of_a_replacement_is_emitted_only_if_present(text: str, operators: list[str]) -> None:
    probe = staged("y = Tanh(x + b?)", example=values("x b"), standard="y = Relu(x) + b?")
    assert rewritten(f"{ROWS} {{ {text} }}", probe, target="standard").operators == operators


@pytest.mark.parametrize(("text", "operators"), [("s = Mul(x, b) y = Tanh(s)", ["Relu", "Mul"]), ("y = Tanh(x)", ["Relu"])])
def test_an_optional_factor_of_a_replacement_is_left_out_if_absent(text: str, operators: list[str]) -> None:
    """Without the mark `?`, a product with an absent factor would itself be absent, such as `b * k` for an absent bias b."""
    probe = staged("y = Tanh(x * b?)", example=values("x b"), standard="y = Relu(x) * b?")
    assert rewritten(f"{ROWS} {{ {text} }}", probe, target="standard").operators == operators


def test_a_proof_tries_a_formula_with_and_without_optional_names() -> None:
    """A replacement that is right only with the bias fails its proof."""
    proof = prove(written("y = Tanh(x + b?)", "y = Tanh(Add(x, b))", '{x: "float32[2, 8]", b: "float32[8]"}'))
    assert any("`without b` was never proved" in failure for failure in proof.failures), proof.failures
    right = prove(written("y = Tanh(x + b?)", "y = Tanh(x + b)", '{x: "float32[2, 8]", b: "float32[8]"}'))
    assert not right.failures


def test_a_near_miss_writes_the_formula_as_the_pattern_does() -> None:
    probe = pattern("y = Tanh(Sinh(Log(x) * b? + Exp(x)))", "y = Sum(x, b)", example=EIGHT)
    text = "e = Exp(x) l = Log(x) m = Mul(l, b) s = Max(m, e) h = Sinh(s) y = Tanh(h)"
    misses = find(model(text, constants=OF_RANK_1), [probe], thorough=True, asked=True).near_misses
    assert any("`Log(x) * b? + Exp(x)`" in miss.expected for miss in misses), misses
