"""A candidate without a branch of the original is equivalent only if a run took the branch, or none can."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnx_subgraph.verification.verdict import Verdict
from onnx_subgraph.verification.verify import verify
from tests.verification.models import write

HEAD = '<ir_version: 8, opset_import: ["" : 17, "my" : 1]>'
FUNCTION = '<opset_import: ["" : 17], domain: "my"> F (x, c) => (y) { BODY }'
ALL = "i = Cast <to = 6> (mask) all = ReduceMin <keepdims = 0> (i) c = Cast <to = 9> (all)"
"""No drawn mask is true everywhere."""
BRANCHES = "y = If (c) <then_branch = t () => (a) { THEN }, else_branch = e () => (b) { b = Identity (x) }>"
INPUTS = "float[n, 8] x, bool[n, 8] mask"


def model(path: Path, body: str, inputs: str = INPUTS, function: str = "") -> Path:
    called = FUNCTION.replace("BODY", function) if function else ""
    return write(path, f"{HEAD} g ({inputs}) => (float[n, 8] y) {{ {body} }} {called}")


def without(
    tmp_path: Path, original: Path, inputs: str = INPUTS, feeds: Path | None = None, body: str = "y = Identity (x)"
) -> Verdict:
    """The verdict on a candidate without branches. body: its nodes; those of the else branch unless told."""
    return verify(original, model(tmp_path / "candidate.onnx", body, inputs), inputs=feeds)


INSIDE = """m = Neg (x)
a = If (c) <then_branch = i () => (p) { p = Abs (m) }, else_branch = j () => (q) { q = Sin (m) }>"""


@pytest.mark.parametrize(
    "then", ["a = Neg (x)", "a = Constant <value = float[1] {3.0}> ()", INSIDE], ids=["nodes", "a constant", "a branch"]
)
@pytest.mark.parametrize("in_function", [False, True])
def test_a_branch_that_no_run_takes_can_not_be_left_out(tmp_path: Path, then: str, in_function: bool) -> None:
    branches = BRANCHES.replace("THEN", then)
    body = f"{ALL} y = my.F (x, c)" if in_function else f"{ALL} {branches}"
    original = model(tmp_path / "original.onnx", body, function=branches if in_function else "")
    verdict = without(tmp_path, original)
    assert verdict.verdict == "not-run"
    assert "no run took" in verdict.reason and "y.then_branch, which the candidate lacks" in verdict.reason
    assert "--inputs FEEDS.npz" in verdict.reason
    assert verify(original, original).verdict == "equivalent"
    np.savez(tmp_path / "feeds.npz", x=-np.ones((2, 8), np.float32), mask=np.ones((2, 8), bool))
    assert without(tmp_path, original, feeds=tmp_path / "feeds.npz").verdict == "different"


THREES = f"a = Constant <value = float[1, 8] {{{', '.join('3' * 8)}}}> ()"


@pytest.mark.parametrize(
    ("then", "same"),
    [("a = Neg (x)", "a = Neg (x)"), (THREES, "a = Constant <value = float {3}> ()")],
    ids=["nodes", "a constant"],
)
def test_a_branch_that_a_run_took_can_be_left_out(tmp_path: Path, then: str, same: str) -> None:
    """What it computes is in the outputs that are compared."""
    inputs = "float[n, 8] x, bool[1] c"
    original = model(tmp_path / "original.onnx", BRANCHES.replace("THEN", then), inputs)
    assert verify(original, original, shapes={"x": (1, 8)}).verdict == "equivalent"
    other = model(tmp_path / "other.onnx", f"{same} y = Where (c, a, x)", inputs)
    assert verify(original, other, shapes={"x": (1, 8)}).verdict == "equivalent"
    assert without(tmp_path, original, inputs).verdict == "different"


def test_a_branch_inside_a_branch_that_a_run_took_is_named(tmp_path: Path) -> None:
    """Both have one condition, so no run takes the inner else branch."""
    inputs = "float[n, 8] x, bool[1] c"
    original = model(tmp_path / "original.onnx", BRANCHES.replace("THEN", INSIDE), inputs)
    verdict = without(tmp_path, original, inputs, body="m = Neg (x) a = Abs (m) y = Where (c, a, x)")
    assert verdict.verdict == "not-run" and "no run took y.then_branch/a.else_branch, which" in verdict.reason


@pytest.mark.parametrize("name", ["known size", "constant"])
def test_a_branch_that_none_can_take_can_be_left_out(tmp_path: Path, name: str) -> None:
    condition = {
        "known size": "s = Shape <start = 1> (x) k = Constant <value = int64[1] {9}> () c = Equal (s, k)",
        "constant": "c = Constant <value = bool {0}> ()",
    }[name]
    original = model(tmp_path / "original.onnx", f"{condition} {BRANCHES.replace('THEN', 'a = Neg (x)')}")
    assert without(tmp_path, original).verdict == "equivalent"


def test_a_loop_that_no_run_enters_can_not_be_left_out(tmp_path: Path) -> None:
    body = f"""{ALL} n = Cast <to = 7> (c) t = Identity (c)
    y = Loop (n, t, x) <body = b (int64 i, bool go, float[n, 8] before) => (bool on, float[n, 8] after)
      {{ on = Identity (go) after = Neg (before) }}>"""
    original = model(tmp_path / "original.onnx", body)
    verdict = without(tmp_path, original)
    assert verdict.verdict == "not-run" and "y.body, which the candidate lacks" in verdict.reason


@pytest.mark.parametrize(("operator", "expected"), [("Neg", "equivalent"), ("Abs", "different")])
def test_a_branch_inside_one_that_always_runs_is_the_same_without_that(tmp_path: Path, operator: str, expected: str) -> None:
    inner = f"{ALL} {BRANCHES.replace('THEN', 'a = OP (x)')}".replace("y =", "[inner] r =")
    outer = f"""t = Constant <value = bool {{1}}> ()
    y = If (t) <then_branch = yes () => (r) {{ {inner.replace("OP", "Neg")} }}, else_branch = no () => (z) {{ z = Sin (x) }}>"""
    original = model(tmp_path / "original.onnx", outer)
    verdict = without(tmp_path, original, body=inner.replace("OP", operator).replace("r =", "y ="))
    assert verdict.verdict == expected, verdict.reason
    assert expected == "equivalent" or "inner.then_branch, which no run took" in verdict.runs[-1].problem
