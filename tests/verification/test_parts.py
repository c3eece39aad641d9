"""Outputs that join results of different scales, as detectors do: a wrong score is seen beside boxes of hundreds of pixels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from onnx_subgraph.files.models import load
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.verification.cases import Case, Drawing
from onnx_subgraph.verification.judge import flatten
from onnx_subgraph.verification.parts import note_parts
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
    "stacked": """all = Concat <axis = -1> (boxes, scores) flat = Flatten <axis = 1> (all) col = Unsqueeze (flat, minus)
                  deep = Unsqueeze (col, minus) y = Squeeze (deep, minus)""",
    "blocks": """all = Concat <axis = -1> (boxes, scores) image = Unsqueeze (all, minus)
                 deep = DepthToSpace <blocksize = 2> (image) back_again = SpaceToDepth <blocksize = 2> (deep)
                 y = Squeeze (back_again, minus)""",
    "some of the rows": """all = Concat <axis = -1> (boxes, scores) other, half = Split <axis = 1> (all)
                           start = Constant <value_ints = [3]> () end = Constant <value_ints = [17]> ()
                           rows = Constant <value_ints = [1]> () y = Slice (half, start, end, rows)""",
    "dropped": "all = Concat <axis = -1> (boxes, scores) y = Dropout (all)",
    "compressed": """all = Concat <axis = -1> (boxes, scores) kept = Constant <value = bool[8] {1, 0, 1, 1, 1, 1, 0, 1}> ()
                     y = Compress <axis = 2> (all, kept)""",
    "repeated": """all = Concat <axis = -1> (boxes, scores) twice = Constant <value_ints = [1, 2, 1]> () tiled = Tile (all, twice)
                   ones = Constant <value_ints = [1, 1, 1]> () y = Expand (tiled, ones)""",
    "chosen": """all = Concat <axis = -1> (boxes, scores) rows = Constant <value_ints = [7, 3, 5, 11, 8, 2]> ()
                 some = Gather <axis = 1> (all, rows) shape = Shape (some) zeros = ConstantOfShape <value = int64[1] {0}> (shape)
                 first = GatherElements <axis = 0> (some, zeros) place = Constant <value = int64[1, 1] {0}> ()
                 y = GatherND (first, place)""",
    "assigned elements": """shape = Shape (scores) zeros = ConstantOfShape <value = int64[1] {0}> (shape)
                            y = ScatterElements <axis = 2, reduction = "none"> (boxes, zeros, scores)""",
    "a zero column": """shape = Shape (scores) zero = ConstantOfShape (shape) y = Concat <axis = -1> (boxes, scores, zero)""",
    "assigned": """shape = Shape (boxes) zero = ConstantOfShape (shape) last = Concat <axis = 1> (boxes, zero)
                   forty = Constant <value_ints = [40]> () eighty = Constant <value_ints = [80]> ()
                   rows = Constant <value_int = 40> () end = Constant <value_int = 80> () step = Constant <value_int = 1> ()
                   at = Range (rows, end, step) y0 = Transpose <perm = [1, 0, 2]> (last)
                   index = Unsqueeze (at, minus) turned = Transpose <perm = [1, 0, 2]> (scores)
                   done = ScatterND (y0, index, turned) y = Transpose <perm = [1, 0, 2]> (done)""",
}
SIGMOID = "scores = Sigmoid (logits)"
LARGE = ("large = Mul (hidden, size)", "more = Mul (x, size) large = MatMul (more, v)")
"""Two orders of the same product."""
Pair = Callable[..., Verdict]


@pytest.fixture
def judged(tmp_path: Path) -> Pair:
    def judge(joined: str, *, factor: float = 1.0, scores: str = SIGMOID, original: str = SIGMOID, **options: object) -> Verdict:
        w, v = weights((16, 4), (16, 4))
        given = {"w": w, "v": v}
        paths = [
            write(tmp_path / "original.onnx", HEAD.format(factor=1.0, scores=original, joined=JOINED[joined]), **given),
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


def test_a_part_may_differ_by_its_own_noise(judged: Pair) -> None:
    """The sine of large numbers moves by far more than a rounding of itself."""
    original, other = (f"{large} scores = Sin (large)" for large in LARGE)
    assert judged("one Concat", original=original, scores=other).verdict == "equivalent"


def test_an_output_that_optimisation_spoils_is_judged_by_its_parts(judged: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnx_subgraph.verification.cases.is_too_wide", lambda *_: True)
    verdict = judged("one Concat", factor=1.0001)
    assert verdict.verdict == "different" and "without optimisation only" in verdict.reason


def drawn(tmp_path: Path, body: str, y: str = "float[m, k]", opset: int = 17, more: str = "", **given: np.ndarray) -> list[Case]:
    text = f"""<ir_version: 8, opset_import: ["" : {opset}, "mine" : 1]> g (float[4, 8] x) => ({y} y) {{ {body} }} {more}"""
    path = write(tmp_path / "parts.onnx", text, **given)
    infer_shapes(model := load(path))
    cases = Drawing(path, model, CPU, None, None).cases(0, {}, None)
    assert not isinstance(cases, Failure)
    return cases


def parts(cases: list[Case]) -> set[int]:
    """The number of parts of y in each case. They have the shape of y, and each element is in at most one."""
    for case in cases:
        array, masks = flatten(case.outputs)["y"], case.parts.get("y", ())
        assert not masks or ((np.sum(masks, axis=0) == 1).all() and masks[0].shape == array.shape)
    return {len(case.parts.get("y", ())) for case in cases}


@pytest.mark.parametrize(("columns", "count"), [(4, 2), (1, 0)])
def test_few_elements_are_no_part(tmp_path: Path, columns: int, count: int) -> None:
    body = """a = Relu (x) b = Exp (x) c = Slice (a, zero, columns, one) d = Slice (b, zero, columns, one)
              y = Concat <axis = 1> (c, d)"""
    given = {"zero": np.array([0]), "one": np.array([1]), "columns": np.array([columns])}
    assert parts(drawn(tmp_path, body.replace("columns, one", "columns, one, one"), **given)) == {count}


@pytest.mark.parametrize(("many", "count"), [(64, 64), (65, 0)])
def test_very_many_results_are_no_parts(tmp_path: Path, many: int, count: int) -> None:
    names = [f"a{number}" for number in range(many)]
    body = " ".join(f"{name} = Exp (x)" for name in names)
    assert parts(drawn(tmp_path, f"{body} y = Concat <axis = 1> ({', '.join(names)})")) == {count}


@pytest.mark.parametrize(("dtype", "number"), [("float", 1), ("float16", 10), ("double", 11)])
def test_outputs_of_each_dtype_have_parts(tmp_path: Path, dtype: str, number: int) -> None:
    body = f"a = Relu (x) b = Exp (x) c = Concat <axis = 1> (a, b) y = Cast <to = {number}> (c)"
    assert parts(drawn(tmp_path, body, f"{dtype}[m, k]")) == {2}


def test_a_model_with_random_results_has_parts(tmp_path: Path) -> None:
    assert parts(drawn(tmp_path, "a = RandomNormalLike (x) b = Mul (a, x) c = Exp (x) y = Concat <axis = 1> (b, c)")) == {2}


def test_a_model_of_an_opset_without_the_operators_of_labels_is_verified_without_parts(tmp_path: Path) -> None:
    assert parts(drawn(tmp_path, "a = Relu (x) b = Exp (x) y = Concat <axis = 1> (a, b)", opset=8)) == {0}


def test_labels_of_another_shape_are_no_parts(tmp_path: Path) -> None:
    """A rounding may change how many rows are chosen."""
    (case, *_) = drawn(tmp_path, "a = Relu (x) b = Exp (x) y = Concat <axis = 1> (a, b)")
    other = Case({}, 0, case.feeds, {"y": np.zeros((3, 16), np.float32)})
    drawing = Drawing(path := tmp_path / "parts.onnx", load(path), CPU, None, None)
    note_parts([other], drawing.model, drawing._open)
    assert case.parts and not other.parts


FEW = {
    "an input": "y = Concat <axis = 1> (x, computed)",
    "a result": "y = Identity (computed)",
    "a constant": "y = Concat <axis = 1> (computed, stored)",
    "zeros": "shape = Shape (x) zeros = ConstantOfShape (shape) y = Concat <axis = 1> (computed, zeros)",
    "a sum of elements": """other = Relu (x) shape = Shape (x) zeros = ConstantOfShape <value = int64[1] {0}> (shape)
                            y = ScatterElements <reduction = "add"> (computed, zeros, other)""",
    "a function": "other = Relu (x) both = Concat <axis = 1> (computed, other) y = mine.Identity (both)",
}


@pytest.mark.parametrize("joined", FEW)
def test_one_result_has_no_parts(tmp_path: Path, joined: str) -> None:
    """Keys and values of a cache join an input and a result: the copy with labels would cost a run."""
    body = f"stored = Constant <value = float[4, 2] {{1, 2, 3, 4, 5, 6, 7, 8}}> () computed = Exp (x) {FEW[joined]}"
    function = '<opset_import: ["" : 17], domain: "mine"> Identity (v) => (w) { w = Exp (v) }'
    assert parts(drawn(tmp_path, body, more=function)) == {0}
    note_parts([], load(tmp_path / "parts.onnx"), lambda _: pytest.fail("a copy was opened"))


def test_integers_have_no_parts(tmp_path: Path) -> None:
    """Ties of an argmax may flip in each of them as often as in the whole output."""
    body = "a = ArgMax <axis = 0> (x) b = ArgMin <axis = 0> (x) c = Concat <axis = 1> (a, b) y = Concat <axis = 0> (c, c, c, c)"
    assert parts(drawn(tmp_path, body, "int64[m, k]")) == {0}
