"""Instances: equal spellings give equal models, and ONNX's checker accepts every model."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import onnx
import pytest

from onnx_subgraph.language.pattern import Example, Pattern
from onnx_subgraph.proving import prove
from onnx_subgraph.proving.batch import batched
from onnx_subgraph.proving.covering import base_spellings, covering, spellings, spellings_of_each
from onnx_subgraph.proving.draw import draw
from onnx_subgraph.proving.given import drawn
from onnx_subgraph.proving.instance import Instance, build
from onnx_subgraph.proving.mutants import mutants
from onnx_subgraph.proving.sketch import alternatives_of
from onnx_subgraph.proving.spelling import LATEST, Spelling, UnbuildableError, points
from tests.proving.patterns import catalogue, written

PATTERNS = catalogue().patterns
OF_ONNXRUNTIME = {"SimplifiedLayerNormalization"}
"""Operators of onnxruntime in the standard's domain, which onnx's checker does not know."""


def instances(pattern: Pattern, *, pairs: bool) -> Iterator[tuple[Spelling, Instance]]:
    for spelling in spellings(pattern) if pairs else spellings_of_each(covering(pattern)):
        for attempt in (spelling, replace(spelling, opset=LATEST)):  # the operator may be of a later opset
            try:
                yield attempt, build(pattern, attempt)
                break
            except UnbuildableError:
                continue


@pytest.mark.parametrize("pattern", PATTERNS, ids=[p.id for p in PATTERNS])
def test_instances_are_valid_and_the_same_spelling_is_the_same_bytes(pattern: Pattern, thorough: bool) -> None:
    built = 0
    for spelling, instance in instances(pattern, pairs=thorough):
        built += 1
        again = build(pattern, spelling)
        assert again.proto.SerializeToString(deterministic=True) == instance.proto.SerializeToString(deterministic=True)
        assert all((again.feeds[n] == a).all() for n, a in instance.feeds.items())
        assert {i.name for i in instance.proto.graph.input} == set(instance.feeds)
        inferred = all(
            o.type.tensor_type.HasField("shape") for o in instance.proto.graph.output
        )  # not of every GroupNormalization
        if inferred and not any(n.domain or n.op_type in OF_ONNXRUNTIME for n in instance.proto.graph.node):
            onnx.checker.check_model(instance.proto)
    assert built


@pytest.mark.parametrize("pattern", PATTERNS, ids=[p.id for p in PATTERNS])
def test_some_spelling_chooses_each_alternative(pattern: Pattern) -> None:
    chosen = {c for s in base_spellings(pattern) for c in s.chosen.items()}
    assert chosen >= {(point, index) for point, words in points(pattern).items() for index in range(len(words))}


def test_spellings_differ_in_everything_in_which_exporters_differ() -> None:
    all_ = list(spellings(catalogue().get("layer-normalization")))
    assert {s.dtype for s in all_} >= {"float32", "float16", "float64"}
    assert {s.storage for s in all_} == {"initializer", "constant node", "rank one"}
    assert {s.opset for s in all_} >= {11, 13, 17, 18, 23}
    assert {s.axes_more for s in all_} == {-1, 0, 1}
    assert any(s.symbolic for s in all_) and any(s.mixed for s in all_) and any(s.other_axis for s in all_)
    assert len({str(s) for s in all_}) == len(set(map(str, all_)))


def test_axes_are_an_attribute_or_an_input_depending_on_the_opset() -> None:
    pattern = written("y = Exp(ReduceMean(x, axes=[-1]))", "y = Exp(x)", '{x: "float32[2, 8]"}')
    before, after = (build(pattern, Spelling(opset=o)).proto.graph for o in (17, 18))
    assert [a.name for a in before.node[0].attribute] == ["axes"] and len(before.node[0].input) == 1
    assert not after.node[0].attribute and len(after.node[0].input) == 2


def test_a_regrouped_sum_has_the_same_items() -> None:
    pattern = written("y = Exp(a + b - c)", "y = Exp(Sum(a, b, c))", '{a: "float32[4]", b: "float32[4]", c: "float32[4]"}')
    graphs = [build(pattern, Spelling(seed=seed)).proto.graph for seed in range(8)]
    assert len({onnx.printer.to_text(g) for g in graphs}) > 3
    assert all({i.name for i in g.input} == {"a", "b", "c"} for g in graphs)


def test_only_the_batch_is_symbolic() -> None:
    pattern = written(
        "y = Relu(Gemm(a, b, c))",
        "y = com.microsoft.FusedGemm(a, b, c)",
        '{a: "float32[2, 4]", b: "float32[4, 3]", c: "float32[3]"}',
    )
    graph = build(pattern, Spelling(symbolic=True)).proto.graph
    assert [[d.dim_param or d.dim_value for d in i.type.tensor_type.shape.dim] for i in graph.input] == [["N", 4], [4, 3], [3]]


def test_each_mutant_has_one_change() -> None:
    instance = build(catalogue().get("layer-normalization"), Spelling())
    before = instance.proto.SerializeToString()
    made = list(mutants(instance))
    assert instance.proto.SerializeToString() == before
    changes = [m.change for m in made]
    assert len(set(changes)) == len(changes)
    assert all(m.proto.SerializeToString() != before for m in made)
    for said in (
        "can be overridden",
        "has rank",
        "is a graph output",
        "second consumer",
        "body of an If",
        "swapped",
        "keepdims=0",
        "not [-1]",
    ):
        assert any(said in change for change in changes), said


def test_free_values_are_the_same_in_every_spelling() -> None:
    first, second = (build(catalogue().get("gelu"), s).feeds["x"] for s in (Spelling(), Spelling(seed=2, dtype="float64")))
    assert np.allclose(first, second)


CHOICES = """\
a = Relu(x) | Tanh(x) | Exp(scale? * x)
b = a * scale? | Sin(a) + shift? | a
y = (Abs | Neg)(b)"""


def test_every_pair_of_alternatives_that_can_occur_together_does_occur() -> None:
    """Compared with all combinations."""
    sizes = '{x: "float32[2, 3]", scale: "float32[3]", shift: "float32[3]"}'
    pattern = written(CHOICES, "y = com.microsoft.Gelu(x + scale + shift)", sizes)
    counts = {point: len(words) for point, words in points(pattern).items()}
    every = [Spelling(dict(zip(counts, chosen, strict=True))) for chosen in product(*map(range, counts.values()))]
    scales = [point for point, words in points(pattern).items() if "with scale" in words]
    agreeing = [s for s in every if len({s.chosen[point] for point in scales}) == 1]

    def pairs(spellings_: Iterable[Spelling]) -> set[frozenset[tuple[int, int]]]:
        return {frozenset(pair) for s in spellings_ for pair in combinations(build(pattern, s).used, 2)}

    few = covering(pattern).choices(together=2)
    assert pairs(map(Spelling, few)) == pairs(agreeing)
    assert len(few) * 3 < len(agreeing)


@pytest.mark.parametrize(
    "identifier",
    [
        pytest.param("multi-head-attention", marks=pytest.mark.thorough),
        "linear",
        "fast-gelu",
        "gemm-activation",
        "lp-normalization",
    ],
)
def test_each_possible_pair_of_alternatives_occurs_in_a_model_of_the_proof(identifier: str) -> None:
    """Compared with models of random alternatives. The first alternatives alone have few of the pairs."""
    pattern = catalogue().get(identifier)
    draw = random.Random(0)
    words = points(pattern)
    shown: set[frozenset[tuple[int, int]]] = set()
    for spelling in spellings(pattern):
        shown |= pairs_of(pattern, spelling.chosen)
    some = [{point: draw.choice((0, draw.randrange(len(of_one)))) for point, of_one in words.items()} for _ in range(400)]
    drawn = set().union(*(pairs_of(pattern, chosen) for chosen in some))
    assert drawn <= shown
    assert len(drawn - pairs_of(pattern, {})) > 5


def pairs_of(pattern: Pattern, chosen: Mapping[int, int]) -> set[frozenset[tuple[int, int]]]:
    """The pairs of alternatives in the model of this choice; empty if there is no such model."""
    try:
        used = alternatives_of(pattern, Spelling(chosen, opset=LATEST))
    except UnbuildableError:
        return set()
    return {frozenset(pair) for pair in combinations((one for one in used if one[0] in points(pattern)), 2)}


@pytest.mark.parametrize(
    ("formula", "is_symbolic"),
    [
        ('y = rearrange(x, "b s d -> s b d")', True),
        ('y = rearrange(x, "b s (h d) -> b h s d", h=2)', True),
        ('y = rearrange(Relu(x), "b s d -> 1 s (b d)")', False),  # N would be at an axis that Reshape merges
        ('y = rearrange(x, "1 s d -> s d")', False),
        ('y = rearrange(x, "a b c -> c a b") @ rearrange(z, "c d b -> c b d")', False),  # c is also the last axis of x
    ],
)
def test_a_batch_is_symbolic_only_where_it_stays_an_axis(formula: str, is_symbolic: bool) -> None:
    example = '{x: "float32[1, 4, 4]"' + (', z: "float32[4, 4, 4]"}' if "z" in formula else "}")
    replace = "Add(x, z)" if "z" in formula else "Relu(x)"
    graph = build(written(formula, f"y = {replace}", example), Spelling(symbolic=True)).proto.graph
    assert any(d.dim_param for i in graph.input for d in i.type.tensor_type.shape.dim) is is_symbolic


@pytest.mark.parametrize(("batch", "symbolic"), [(1, {"z"}), (2, set())])
def test_an_axis_that_is_broadcast_is_not_the_batch(batch: int, symbolic: set[str]) -> None:
    """z[1, 1, 4, 4] has one row for the batch of x[batch, 4, 4]."""
    feeds = {"x": np.ones((batch, 4, 4)), "z": np.ones((1, 1, 4, 4))}
    example = f'{{x: "float32[{batch}, 4, 4]", z: "float32[1, 1, 4, 4]"}}'
    assert batched(written("y = Relu(x) * z", "y = Add(x, z)", example), feeds) == symbolic


@pytest.mark.parametrize(
    "formula", ["y = Relu(x) ** 3", "a, _ = split(x, axis=-1, parts=2)\ny = Relu(a)", 'y = rearrange(Relu(x), "b s -> s b")']
)
def test_an_instance_has_no_node_that_its_formula_lacks(formula: str) -> None:
    """A power is built once, a rearrangement that moves axes is one Transpose, and an unnamed part counts for nothing."""
    proof = prove(written(formula, "y = Relu(x)", '{x: "float32[2, 8]"}'))
    assert not any("nodes left" in failure for failure in proof.failures)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_a_range_that_a_narrower_type_does_not_hold_is_cut(dtype: str) -> None:
    """An example of float32 stands for all floats; an infinite value would be another case than the author gave."""
    values = draw("x", Example("float32", (50,), -3e38, 3e38), dtype)
    assert np.isfinite(values.astype(np.float64)).all() and values.min() < 0 < values.max()


@pytest.mark.parametrize("kernel", [1, 2, 7])
def test_axes_without_a_size_hold_the_windows_of_a_model(kernel: int) -> None:
    """Of an empty result there is nothing to compare, and onnxruntime gives one where the standard gives none."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]> place (float[n, 3, m] x) => (float[n, 3, ?] y)
      {{ y = MaxPool <kernel_shape = [{kernel}], strides = [2]> (x) }}"""
    feeds = drawn(onnx.parser.parse_model(text))
    assert feeds["x"].shape == ((1, 3, 1) if kernel == 1 else (8, 3, 8))
