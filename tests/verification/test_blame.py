"""Verification finds all wrong rewrites and no others, with few runs, and verifies the remaining model again."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from math import ceil, log2
from pathlib import Path
from random import Random

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_subgraph import FuseResult, Options, fuse, load_patterns
from onnx_subgraph.report.blame import sentences
from onnx_subgraph.rewriting.apply import Barred
from onnx_subgraph.rewriting.rewrite import Place, Rewrite
from onnx_subgraph.verification import bisection
from onnx_subgraph.verification.accuracy import Accuracy
from onnx_subgraph.verification.bisection import MORE, MOST_BISECTED, MOST_SEARCHED, Search, bisect
from onnx_subgraph.verification.blame import Settled, settle
from onnx_subgraph.verification.site import SiteCheck
from onnx_subgraph.verification.verdict import Run, Verdict
from onnx_subgraph.verification.verify import verify
from tests.verification.models import write
from tests.verification.planted import BRANCH, GELU, LATE, LINEAR, NORM, SOFT, TWICE, layers, patterns

ONCE = Run("CPUExecutionProvider", False, {}, 0, "y", 1.0, 0.1, (0,))
DIFFERENT, EQUAL = Verdict("different", runs=(ONCE,)), Verdict("equivalent")


def places(count: int) -> list[Place]:
    return [Place(f"p{i % 3}", "", (f"v{i}",)) for i in range(count)]


@given(st.data())
def test_bisection_finds_only_the_wrong_rewrites_with_few_verifications(data: st.DataObject) -> None:
    everywhere = places(data.draw(st.integers(1, 60)))
    guilty = set(data.draw(st.lists(st.sampled_from(everywhere), min_size=1, max_size=MOST_BISECTED, unique=True)))
    asked = 0

    def test(some: Collection[Place]) -> Verdict:
        nonlocal asked
        asked += 1
        return DIFFERENT if guilty & set(some) else EQUAL

    assert bisect(everywhere, DIFFERENT, test) == Search(dict.fromkeys(guilty, DIFFERENT))
    assert asked <= len(guilty) * (ceil(log2(len(everywhere))) + 1) + 1


def test_if_too_many_are_wrong_all_rewrites_of_their_patterns_are_undone() -> None:
    everywhere = places(60)
    found = bisect(everywhere, DIFFERENT, lambda some: DIFFERENT if any(p.pattern == "p0" for p in some) else EQUAL)
    assert set(found.guilty) == {p for p in everywhere if p.pattern == "p0"} and not found.ended


def test_no_rewrite_is_blamed_if_the_model_is_different_without_any() -> None:
    assert bisect(places(5), DIFFERENT, lambda some: DIFFERENT) == Search({})


@dataclass(frozen=True)
class Made:
    """A model of which only the rewrites are known."""

    held: tuple[Rewrite, ...]


@dataclass(frozen=True)
class Told:
    """A judge that says what a test tells it to. Every planted error shows, and no rewrite is doubted."""

    says: Callable[[Made], Verdict]
    checks: Callable[[Made, bool], list[SiteCheck]] = lambda made, thorough: []

    def verdict(self, fused: Made) -> Verdict:
        return self.says(fused)

    def check(self, fused: Made, thorough: bool) -> list[SiteCheck]:
        return self.checks(fused, thorough)

    def doubt(self, fused: Made, wrong: Collection[Rewrite]) -> list[SiteCheck]:
        return []

    def planted(self, fused: Made, rewrite: Rewrite) -> Verdict:
        return DIFFERENT


def searched(count: int, different: Callable[[frozenset[Place]], bool], same: Verdict = EQUAL) -> tuple[Settled[Made], int]:
    """What is settled on so many rewrites, and by how many verifications. different: whether a model with these rewrites is."""
    asked = []

    def make(barred: Barred) -> Made:
        return Made(tuple(Rewrite("p", "op", "", (), 1, place=place) for place in places(count) if barred(place) is not None))

    def verdict(made: Made) -> Verdict:
        asked.append(held := frozenset(one.place for one in made.held))
        return DIFFERENT if different(held) else same

    settled = settle(make(lambda place: ()), DIFFERENT, make, Told(verdict))
    assert len(set(asked)) == len(asked), "no model is verified twice"
    return settled, len(asked)


@settings(max_examples=20)
@given(st.integers(1, 200), st.integers(0, 199))
def test_one_culprit_takes_few_verifications_more_than_the_logarithm(count: int, at: int) -> None:
    culprit = places(count)[at % count]
    settled, asked = searched(count, lambda held: culprit in held)
    assert {one.rewrite.place for one in settled.undone} == {culprit} and settled.verdict == EQUAL
    assert asked <= ceil(log2(count)) + 3


@settings(max_examples=20)
@given(st.integers(8, 100), st.integers())
def test_a_search_among_rewrites_that_differ_by_chance_ends(count: int, seed: int) -> None:
    """Such as a tie that each rewrite may exchange: the outputs differ with about half of all sets."""
    numbers = {place: number for number, place in enumerate(places(count))}

    def different(held: frozenset[Place]) -> bool:
        return bool(held) and Random(seed + sum(1 << numbers[place] for place in held)).random() < 0.5

    settled, asked = searched(count, different)
    assert asked <= MORE + MOST_SEARCHED * (ceil(log2(count)) + 1)
    if settled.verdict.verdict == "different":
        assert settled.ended and f"by {asked} verifications" in settled.verdict.reason and "--skip" in settled.verdict.reason


def test_where_no_single_rewrite_explains_the_difference_those_before_it_stay() -> None:
    """The roundings of 60 rewrites add up: each of them is right, and the outputs differ from 31 on."""
    settled, asked = searched(60, lambda held: len(held) > 30)
    assert asked <= ceil(log2(60)) + 4 and (settled.ended, settled.verdict) == (False, EQUAL)
    assert [one.place for one in settled.fused.held] == places(60)[:30]
    first, *others = settled.undone
    assert first.found == "model" and {one.found for one in others} == {"nowhere"} and len(others) == 29
    said = f"the outputs differ with it and others, and no single rewrite that changes the outputs was found by {asked} veri"
    assert all(one.problem.startswith(said) and "--skip" in one.problem for one in others)


@pytest.mark.parametrize("same", [EQUAL, Verdict("not-run", blind=True)], ids=["equal", "outputs that show nothing"])
def test_a_search_that_takes_long_keeps_what_it_knows(monkeypatch: pytest.MonkeyPatch, same: Verdict) -> None:
    """One culprit is always found."""
    monkeypatch.setattr(bisection, "PATIENCE", 0.0)
    guilty = {places(40)[at] for at in (5, 20, 30)}
    settled, _ = searched(40, lambda held: bool(guilty & held), same)
    assert [one.place for one in settled.fused.held] == places(40)[:5] and settled.verdict.verdict == same.verdict


def test_a_search_that_ends_before_it_begins_finds_nothing() -> None:
    found = bisect(places(9), DIFFERENT, lambda some: DIFFERENT if some else EQUAL, affordable=lambda: 1)
    assert found.guilty == {} and found.ended


def test_the_most_that_was_seen_to_be_equal_is_kept() -> None:
    """Without the culprits the outputs differ all the same, and with the rewrites of one pattern alone, too."""
    guilty = {places(40)[at] for at in (5, 20, 30)}
    seen: list[frozenset[Place]] = []

    def different(held: frozenset[Place]) -> bool:
        seen.append(held)
        return bool(guilty & held) or len(held) > 25 or len({place.pattern for place in held}) == 1 < len(held)

    settled, _ = searched(40, different)
    equal = [held for held in seen if not (guilty & held) and len(held) <= 25 and len({place.pattern for place in held}) > 1]
    assert settled.verdict == EQUAL and not settled.ended and "nowhere" in {one.found for one in settled.undone}
    assert {one.place for one in settled.fused.held} == max(equal, key=len)


def fused(model: Path, *only: str, packs: tuple[Path, ...] = (), **options: object) -> FuseResult:
    return fuse(model, model.with_name("out.onnx"), load_patterns(packs), Options(only=only, **options))  # type: ignore[arg-type]


def roots(result: FuseResult) -> list[str]:
    return sorted(undone.rewrite.root for undone in result.undone)


def test_exactly_the_wrong_sites_are_undone(tmp_path: Path) -> None:
    epsilons = [1e-5] * 12
    epsilons[3] = epsilons[7] = 1e-2
    model = layers(tmp_path / "m.onnx", epsilons)
    result = fused(model, "forgetful-norm", "gelu", packs=(patterns(tmp_path, NORM),))
    assert roots(result) == ["g3", "g7"]
    assert result.output is not None and verify(model, result.output).verdict == "equivalent"
    operators = [node.op_type for node in onnx.load(result.output).graph.node]
    assert (operators.count("LayerNormalization"), operators.count("Gelu"), operators.count("Sqrt")) == (10, 12, 2)


def test_a_right_pattern_replaces_a_wrong_one(tmp_path: Path) -> None:
    """The wrong match is larger and comes first. After it is undone, its nodes are free again."""
    model = layers(tmp_path / "m.onnx", [1e-5, 1e-2])
    result = fused(model, "forgetful-linear", "layer-normalization", packs=(patterns(tmp_path, LINEAR),))
    assert roots(result) == ["h1"]
    assert [(r.pattern, r.root) for r in result.rewrites] == [("forgetful-linear", "h0"), ("layer-normalization", "g1")]
    assert result.verdict.verdict == "equivalent"


def test_where_a_replacement_is_wrong_the_next_one_is_tried(tmp_path: Path) -> None:
    model = layers(tmp_path / "m.onnx", [1e-5, 1e-2, 1e-5])
    result = fused(model, "forgetful-twice", packs=(patterns(tmp_path, TWICE.format(epsilon="eps")),))
    first, second = "SimplifiedLayerNormalization", "LayerNormalization"
    assert [(one.rewrite.root, one.rewrite.op, one.instead) for one in result.undone] == [("g1", first, second)]
    assert sorted((r.root, r.op) for r in result.rewrites) == [("g0", first), ("g1", second), ("g2", first)]
    (sentence,) = sentences(result.undone)
    assert sentence.startswith("forgetful-twice at g1 is undone: as SimplifiedLayerNormalization, its result g1 is ")
    assert sentence.endswith("; it is replaced by LayerNormalization instead")
    assert result.output is not None and verify(model, result.output).verdict == "equivalent"
    strictly = fused(model, "forgetful-twice", packs=(tmp_path / "pack",), strict=True)
    assert [one.instead for one in strictly.undone] == ["LayerNormalization"] and strictly.output is None


def test_where_both_replacements_are_wrong_nothing_is_replaced(tmp_path: Path) -> None:
    model = layers(tmp_path / "m.onnx", [1e-5, 1e-2])
    result = fused(model, "forgetful-twice", packs=(patterns(tmp_path, TWICE.format(epsilon="eps * 3")),))
    assert [(one.rewrite.root, one.instead) for one in result.undone] == [("g1", "")]
    assert [r.root for r in result.rewrites] == ["g0"]
    assert not [skip for skip in result.skipped if skip.node == "g1"], "what is undone is told once"


def test_a_match_whose_only_replacement_is_wrong_is_told_once(tmp_path: Path) -> None:
    model = layers(tmp_path / "m.onnx", [1e-5, 1e-2])
    result = fused(model, "forgetful-norm", packs=(patterns(tmp_path, NORM),))
    assert roots(result) == ["g1"] and not [skip for skip in result.skipped if skip.node == "g1"]


def test_what_was_wrong_at_another_opset_is_not_told_where_something_is_fused(tmp_path: Path) -> None:
    """At opset 20 one pattern is wrong and the other one finds another operator; at opset 17 that one is made at once."""
    model = write(
        tmp_path / "m.onnx",
        """<ir_version: 8, opset_import: ["" : 17]> g (float[n, 8] x) => (float[n, 8] t, float[n, 8] p)
        <float one = {1}, float half = {0.5}, float r = {1.4142135}> {
          d = Div (x, r)  e = Erf (d)  a = Add (e, one)  b = Mul (x, a)  p = Mul (b, half)
          ex = Exp (x)  l = Add (ex, one)  t = Log (l) }""",
    )
    result = fused(model, "late-gelu", "soft", packs=(patterns(tmp_path, LATE, SOFT),))
    assert [(r.pattern, r.op) for r in result.rewrites] == [("soft", "Softplus")] and result.opset_after == 17
    assert [(one.rewrite.pattern, one.instead) for one in result.undone] == [("late-gelu", "")]


@given(st.lists(st.sets(st.integers(0, 3)), min_size=1, max_size=6), st.booleans())
def test_each_place_keeps_the_first_of_its_two_first_operators_that_is_right(right: list[set[int]], alone: bool) -> None:
    """right: the operators (numbers) that are right at each place. alone: whether each is wrong by itself, too."""

    def make(barred: Barred) -> Made:
        bars = {place: barred(place) for place in places(len(right))}
        first = {place: next(op for op in "0123" if (op, "") not in wrong) for place, wrong in bars.items() if wrong is not None}
        return Made(tuple(Rewrite("p", op, "", (), 1, place=place) for place, op in first.items()))

    def wrong(made: Made) -> list[Rewrite]:
        return [one for one in made.held if int(one.op) not in right[int(one.place.results[0][1:])]]

    def verdict(made: Made) -> Verdict:
        return DIFFERENT if wrong(made) else EQUAL

    def check(made: Made, thorough: bool) -> list[SiteCheck]:
        bad = Accuracy(1.0, 0.0, 0.1)
        return [SiteCheck(one, "CPUExecutionProvider", "r", bad) for one in wrong(made)] if alone else []

    first = make(lambda place: ())
    settled = settle(first, verdict(first), make, Told(verdict, check))
    kept = {one.place: int(one.op) for one in settled.fused.held}
    assert [kept.get(place) for place in places(len(right))] == [min(r & {0, 1}, default=None) for r in right]
    assert settled.verdict.verdict == "equivalent"
    assert {(one.rewrite.place, one.instead) for one in settled.undone} == {
        (place, str(kept.get(place, ""))) for place, numbers in zip(places(len(right)), right, strict=True) if 0 not in numbers
    }


def test_a_wrong_site_in_a_body_is_found_on_random_values(tmp_path: Path) -> None:
    model = write(tmp_path / "m.onnx", BRANCH)
    result = fused(model, "sloppy-gelu", packs=(patterns(tmp_path, GELU),))
    found = {undone.rewrite.place.scope: undone for undone in result.undone}
    assert set(found) == {"", "z.then_branch"} and result.unchanged
    assert (found[""].found, found["z.then_branch"].found) == ("site", "site")
    assert found["z.then_branch"].error > found["z.then_branch"].bound


def test_if_all_sites_are_wrong_the_input_is_copied(tmp_path: Path) -> None:
    model = layers(tmp_path / "m.onnx", [1e-2] * 4)
    result = fused(model, "forgetful-norm", packs=(patterns(tmp_path, NORM),))
    assert roots(result) == ["g0", "g1", "g2", "g3"]
    assert result.unchanged and result.output is not None and result.output.read_bytes() == model.read_bytes()


def test_a_wrong_site_of_a_later_opset_is_named_and_the_opset_is_kept(tmp_path: Path) -> None:
    """Without it, nothing needs the later opset, so the opset is not raised."""
    model = layers(tmp_path / "m.onnx", [1e-5] * 3)
    packs = (patterns(tmp_path, LATE),)
    result = fused(model, "late-gelu", "layer-normalization", packs=packs, target="standard")
    assert roots(result) == ["u0", "u1", "u2"] and all(undone.rewrite.op == "Gelu" for undone in result.undone)
    assert result.opset_after == 17 and [r.op for r in result.rewrites] == ["LayerNormalization"] * 3


def test_right_sites_of_a_later_opset_stay(tmp_path: Path) -> None:
    model = layers(tmp_path / "m.onnx", [1e-5, 1e-2, 1e-5])
    result = fused(model, "forgetful-norm", "gelu", packs=(patterns(tmp_path, NORM),), target="standard")
    assert roots(result) == ["g1"]
    assert result.opset_after == 20 and [r.op for r in result.rewrites].count("Gelu") == 3


def test_strict_writes_nothing_and_still_names_the_wrong_sites(tmp_path: Path) -> None:
    model = layers(tmp_path / "m.onnx", [1e-5, 1e-2])
    result = fused(model, "forgetful-norm", packs=(patterns(tmp_path, NORM),), strict=True)
    assert roots(result) == ["g1"] and result.output is None
    assert not model.with_name("out.onnx").exists()


def test_a_model_that_stays_different_whatever_is_undone_blames_no_rewrite() -> None:
    rewrites = tuple(Rewrite("gelu", "Gelu", "", (), 1, place=place) for place in places(3))
    settled = settle(Made(rewrites), DIFFERENT, lambda barred: Made(()), Told(lambda made: DIFFERENT))
    assert (settled.verdict, settled.undone, settled.fused.held) == (DIFFERENT, (), rewrites)
