"""The cost of matching: polynomial in the terms of a sum, bounded where that is impossible, and every stop is reported."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import pytest

from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.matching import find as finding
from onnx_subgraph.matching.find import find
from onnx_subgraph.matching.matcher import MOST_STEPS, Matcher
from onnx_subgraph.rewriting.loadability import Loadability
from onnx_subgraph.rewriting.rounds import Rewriter
from tests.matching.graphs import matches, model, pattern


def products(count: int, **extra: str) -> Pattern:
    """The pattern a0 * b0 + a1 * b1 + …, of `count` products."""
    formula = " + ".join(f"a{i} * b{i}" for i in range(count))
    example = ", ".join(f'{n}{i}: "float32[2, 3]"' for n in "ab" for i in range(count))
    return pattern(
        f"y = {formula}", f"y = Sum({', '.join(f'a{i}, b{i}' for i in range(count))})", example=f"{{{example}}}", **extra
    )


def graph(count: int, last: str = "Mul({a}, {b})", *, balanced: bool = False, outputs: str = "float[2, 3] y") -> ir.Model:
    """A sum of `count` products of inputs, the last written as `last`. balanced: added as a balanced tree."""
    inputs = ", ".join(f"float[2, 3] {n}{i}" for n in "ab" for i in range(count))
    text = "".join(f"p{i} = Mul(a{i}, b{i}) " for i in range(count - 1))
    text += f"p{count - 1} = {last.format(a=f'a{count - 1}', b=f'b{count - 1}')} "
    pending = [f"p{i}" for i in range(count)]
    while len(pending) > 1:
        first, second = pending.pop(0), pending.pop(0)
        made = f"s{len(text)}"
        text += f"{made} = Add({first}, {second}) "
        pending = [*pending, made] if balanced else [made, *pending]
    return model(f"{text} y = Relu({pending[0]})", inputs=inputs, outputs=outputs)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """One entry for each time that a term is matched against a value."""
    counted: list[object] = []
    plain = Matcher.match

    def match(self: Matcher, term: Any, value: Any, state: Any) -> Any:
        counted.append(term)
        return plain(self, term, value, state)

    monkeypatch.setattr(Matcher, "match", match)
    return counted


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("count", [6, 7, 12, 40])
def test_a_sum_of_products_is_found_in_few_steps(count: int, balanced: bool, steps: list[object]) -> None:
    assert matches(products(count), graph(count, balanced=balanced)) == 1
    assert len(steps) < 10 * count


@pytest.mark.parametrize("last", ["Tanh({a})", "Max({a}, {b})"])
def test_a_sum_with_one_other_item_fails_in_few_steps(last: str, steps: list[object]) -> None:
    assert matches(products(8), graph(8, last)) == 0
    assert len(steps) < 100


def test_an_inner_value_with_other_readers_is_found_in_few_steps(steps: list[object]) -> None:
    """Another assignment of the items can't help if an inner value of the match has other readers."""
    assert matches(products(8), graph(8, outputs="float[2, 3] y, float[2, 3] p0")) == 0
    assert len(steps) < 200


def test_items_that_only_a_sentence_tells_apart_are_all_tried() -> None:
    probe = pattern(
        "y = Exp(a * b + c * d)",
        "y = Sum(a, b, c, d)",
        example='{a: "float32[2, 3]", b: "float32[2, 3]", c: "float32[2, 3]", d: "float32[3]"}',
        where="[d.rank == 1]",
    )
    for product in ("Mul(v, x)", "Mul(x, v)"):
        for total in ("Add(p, q)", "Add(q, p)"):
            text = f"p = {product} q = Mul(x, x2) s = {total} y = Exp(s)"
            assert matches(probe, model(text, inputs="float[2, 3] x, float[2, 3] x2, float[3] v")) == 1


def test_items_that_share_a_name_are_told_apart() -> None:
    probe = pattern(
        "y = Exp(a * b + c * b + Tanh(c))",
        "y = Sum(a, b, c)",
        example='{a: "float32[2, 3]", b: "float32[2, 3]", c: "float32[2, 3]"}',
    )
    inputs = "float[2, 3] p, float[2, 3] q, float[2, 3] r"
    for first, second in (("Mul(p, q)", "Mul(q, r)"), ("Mul(q, r)", "Mul(p, q)")):
        text = f"u = {first} v = {second} t = Tanh(r) s = Add(u, v) w = Add(s, t) y = Exp(w)"
        assert matches(probe, model(text, inputs=inputs)) == 1


HOPELESS = "[" + " + ".join(f"{n}{i}.rank" for n in "ab" for i in range(8)) + " == 3]"


def test_a_search_that_exceeds_the_bound_is_given_up_and_reported() -> None:
    found = find(graph(8), [products(8, where=HOPELESS)])
    assert not found.matches
    (given_up,) = found.given_up
    assert given_up.pattern == "probe"
    assert f"given up after {MOST_STEPS} steps" in given_up.reason


def test_a_pattern_that_gives_up_everywhere_is_not_searched_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "MOST_GIVEN_UP", 1)
    text = "".join(f"{p}p{i} = Mul(a{i}, b{i}) " for p in "uv" for i in range(8))
    for p in "uv":
        text += "".join(f"{p}s{i} = Add({p}{'p0' if i == 1 else f's{i - 1}'}, {p}p{i}) " for i in range(1, 8))
    inputs = ", ".join(f"float[2, 3] {n}{i}" for n in "ab" for i in range(8))
    found = find(model(f"{text} y = Sub(us7, vs7)", inputs=inputs), [products(8, where=HOPELESS)])
    (given_up,) = found.given_up
    assert "the rest of the graph was not searched" in given_up.reason


def test_the_report_names_a_pattern_that_gave_up() -> None:
    fused = Rewriter([products(8, where=HOPELESS)], "onnxruntime", [Loadability("CPUExecutionProvider")])(graph(8))
    (skip,) = fused.skips
    assert (skip.pattern, skip.reason) == ("probe", f"the search here was given up after {MOST_STEPS} steps")
    assert "two patterns" in skip.change


def test_a_line_that_several_alternatives_read_costs_as_much_as_one_reader() -> None:
    """Written out, this formula has 3 ** 40 terms."""
    lines = ["a0 = Erf(x)", *(f"a{i + 1} = Exp(a{i}) | Tanh(a{i}) | Sin(a{i})" for i in range(40)), "y = Relu(a40)"]
    probe = pattern("\n".join(lines), "y = Gelu(x)", example='{x: "float32[2, 8]"}')
    text = "b0 = Erf(x) " + "".join(f"b{i + 1} = {('Exp', 'Tanh', 'Sin')[i % 3]}(b{i}) " for i in range(40))
    assert matches(probe, model(f"{text} y = Relu(b40)")) == 1
    assert matches(probe, model(f"{text} z = Cos(b40) y = Relu(z)")) == 0
