""" "Equivalent" needs evidence: random results are fed, outputs that show nothing do not count.

Sites that no run reached are checked alone.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from onnx_subgraph import FuseResult, Options, fuse, load_patterns
from onnx_subgraph.files.models import load
from onnx_subgraph.report.blame import sentence
from onnx_subgraph.report.wording import evidence, tried
from onnx_subgraph.verification.cases import Drawing
from onnx_subgraph.verification.observed import reached
from onnx_subgraph.verification.reference import Reference
from onnx_subgraph.verification.sessions import Failure
from onnx_subgraph.verification.verdict import Verdict
from onnx_subgraph.verification.verify import verify
from tests.verification.models import weights, write
from tests.verification.planted import GELU, SOFTPLUS, patterns

WRONG_SILU = """
id: wrong-silu
summary: A SiLU that is replaced by another function
match: |
  y = x * Sigmoid(x)
replace:
  onnxruntime: y = com.microsoft.QuickGelu(x, alpha={alpha})
example: {{x: "float32[2, 8]"}}
"""
HEADER = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> g (float[n, 8] x) => (float[n, 8] y)'
SILU = "s = Sigmoid (x)  m = Mul (x, s)"
ROUNDED_SILU = "u = Neg (x)  e = Exp (u)  o = Constant <value = float {1.0}> ()  d = Add (e, o)  m = Div (x, d)"
"""The same, with other roundings."""

RANDOM = {
    "RandomNormalLike": "r = RandomNormalLike (m)  y = Add (m, r)",
    "RandomUniformLike": "r = RandomUniformLike (m)  y = Mul (m, r)",
    "RandomNormal": "r = RandomNormal <shape = [8]> ()  y = Add (m, r)",
    "Bernoulli": "p = Sigmoid (m)  r = Bernoulli (p)  y = Mul (m, r)",
    "Dropout": "half = Constant <value = float {0.5}> ()  t = Constant <value = bool {1}> ()  y = Dropout (m, half, t)",
}


def silu(path: Path, rest: str, first: str = SILU, header: str = HEADER) -> Path:
    return write(path, f"{header} {{ {first} {rest} }}")


def fused(model: Path, tmp_path: Path, alpha: float = 1.001, **options: object) -> FuseResult:
    """Fuse with a pattern that is wrong by a thousandth, or right if alpha is 1."""
    pack = patterns(tmp_path, WRONG_SILU.format(alpha=alpha))
    return fuse(model, tmp_path / "out.onnx", load_patterns([pack]), Options(only=("wrong-silu",), **options))  # type: ignore[arg-type]


def undone(result: FuseResult) -> list[str]:
    return [one.rewrite.pattern for one in result.undone]


@pytest.mark.parametrize("op", RANDOM)
def test_a_wrong_model_is_different_despite_random_operators(tmp_path: Path, op: str) -> None:
    one, same, other = (silu(tmp_path / f"{i}.onnx", RANDOM[op], first) for i, first in enumerate((SILU, SILU, "m = Neg (x)")))
    verdict = verify(one, same)
    assert (verdict.verdict, len(verdict.random)) == ("equivalent", 1) and verdict.random[0].startswith(op)
    assert verify(one, other).verdict == "different"


@pytest.mark.parametrize("op", RANDOM)
def test_a_wrong_fusion_is_undone_despite_random_operators_behind_it(tmp_path: Path, op: str) -> None:
    model = silu(tmp_path / "m.onnx", RANDOM[op])
    assert undone(fused(model, tmp_path)) == ["wrong-silu"]


@pytest.mark.parametrize("op", RANDOM)
def test_a_right_fusion_stays_despite_random_operators_behind_it(tmp_path: Path, op: str) -> None:
    result = fused(silu(tmp_path / "m.onnx", RANDOM[op]), tmp_path, alpha=1.0)
    assert (result.verdict.verdict, len(result.rewrites), result.undone) == ("equivalent", 1, ())
    assert result.verdict.worst is not None and result.verdict.worst.bound < 1e-4, "the bound knows nothing of the randomness"


def test_values_behind_noise_of_random_size_are_compared_with_the_usual_bound(tmp_path: Path) -> None:
    """An error of 1e-5 beside noise of 1. Without feeding the noise, it would be hidden a thousand times over."""
    one, other = (
        silu(
            tmp_path / f"{i}.onnx",
            f"c = Constant <value = float {{{c}}}> () k = Mul (m, c) r = RandomNormalLike (k) y = Add (k, r)",
        )
        for i, c in enumerate((1.0, 1.0001))
    )
    assert verify(one, other).verdict == "different"


def test_random_operators_in_a_body_are_found(tmp_path: Path) -> None:
    body = """
      c = Constant <value = bool {1}> ()
      r = If (c) <then_branch = t () => (float[n, 8] u) { u = RandomNormalLike (x) },
                  else_branch = e () => (float[n, 8] v) { v = Identity (x) }>
      y = Add (m, r)
    """
    one, other = (silu(tmp_path / f"{i}.onnx", body, first) for i, first in enumerate((SILU, "m = Neg (x)")))
    assert verify(one, one).verdict == "equivalent" and verify(one, one).random == ("RandomNormalLike at r",)
    assert verify(one, other).verdict == "different"


def test_a_random_output_is_no_evidence(tmp_path: Path) -> None:
    header = HEADER.replace("(float[n, 8] y)", "(float[n, 8] y, float[n, 8] r)")
    one, other = (
        silu(tmp_path / f"{i}.onnx", "r = RandomNormalLike (x) y = Identity (m)", first, header)
        for i, first in enumerate((SILU, "m = Neg (x)"))
    )
    assert verify(one, one).verdict == "equivalent"
    assert verify(one, other).verdict == "different"


def test_a_seed_makes_no_difference(tmp_path: Path) -> None:
    model = silu(tmp_path / "m.onnx", "r = RandomNormalLike <seed = 3.0> (m) y = Add (m, r)")
    assert verify(model, model).verdict == "equivalent"
    assert undone(fused(model, tmp_path)) == ["wrong-silu"]


BLIND = {
    "NaN": ("zero = Constant <value = float {0.0}> () n = Div (zero, zero) y = Add (m, n)", "NaN"),
    "infinite": (
        "zero = Constant <value = float {0.0}> () one = Constant <value = float {1.0}> () i = Div (one, zero) y = Max (m, i)",
        "infinite",
    ),
    "times zero": ("zero = Constant <value = float {0.0}> () y = Mul (m, zero)", "the same for all inputs"),
    "a threshold nobody reaches": (
        "far = Constant <value = float {1000.0}> () b = Greater (m, far) y = Cast <to = 1> (b)",
        "the same for all inputs",
    ),
    "chaotic": ("k = Constant <value = float {1e9}> () a = Mul (m, k) y = Sin (a)", "its own rounding moves it"),
}


@pytest.mark.parametrize("name", BLIND)
def test_an_output_that_can_not_show_errors_is_no_evidence(tmp_path: Path, name: str) -> None:
    rest, why = BLIND[name]
    verdict = verify(silu(tmp_path / "m.onnx", rest), silu(tmp_path / "o.onnx", rest, ROUNDED_SILU))
    assert verdict.verdict == "not-run" and verdict.blind
    assert why in verdict.reason and "--inputs" in verdict.reason


@pytest.mark.parametrize(("rows", "unseen"), [(1, 3 / 37), (300, 3 / 1500)])
def test_few_labels_are_little_evidence(tmp_path: Path, rows: int, unseen: float) -> None:
    """Each set of feeds is one label. So more sets are drawn, and the verdict says how much they show."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[{rows}, 8] x) => (int64[{rows}] y, float[{rows}, 8] z) {{
        y = ArgMax <axis = 1, keepdims = 0> (x)  z = Neg (x) }}"""
    verdict = verify(path := write(tmp_path / "m.onnx", text), path)
    labels, floats = verdict.showings
    assert verdict.verdict == "equivalent"
    assert ("64, 96, 128 to 159" in tried(verdict.runs)) is (rows == 1)
    assert (labels.power, labels.unseen, floats.unseen) == (None, unseen, None)
    assert any("may differ unseen" in line for line in evidence(verdict)) is (unseen > 0.01)


@pytest.mark.parametrize(("row", "last"), [("x", 146), ("r", 159)])
def test_further_labels_come_in_batches_until_there_are_enough(row: str, last: int, tmp_path: Path) -> None:
    """Seven sets have nine labels, and each further one has 16. A graph that runs with one row only has one a set."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[n, 8] x) => (int64[m] y) {{
        one = Constant <value_ints = [1, 8]> ()  r = Reshape (x, one)  y = ArgMax <axis = 1, keepdims = 0> ({row}) }}"""
    if row == "x":
        text = text.replace("r = Reshape (x, one)", "")
    verdict = verify(path := write(tmp_path / "m.onnx", text), path)
    assert verdict.verdict == "equivalent" and max(run.seed or 0 for run in verdict.runs) == last


def test_further_sets_are_coarse_and_have_the_sizes_of_the_user(tmp_path: Path) -> None:
    """Of many sets some exceed the bounds of floats by chance."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[n, 8] x) => (int64[n] y) {
        y = ArgMax <axis = 1, keepdims = 0> (x) }"""
    path = write(tmp_path / "m.onnx", text)
    cases = Drawing(path, load(path), "CPUExecutionProvider", None, None).cases(0, {"x": (4, 8)}, None)
    assert not isinstance(cases, Failure) and {case.sizes["n"] for case in cases} == {4}
    assert [case.coarse for case in cases] == [(case.seed or 0) >= 128 for case in cases] and len(cases) > 30


def test_another_label_for_one_input_in_five_is_found(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[1, 8] x) => (int64[1] y) <float far = {0.84}, int64 none = {0}> {
        i = Constant <value_int = 0> ()  first = Gather <axis = 1> (x, i)  b = Greater (first, far)
        a = ArgMax <axis = 1, keepdims = 0> (x)  y = Where (b, a, RESULT) }"""
    kept, other = (write(tmp_path / f"{result}.onnx", text.replace("RESULT", result)) for result in ("a", "none"))
    often = write(tmp_path / "often.onnx", text.replace("Where (b, a, RESULT)", "Where (b, none, a)"))
    assert verify(kept, often).verdict == "different" and verify(kept, other).verdict == "different"
    wrong = next(run.problem for run in verify(kept, other).runs if run.problem)
    assert re.match(r"is 0 at \[0\], where the reference is [1-7]; 1 of 1 elements differ, 0 may", wrong)


def test_a_chaotic_output_with_the_same_bits_is_evidence(tmp_path: Path) -> None:
    """An error, however small, would have changed it; so the noise need not be measured."""
    model = silu(tmp_path / "m.onnx", BLIND["chaotic"][0])
    stages: list[str] = []
    assert verify(model, model, progress=stages.append).verdict == "equivalent"
    assert not any("noise" in stage for stage in stages)


@pytest.mark.parametrize("rest", [BLIND["chaotic"][0], RANDOM["Bernoulli"], "y = Exp (m)", "y = Floor (m)"])
def test_each_kind_of_noise_only_widens_bounds(tmp_path: Path, rest: str) -> None:
    """So a candidate that was found equivalent before all noise was measured is so by the last bounds, too."""
    path = silu(tmp_path / "m.onnx", rest)
    drawing = Drawing(path, load(path), "CPUExecutionProvider", None, None)
    cases = drawing.cases(0, {}, None)
    assert not isinstance(cases, Failure)
    before = [dict(case.bounds) for case in cases]
    kinds = 0
    while drawing.widen(cases):
        kinds += 1
        for case, bounds in zip(cases, before, strict=True):
            for name, bound in bounds.items():
                assert (np.asarray(case.bounds[name].element) >= np.asarray(bound.element)).all()
                assert case.bounds[name].aggregate >= bound.aggregate
        before = [dict(case.bounds) for case in cases]
    assert kinds == 3


def test_more_runs_with_noise_do_not_widen_what_may_flip(tmp_path: Path) -> None:
    """Some numbers are one, and noise truncates most of them to zero: how many differs from run to run."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2, 64] x) => (int64[2, 64] y, float[2, 64] z) <float one = {1}> {
        few = Greater (x, one)  zero = Sub (x, x)  made = Exp (zero)  z = Neg (x)
        number = Where (few, made, x)  y = Cast <to = 7> (number) }"""
    path = write(tmp_path / "m.onnx", text)
    drawing = Drawing(path, Reference(path).original, "CPUExecutionProvider", None, None)
    cases = drawing.cases(0, {}, None)
    assert not isinstance(cases, Failure)
    allowed = []
    while drawing.widen(cases):
        allowed.append([float(case.bounds["y"].element) for case in cases])
    assert max(allowed[1]) > 0 and allowed[1] == allowed[2]


def test_noise_is_measured_once_for_candidates_that_differ_by_more_than_a_rounding(tmp_path: Path) -> None:
    sensitive = BLIND["chaotic"][0].replace("1e9", "1e3")
    one, other = (silu(tmp_path / f"{i}.onnx", sensitive, first) for i, first in enumerate((SILU, ROUNDED_SILU)))
    stages: list[str] = []
    reference = Reference(one, progress=stages.append)
    measured = []
    for candidate in (one, other, other):
        assert reference.verdict(candidate).verdict == "equivalent"
        measured.append(sum("noise" in stage for stage in stages))
    assert measured[0] == 0 < measured[1] == measured[2]
    assert reference.verdict(silu(tmp_path / "wrong.onnx", sensitive, "m = Neg (x)")).verdict == "different"


def test_where_given_inputs_show_nothing_others_or_a_bound_are_advised(tmp_path: Path) -> None:
    model = silu(tmp_path / "m.onnx", "minus = Constant <value = float {-1.0}> ()  y = Sqrt (minus)")
    np.savez(tmp_path / "feeds.npz", x=np.ones((2, 8), np.float32))
    drawn, given = verify(model, model), verify(model, model, inputs=tmp_path / "feeds.npz")
    assert (drawn.verdict, given.verdict) == ("not-run", "not-run")
    assert drawn.reason.endswith("--inputs FEEDS.npz compares them on inputs that matter")
    assert given.reason.endswith("other inputs may show one, and so may a bound that you set: --rtol, --atol")


@pytest.mark.parametrize("name", [name for name in BLIND if name != "chaotic"])
def test_if_no_output_can_show_errors_each_fusion_is_checked_alone(tmp_path: Path, name: str) -> None:
    model = silu(tmp_path / "m.onnx", BLIND[name][0])
    assert undone(fused(model, tmp_path)) == ["wrong-silu"]
    (tmp_path / "right").mkdir()
    right = fused(model, tmp_path / "right", alpha=1.0)
    assert (right.verdict.verdict, len(right.rewrites)) == ("equivalent", 1)
    assert right.verdict.coverage is not None and right.verdict.coverage.float64 == 1
    assert right.output is not None and "each fusion is right by itself" in right.verdict.reason


def test_one_output_that_can_show_errors_is_enough(tmp_path: Path) -> None:
    header = HEADER.replace("(float[n, 8] y)", "(float[n, 8] y, float[n, 8] z)")
    model = silu(tmp_path / "m.onnx", "zero = Constant <value = float {0.0}> () z = Mul (m, zero) y = Neg (m)", header=header)
    verdict = verify(model, model)
    assert verdict.verdict == "equivalent"
    assert {s.output: bool(s.blind) for s in verdict.showings} == {"y": False, "z": True}


@pytest.mark.parametrize("flat", ["", "zero = Constant <value = float {0.0}> () a = Mul (p, zero)"])
def test_longer_inputs_are_tried_if_short_ones_show_nothing(tmp_path: Path, flat: str) -> None:
    """A window of 600 samples computes nothing from seven of them."""
    one, other = (
        write(
            tmp_path / f"{i}.onnx",
            f"""<ir_version: 8, opset_import: ["" : 17]> g (float[1, samples] x) => (float[1, m] y)
            <int64[1] start = {{600}}, int64[1] end = {{100000}}, int64[1] axis = {{1}}> {{
              p = Slice (x, start, end, axis) {flat} y = {op} ({"a" if flat else "p"}) }}""",
        )
        for i, op in enumerate(("Neg", "Cos"))
    )
    assert verify(one, one).verdict == ("not-run" if flat else "equivalent")
    assert flat or verify(one, other).verdict == "different"


def test_a_model_without_inputs_shows_what_it_computes(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g () => (float[3] y) { y = Constant <value = float[3] {1.0, 2.0, 3.0}> () }'
    other = text.replace("3.0", "3.5")
    one, two = write(tmp_path / "a.onnx", text), write(tmp_path / "b.onnx", other)
    assert (verify(one, one).verdict, verify(one, two).verdict) == ("equivalent", "different")


def test_a_wrong_fusion_that_hardly_moves_the_output_is_undone(tmp_path: Path) -> None:
    model = silu(tmp_path / "m.onnx", "k = Constant <value = float {1e-8}> () a = Mul (m, k) y = Add (x, a)")
    result = fused(model, tmp_path)
    assert (undone(result), result.undone[0].found) == (["wrong-silu"], "site")


def test_an_error_in_float16_is_found_below_its_rounding(tmp_path: Path) -> None:
    """A thousandth is one unit in the last place of float16. In float64 the two formulas are different."""
    header = HEADER.replace("float[", "float16[")
    assert undone(fused(silu(tmp_path / "m.onnx", "y = Neg (m)", header=header), tmp_path)) == ["wrong-silu"]


def test_what_numbers_may_be_rounded_by_hides_no_other_formula_in_float16(tmp_path: Path) -> None:
    """The root of two is rounded; one and a half are not, and leave no room for the approximation with tanh. Numbers are bits."""
    numbers = "<float16 root = {15784}, float16 one = {15360}, float16 half = {14336}>"
    header = HEADER.replace("float[", "float16[") + numbers
    text = "r = Div (x, root) f = Erf (r) a = Add (f, one) h = Mul (x, half) y = Mul (h, a)"
    model = silu(tmp_path / "m.onnx", "", text, header)
    result = fuse(model, None, load_patterns([patterns(tmp_path, GELU)]), Options(only=("sloppy-gelu",)))
    assert undone(result) == ["sloppy-gelu"]
    assert len(fuse(model, None, load_patterns(), Options(only=("gelu",))).rewrites) == 1


BRANCHES = """
  low = Constant <value = float {{-100.0}}> ()
  least = ReduceMin <keepdims = 0> (x)
  c = {compare} (least, low)
  y = If (c) <then_branch = t () => (float[n, 8] u) {{ s = Sigmoid (x) u = Mul (x, s) }},
              else_branch = e () => (float[n, 8] v) {{ v = Neg (x) }}>
"""


@pytest.mark.parametrize(("compare", "alone"), [("Less", 1), ("Greater", 0)])
def test_a_fusion_in_a_branch_is_counted_by_whether_the_branch_was_taken(tmp_path: Path, compare: str, alone: int) -> None:
    result = fused(silu(tmp_path / "m.onnx", BRANCHES.format(compare=compare), ""), tmp_path, alpha=1.0)
    coverage = result.verdict.coverage
    assert coverage is not None and (coverage.alone, coverage.kernel, coverage.drawn) == (alone, 1 - alone, 1)


@pytest.mark.parametrize("compare", ["Less", "Greater"])
def test_a_wrong_fusion_in_a_branch_is_undone_whether_or_not_it_ran(tmp_path: Path, compare: str) -> None:
    assert undone(fused(silu(tmp_path / "m.onnx", BRANCHES.format(compare=compare), ""), tmp_path)) == ["wrong-silu"]


NORMALIZED_IN_A_BRANCH = """
  low = Constant <value = float {-100.0}> ()  least = ReduceMin <keepdims = 0> (x)  c = Greater (low, least)
  y = If (c) <then_branch = t () => (float[n, 8] u) {
                TWICE  d = Sub (a, m)  e = Mul (d, d)  v = ReduceMean <axes = [-1]> (e)
                k = Constant <value = float {0.00001}> ()  w = Add (v, k)  r = Sqrt (w)  q = Div (d, r)  u = Mul (q, scale) },
              else_branch = e () => (float[n, 8] o) { o = Neg (x) }>
"""


@pytest.mark.parametrize(
    "twice",
    [
        "a = Abs (x) b = Abs (x) m = ReduceMean <axes = [-1]> (b)",
        "a = Cast <to = 1> (h) b = Cast <to = 1> (h) m = ReduceMean <axes = [1]> (b)",
        "a = Softmax <axis = -1> (x) b = Softmax <axis = 1> (x) m = ReduceMean <axes = [-1]> (b)",
    ],
)
def test_equal_values_before_a_fusion_get_the_same_random_values(tmp_path: Path, twice: str) -> None:
    header = HEADER.replace(") =>", ", float16[n, 8] h) =>")
    body = NORMALIZED_IN_A_BRANCH.replace("TWICE", twice)
    text = f"{header} <float[8] scale = {{2, 1, 1, 1, 1, 1, 1, 1}}> {{ {body} }}"
    result = fuse(write(tmp_path / "m.onnx", text), None, load_patterns(), Options(only=("layer-normalization",)))
    assert [rewrite.pattern for rewrite in result.rewrites] == ["layer-normalization"] and not result.undone
    coverage = result.verdict.coverage
    assert coverage is not None and (coverage.alone, coverage.drawn) == (1, 1)


def test_an_overridable_weight_is_checked_at_its_declared_size(tmp_path: Path) -> None:
    text = """
      <ir_version: 8, opset_import: ["" : 17]>
      g (int64[2, 3] ids, int64[1, 3] places, float[4] scale) => (float[2, 3, 4] y)
      <float[2, 4] words = {1, 2, 3, 4, 4, 3, 1, 2}, float[2, 4] positions = {0.1, 0.2, 0.3, 0.1, 0.5, 0.1, 0.1, 0.7},
       float[4] scale = {1, 2, 1, 2}, float[4] shift = {0, 0, 1, 1}> {
        a = Gather (words, ids)
        b = Gather (positions, places)
        total = Add (a, b)
        y = LayerNormalization <axis = -1, epsilon = 1e-12> (total, scale, shift)
      }
    """
    result = fuse(write(tmp_path / "m.onnx", text), None, load_patterns(), Options(only=("embed-layer-normalization",)))
    assert [rewrite.pattern for rewrite in result.rewrites] == ["embed-layer-normalization"] and not result.undone


def test_a_fusion_in_a_loop_without_iterations_is_checked_on_random_values(tmp_path: Path) -> None:
    body = """
      none = Constant <value = int64 {0}> ()  yes = Constant <value = bool {1}> ()
      y = Loop (none, yes, x) <body = b (int64 i, bool c, float[n, 8] before) => (bool d, float[n, 8] after) {
        d = Identity (c) s = Sigmoid (before) after = Mul (before, s) }>
    """
    model = silu(tmp_path / "m.onnx", body, "")
    assert undone(fused(model, tmp_path)) == ["wrong-silu"]
    (tmp_path / "right").mkdir()
    coverage = fused(model, tmp_path / "right", alpha=1.0).verdict.coverage
    assert coverage is not None and (coverage.alone, coverage.drawn) == (1, 1)


def test_equal_layers_are_checked_once_or_twice_and_a_different_layer_separately(tmp_path: Path) -> None:
    lines = "".join(f"s{i} = Sigmoid (x{i}) m{i} = Mul (x{i}, s{i}) x{i + 1} = MatMul (m{i}, w) " for i in range(6))
    text = HEADER.replace("(float[n, 8] x)", "(float[n, 8] x0)").replace("y)", "x6)")
    model = write(tmp_path / "m.onnx", f"{text} {{ {lines} }}", w=weights((8, 8))[0])
    coverage = fused(model, tmp_path, alpha=1.0).verdict.coverage
    assert coverage is not None and coverage.float64 == 6
    (tmp_path / "wrong").mkdir()
    assert undone(fused(model, tmp_path / "wrong")) == ["wrong-silu"] * 6


def test_unknown_operators_are_found_random_by_running_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "upb")  # the library changes it
    extensions = pytest.importorskip("onnxruntime_extensions")

    @extensions.onnx_op(op_type="Dice", inputs=[extensions.PyCustomOpDef.dt_float], outputs=[extensions.PyCustomOpDef.dt_float])
    def dice(x: np.ndarray) -> np.ndarray:
        return np.random.default_rng().standard_normal(x.shape).astype(np.float32)

    header = HEADER.replace('"com.microsoft" : 1', '"ai.onnx.contrib" : 1')
    one, other = (
        silu(tmp_path / f"{i}.onnx", "r = ai.onnx.contrib.Dice (x) y = Add (m, r)", first, header)
        for i, first in enumerate((SILU, "m = Neg (x)"))
    )

    def judged(candidate: Path) -> Verdict:
        return verify(one, candidate, custom_op_libraries=[Path(extensions.get_library_path())])

    assert (judged(one).verdict, judged(one).random) == ("equivalent", ("Dice at r",))
    assert judged(other).verdict == "different"


SOFTPLUS_FAR = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 8] x) => (float[n, 8] y) <float one = {1.0}, float hundred = {100.0}>
{ far = Mul (x, hundred) power = Exp (far) sum = Add (one, power) y = Log (sum) }
"""


def test_a_fusion_that_avoids_an_overflow_is_kept_only_on_request(tmp_path: Path) -> None:
    model = write(tmp_path / "m.onnx", SOFTPLUS_FAR)
    library, options = load_patterns([patterns(tmp_path, SOFTPLUS)]), Options(only=("steady-softplus",), dry_run=True)
    (one,) = fuse(model, None, library, options).undone
    assert one.overflows and "the reference overflows" in one.problem and "--fix-overflows" in sentence(one)
    kept = fuse(model, None, library, replace(options, fix_overflows=True))
    assert (kept.verdict.verdict, len(kept.rewrites), kept.undone) == ("equivalent", 1, ())


def test_finite_results_are_accepted_only_where_the_original_has_none(tmp_path: Path) -> None:
    model = write(tmp_path / "m.onnx", SOFTPLUS_FAR)
    wrong = write(tmp_path / "w.onnx", SOFTPLUS_FAR.replace("y = Log (sum)", "y = Sqrt (sum)"))
    assert verify(model, wrong, fix_overflows=True).verdict == "different"


def test_an_overflow_that_onnxruntime_avoids_itself_is_not_compared(tmp_path: Path) -> None:
    """Its optimiser makes both a Gelu, which gives a number near the largest where the product of the parts is infinite."""
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[n, 8] x) => (float[n, 8] y)
    <float root = {1.4142135}, float one = {1.0}, float half = {0.5}, float large = {3e38}> {
      m = MatMul (x, w) h = Mul (m, large) r = Div (h, root) f = Erf (r) a = Add (f, one) p = Mul (h, a) y = Mul (p, half)
    }
    """
    model = write(tmp_path / "m.onnx", text, w=np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32))
    result = fuse(model, None, load_patterns(), Options(only=("gelu",), dry_run=True))
    assert (result.verdict.verdict, len(result.rewrites)) == ("equivalent", 1)
    assert "where onnxruntime optimises it" in result.verdict.reason


def test_a_constant_rounded_to_float16_is_no_error(tmp_path: Path) -> None:
    """The root of two is off by 1e-4 in float16, and the fused operator has the exact root."""
    text = """
    <ir_version: 8, opset_import: ["" : 17]> g (float16[n, 64] x) => (float16[n, 64] y)
    <float r = {1.4142}, float o = {1.0}, float h = {0.5}> {
      root = Cast <to = 10> (r) one = CastLike (o, root) half = CastLike (h, root)
      d = Div (x, root) f = Erf (d) a = Add (f, one) p = Mul (x, a) y = Mul (p, half)
    }
    """
    result = fuse(write(tmp_path / "m.onnx", text), None, load_patterns(), Options(only=("gelu",), dry_run=True))
    assert len(result.rewrites) == 1, [sentence(one) for one in result.undone]


NAMED = """
  low = Constant <value = float {{-100.0}}> ()
  least = ReduceMin <keepdims = 0> (x)
  c = Less (least, low)
  y = If (c) <then_branch = t () => (float[n, 8] u) {{ [activation] {then} }},
              else_branch = e () => (float[n, 8] v) {{ [other] v = Neg (x) }}>
"""
FUSED = "u = com.microsoft.QuickGelu <alpha = {alpha}> (x)"


@pytest.mark.parametrize(("alpha", "expected"), [(1.0, "equivalent"), (1.001, "different")])
def test_verify_checks_a_branch_that_no_run_takes(tmp_path: Path, alpha: float, expected: str) -> None:
    one, other = (
        silu(tmp_path / f"{i}.onnx", NAMED.format(then=then), "")
        for i, then in enumerate(("s = Sigmoid (x) [end] u = Mul (x, s)", FUSED.format(alpha=alpha)))
    )
    verdict = verify(one, other)
    assert verdict.verdict == expected, verdict.reason
    assert expected == "equivalent" or "which no run took" in verdict.runs[-1].problem


@pytest.mark.parametrize(("alpha", "expected"), [(1.0, "equivalent"), (1.001, "different")])
def test_verify_checks_such_a_branch_also_where_no_node_has_a_name(tmp_path: Path, alpha: float, expected: str) -> None:
    """A profile tells the nodes that ran by their names. A branch without any counted as taken."""
    one, other = (
        silu(tmp_path / f"{i}.onnx", re.sub(r"\[\w+\] ", "", NAMED.format(then=then)), "")
        for i, then in enumerate(("s = Sigmoid (x) u = Mul (x, s)", FUSED.format(alpha=alpha)))
    )
    before = other.read_bytes()
    verdict = verify(one, other)
    assert verdict.verdict == expected, verdict.reason
    assert expected == "equivalent" or "which no run took" in verdict.runs[-1].problem
    assert other.read_bytes() == before


@pytest.mark.parametrize("name", ["[same] ", ""], ids=["names", "no names"])
def test_verify_checks_such_a_branch_also_where_both_have_the_same_names(tmp_path: Path, name: str) -> None:
    """A profile tells the nodes that ran by their names. The other branch and the main graph have nodes of the same name."""
    text = """
      low = Constant <value = float {-100.0}> ()
      NAME least = ReduceMin <keepdims = 0> (x)
      [less] c = Less (least, low)
      [if] y = If (c) <then_branch = t () => (float[n, 8] u) { NAME u = THEN (x) },
                       else_branch = e () => (float[n, 8] u) { NAME u = Neg (x) }>
    """.replace("NAME ", name)
    one, other = (silu(tmp_path / f"{op}.onnx", text.replace("THEN", op), "") for op in ("Sin", "Cos"))
    assert verify(one, one).verdict == "equivalent"
    verdict = verify(one, other)
    assert verdict.verdict == "different" and "if.then_branch, which no run took" in verdict.runs[-1].problem


READ = """
  low = Constant <value = float {-100.0}> ()
  least = ReduceMin <keepdims = 0> (x)
  c = Less (least, low)
  m = Tanh (x)
  LINES
  y = If (c) <then_branch = t () => (float[n, 8] u) { u = Mul (h, x) },
              else_branch = e () => (float[n, 8] v) { v = Neg (m) }>
"""


@pytest.mark.parametrize(
    ("lines", "expected"),
    [("a = Exp (m) h = Add (a, m)", "equivalent"), ("a = Sin (m) h = Add (m, a)", "different")],
    ids=["the same sum", "another operator"],
)
def test_verify_checks_what_only_a_branch_reads_that_no_run_takes(tmp_path: Path, lines: str, expected: str) -> None:
    """The main graph computes it in each run, but no output depends on it."""
    one, other = (
        silu(tmp_path / f"{i}.onnx", READ.replace("LINES", text), "")
        for i, text in enumerate(("b = Exp (m) h = Add (m, b)", lines))
    )
    verdict = verify(one, other)
    assert verdict.verdict == expected, verdict.reason
    assert expected == "equivalent" or "y.then_branch, which no run took, reads another h" in verdict.runs[-1].problem


def test_a_value_that_outputs_of_one_model_alone_depend_on_is_no_operand_of_both(tmp_path: Path) -> None:
    """Then nothing has compared it, although both models have a value of this name."""
    text = READ.replace("LINES", "a = Exp (m) h = Add (a, m)")
    apart = text.replace("m = Tanh (x)", "m = Sin (x) k = Tanh (x)").replace("Neg (m)", "Neg (k)")
    one, other = (silu(tmp_path / f"{i}.onnx", body, "") for i, body in enumerate((text, apart)))
    verdict = verify(one, other)
    assert verdict.verdict == "different" and "y.then_branch, which no run took, reads another h" in verdict.runs[-1].problem


def test_verify_checks_a_constant_that_a_branch_returns(tmp_path: Path) -> None:
    """A branch without nodes, which no profile tells of."""
    paths = []
    for number in (1.0, 2.0):
        model = load(silu(tmp_path / f"{number}.onnx", NAMED.format(then="u = Neg (x)"), ""))
        (branch,) = (node.attributes["then_branch"].as_graph() for node in model.graph if node.op_type == "If")
        branch.remove(next(iter(branch)), safe=False)
        stored = ir.val("u", const_value=ir.tensor(np.full((2, 8), number, np.float32), name="u"))
        branch.outputs[0] = stored
        branch.register_initializer(stored)
        ir.save(model, path := tmp_path / f"stored_{number}.onnx")
        paths.append(path)
    one, other = paths
    assert verify(one, one).verdict == "equivalent"
    verdict = verify(one, other)
    assert verdict.verdict == "different" and "which no run took" in verdict.runs[-1].problem


def test_verify_can_not_decide_if_nothing_shows_a_branch_that_no_run_takes(tmp_path: Path) -> None:
    """The branch would fail on every drawn input, and the condition keeps it from running."""
    wrong = "far = Constant <value = int64 {100}> () [end] u = Gather (x, far)"
    one, other = (
        silu(tmp_path / f"{i}.onnx", NAMED.format(then=then), "", HEADER.replace("(float[n, 8] y)", "(float[a, b] y)"))
        for i, then in enumerate((wrong, wrong.replace("100", "101")))
    )
    assert verify(one, one).verdict == "equivalent"
    verdict = verify(one, other)
    assert verdict.verdict == "not-run" and "no run took" in verdict.reason and "--inputs" in verdict.reason


def test_a_verdict_says_nothing_of_the_model_before(tmp_path: Path) -> None:
    """The wrong model is compared with float64, where CDist has no definition, and the right one need not be."""
    text = """
    <ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
    g (float[n, 8] x) => (float[n, m] y) { d = com.microsoft.CDist <metric = "euclidean"> (x, x) y = END (d) }
    """
    right, wrong = (write(tmp_path / f"{end}.onnx", text.replace("END", end)) for end in ("Identity", "Tanh"))
    reference = Reference(right, wide=True)
    before, different, after = (reference.verdict(model) for model in (right, wrong, right))
    assert (different.verdict, after.verdict) == ("different", "equivalent")
    assert "float64" in different.reason and after.reason == before.reason


LOGARITHM = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 8] x) => (float[n, 8] y) <float most = {1e6}, float one = {1.0}> {
  m = ReduceMax <keepdims = 0> (x)  c = Greater (m, most)
  y = If (c) <then_branch = t () => (float[n, 8] u) { l = Log (x) e = Exp (l) u = Add (e, one) },
              else_branch = f () => (float[n, 8] v) { v = Neg (x) }>
}
"""


def test_a_number_in_the_place_of_none_is_another_result(tmp_path: Path) -> None:
    model = write(tmp_path / "m.onnx", LOGARITHM)
    number = write(tmp_path / "n.onnx", LOGARITHM.replace("l = Log (x) e = Exp (l)", "e = Identity (x)"))
    verdict = verify(model, number)
    assert verdict.verdict == "different" and "which no run took" in verdict.runs[-1].problem
    assert verify(model, number, fix_overflows=True).verdict == "equivalent"


def branches(tmp_path: Path, *thens: str) -> list[Path]:
    """Models with a branch that no run takes."""
    header = HEADER.replace("(float[n, 8] y)", "(float[a, b] y)")
    return [silu(tmp_path / f"{i}.onnx", NAMED.format(then=then), "", header) for i, then in enumerate(thens)]


@pytest.mark.parametrize(("alpha", "expected"), [(1.0, "equivalent"), (1.001, "different")])
def test_verify_holds_what_differs_in_a_branch_that_runs_on_no_drawn_values(tmp_path: Path, alpha: float, expected: str) -> None:
    """Nothing that is drawn has a hundred rows; what comes before does not care."""
    rest = "far = Constant <value = int64[1] {100}> () [end] u = Gather (m, far)"
    plain, fused_one = f"s = Sigmoid (x) m = Mul (x, s) {rest}", f"{FUSED.format(alpha=alpha).replace('u =', 'm =')} {rest}"
    verdict = verify(*branches(tmp_path, plain, fused_one))
    assert verdict.verdict == expected, verdict.reason
    assert expected == "equivalent" or "gives another m" in verdict.runs[-1].problem


def test_verify_treats_computed_constants_as_constants(tmp_path: Path) -> None:
    rest = "m = Mul (x, k) far = Constant <value = int64[1] {100}> () [end] u = Gather (m, far)"
    one, same, other = branches(
        tmp_path,
        f"a = Constant <value = float {{2.0}}> () b = Constant <value = float {{3.0}}> () k = Mul (a, b) {rest}",
        f"k = Constant <value = float {{6.0}}> () {rest}",
        f"k = Constant <value = float {{5.0}}> () {rest}",
    )
    assert (verify(one, same).verdict, verify(one, other).verdict) == ("equivalent", "different")


@pytest.mark.parametrize(("renamed", "expected"), [("activation", "different"), ("outer", "not-run")])
def test_a_branch_is_checked_even_if_its_if_node_has_another_name(tmp_path: Path, renamed: str, expected: str) -> None:
    inner = """u = If (c) <then_branch = a () => (float[n, 8] p) {{ [p] p = Neg (x) }},
                         else_branch = b () => (float[n, 8] q) {{ [q] q = {op} (x) }}>"""
    one, other = (NAMED.format(then=inner.format(op=op)).replace("y = If", "[outer] y = If") for op in ("Abs", "Neg"))
    models = [silu(tmp_path / f"{i}.onnx", text, "") for i, text in enumerate((one, other.replace(renamed, "changed")))]
    verdict = verify(*models)
    assert verdict.verdict == expected and "no run took" in (verdict.reason or verdict.runs[-1].problem)


IN_A_LOOP = """<ir_version: 8, opset_import: ["" : 17]> g (float[2, 8] x) => (float[2, 8] y) <int64 n = {3}, bool go = {1}> {
  y = Loop (n, go, x) <body = b (int64 i, bool c, float[2, 8] s) => (bool d, float[2, 8] t) { d = Identity (c) LINES }> }"""


def test_a_call_in_a_body_that_ran_has_run(tmp_path: Path) -> None:
    """onnxruntime inlines the call, so no node has its name."""
    lines = "q = Sigmoid (s) t = Mul (s, q)"
    model = write(tmp_path / "loop.onnx", IN_A_LOOP.replace("LINES", lines))
    result = fuse(model, tmp_path / "out.onnx", load_patterns(), Options(target="function"))
    assert (len(result.rewrites), result.verdict.coverage.body, result.verdict.coverage.alone) == (1, 1, 0)


CALLED = """<ir_version: 8, opset_import: ["" : 17, "my" : 1]> g (float[n, 8] x) => (float[n, 8] y) {
  low = Constant <value = float {-1e6}> () least = ReduceMin <keepdims = 0> (x) c = Less (least, low)
  y = If (c) <then_branch = t () => (float[n, 8] u) { u = THEN (x) }, else_branch = e () => (float[n, 8] v) { v = ELSE (x) }> }
"""
FUNCTION = '<opset_import: ["" : 17], domain: "my"> NAME (a) => (b) { [n] b = OPERATOR (a) }'


@pytest.mark.parametrize(("other", "ran"), [("G", {"then"}), ("F", set())], ids=["another function", "the same function"])
def test_a_call_has_run_if_no_other_graph_calls_its_function(other: str, ran: set[str]) -> None:
    """A function that a second one calls, or a second branch, tells nothing of the first branch."""
    text = CALLED.replace("u = THEN", "[then] u = my.F").replace("v = ELSE", f"[other] v = my.{other}")
    functions = [FUNCTION.replace("NAME", name).replace("OPERATOR", "Abs") for name in {"F", other}]
    model = ir.from_proto(onnx.parser.parse_model(text + "".join(functions)))
    assert reached(model, {"_inlfunc_F_n"}).reached & {"then", "other"} == ran
    through = FUNCTION.replace("NAME", "H").replace("OPERATOR", "my.F").replace('"" : 17]', '"" : 17, "my" : 1]')
    model = ir.from_proto(onnx.parser.parse_model(text + "".join([*functions, through])))
    assert not reached(model, {"_inlfunc_F_n"}).reached & {"then", "other"}


@pytest.mark.parametrize(("then", "other"), [("F", "F_x"), ("F", "G"), ("F_x", "F"), ("F", "Fx")])
def test_a_call_that_no_run_took_is_not_taken_for_another(tmp_path: Path, then: str, other: str) -> None:
    """The name of one function begins with that of the other, and their nodes have one name."""
    plain = CALLED.replace("THEN", "Relu").replace("ELSE", "Neg")
    functions = FUNCTION.replace("NAME", then).replace("OPERATOR", "Abs") + FUNCTION.replace("NAME", other).replace(
        "OPERATOR", "Neg"
    )
    called = CALLED.replace("THEN", f"my.{then}").replace("ELSE", f"my.{other}") + functions
    verdict = verify(write(tmp_path / "plain.onnx", plain), write(tmp_path / "called.onnx", called))
    assert verdict.verdict == "different" and "no run took" in verdict.runs[-1].problem, verdict


@pytest.mark.parametrize(("operator", "expected"), [("Abs", "equivalent"), ("Neg", "different")])
def test_a_function_that_only_a_branch_calls_that_no_run_takes_is_checked(tmp_path: Path, operator: str, expected: str) -> None:
    """Its nodes have no names, so a profile did not tell whether they ran."""
    text = CALLED.replace("THEN", "my.F").replace("ELSE", "Neg") + FUNCTION.replace("NAME", "F").replace("[n] ", "")
    one, other = (write(tmp_path / f"{op}.onnx", text.replace("OPERATOR", op)) for op in ("Abs", operator))
    verdict = verify(one, other)
    assert verdict.verdict == expected
    assert expected == "equivalent" or "my::F, which no run took" in verdict.runs[-1].problem
