"""Outputs that join results of different scales, as detectors do: a wrong score is seen beside boxes of hundreds of pixels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from onnx_subgraph.model.files import load
from onnx_subgraph.verification.cases import Drawing
from onnx_subgraph.verification.judge import flatten
from onnx_subgraph.verification.sessions import Failure
from onnx_subgraph.verification.trial import CPU
from onnx_subgraph.verification.verdict import Verdict
from onnx_subgraph.verification.verify import verify
from tests.verification.models import weights, write

HEAD = """
<ir_version: 8, opset_import: ["" : 17]>
detector (float[n, 40, 16] x) => (float[n, out, anchors] y)
<float size = {{640}}, float factor = {{{factor}}}, float one = {{1}}, int64[1] minus = {{-1}},
 int64[3] split = {{0, 8, -1}}, int64[3] back = {{0, -1, 4}}>
{{
  product = MatMul (x, w)
  boxes = Mul (product, size)
  hidden = MatMul (x, v)
  logits = Mul (hidden, factor)
  {scores}
  {joined}
}}
"""
JOINED = {
    "one Concat": "y = Concat <axis = -1> (boxes, scores)",
    "transposed": "all = Concat <axis = 2> (boxes, scores) y = Transpose <perm = [0, 2, 1]> (all)",
    "levels": """near = Concat <axis = 2> (boxes, scores) far = Concat <axis = 2> (scores, boxes)
                 all = Concat <axis = 1> (near, far) y = Identity (all)""",
    "reshaped": """eight = Reshape (scores, split) four = Reshape (boxes, split) less = Concat <axis = 2> (four, eight)
                   y = Reshape (less, back)""",
    "halves": """half = Cast <to = 10> (scores) wide = Cast <to = 1> (half) y = Concat <axis = -1> (boxes, wide)""",
    "a zero column": """shape = Shape (scores) zero = ConstantOfShape (shape) y = Concat <axis = -1> (boxes, scores, zero)""",
    "assigned": """shape = Shape (boxes) zero = ConstantOfShape (shape) last = Concat <axis = 1> (boxes, zero)
                   forty = Constant <value_ints = [40]> () eighty = Constant <value_ints = [80]> ()
                   rows = Constant <value_int = 40> () end = Constant <value_int = 80> () step = Constant <value_int = 1> ()
                   at = Range (rows, end, step) y0 = Transpose <perm = [1, 0, 2]> (last)
                   index = Unsqueeze (at, minus) turned = Transpose <perm = [1, 0, 2]> (scores)
                   done = ScatterND (y0, index, turned) y = Transpose <perm = [1, 0, 2]> (done)""",
}
Pair = Callable[..., Verdict]


@pytest.fixture
def judged(tmp_path: Path) -> Pair:
    def judge(joined: str, *, factor: float = 1.0, scores: str = "scores = Sigmoid (logits)", **options: object) -> Verdict:
        w, v = weights((16, 4), (16, 4))
        given = {"w": w, "v": v}
        sigmoid = "scores = Sigmoid (logits)"
        paths = [
            write(tmp_path / "original.onnx", HEAD.format(factor=1.0, scores=sigmoid, joined=JOINED[joined]), **given),
            write(tmp_path / "candidate.onnx", HEAD.format(factor=factor, scores=scores, joined=JOINED[joined]), **given),
        ]
        return verify(*paths, **options)  # type: ignore[arg-type]

    return judge


@pytest.mark.parametrize("joined", JOINED)
def test_a_wrong_score_is_seen_beside_large_boxes(judged: Pair, joined: str) -> None:
    verdict = judged(joined, factor=1.01 if joined == "halves" else 1.0001)
    assert verdict.verdict == "different"
    assert verdict.worst is not None and verdict.worst.error < 0.01


@pytest.mark.parametrize("joined", JOINED)
def test_another_spelling_of_the_scores_is_equivalent(judged: Pair, joined: str) -> None:
    spelled = "negative = Neg (logits) power = Exp (negative) more = Add (power, one) scores = Div (one, more)"
    assert judged(joined, scores=spelled).verdict == "equivalent"


def test_the_place_is_told_in_the_output(judged: Pair) -> None:
    verdict = judged("transposed", factor=1.0001)
    assert verdict.worst is not None
    _, column, row = verdict.worst.worst
    assert 4 <= column < 8 and 0 <= row < 40


def test_bounds_of_the_user_hold_for_the_whole_output(judged: Pair) -> None:
    assert judged("one Concat", factor=1.0001, atol=1e-3).verdict == "equivalent"


@pytest.mark.parametrize(("columns", "parts"), [(4, 2), (1, 0)])
def test_few_elements_are_no_part(tmp_path: Path, columns: int, parts: int) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[4, 4] x) => (float[4, m] y) {
      a = Relu (x) b = Exp (x) c = Slice (a, zero, columns, one) d = Slice (b, zero, columns, one)
      y = Concat <axis = 1> (c, d) }"""
    given = {"zero": np.array([0]), "one": np.array([1]), "columns": np.array([columns])}
    path = write(tmp_path / "few.onnx", text, **given)
    cases = Drawing(path, load(path), CPU, None, None).cases(0, {}, None)
    assert not isinstance(cases, Failure)
    for case in cases:
        (array,), masks = flatten(case.outputs).values(), case.parts.get("y", ())
        assert len(masks) == parts
        assert not masks or ((np.sum(masks, axis=0) == 1).all() and masks[0].shape == array.shape)


@pytest.mark.parametrize(
    "joined", ["y = Concat <axis = 1> (x, computed)", "y = Identity (computed)", "y = Concat <axis = 1> (computed, stored)"]
)
def test_one_result_has_no_parts(tmp_path: Path, joined: str) -> None:
    """Keys and values of a cache join an input and a result: the copy with labels would cost a run."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[4, 8] x) => (float[4, m] y)
      {{ stored = Constant <value = float[4, 2] {{1, 2, 3, 4, 5, 6, 7, 8}}> () computed = Exp (x) {joined} }}"""
    path = write(tmp_path / "cache.onnx", text)
    cases = Drawing(path, load(path), CPU, None, None).cases(0, {}, None)
    assert not isinstance(cases, Failure)
    assert not any(case.parts for case in cases)
