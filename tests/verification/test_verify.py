"""The whole judge on small text models: wrong rewrites are refused, right ones accepted. A judge that accepts all is detected."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnx_subgraph import pipeline
from onnx_subgraph.errors import ModelError, UsageError
from onnx_subgraph.files.models import load
from onnx_subgraph.language.library import load_patterns
from onnx_subgraph.model.shapes import declared_only, infer_shapes
from onnx_subgraph.options import Options
from onnx_subgraph.report.wording import exceptions
from onnx_subgraph.verification import trial
from onnx_subgraph.verification.bounds import Bound, Noise, bound
from onnx_subgraph.verification.case import Case
from onnx_subgraph.verification.cases import Drawing
from onnx_subgraph.verification.judge import compare
from onnx_subgraph.verification.larger import FREE, LONG, WIDE
from onnx_subgraph.verification.noise import noisy
from onnx_subgraph.verification.reference import Reference
from onnx_subgraph.verification.sessions import Failure, open_session, run
from onnx_subgraph.verification.trial import CPU
from onnx_subgraph.verification.verdict import Verdict
from onnx_subgraph.verification.verify import verify
from tests.verification.models import block, weights, write

Pair = Callable[..., Verdict]

WRONG = {
    "tanh for the exact gelu": {"activation": "tanh"},
    "0.51 for 0.5": {"half": 0.51},
    "a dropped scale": {"scale": 1.0},
    "a slightly other scale": {"scale": 0.1251},
    "swapped operands": {"swapped": True},
    "epsilon 1e-5 for 1e-12": {"epsilon": 1e-5},
}
RIGHT = {
    "the same": {},
    "fused layer normalization": {"norm": "fused"},
    "fused gelu": {"activation": "fused"},
    "both fused": {"activation": "fused", "norm": "fused"},
}
WRONG_IN_FLOAT16 = {"0.51 for 0.5": {"half": 0.51}, "another scale": {"scale": 0.95}, "swapped operands": {"swapped": True}}


@pytest.fixture
def judged(tmp_path: Path) -> Pair:
    """Write the block twice, the second time in another spelling, and compare the two."""

    def judge(*, dtype: str = "float", layers: int = 3, **otherwise: object) -> Verdict:
        _, w1, w2 = weights((32,), (32, 64), (64, 32), dtype=np.float16 if dtype == "float16" else np.float32)
        named = {"gain": np.ones(32, w1.dtype), "w1": w1, "w2": w2}
        # in float16 the branch weighs as much as the stream: a fiftieth of an eighth of it is below the stream's rounding
        kept = {"dtype": dtype, "layers": layers, "scale": 0.125 if dtype == "float" else 1.0}
        paths = [
            write(tmp_path / f"{number}.onnx", block(**(kept | options)), **named)  # type: ignore[arg-type]
            for number, options in enumerate(({}, otherwise))
        ]
        return verify(*paths)

    return judge


@pytest.mark.parametrize("name", WRONG)
def test_wrong_rewrites_are_refused(judged: Pair, name: str) -> None:
    verdict = judged(**WRONG[name])
    assert verdict.verdict == "different"
    assert verdict.worst is not None
    assert verdict.worst.output == "y"


@pytest.mark.parametrize("name", WRONG_IN_FLOAT16)
def test_wrong_rewrites_are_refused_in_float16(judged: Pair, name: str, thorough: bool) -> None:
    """With more layers the rounding is larger, and finding the truth takes longer."""
    assert judged(dtype="float16", layers=3 if thorough else 1, **WRONG_IN_FLOAT16[name]).verdict == "different"


@pytest.mark.parametrize("name", RIGHT)
def test_right_rewrites_are_accepted(judged: Pair, name: str) -> None:
    verdict = judged(**RIGHT[name])
    assert verdict.verdict == "equivalent", verdict.worst
    assert {run.optimised for run in verdict.runs} == {False, True}
    assert len({tuple(run.sizes.items()) for run in verdict.runs}) >= 2
    assert len({run.seed for run in verdict.runs}) >= 2


@pytest.mark.parametrize("dtype", ["float", "float16"])
def test_a_deep_model_is_accepted_with_all_its_roundings_moved(judged: Pair, dtype: str) -> None:
    norm = "fused" if dtype == "float" else "decomposed"
    verdict = judged(dtype=dtype, layers=12, norm=norm, activation="fused" if dtype == "float" else "exact")
    assert verdict.verdict == "equivalent", verdict.worst


SAMPLES = Path(__file__).parents[2] / "sample_models"


def test_a_judge_that_always_accepts_is_detected(judged: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its bounds opened, every wrong rewrite passes. So the bounds are what the tests above check."""
    compare_all = trial.compare_all

    def accept(*arguments: object) -> object:
        return {name: replace(f, bound=f.error, problem="") for name, f in compare_all(*arguments).items()}  # type: ignore[arg-type]

    monkeypatch.setattr(trial, "compare_all", accept)
    for name in WRONG:
        with pytest.raises(AssertionError):
            test_wrong_rewrites_are_refused(judged, name)


def test_one_wrong_element_of_a_weight_is_found(tmp_path: Path) -> None:
    gain, w1, w2 = weights((32,), (32, 64), (64, 32))
    wrong = w1.copy()
    wrong[3, 5] *= 1.01
    paths = [write(tmp_path / f"{i}.onnx", block(), gain=gain, w1=w, w2=w2) for i, w in enumerate((w1, wrong))]
    assert verify(*paths).verdict == "different"


def test_noise_is_measured_with_large_weights_too(tmp_path: Path) -> None:
    """Weights that a session takes from memory instead of its model are the same weights."""
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[n, 512] x) => (float[n, 512] y) { y = MatMul(x, w) }'
    (w,) = weights((512, 512))
    wrong = w.copy()
    wrong[3, 5] *= 1.01
    kept, other = (write(tmp_path / f"{i}.onnx", text, w=array) for i, array in enumerate((w, wrong)))
    verdict = verify(kept, kept)
    assert (verdict.verdict, verdict.reason) == ("equivalent", "")
    assert verify(kept, other).verdict == "different"


@pytest.mark.parametrize(
    "text",
    [
        """<ir_version: 8, opset_import: ["" : 17]> g (int64[n] i, bool c) => (float[n, 8] y) {
          z = If (c) <then_branch = a () => (float[n, 8] t) { t = Gather (w, i) },
                      else_branch = b () => (float[n, 8] e) { u = Gather (w, i) e = Neg (u) }>
          y = Exp (z) }""",
        """<ir_version: 8, opset_import: ["" : 17, "local" : 1]> g (int64[n] i) => (float[n, 8] y) {
          t = Identity (w) z = local.f (t, i) y = Exp (z) }
        <domain: "local", opset_import: ["" : 17]> f (w, i) => (m) { v = Transpose <perm = [1, 0]> (w) u = Gather (w, i)
          p = MatMul (u, v) m = MatMul (p, w) }""",
    ],
    ids=["a branch", "a function"],
)
def test_noise_is_measured_if_only_inner_bodies_use_lookup_tables(tmp_path: Path, text: str) -> None:
    model = write(tmp_path / "m.onnx", text, w=weights((8, 8))[0])
    verdict = verify(model, model)
    assert (verdict.verdict, verdict.reason) == ("equivalent", "")


SUM = "{r} = Add ({x}, big) {y} = Sub ({r}, big)"
COPIED = "{r} = Identity ({x}) {y} = Identity ({r})"
MODEL = '<ir_version: 8, opset_import: ["" : 17, "local" : 1]> g (float[n, 8] x) => (float[n, 8] y) <float big = {1e4}'
PLACES = {
    "the graph": (MODEL + "> {", "}", {"x": "x", "y": "y"}),
    "an If": (
        MODEL + ", bool c = {1}> { y = If (c) <then_branch = t () => (float[n, 8] a) {",
        "}, else_branch = e () => (float[n, 8] b) { b = Neg (x) }> }",
        {"x": "x", "y": "a"},
    ),
    "a Loop": (
        MODEL + ", int64 m = {2}, bool c = {1}> { y = Loop (m, c, x) <body = l (int64 i, bool d, float[n, 8] a) => (d2, b) {",
        "d2 = Identity (d) }> }",
        {"x": "a", "y": "b"},
    ),
    "a Scan": (
        MODEL + "> { y = Scan (x) <num_scan_inputs = 1, body = s (float[8] a) => (float[8] b) {",
        "}> }",
        {"x": "a", "y": "b"},
    ),
    "a function": (
        MODEL + '> { y = local.f (x, big) } <domain: "local", opset_import: ["" : 17]> f (a, big) => (b) {',
        "}",
        {"x": "a", "y": "b"},
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_result_is_as_exact_as_the_roundings_before_it_wherever_they_are(tmp_path: Path, place: str) -> None:
    """x + 10,000 - 10,000 is x but for the rounding of the sum, which is many times that of x."""
    before, after, names = PLACES[place]
    rounded, copied = (
        write(tmp_path / f"{i}.onnx", f"{before} {inner.format(r='r', **names)} {after}") for i, inner in enumerate((SUM, COPIED))
    )
    assert verify(rounded, copied).verdict == "equivalent"
    assert verify(copied, rounded).verdict == "different"


def test_noise_is_measured_though_a_branch_declares_a_shape_that_its_result_does_not_have(tmp_path: Path) -> None:
    """As an exporter writes a scatter: one branch for tensors without axes, whose sizes the other one declares, too.

    onnxruntime does not look at the declaration, because the other branch has none. Nor may the model with noise have it.
    """
    text = (
        MODEL
        + """> { shape = Shape (x) rank = Size (shape) zero = Constant <value_int = 0> () flat = Equal (rank, zero)
      z = If (flat) <then_branch = a () => (float[m] b) { row = Constant <value_ints = [-1]> () b = Reshape (x, row) },
                     else_branch = c () => (float[n, 8] d) { d = Identity (x) }>
      w = If (flat) <then_branch = e () => (float[] f) { f = Squeeze (z) },
                     else_branch = g () => (float[m] h) { h = Identity (z) }>
      INNER
      last = Constant <value_ints = [1]> () t = ReduceSum <keepdims = 1> (v, last) y = Add (x, t) }"""
    )
    paths = []
    for inner in (SUM, COPIED):
        model = onnx.parser.parse_model(text.replace("INNER", inner.format(r="r", x="w", y="v")))
        model.graph.node[5].attribute[0].g.output[0].type.tensor_type.ClearField("shape")
        onnx.save(model, tmp_path / f"{len(paths)}.onnx")
        paths.append(tmp_path / f"{len(paths)}.onnx")
    rounded, copied = paths
    verdict = verify(rounded, copied)
    assert (verdict.verdict, verdict.reason) == ("equivalent", "")
    assert verify(copied, rounded).verdict == "different"


def test_a_model_with_noise_declares_what_its_file_declares() -> None:
    """Where onnxruntime refuses inferred shapes, it opens the model without them."""
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[n, 8] x) => (float[n, 8] y) { a = Exp (x) y = Exp (a) }'
    infer_shapes(model := ir.from_onnx_text(text))
    moved = noisy(model, 1)
    assert not isinstance(moved, str)
    with declared_only(moved):
        made = [v.shape for node in moved.graph for v in node.outputs if "noise" in str(v.name) and not v.is_graph_output()]
    assert made and not any(made)


def test_a_position_that_a_loop_counts_is_exact(tmp_path: Path) -> None:
    """Half of the round's number, truncated: beside a float that is handed on, and rounded."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[n, 8] x) => (float[n, 8] y, int64 p)
      <int64 m = {{3}}, bool c = {{1}}, int64 none = {{0}}, float half = {{{half}}}> {{
      y, p = Loop (m, c, x, none) <body = l (int64 i, bool d, float[n, 8] a, int64 q) => (d2, b, r) {{
        d2 = Identity (d) b = Exp (a) f = Cast <to = 1> (i) h = Mul (f, half) r = Cast <to = 7> (h) }}> }}"""
    kept, other = (write(tmp_path / f"{half}.onnx", text.format(half=half)) for half in (0.5, 0.4))
    assert verify(kept, kept).verdict == "equivalent"
    assert verify(kept, other).verdict == "different"


ADD = '<ir_version: 8, opset_import: ["" : 17]> g ({type}[{dims}] {x}) => ({type}[{dims}] {y}) {{ {y} = {op}({x}, {x}) }}'


def plain(path: Path, type: str = "float", dims: str = "n, 3", x: str = "x", y: str = "y", op: str = "Add") -> Path:  # noqa: A002
    return write(path, ADD.format(type=type, dims=dims, x=x, y=y, op=op))


@pytest.mark.parametrize("change", [{"type": "double"}, {"dims": "2, 3"}, {"dims": "m, 3"}, {"x": "z"}, {"y": "z"}])
def test_another_interface_is_different_without_running(tmp_path: Path, change: dict[str, str]) -> None:
    verdict = verify(plain(tmp_path / "a.onnx"), plain(tmp_path / "b.onnx", **change))
    assert verdict.verdict == "different"
    assert all(run.problem for run in verdict.runs)


@pytest.mark.parametrize("type", ["float16", "bfloat16", "double", "int32", "int64"])
def test_dtypes(tmp_path: Path, type: str) -> None:  # noqa: A002
    kept, other = plain(tmp_path / "a.onnx", type), plain(tmp_path / "b.onnx", type, op="Mul")
    verdict = verify(kept, kept)
    if verdict.verdict == "not-run":  # if this onnxruntime has no kernel, it has to say so
        assert "onnxruntime does not load" in verdict.reason
    else:
        assert verdict.verdict == "equivalent"
        assert verify(kept, other).verdict == "different"


OF_DOUBLES = """<ir_version: 8, opset_import: ["" : 17]> g (double[n, 3] x) => (double[n, 3] y)
  <double low = {-1}, double zero = {0}, double high = {6}> { LINES }"""


LONGER = {
    "a band": ("float[S, S] x", "y = Trilu(x, m)", "int64 m = {5}", "int64 m = {6}"),
    "a window": ("float[N, S] x", "y = Slice(x, zero, m, one)", "int64[1] m = {99}", "int64[1] m = {16}"),
}


@pytest.mark.parametrize(("inputs", "body", "weight", "other"), LONGER.values(), ids=LONGER)
def test_an_error_at_usual_sizes_only_is_found(tmp_path: Path, inputs: str, body: str, weight: str, other: str) -> None:
    for name, number in (("one", weight), ("other", other)):
        constants = f"{number}, int64[1] zero = {{0}}, int64[1] one = {{1}}"
        text = f"g ({inputs}) => (float[A, B] y) <{constants}> {{ {body} }}"
        write(tmp_path / f"{name}.onnx", f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    assert verify(tmp_path / "one.onnx", tmp_path / "one.onnx").verdict == "equivalent"
    assert verify(tmp_path / "one.onnx", tmp_path / "other.onnx").verdict == "different"


def test_which_sets_of_inputs_are_drawn(tmp_path: Path) -> None:
    """One of usual sizes, one of large numbers and one that is less usual, where the user leaves the bound to the tool."""
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[DIMS] x) => (float[DIMS] y) { y = Relu (x) }'
    free, fixed = (write(tmp_path / f"{dims}.onnx", text.replace("DIMS", dims)) for dims in ("N, S", "2, 3"))

    def seeds(model: Path, **options: float) -> list[int]:
        runs = verify(model, model, **options).runs  # type: ignore[arg-type]
        return sorted(run.seed or 0 for run in runs if not run.optimised)

    assert [seed for seed in seeds(free) if seed >= LONG] == [LONG, WIDE, FREE]
    assert [seed for seed in seeds(fixed) if seed >= LONG] == [WIDE, FREE]
    assert not [seed for seed in seeds(free, rtol=1e-3) if seed >= LONG]
    cases = Drawing(free, load(free), "CPUExecutionProvider", None, None, wide=True).cases(0, {}, None)
    assert not isinstance(cases, Failure)
    coarse = {case.seed for case in cases if case.coarse}
    assert coarse == {LONG, FREE}, "the others have the bounds that the noise gives"


LARGER = {
    "exponents": ("float[N, 64] x", "float[N, 64] y", "y = Exp(x)", "c = Min(x, k) y = Exp(c)", "float k = {12}"),
    "integers": ("int64[N, 8] x", "int64[N, 8] y", "y = Neg(x)", "c = Min(x, k) y = Neg(c)", "int64 k = {500}"),
}


@pytest.mark.parametrize(("inputs", "outputs", "one", "other", "weights"), LARGER.values(), ids=LARGER)
def test_an_error_at_large_numbers_only_is_found(
    tmp_path: Path, inputs: str, outputs: str, one: str, other: str, weights: str
) -> None:
    for name, body in (("one", one), ("other", other)):
        text = f"g ({inputs}) => ({outputs}) <{weights}> {{ {body} }}"
        write(tmp_path / f"{name}.onnx", f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    assert verify(tmp_path / "one.onnx", tmp_path / "one.onnx").verdict == "equivalent"
    assert verify(tmp_path / "one.onnx", tmp_path / "other.onnx").verdict == "different"


LESS_USUAL = {
    "a number between 0 and 1": (
        "float[N, 4] a, float[N, 4] b, float[N, 1] t",
        "m = Sub(one, t) u = Mul(t, b) v = Mul(m, a) y = Add(u, v)",
        "c = Greater(t, half) y = Where(c, b, a)",
    ),
    "a factor below -1000": ("float[N, 8] x", "y = Mul(x, low)", "a = Mul(x, x) y = Mul(a, low)"),
    "an integer compared with 0": (
        "int64[N, 8] x",
        "c = Greater(x, none) y = Where(c, x, none)",
        "c = Greater(x, none) y = Cast<to = 7>(c)",
    ),
    "a Relu of a comparison": ("float[N, 8] x", "c = Greater(x, zero) y = Where(c, x, zero)", "y = Clip(x, zero, six)"),
    "positive numbers": ("float[N, 3, 8, 8] x", "m = ReduceMin(x) r = Relu(m) y = Sub(x, r)", "y = Identity(x)"),
    "a pair of flags": ("float[N, 2] x, bool[N, 2] f", "n = Neg(x) y = Where(f, x, n)", "y = Mul(x, signs)"),
    "positions of each row": (
        "int64[B, S] position_ids",
        "y = Cast<to = 1>(position_ids)",
        "f = Slice(position_ids, begin, end, axis) s = Shape(position_ids) e = Expand(f, s) y = Cast<to = 1>(e)",
    ),
    "padding at the left": (
        "float[B, S] x, int64[B, S] attention_mask",
        "m = Cast<to = 9>(attention_mask) w = Where(m, x, low) y = Softmax(w)",
        """m = Cast<to = 9>(attention_mask) w = Where(m, x, low) a = Slice(x, begin, end, last) b = Slice(w, end, far, last)
        c = Concat<axis = 1>(a, b) y = Softmax(c)""",
    ),
    "a mask that is added": (
        "float[B, S] s, float[B, S] attention_mask",
        "a = Add(s, attention_mask) y = Softmax(a)",
        "m = Max(attention_mask, zero) a = Add(s, m) y = Softmax(a)",
    ),
    "a batch of three": (
        "float[batch, 8] x",
        "y = Slice(x, back, front, axis, back)",
        "a = Slice(x, begin, end, axis) b = Slice(x, end, far, axis) y = Concat<axis = 0>(b, a)",
    ),
    "integers of 16 bits": ("int16[N, S] audio", "y = Cast<to = 1>(audio)", "c = Cast<to = 1>(audio) y = Clip(c, low, high)"),
}
NUMBERS = """float one = {1}, float half = {0.5}, float zero = {0}, float six = {6}, float low = {-1000}, float high = {1000},
  int64 none = {0}, float[2] signs = {1, -1}, int64[1] begin = {0}, int64[1] end = {1}, int64[1] axis = {0}, int64[1] last = {1},
  int64[1] far = {99999}, int64[1] back = {-1}, int64[1] front = {-99999}"""


@pytest.mark.parametrize(("inputs", "one", "other"), LESS_USUAL.values(), ids=LESS_USUAL)
def test_an_error_at_less_usual_inputs_only_is_found(tmp_path: Path, inputs: str, one: str, other: str) -> None:
    for name, body in (("one", one), ("other", other)):
        element = "int64" if inputs.startswith("int64[N") else "float"
        outputs = f"{element}[{'A, C, D, E' if '3, 8' in inputs else 'A, C'}] y"
        text = f"g ({inputs}) => ({outputs}) <{NUMBERS}> {{ {body} }}"
        write(tmp_path / f"{name}.onnx", f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    assert verify(tmp_path / "one.onnx", tmp_path / "one.onnx").verdict == "equivalent"
    assert verify(tmp_path / "one.onnx", tmp_path / "other.onnx").verdict == "different"


@pytest.mark.parametrize("element", ["FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ"])
def test_numbers_of_eight_bits_are_compared(tmp_path: Path, element: str) -> None:
    """One rounding of them is a large part of their spread, and still shows what is wrong."""
    kind = getattr(onnx.TensorProto, element)
    files = {}
    for name, body in (("one", "r = Tanh(x)"), ("other", "t = Tanh(x) r = Add(t, t)")):
        proto = onnx.parser.parse_model(
            f'<ir_version: 10, opset_import: ["" : 19]> g (float[N, 8] x) => ({element.lower()}[N, 8] y)'
            f"{{ {body} y = Cast<to = {kind}>(r) }}"
        )
        onnx.save(proto, files.setdefault(name, tmp_path / f"{name}.onnx"))
    assert verify(files["one"], files["one"]).verdict == "equivalent"
    assert verify(files["one"], files["other"]).verdict == "different"


def test_an_original_that_does_not_load_with_optimisation_is_compared_without(tmp_path: Path) -> None:
    """onnxruntime's optimisation raises an error for a Relu and a Clip of doubles."""
    lines = {
        "original": "r = Relu(x) y = Clip(r, low, high)",
        "single": "y = Clip(x, zero, high)",
        "wrong": "y = Clip(x, low, high)",
    }
    models = {name: write(tmp_path / f"{name}.onnx", OF_DOUBLES.replace("LINES", text)) for name, text in lines.items()}
    for candidate, runs in (("original", {False}), ("single", {False, True})):
        verdict = verify(models["original"], models[candidate])
        assert verdict.verdict == "equivalent" and {run.optimised for run in verdict.runs} == runs
        assert ("with optimisation, onnxruntime does not run the original" in verdict.reason) == (runs == {False})
    assert verify(models["original"], models["wrong"]).verdict == "different"
    assert verify(models["single"], models["original"]).verdict == "different"


def test_a_candidate_that_does_not_load_is_different_with_a_reason(tmp_path: Path) -> None:
    kept = plain(tmp_path / "a.onnx")
    broken = write(
        tmp_path / "b.onnx",
        '<ir_version: 8, opset_import: ["" : 17, "no.where" : 1]> g (float[n, 3] x) => (float[n, 3] y) { y = no.where.Fused(x) }',
    )
    verdict = verify(kept, broken)
    assert verdict.verdict == "different"
    assert verdict.worst is not None
    assert "Fused" in verdict.worst.problem


def test_a_reference_that_does_not_run_gives_not_run(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.onnx",
        """<ir_version: 8, opset_import: ["" : 17]> g (float[n, m] x) => (float[m] y) {
             far = Constant<value = int64 {100000}>()
             y = Gather(x, far)
        }""",
    )
    verdict = verify(path, path)
    assert verdict.verdict == "not-run"
    assert "--shape" in verdict.reason
    assert "--inputs" in verdict.reason


def test_sizes_that_a_reshape_requires_are_found(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.onnx",
        """<ir_version: 8, opset_import: ["" : 17]> g (float[batch, seq] x) => (float[a, b, c] y) {
             s = Constant<value = int64[3] {-1, 19, 5}>()
             y = Reshape(x, s)
        }""",
    )
    verdict = verify(path, path)
    assert verdict.verdict == "equivalent", verdict.reason


def test_a_function_of_the_package_is_verified_by_its_body(tmp_path: Path) -> None:
    kept = plain(tmp_path / "a.onnx")
    fused = write(
        tmp_path / "b.onnx",
        """<ir_version: 8, opset_import: ["" : 17, "onnx_subgraph" : 1]>
           g (float[n, 3] x) => (float[n, 3] y) { y = onnx_subgraph.Double(x) }
           <domain: "onnx_subgraph", opset_import: ["" : 17]> Double (x) => (y) { y = Add(x, x) }""",
    )
    assert (verify(kept, fused).verdict, verify(kept, fused).strength) == ("equivalent", "body")
    assert verify(kept, kept).strength == "kernel"


def test_an_overridable_initializer_taken_for_a_constant_is_found(tmp_path: Path) -> None:
    """With its default the fused model is right; with another value, which an odd seed feeds, it is not."""
    header = '<ir_version: 8, opset_import: ["" : 17]>'
    interface = "g (float[n, 3] x, float[3] s = {1.0, 2.0, 3.0}) => (float[n, 3] y)"
    kept = write(tmp_path / "a.onnx", f"{header} {interface} {{ y = Mul(x, s) }}")
    folded = write(
        tmp_path / "b.onnx", f"{header} {interface} {{ c = Constant<value = float[3] {{1.0, 2.0, 3.0}}>() y = Mul(x, c) }}"
    )
    assert verify(kept, kept).verdict == "equivalent"
    assert verify(kept, folded).verdict == "different"


def test_the_users_feeds_are_the_only_ones(tmp_path: Path) -> None:
    path = plain(tmp_path / "a.onnx")
    np.savez(tmp_path / "feeds.npz", x=np.ones((5, 3), np.float32))
    verdict = verify(path, path, inputs=tmp_path / "feeds.npz")
    assert verdict.verdict == "equivalent"
    assert {(run.seed, run.sizes["n"]) for run in verdict.runs} == {(None, 5)}


def test_tolerances_replace_the_measured_noise(tmp_path: Path) -> None:
    header = '<ir_version: 8, opset_import: ["" : 17]> g (float[n, 3] x) => (float[n, 3] y)'
    one, other = (
        write(tmp_path / f"{c}.onnx", f"{header} {{ c = Constant<value = float {{{c}}}>() y = Mul(x, c) }}") for c in (1.0, 1.01)
    )
    assert verify(one, other).verdict == "different"
    assert verify(one, other, rtol=0.02).verdict == "equivalent"
    assert verify(one, other, rtol=0.001, atol=1e-6).verdict == "different"


CLIPPED = [("Relu(x)", 0, 6), ("Identity(x)", -50, 50)]


@pytest.mark.parametrize(("plain", "low", "high"), CLIPPED, ids=["Relu", "Identity"])
def test_a_clip_beyond_the_usual_values_is_found(tmp_path: Path, plain: str, low: int, high: int) -> None:
    head = '<ir_version: 8, opset_import: ["": 17]> g (float[N, 8] x) => (float[N, 8] y)'
    one = write(tmp_path / "plain.onnx", f"{head} {{ y = {plain} }}")
    other = write(tmp_path / "clip.onnx", f"{head} <float low = {{{low}}}, float high = {{{high}}}> {{ y = Clip(x, low, high) }}")
    assert verify(one, other).verdict == "different"
    assert verify(one, one).verdict == "equivalent"


def test_inputs_that_overflow_are_left_out(tmp_path: Path) -> None:
    """log(1 + eˣ) overflows beyond 88, and Softplus does not. Neither is wrong at the values that both compute."""
    head = '<ir_version: 8, opset_import: ["": 17]> g (float[N, 64] x) => (float[N, 64] y)'
    written = write(tmp_path / "log.onnx", f"{head} <float one = {{1}}> {{ e = Exp(x) s = Add(e, one) y = Log(s) }}")
    fused = write(tmp_path / "softplus.onnx", f"{head} {{ y = Softplus(x) }}")
    verdict = verify(written, fused)
    assert verdict.verdict == "equivalent" and WIDE in {run.seed for run in verdict.runs}, "tens do not overflow"
    twice = write(tmp_path / "twice.onnx", f"{head} {{ e = Exp(x) y = Exp(e) }}")
    verdict = verify(twice, twice)
    assert verdict.verdict == "equivalent" and WIDE not in {run.seed for run in verdict.runs}


def test_a_sequence_as_an_input_can_differ(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (seq(float[N, 3]) x) => (float[N, 3] y)
      <int64 first = {0}, float k = {1.01}> { a = SequenceAt (x, first)  b = Mul (a, k)  y = Exp (RESULT) }"""
    kept, other = (write(tmp_path / f"{result}.onnx", text.replace("RESULT", result)) for result in "ab")
    assert verify(kept, kept).verdict == "equivalent"
    assert verify(kept, other).verdict == "different"


def test_an_unknown_provider_names_the_ones_there_are(tmp_path: Path) -> None:
    path = plain(tmp_path / "a.onnx")
    with pytest.raises(UsageError, match="CPUExecutionProvider"):
        verify(path, path, providers=("QuantumExecutionProvider",))
    with pytest.raises(UsageError, match="did you mean CPUExecutionProvider"):
        verify(path, path, providers=("cpu",))


@pytest.mark.parametrize("content", [b"", b"\x08\x07garbage", b"a text file\n"])
def test_an_unreadable_model_is_an_error_with_its_name(tmp_path: Path, content: bytes) -> None:
    path, broken = plain(tmp_path / "a.onnx"), tmp_path / "broken.onnx"
    broken.write_bytes(content)
    with pytest.raises(ModelError, match=re.escape(str(broken))):
        verify(path, broken)
    with pytest.raises(ModelError, match=re.escape(str(broken))):
        verify(broken, path)


def test_two_runs_of_the_judge_agree(judged: Pair) -> None:
    assert judged().runs == judged().runs


SMALL = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 1024] x) => (float[n, 1024] y) <float[1] k = {4.0}, float[1] b = {-26.0}>
{ m = Mul (x, k)  a = Add (m, b)  y = Sigmoid (a) }
"""


def test_probabilities_may_be_off_by_half_an_ulp_of_one(tmp_path: Path) -> None:
    """onnxruntime's Sigmoid is 1e-7 from the truth for any result, so another computation may be too.

    Most of these logits are so small that noise does not change their results.
    """
    path = tmp_path / "small.onnx"
    path.write_bytes(onnx.parser.parse_model(SMALL).SerializeToString())
    reference = Reference(path)
    cases = reference.cases("CPUExecutionProvider")
    assert not isinstance(cases, Failure)
    reference.measure_noise("CPUExecutionProvider")
    for case in cases:
        exact = (1 / (1 + np.exp(26 - 4 * case.feeds["x"].astype(np.float64)))).astype(np.float32)
        assert compare(case.outputs["y"], exact, case.bounds["y"]).equal
        assert not compare(case.outputs["y"], exact + np.float32(2e-6), case.bounds["y"]).equal


ROUNDED = """
  <ir_version: 8, opset_import: ["" : 17]>
  g (float[4, 32] x) => (float[4, 8] y) <float[32, 8] w> {
    h = CAST
    p = MatMul (h, w)
    y = Relu (p)
  }
"""


@pytest.mark.parametrize(("off", "verdict"), [(1.0, "equivalent"), (1.05, "different")])
def test_a_fusion_may_leave_out_a_rounding_to_float16(off: float, verdict: str, tmp_path: Path) -> None:
    """A Cast to float16 and back rounds.

    A model that computes in float32 throughout differs by that rounding, which is allowed.
    """
    (w,) = weights((32, 8))
    there_and_back = "Identity (x)  c = Cast <to = 10> (h)  back = Cast <to = 1> (c)"
    rounded = ROUNDED.replace("CAST", there_and_back).replace("MatMul (h", "MatMul (back")
    original = write(tmp_path / "original.onnx", rounded, w=w)
    fused = write(tmp_path / "fused.onnx", ROUNDED.replace("CAST", "Identity (x)"), w=w * np.float32(off))
    assert verify(original, fused).verdict == verdict


def test_a_run_with_noise_that_fails_is_told(tmp_path: Path) -> None:
    """The index is 5 - 1: noise, which moves numbers towards zero, makes it 5 - 0, which is outside of the table."""
    path = tmp_path / "m.onnx"
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y)
    <float zero = {0.0}, int64 five = {5}, float[5] table = {1.0, 2.0, 3.0, 4.0, 5.0}> {
      nothing = Mul (x, zero) number = Exp (nothing) whole = Cast <to = 7> (number) index = Sub (five, whole)
      read = Gather (table, index) y = Add (read, x)
    }"""
    onnx.save(onnx.parser.parse_model(text), path)
    reference = Reference(path)
    reference.measure_noise("CPUExecutionProvider")
    assert "runs with it fail or change a shape: the bounds may be too tight" in reference.verdict(path).reason


def test_one_number_is_not_wrong_because_sums_have_another_order(tmp_path: Path) -> None:
    """Three runs with noise show how far one number moves only roughly. One of four such networks was called different."""
    layers = "a = MatMul (x, first)  b = Tanh (a)  c = MatMul (b, second)  d = Tanh (c)  y = MatMul (d, third)"
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[1, 64] x) => (float[1, 1] y) {{ {layers} }}"""
    for seed in range(12):
        order = np.random.default_rng(seed).permutation(256)
        first, second, third = weights((64, 256), (256, 256), (256, 1))
        third = third * np.random.default_rng(seed).choice([-1, 1], third.shape).astype(np.float32)
        one = write(tmp_path / "one.onnx", text, first=first, second=second, third=third)
        reordered = {"first": first[:, order], "second": second[order][:, order], "third": third[order]}
        other = write(tmp_path / "other.onnx", text, **reordered)
        assert verify(one, other).verdict == "equivalent", seed


LENGTHS = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x, float[1] scale) => (float[n] y)
<float slightly = {FACTOR}, float one = {1.0}, int64[1] zero = {0}, int64 start = {0}, int64 step = {1}, float half = {0.5}> {
  a = Mul (scale, slightly) b = Pow (a, one) c = Pow (b, one) d = Pow (c, one)
  whole = Floor (d) count = Cast <to = 7> (whole) l = Squeeze (count, zero) r = Range (start, l, step)
  f = Cast <to = 1> (r) m = ReduceMean <keepdims = 0> (x) s = Mul (m, slightly) t = Tanh (s) y = Add (f, t)
}"""


@pytest.mark.parametrize(("factor", "verdict"), [(1.0000001, "equivalent"), (1.01, "different")])
def test_feeds_on_which_a_rounding_changes_a_shape_are_left_out(tmp_path: Path, factor: float, verdict: str) -> None:
    """The number of samples of a synthesizer is a sum of rounded durations: 4.0 with noise is one sample less.

    Such feeds gave a bound as if the model had no noise. The other feeds still find errors.
    """
    x = np.linspace(0.1, 1.0, 4, dtype=np.float32)
    original = LENGTHS.replace("FACTOR", "1.0")
    one, other = (tmp_path / name for name in ("original.onnx", "candidate.onnx"))
    for path, text in [(one, original), (other, LENGTHS.replace("FACTOR", str(factor)))]:
        onnx.save(onnx.parser.parse_model(text), path)
    reference = Reference(one)
    cases = reference.cases(CPU)
    session = open_session(one, CPU, optimised=False)
    assert not isinstance(cases, Failure) and not isinstance(session, Failure)
    for case, scale in zip(cases, (4.0, 4.5, 5.5, 6.5), strict=False):
        case.feeds = {"x": x, "scale": np.asarray([scale], np.float32)}
        outputs = run(session, case.feeds)
        assert not isinstance(outputs, Failure)
        case.outputs = outputs
    reference.measure_noise(CPU)
    found = reference.verdict(other)
    assert found.verdict == verdict
    assert f"1 of {len(cases)} sets of feeds are not compared" in found.reason
    assert [case.unsteady for case in cases] == [True] + [False] * (len(cases) - 1)


@pytest.mark.parametrize("opset", [17, 22])
@pytest.mark.parametrize("narrow", [10, 16], ids=["float16", "bfloat16"])
def test_a_fused_operator_need_not_round_to_a_narrower_type_between(tmp_path: Path, narrow: int, opset: int) -> None:
    """Also to bfloat16: onnxruntime casts to it on the CPU and does not multiply it, and the noise is still measured there."""
    text = f"""<ir_version: 10, opset_import: ["" : {opset}, "com.microsoft" : 1]> g (float[n, 32] x) => (float[n, 32] y)
    <float root = {{1.41421356}}, float one = {{1.0}}, float half = {{0.5}}, float more = {{1.1}}> {{
      a = Cast <to = {narrow}> (x) h = Cast <to = 1> (a) GELU y = Relu (c)
    }}"""
    rounded = f"b = Cast <to = {narrow}> (z) c = Cast <to = 1> (b)"
    written = f"d = Div (h, root) e = Erf (d) f = Add (e, one) m = Mul (h, f) z = Mul (m, half) {rounded}"
    others = ("c = com.microsoft.Gelu (h)", "w = com.microsoft.Gelu (h) c = Mul (w, more)")
    original, right, wrong = (write(tmp_path / f"{i}.onnx", text.replace("GELU", s)) for i, s in enumerate((written, *others)))
    verdict = verify(original, right)
    assert (verdict.verdict, verdict.reason) == ("equivalent", "")
    assert verify(original, wrong).verdict == "different"


def test_an_output_that_needs_positive_inputs_gets_some(tmp_path: Path) -> None:
    """A sum of logarithms is NaN for almost all normal inputs. The other output still sees negative ones."""

    def saved(root: str, relu: str) -> Path:
        text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[N, 8] x) => (float[N] y, float[N, 8] z)
          {{ l = {root}(x) y = ReduceSum<keepdims = 0>(l, one) z = {relu}(x) }}"""
        return write(tmp_path / f"{root}_{relu}.onnx", text, one=np.array([1], np.int64))

    same = verify(saved("Log", "Relu"), saved("Log", "Relu"))
    assert same.verdict == "equivalent" and "positive floats" in str(same)
    assert "can show" not in str(same) and "counted for nothing" not in str(same)
    assert verify(saved("Log", "Relu"), saved("Sqrt", "Relu")).verdict == "different"
    assert verify(saved("Log", "Relu"), saved("Log", "Identity")).verdict == "different", "negative inputs were left out"


HEAD = '<ir_version: 8, opset_import: ["" : 17]>'


def pair(folder: Path, one: str, other: str) -> Verdict:
    """The verdict on two models without weights."""
    return verify(write(folder / "one.onnx", f"{HEAD} {one}"), write(folder / "other.onnx", f"{HEAD} {other}"))


@pytest.mark.parametrize(
    ("one", "changed"),
    [
        # a threshold of a table, in a model of one size
        (
            "g (float[2, 8] x) => (float[2, 8] y) <float o = {0}> { c = Greater(x, o) e = Exp(x) y = Where(c, x, e) }",
            ("Exp", "Cos"),
        ),
        # an initializer that a run may override, in a model of one size
        (
            "g (float[2, 8] x, float[8] w) => (float[2, 8] y) <float[8] w = {1, 1, 1, 1, 1, 1, 1, 1}> { y = Mul(x, w) }",
            ("Mul", "Div"),
        ),
        # integers below 0
        ("g (int64[9] x) => (int64[9] y) <int64 o = {0}> { a = Abs(x) y = Add(a, o) }", ("Abs(x)", "Max(x, o)")),
        # a bound in float16
        (
            "g (float16[9, 8] x) => (float16[9, 8] y) <float s = {6}> { b = Cast<to = 10>(s) y = Min(x, b) }",
            ("{6}", "{7}"),
        ),
    ],
)
def test_a_change_is_seen(one: str, changed: tuple[str, str], tmp_path: Path) -> None:
    assert pair(tmp_path, one, one).verdict == "equivalent"
    assert pair(tmp_path, one, one.replace(*changed)).verdict == "different"


def test_an_output_that_rounding_moves_counts_for_nothing_though_it_is_zero(tmp_path: Path) -> None:
    """Whether the difference exceeds 0 is a matter of rounding."""
    text = """g (float[2, 8] x) => (float[2, 8] y, float[2, 8] z) <float o = {0}>
      { d = Sub(x, x) c = Greater(d, o) y = Cast<to = 1>(c) z = Neg(x) }"""
    verdict = pair(tmp_path, text, text.replace("Greater(d, o)", "Less(o, d)"))
    assert verdict.verdict == "equivalent" and "0.0 of 0.0" not in str(verdict)
    verdict = pair(tmp_path, text, text.replace("Greater(d, o)", "LessOrEqual(d, o)"))
    assert verdict.verdict == "different" or "y (its own rounding moves it" in str(verdict)


def test_sizes_at_which_only_the_optimised_original_fails_are_compared_without_it(tmp_path: Path) -> None:
    """onnxruntime fuses a Conv with an addend whose batch has the same name, `?`, and then refuses a larger one."""
    text = """g (float["?", 2, 4, 4] x, float[3, 2, 1, 1] w, float[3] b, float["?", 3, 4, 4] z) => (float["?", 3, 4, 4] y)
      { k = Conv(x, w, b) s = Add(k, z) y = Relu(s) }"""
    verdict = pair(tmp_path, text, text.replace("Add(k, z)", "Add(z, k)"))
    assert verdict.verdict == "equivalent" and "does not run the original either" in verdict.reason, str(verdict)
    assert pair(tmp_path, text, text.replace("Relu", "Abs")).verdict == "different"


def test_a_model_that_refuses_sizes_at_which_the_original_runs_is_different(tmp_path: Path) -> None:
    """onnxruntime gives one buffer to values whose dimensions have one name, such as `?`, and refuses a larger value there."""
    first = "a = Softmax(m) b = Softmax(a) z = ReduceSum<keepdims = 0>(b)"
    second = "s = Softmax(x) t = Softmax(s) y = ReduceMax<keepdims = 0>(t)"
    text = f"""g (float["?", 4, 8] x, float["?", 4, 8] m) => (float z, float y) {{ {first} {second} }}"""
    assert pair(tmp_path, text, text.replace(f"{first} {second}", f"{second} {first}")).verdict == "different"


def test_large_inputs_for_which_the_original_is_inaccurate_are_not_compared(tmp_path: Path) -> None:
    """A mask after Softmax leaves nothing where a hidden score is larger by a hundred; a mask on the scores is right."""
    head = """g (float[8, 6, 6] x, bool[8, 6, 6] m) => (float[8, 6, 6] y)
      <float o = {0}, float one = {1}, float low = {-inf}, int64[1] last = {-1}>"""
    after = f"""{head} {{ p = Softmax(x) f = Cast<to = 1>(m) q = Mul(p, f) s = ReduceSum(q, last)
      g = Greater(s, o) d = Where(g, s, one) r = Div(q, d) y = Where(g, r, o) }}"""
    before = f"{head} {{ h = Where(m, x, low) p = Softmax(h) n = IsNaN(p) y = Where(n, o, p) }}"
    verdict = pair(tmp_path, after, before)
    assert verdict.verdict == "equivalent" and "y is not compared on large inputs" in verdict.reason, str(verdict)
    assert pair(tmp_path, before, after).verdict == "different", "there, the candidate is inaccurate"


def test_what_optimisation_spoils_is_still_compared_with_our_kernels() -> None:
    reference, other = {"y": np.zeros(3, np.float32)}, {"y": np.ones(3, np.float32)}
    case = Case({}, 0, {}, reference, {"y": bound(reference["y"])}, spoiled={"y"})
    assert not trial.Outcome(CPU, True, case, other).runs()
    assert not trial.Outcome(CPU, False, case, other).runs()[0].equal
    assert not trial.Outcome("kernels", True, case, other, also=True).runs()[0].equal


@pytest.mark.parametrize(("shape", "spoiled"), [((1, 3), {"y"}), ((2, 3), set())])
def test_optimisation_that_changes_the_shape_in_the_original_spoils_an_output(shape: tuple[int, ...], spoiled: set[str]) -> None:
    """onnxruntime has done so where it fused a sum of two batches, of which one broadcasts, with LayerNorm."""
    reference, noise, said = {"y": np.zeros((2, 3), np.float32)}, Noise(), list[str]()
    case = Case({}, 0, {}, reference, {"y": bound(reference["y"])})
    noise.add(reference["y"], np.zeros(shape, np.float32))
    without = Bound(np.asarray(0.0))
    told = {"_noises": [{"y": noise}], "_say": said.append, "_bound_of": lambda *_: without}
    drawing = SimpleNamespace(fed=SimpleNamespace(random=()), **told)
    Drawing._leave_spoiled(cast("Drawing", drawing), [case])
    assert case.spoiled == spoiled and bool(said) == bool(spoiled)
    assert (case.bounds["y"] is without) == bool(spoiled), "its bound is that without optimisation"


@pytest.mark.parametrize(("coarse", "spoiled"), [(False, {"y"}), (True, set())])
def test_the_bound_of_a_coarse_case_does_not_spoil_an_output(coarse: bool, spoiled: set[str]) -> None:
    """It is four times that of the noise, which alone decides."""
    reference = {"y": np.array([-1.0, 1.0], np.float32)}
    case = Case({}, 0, {}, reference, {"y": Bound(np.asarray(0.2), aggregate=0.2)}, coarse=coarse)
    drawing = SimpleNamespace(fed=SimpleNamespace(random=()), _noises=[{"y": Noise()}], _say=str, _bound_of=lambda *_: None)
    Drawing._leave_spoiled(cast("Drawing", drawing), [case])
    assert case.spoiled == spoiled


@pytest.mark.parametrize("sample", ["bert_torchscript", "gpt2_dynamo", "mobilenet_v3_torchscript"])
def test_fusing_leaves_the_model_that_verification_uses_as_it_was(sample: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the one that was loaded to be fused, so a rewriter that changed it would change what it is judged by."""
    path, used = SAMPLES / f"{sample}.onnx", list[Reference]()
    make = pipeline._reference

    def kept(*given: Any) -> Reference:
        used.append(make(*given))
        return used[0]

    monkeypatch.setattr(pipeline, "_reference", kept)
    assert pipeline.fuse(path, None, load_patterns(), Options(dry_run=True, opset="keep")).rewrites
    assert ir.to_onnx_text(used[0].original) == ir.to_onnx_text(Reference(path).original)


DETECTOR = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2000, 8] x) => (float[2000, 8] y) <
  float[8, 1] w = {{{w}, -0.3, 0.2, 0.5, -0.1, 0.4, -0.2, -0.6}}, float far = {{30}}, int64[1] all = {{2000}}
> {{ h = Tanh(x) {scores} f = Reshape(p, all) t, i = TopK(f, all) y = Gather(h, i) }}"""
COARSE = "z = Add(h, far) p = MatMul(z, w)"


@pytest.mark.parametrize(("scores", "w", "verdict"), [("p = MatMul(h, w)", 0.1, "equivalent"), (COARSE, 0.11, "different")])
def test_a_detector_may_exchange_rows_with_nearly_equal_scores(scores: str, w: float, verdict: str, tmp_path: Path) -> None:
    """The original rounds its scores to 2e-6, and orders 2,000 rows by them. Other weights exchange nearly all rows."""
    onnx.save(onnx.parser.parse_model(DETECTOR.format(scores=COARSE, w=0.1)), tmp_path / "original.onnx")
    onnx.save(onnx.parser.parse_model(DETECTOR.format(scores=scores, w=w)), tmp_path / "other.onnx")
    found = verify(tmp_path / "original.onnx", tmp_path / "other.onnx")
    assert found.verdict == verdict and not any(showing.blind for showing in found.showings)
    assert any("elements of y jumped" in line for line in exceptions(found)) is (verdict == "equivalent")


def test_large_inputs_are_tried_where_the_usual_ones_show_nothing(tmp_path: Path) -> None:
    """Numbers around 1 are all below the threshold, as in a map of probabilities that are all nearly 0."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[n, 64] x) => (float[n, 64] y) <float k = {50}>
    { a = Sub (x, k) y = Relu (a) }"""
    path, changed = (write(tmp_path / f"{k}.onnx", text.replace("50", k)) for k in ("50", "51"))
    reference = Reference(path)
    found = reference.verdict(path)
    assert (found.verdict, found.blind) == ("equivalent", False)
    assert {run.seed for run in found.runs} >= {0, WIDE}
    assert reference.verdict(changed).verdict == "different"
    assert {run.seed for run in Reference(plain(tmp_path / "add.onnx")).verdict(tmp_path / "add.onnx").runs} == {0, 1, 2, 3}


def test_noise_leaves_sequences_as_they_are(tmp_path: Path) -> None:
    """Otherwise the model with noise does not load, and bounds are too tight."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2, 3] x) => (float[4, 3] y) {
        a = Exp (x)  s = SequenceConstruct (a, x)  c = Sin (x)  t = SequenceInsert (s, c)  f = ConcatFromSequence <axis = 0> (t)
        u = Exp (f)  zero = Constant <value = int64[1] {0}> ()  four = Constant <value = int64[1] {4}> ()
        y = Slice (u, zero, four) }"""
    path = write(tmp_path / "sequence.onnx", text)
    infer_shapes(model := load(path))
    drawing = Drawing(path, model, CPU, None, None)
    assert not isinstance(drawing.cases(0, {}, None), Failure)
    assert not isinstance(drawing.open_noisy(), Failure)
