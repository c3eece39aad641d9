"""The prefilter shares answers between patterns and computes each of them once."""

from __future__ import annotations

import math
from collections import Counter
from functools import cache
from pathlib import Path
from random import Random

import onnx_ir as ir
import pytest

from onnx_subgraph.files.models import load
from onnx_subgraph.language.library import load_patterns
from onnx_subgraph.matching import prefilter
from onnx_subgraph.matching.chain import Factorings
from onnx_subgraph.matching.expansion import Factoring
from onnx_subgraph.matching.find import find
from onnx_subgraph.matching.lookthrough import LookThrough
from onnx_subgraph.matching.normalise import normalise
from onnx_subgraph.matching.prefilter import Prefilter
from onnx_subgraph.matching.structure import Form, Items
from onnx_subgraph.matching.view import View
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.shapes import infer_shapes
from tests.matching.graphs import matches, model, pattern

SAMPLES = Path(__file__).parents[2] / "sample_models"
LAYER = "t{n} = Tanh(x{n}) e{n} = Erf(t{n}) x{m} = Mul(e{n}, b) "


@cache
def chains() -> tuple[Items, ...]:
    """The sums and products of the catalogue."""
    formulas = (normalise(pattern) for pattern in load_patterns().patterns if pattern.is_formula)
    found = dict.fromkeys(structure for normal in formulas for structure in normal.structures.values())
    return tuple(structure for structure in found if isinstance(structure, Items))


def sample(name: str) -> ir.Model:
    made = load(SAMPLES / name)
    infer_shapes(made)
    return made


def fresh(made: ir.Model) -> Prefilter:
    """A prefilter that has not been asked yet."""
    view = View(made.graph, Constants(made), dict(made.graph.opset_imports), made.graph)
    return Prefilter(LookThrough.of(view, casts=False, guards=False))


@pytest.mark.parametrize("name", ["gpt2_dynamo.onnx", "mobilenet_v3_torchscript.onnx"])
@pytest.mark.parametrize("seed", range(2))
def test_an_answer_does_not_depend_on_what_was_asked_before(name: str, seed: int) -> None:
    """The factorings of a value for a chain are those that a new prefilter gives, whichever chains it was asked about first."""
    made, random = sample(name), Random(seed)
    values = [value for node in made.graph for value in node.outputs]
    questions = [(chain, value) for chain in chains() for value in random.sample(values, k=len(values) // 3)]
    random.shuffle(questions)
    asked = fresh(made)
    together = {(chain, value): asked.chains(chain)(value) for chain, value in questions}
    for chain in random.sample(chains(), k=40):
        alone = fresh(made).chains(chain)
        assert all(alone(value) == found for (other, value), found in together.items() if other is chain)
    assert any(together.values())


@pytest.mark.parametrize(
    "body", ["p = Mul(x, large) y = Mul(p, large)", "p = Div(x, tiny) y = Neg(p)", "p = Mul(x, small) y = Mul(p, p)"]
)
def test_every_constant_of_a_product_is_a_finite_number(body: str) -> None:
    constants = "double large = {1e200}, double tiny = {1e-310}, double small = {1e-200}"
    made = model(body, inputs="double[N, 8] x", constants=constants)
    view = View(made.graph, Constants(made), dict(made.graph.opset_imports), made.graph)
    products = Factorings(LookThrough.of(view, casts=False, guards=False), is_product=True)
    found = products(made.graph.outputs[0], 4)
    assert found and all(factoring.constant and math.isfinite(factoring.constant) for factoring in found)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[int, Form, ir.Value]]:
    """How often the factorings of a value with a form were computed, for each look-through."""
    counted: Counter[tuple[int, Form, ir.Value]] = Counter()
    plain = prefilter.variants

    def variants(factorings: Factorings, form: Form, value: ir.Value) -> list[Factoring]:
        counted[id(factorings), form, value] += 1
        return plain(factorings, form, value)

    monkeypatch.setattr(prefilter, "variants", variants)
    return counted


def test_factorings_are_computed_once_for_all_chains_with_a_form(computed: Counter[tuple[int, Form, ir.Value]]) -> None:
    found = find(sample("bert_torchscript.onnx"), load_patterns().patterns)
    assert found.near_misses  # whose reasons use the same factorings
    assert set(computed.values()) == {1}


@pytest.mark.parametrize("layers", [3, 12])
def test_a_second_pattern_with_the_same_forms_computes_no_more(
    layers: int, computed: Counter[tuple[int, Form, ir.Value]]
) -> None:
    """There is one computation for each product of the graph, with one pattern or two."""
    text = "".join(LAYER.format(n=n, m=n + 1) for n in range(layers))
    made = model(f"{text} y = Relu(x{layers})", inputs="float[2, 3] x0, float[2, 3] b", outputs="float[2, 3] y")
    example = '{a: "float32[2, 3]", c: "float32[2, 3]"}'
    probes = [pattern(f"y = {inner} * a", "y = Mul(a, c)", example=example) for inner in ("Erf(c)", "Erf(Tanh(c))")]
    assert matches(probes[0], made) == computed.total() == layers
    computed.clear()
    assert len(find(made, probes).matches) == 2 * layers
    assert computed.total() == layers
