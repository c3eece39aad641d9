"""A small soundness campaign: fused random graphs compute the same, and a tool without its safety checks is detected.

`benchmarks/soundness.py` runs the same generator over thousands of graphs.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Hashable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from random import Random

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from onnx_subgraph.matching.numbering import Numbering
from onnx_subgraph.operators import Schema
from onnx_subgraph.proving.covering import base_spellings
from onnx_subgraph.verification.accuracy import Accuracy
from tests.proving.test_mutation import (
    Sabotage,
    accept_another_constant,
    drop_the_consumer_check,
    let_a_constant_raise_the_rank,
    lose_an_input,
    take_an_overridable_initializer_for_a_constant,
)
from tests.soundness import judge, planting, shrouds, traps, trial
from tests.soundness.graphs import Case, draw_case
from tests.soundness.growth import Growth
from tests.soundness.reduction import reduced
from tests.soundness.traps import AfterPlanting

ROOT = Path(__file__).parents[2]


@settings(
    max_examples=settings().max_examples // 5,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate),
)
@given(st.integers(0, 2**32))
def test_a_fused_random_graph_computes_the_same(seed: int) -> None:
    """To try more graphs, or to reduce a finding: benchmarks/soundness.py --seed SEED --graph 0."""
    found = trial.attempt(trial.drawn(seed, 0), Random(seed)).finding
    assert found is None, f"{found.kind}: {found.words}\npython benchmarks/soundness.py --seed {seed} --graph 0"


@pytest.mark.parametrize("trap", traps.TRAPS)
def test_each_trap_can_be_set_and_does_no_harm(trap: str) -> None:
    cases = (draw_case(Random(f"{trap}/{n}"), trap) for n in range(20))
    case = next(c for c in cases if c.trap == trap)
    assert trial.attempt(case, Random(0)).finding is None


MASKED = [p.id for p in planting.library().patterns if any(e.dtype == "bool" for e in p.example.values())]


@pytest.mark.parametrize("identifier", MASKED)
def test_masks_that_keep_everything_and_nothing(identifier: str, thorough: bool) -> None:
    """Fully masked rows give the mean of the values, if the mask is a large negative number."""
    pattern = planting.library().get(identifier)
    seeds = [planting.sown(pattern, s) for s in base_spellings(pattern)]
    masked = [s for s in seeds if s is not None and any(a.dtype == bool for a in s.instance.feeds.values())]
    assert masked
    for number, seed in enumerate(masked[: 6 if thorough else 2]):
        feeds = [
            {n: np.full(a.shape, kept) if a.dtype == bool else a for n, a in seed.instance.feeds.items()}
            for kept in (True, False)
        ]
        tried = trial.attempt(Case(seed.proto, tuple(feeds), ("standard", "onnxruntime")[number % 2]), Random(0))
        assert tried.finding is None, tried.finding


SABOTAGES: list[tuple[Sabotage, str, set[str], int]] = [
    (drop_the_consumer_check, "second consumer", {"refused", "wrong", "invalid", "traceback"}, 5),
    (drop_the_consumer_check, "graph output", {"refused", "wrong", "invalid", "traceback"}, 0),
    (drop_the_consumer_check, "nested use", {"refused", "wrong", "invalid", "traceback"}, 0),
    (take_an_overridable_initializer_for_a_constant, "overridable initializer", {"wrong", "not idempotent"}, 13),
    (accept_another_constant, "constant off by 1 %", {"wrong"}, 38),
    (let_a_constant_raise_the_rank, "rank-raising constant", {"wrong", "invalid"}, 3),
    (lose_an_input, "shared initializer", {"wrong", "invalid"}, 1),
]
"""What is done to the tool, the trap that shows it, the findings, and the number of the first graph that does today."""


@pytest.mark.parametrize(("sabotage", "trap", "kinds", "first"), SABOTAGES, ids=[f"{s.__name__}-{t}" for s, t, *_ in SABOTAGES])
def test_a_tool_without_a_safety_is_found_out(
    sabotage: Sabotage, trap: str, kinds: set[str], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotage(monkeypatch)
    for number in range(first, first + 60):
        case = draw_case(Random(f"sabotage/{number}"), trap)
        found = trial.attempt(case, Random(number)).finding if case.trap == trap else None
        if found is not None:
            assert found.kind in kinds, found
            return
    pytest.fail("no graph of 60 shows it")


def know_no_random_operator(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("onnx_subgraph.verification.randomness.RANDOM", frozenset())


def believe_the_outputs_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("onnx_subgraph.settling.check_sites", lambda *_, **__: ())


def take_axes_for_the_same(patch: pytest.MonkeyPatch) -> None:
    statics = Numbering._statics

    def without_axes(self: Numbering, node: ir.Node, schema: Schema) -> Mapping[str, Hashable] | None:
        found = statics(self, node, schema)
        return None if found is None else {name: value for name, value in found.items() if name not in ("axis", "axes")}

    patch.setattr(Numbering, "_statics", without_axes)


def call_each_site_wrong(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Accuracy, "holds", property(lambda _: False))


DECEIVED: list[tuple[Sabotage, str, set[str], int]] = [
    (call_each_site_wrong, "insensitive output", {"doubted"}, 7),
    (believe_the_outputs_alone, "wrong pattern", {"believed"}, 2),
]


@pytest.mark.parametrize(("sabotage", "trap", "kinds", "first"), DECEIVED, ids=[f"{s.__name__}-{t}" for s, t, *_ in DECEIVED])
def test_a_tool_with_a_wrong_judgement_is_detected(
    sabotage: Sabotage, trap: str, kinds: set[str], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    test_a_tool_without_a_safety_is_found_out(sabotage, trap, kinds, first, monkeypatch)


ZEROS = """<ir_version: 8, opset_import: ["" : 17]> g (float[4, 4] x) => (float[4, 4] y)
{ d = Sub (x, x)  n = ReduceL2 <axes = [0]> (d)  y = Div (d, n) }"""


def test_a_rewrite_that_is_a_number_where_the_original_is_none_is_no_finding() -> None:
    """0 / 0 is NaN in the original, and 0 in LpNormalization. The rewrite is undone, as `--fix-overflows` is not given."""
    feeds = np.ones((4, 4), np.float32)
    tried = trial.attempt(Case(onnx.parser.parse_model(ZEROS), ({"x": feeds},), "standard"), Random(0), verified=True)
    assert "lp-normalization" in tried.patterns
    assert tried.verified == "equivalent"
    assert tried.finding is None, tried.finding


TWINS = """<ir_version: 8, opset_import: ["" : 17]> g (float[4, 4] x) => (float[4, 4] y) <float eps = {1e-5}>
{
  m = ReduceMean <axes = [-1]> (x)  d = Sub (x, m)  n = ReduceMean <axes = [AXIS]> (x)  e = Sub (x, n)
  q = Mul (e, e)  v = ReduceMean <axes = [-1]> (q)  a = Add (v, eps)  s = Sqrt (a)  y = Div (d, s)
}"""


def test_a_tool_that_confuses_axes_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean is computed twice: the second time on the same axis, counted from the front, or on another one."""
    feeds = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    same, other = (Case(onnx.parser.parse_model(TWINS.replace("AXIS", a)), ({"x": feeds},), "standard") for a in "10")
    tried = trial.attempt(same, Random(0))
    assert tried.finding is None and tried.patterns
    assert trial.attempt(other, Random(0)).finding is None
    take_axes_for_the_same(monkeypatch)
    found = trial.attempt(other, Random(0)).finding
    assert found is not None and found.kind == "wrong"


def misled(place: str, shroud: AfterPlanting | None = None) -> Iterator[Case]:
    """Graphs with a wrong pattern at such a place."""
    for number in range(40):
        growth = Growth(Random(f"{place}/{number}"), 17)
        growth.input(growth.numbers((2, 3, 8), "float32"))
        (shown,) = growth.node("Tanh", [growth.values[0]], ("float32", (2, 3, 8)))
        growth.outputs.append(shown.name)
        seed = planting.draw_seed(growth.random, 17, "onnxruntime", alive=True, patterns=planting.wrong())
        if seed is not None and not any(a.dtype == np.float16 for a in seed.known.values()):
            planted = planting.plant(growth, seed, place)
            if shroud is None or shroud(growth, planted):
                yield Case(growth.model(), (growth.feeds,), "onnxruntime", trap=traps.WRONG)


HIDDEN = [
    *((place, None) for place in planting.PLACES if "idle" in place),
    ("graph", shrouds.randomness),
    ("graph", shrouds.insensitivity),
]


@pytest.mark.parametrize(("place", "shroud"), HIDDEN)
def test_a_wrong_rewrite_is_undone_at_any_place(place: str, shroud: AfterPlanting | None) -> None:
    tried = trial.attempt(next(misled(place, shroud)), Random(0))
    assert tried.finding is None, tried.finding
    assert tried.undone >= 1


@pytest.mark.parametrize("place", [place for place in planting.PLACES if "idle" in place])
def test_what_an_idle_body_hides_is_found_out_in_a_tool_that_believes_outputs(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    believe_the_outputs_alone(monkeypatch)
    tried = trial.attempt(next(misled(place)), Random(0))
    assert tried.finding is not None and tried.finding.kind == "believed"


def test_a_tool_that_does_not_feed_random_numbers_misses_what_they_hide(monkeypatch: pytest.MonkeyPatch) -> None:
    """With equal random numbers the outputs show the error. With different ones they do not."""
    cases = [*islice(misled("graph", shrouds.randomness), 3)]
    believe_the_outputs_alone(monkeypatch)
    assert all(trial.attempt(case, Random(0)).finding is None for case in cases)
    know_no_random_operator(monkeypatch)
    found = [trial.attempt(case, Random(0)).finding for case in cases]
    assert {f.kind for f in found if f is not None} == {"believed"}


NOISE = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N, 4] x) => (float[N, 4] y, float[N, 4] z)
{ r = RandomNormalLike <dtype = 1> (x) s = RandomNormalLike <dtype = 1> (x) a = Mul(x, r) y = Tanh(a) z = Add(x, s) }"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [("", "", None), ("Tanh(a)", "Tanh(z)", "y is"), ("Add(x, s)", "Add(x, r)", "z is"), ("Mul(x, r)", "Identity(x)", "y is")],
)
def test_the_judge_compares_models_with_random_operators(old: str, new: str, said: str | None) -> None:
    """A model in which two random nodes were merged gives other numbers."""
    difference = held(NOISE).difference(onnx.parser.parse_model(NOISE.replace(old, new) if old else NOISE))
    assert (difference is None) if said is None else (difference is not None and said in difference)


TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N, 4] x, float[4] w) => (float[N, 4] y, float[N, 4] z) <float[4] k = {1, 2, 3, 4}>
{ a = Mul(x, w) b = Tanh(a) c = Add(b, k) y = Exp(c) z = Neg(a) }"""


def held(text: str = TEXT) -> judge.Judge:
    draw = np.random.default_rng(0)
    feeds = {"x": draw.standard_normal((3, 4)).astype(np.float32), "w": np.ones(4, np.float32)}
    return judge.Judge(onnx.parser.parse_model(text), (feeds,))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("{1, 2, 3, 4}", "{1, 2, 3, 4.0004}", "y is"),
        ("Exp(c)", "Tanh(c)", "y is"),
        ("Neg(a)", "Neg(b)", "z is"),
        ("float[N, 4] z)", "float16[N, 4] z)", "onnxruntime does not load it"),
        ("Neg(a)", "Neg(nothing)", "onnxruntime does not load it"),
    ],
)
def test_the_judge_sees(old: str, new: str, said: str) -> None:
    difference = held().difference(onnx.parser.parse_model(TEXT.replace(old, new)))
    assert difference is not None and said in difference


def test_the_judge_allows_another_order_of_rounding() -> None:
    other = TEXT.replace("b = Tanh(a) c = Add(b, k) y = Exp(c)", "b = Tanh(a) e = Exp(b) f = Exp(k) y = Mul(f, e)")
    assert held().difference(onnx.parser.parse_model(other)) is None


LOOP = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N, 4] x, float[4] w) => (float[N, 4] y) <int64 m = {2}, bool c = {1}, float big = {1e4}> {
  y = Loop (m, c, x) <body = b (int64 i, bool d, float[2, 4] a) => (e, f) {
    e = Identity (d) s = Add (a, big) f = Sub (s, big)
  }> }"""


def test_the_judge_measures_noise_where_a_body_declares_another_size() -> None:
    """x + 10,000 - 10,000 and x + 40,000 - 40,000 round differently. The body declares two rows and gets three."""
    assert held(LOOP).difference(onnx.parser.parse_model(LOOP.replace("1e4", "4e4"))) is None


DECIDED = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) <bool c = {1}> {
  n = Neg (x) r = If (c) <then_branch = t () => (float[4] a) { i = Exp (n) a = Neg (i) },
                          else_branch = e () => (float[4] b) { j = If (c) <then_branch = u () => (float[4] k) { k = Abs (x) },
                                                                           else_branch = v () => (float[4] l) { l = Exp (x) }>
                                                               b = Neg (j) }>
  y = Neg (r) }"""
FUSED = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) {
  n = Neg (x) i = Exp (n) k = Abs (x) new = Add (i, k) a = Neg (new) y = Neg (a) }"""


def test_a_model_with_names_that_fusing_makes_is_valid() -> None:
    """Fusing also hands on names of bodies, and these are taken."""
    for number in range(20):
        model = onnx.parser.parse_model(DECIDED)
        assert traps.collide(Random(number), model, onnx.parser.parse_model(FUSED))
        assert not isinstance(judge.session(model), str)


def test_a_changed_interface_is_found() -> None:
    before = onnx.parser.parse_model(TEXT)
    assert trial.interface(before, before) is None
    for old, new in (("float[N, 4] x", "float[3, 4] x"), ("(float[N, 4] y, float[N, 4] z)", "(float[N, 4] z, float[N, 4] y)")):
        assert trial.interface(before, onnx.parser.parse_model(TEXT.replace(old, new))) is not None


def test_a_finding_is_reduced() -> None:
    feeds = held().feeds
    case = Case(onnx.parser.parse_model(TEXT), feeds, "onnxruntime")
    small = reduced(case, lambda c: any(n.op_type == "Add" for n in c.model.graph.node))
    assert [n.op_type for n in small.model.graph.node if n.op_type != "Exp"] == ["Add"]
    assert judge.problem(small.model) is None
    opened = judge.session(small.model)
    assert not isinstance(opened, str) and not isinstance(judge.run(opened, small.feeds[0]), str)


def test_the_same_seed_gives_the_same_models() -> None:
    for number in range(5):
        first, second = (trial.drawn(7, number) for _ in range(2))
        assert first.model.SerializeToString(deterministic=True) == second.model.SerializeToString(deterministic=True)


def test_the_command_saves_findings_and_says_how_to_reproduce_them(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "soundness.py"), "--graphs", "2", "--jobs", "1", "--seed", "6"]
    done = subprocess.run([*command, "--findings", str(tmp_path / "found")], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| graphs | 2 |" in done.stdout and not (tmp_path / "found").exists()
