"""Laws of grouping: nothing is lost, equal layers are one entry, and different reasons stay separate."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from onnx_subgraph.matching.match import NearMiss
from onnx_subgraph.report import grouping
from onnx_subgraph.rewriting.rewrite import Rewrite, Skip

patterns = st.sampled_from(["gelu", "layer-normalization", "swish"])
operators = st.sampled_from(["com.microsoft.Gelu", "Gelu", "LayerNormalization"])
numbers = st.integers(0, 30)


@st.composite
def rewrites(draw: st.DrawFn) -> Rewrite:
    replaced = draw(st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=4))
    return Rewrite(draw(patterns), draw(operators), f"n{draw(numbers)}", tuple(replaced), draw(st.integers(0, 2)))


@st.composite
def near_misses(draw: st.DrawFn) -> NearMiss:
    layer = draw(numbers)
    found = draw(st.sampled_from(["the constant {}", "/layer.{}/Add", "no constant"])).format(layer)
    return NearMiss(draw(patterns), None, f"a{layer}", f"n{layer}", draw(st.sampled_from(["0.5", "1.0"])), found, draw(numbers))


@given(st.lists(rewrites()))
def test_fusions_keep_every_rewrite_and_count_its_nodes(given_rewrites: list[Rewrite]) -> None:
    groups = grouping.fusions(given_rewrites)
    assert sorted(id(site) for group in groups for site in group.sites) == sorted(map(id, given_rewrites))
    assert sum(group.removed for group in groups) == sum(len(r.replaces) for r in given_rewrites)
    assert sum(group.added for group in groups) == sum(r.added for r in given_rewrites)
    assert len({(group.pattern, group.op) for group in groups}) == len(groups)


@given(st.lists(near_misses()))
def test_all_near_misses_are_kept_and_the_furthest_come_first(misses: list[NearMiss]) -> None:
    """Each once: the same failure of two alternatives of a pattern at one place counts once."""
    groups = grouping.nearly_matched(misses)
    places = [(g.pattern, anchor, node, g.expected) for g in groups for anchor, node in zip(g.anchors, g.nodes, strict=True)]
    assert set(places) == {(m.pattern, m.anchor, m.node, m.expected) for m in misses}
    assert sum(len(g.nodes) for g in groups) == len({(m.pattern, m.anchor, m.node, m.expected, m.found) for m in misses})
    assert [group.matched for group in groups] == sorted((group.matched for group in groups), reverse=True)


def test_equal_layers_are_one_entry_and_different_constants_are_two() -> None:
    layers = [NearMiss("gelu", None, f"a{i}", f"n{i}", "0.5", f"/layer.{i}/Add_{i}", 3) for i in range(12)]
    constants = [NearMiss("gelu", None, "a", f"m{i}", "0.5", f"the constant 0.{i}4471", 2) for i in range(3)]
    groups = grouping.nearly_matched([*layers, *constants])
    assert [len(group.nodes) for group in groups] == [12, 1, 1, 1]


def test_operand_names_do_not_make_entries_differ() -> None:
    """The reason is that the graph has an Add instead of a product, whatever its operands are."""
    found = [
        NearMiss("g", None, "a", f"n{i}", "a product `x ** 2`", f"Add(/{name}/x, {name}_output)", 3)
        for i, name in enumerate("abc")
    ]
    wanted = [NearMiss("g", None, "a", f"m{i}", f"Tanh that reads `{name}`", "Clip", 2) for i, name in enumerate("abc")]
    others = [NearMiss("g", None, "a", "o", "a product `x ** 2`", "Sub(/a/x, a_output)", 1)]
    others += [NearMiss("g", None, "a", "p", "`len(axes) == 1`", "it is false: len(axes) is 2", 1)]
    groups = grouping.nearly_matched([*found, *wanted, *others])
    assert [len(group.nodes) for group in groups] == [3, 3, 1, 1]
    assert groups[0].found == "Add(/a/x, a_output)" and groups[1].expected == "Tanh that reads `a`", "the first is shown whole"


def test_skips_are_grouped_by_reason() -> None:
    skips = [Skip("gelu", f"n{i}", f"layer.{i}.weight is read elsewhere") for i in range(4)] + [Skip("gelu", "m", "float64", 20)]
    assert [(len(group.nodes), group.opset) for group in grouping.skipped(skips)] == [(4, None), (1, 20)]


def test_types_and_numbers_are_not_names() -> None:
    for words in ("float16", "1e-05", "0.044715", "axis 1", "[2, 8]", "opset 17"):
        assert grouping.anonymous(words) == words
    assert grouping.anonymous("/encoder/layer.11/Add_3") == grouping.anonymous("/encoder/layer.2/Add") == "/encoder/layer.#/Add"
    assert grouping.anonymous("val_12") == grouping.anonymous("val_7")
