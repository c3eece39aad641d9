"""Assignments to slices that write every element are one Concat; others stay as they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnx_subgraph.explaining import explain
from onnx_subgraph.language.library import load_patterns
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.options import Options
from onnx_subgraph.pipeline import fuse
from onnx_subgraph.simplification.simplify_first import join_parts
from tests.simplification.test_simplify import operators, parsed, run, simplified

HEADER = """
  <ir_version: 8, opset_import: ["" : OPSET]>
  g (float[B, 3, 4] a, float[B, 3, 4] b, float[B, 3, 8] old) => (float[R, S, T] y)
  <int64[4, 1] even = {0, 2, 4, 6}, int64[4, 1] odd = {1, 3, 5, 7}, int64[4, 1] front = {0, 1, 2, 3},
   int64[4, 1] back = {4, 5, 6, 7}, int64[4, 1] hole = {3, 5, 7, 7}, int64[4, 1] turned = {7, 5, 3, 1}>
"""
ROWS = """s = Transpose <perm = [2, 1, 0]> (a)  t = Transpose <perm = [2, 1, 0]> (b)  d = Transpose <perm = [2, 1, 0]> (old)"""


def assigned(first: str, second: str, then: str = "y = Transpose <perm = [2, 1, 0]> (w)", opset: int = 17) -> onnx.ModelProto:
    """`y = old; y[..., first] = a; y[..., second] = b`, as torch exports it."""
    body = f"{ROWS} v = ScatterND(d, {first}, s)  k = Identity(v)  w = ScatterND(k, {second}, t)  {then}"
    return onnx.parser.parse_model(f"{HEADER.replace('OPSET', str(opset))} {{ {body} }}")


def joined(model: onnx.ModelProto) -> onnx.ModelProto:
    written = ir.from_proto(model)
    infer_shapes(written)
    join_parts(written)
    return ir.to_proto(written)


def feeds(batch: int = 2) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    shapes = {"a": (batch, 3, 4), "b": (batch, 3, 4), "old": (batch, 3, 8)}
    return {name: draw.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize("then", ["[2, 1, 0]", "[1, 2, 0]", "[0, 1, 2]"])
@pytest.mark.parametrize("rows", [("even", "odd"), ("odd", "even"), ("front", "back"), ("back", "front")])
def test_assignments_that_write_all_are_a_concat(rows: tuple[str, str], then: str, opset: int) -> None:
    model = assigned(*rows, f"y = Transpose <perm = {then}> (w)", opset)
    written = joined(model)
    assert operators(written)["Concat"] == 1 and not operators(written)["ScatterND"]
    for batch in (2, 1, 0):
        assert np.array_equal(run(written, feeds(batch))[0], run(model, feeds(batch))[0])


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(assigned("even", "even"), id="half of it is written twice"),
        pytest.param(assigned("even", "hole"), id="an element is missing"),
        pytest.param(assigned("even", "turned"), id="in another order"),
        pytest.param(assigned("front", "odd"), id="some elements are written twice"),
        pytest.param(assigned("even", "odd", "y = Neg(w)"), id="rows in turn that no Transpose reads"),
    ],
)
def test_other_assignments_stay(model: onnx.ModelProto) -> None:
    written = joined(model)
    assert operators(written)["ScatterND"] == 2
    assert np.array_equal(run(written, feeds())[0], run(model, feeds())[0])


def test_an_assignment_that_adds_stays() -> None:
    body = f'{ROWS} v = ScatterND(d, front, s) w = ScatterND <reduction = "add"> (v, back, t) y = Neg(w)'
    model = onnx.parser.parse_model(f"{HEADER.replace('OPSET', '18')} {{ {body} }}")
    assert operators(joined(model))["ScatterND"] == 2


def test_a_size_that_is_not_known_may_be_larger() -> None:
    text = f"{HEADER.replace('OPSET', '17').replace('float[B, 3, 8] old', 'float[B, 3, C] old')}"
    body = f"{ROWS} v = ScatterND(d, front, s) w = ScatterND(v, back, t) y = Neg(w)"
    assert operators(joined(onnx.parser.parse_model(f"{text} {{ {body} }}")))["ScatterND"] == 2


def whole(node: str, indices: str, old: str = "float[1, 2, 3] old") -> onnx.ModelProto:
    """An assignment of `a` to `old`, whose indices are given."""
    return parsed(f"w = {node}(old, i, a) y = Neg(w)", f"{old}, float[1, 2, 3] a", weights=f"int64{indices}")


WHOLE = {
    "one token of two heads": ("ScatterElements<axis = 0>", "[1, 2, 3] i = {0, 0, 0, 0, 0, 0}"),
    "every place along an axis": ("ScatterElements<axis = -2>", "[1, 2, 3] i = {0, 0, 0, 1, 1, 1}"),
    "rows": ("ScatterND", "[1, 2, 2] i = {0, 0, 0, 1}"),
    "elements": ("ScatterND", "[1, 2, 3, 3] i = {0, 0, 0, 0, 0, 1, 0, 0, 2, 0, 1, 0, 0, 1, 1, 0, 1, 2}"),
}
NOT_WHOLE = {
    "places that are exchanged": ("ScatterElements<axis = 1>", "[1, 2, 3] i = {1, 1, 1, 0, 0, 0}"),
    "a place that is written twice": ("ScatterElements<axis = 1>", "[1, 2, 3] i = {0, 0, 0, 1, 0, 1}"),
    "what is added": ('ScatterElements<axis = 0, reduction = "add">', "[1, 2, 3] i = {0, 0, 0, 0, 0, 0}"),
    "rows in another order": ("ScatterND", "[1, 2, 2] i = {0, 1, 0, 0}"),
    "rows that are added": ('ScatterND<reduction = "add">', "[1, 2, 2] i = {0, 0, 0, 1}"),
}


@pytest.mark.parametrize(("node", "indices"), WHOLE.values(), ids=WHOLE)
def test_an_assignment_of_every_element_is_what_it_assigns(node: str, indices: str) -> None:
    model = whole(node, indices)
    written = simplified(model)[1]
    assert operators(written) == {"Neg": 1}
    values = {name: np.random.default_rng(len(name)).standard_normal((1, 2, 3)).astype(np.float32) for name in ("old", "a")}
    np.testing.assert_array_equal(run(written, values)[0], run(model, values)[0])


@pytest.mark.parametrize(("node", "indices"), NOT_WHOLE.values(), ids=NOT_WHOLE)
def test_an_assignment_elsewhere_stays(node: str, indices: str) -> None:
    assert operators(simplified(whole(node, indices))[1]) == {node.partition("<")[0]: 1, "Neg": 1}


def test_an_assignment_of_one_of_several_tokens_stays() -> None:
    for old in ("float[4, 2, 3] old", "float[n, 2, 3] old"):
        assert "ScatterND" in operators(simplified(whole("ScatterND", "[1, 2, 2] i = {0, 0, 0, 1}", old))[1])


TURNED = """
  <ir_version: 10, opset_import: ["" : 23]>
  g (float[1, 64, 96] x, float[1, 64, 1, 16] c, float[1, 64, 1, 16] t) => (float[1, 64, 3, 32] y)
  <int64[5] apart = {1, 64, 3, 16, 2}, int64[1] last = {-1}, int64[4] shape = {32, 64, 3, 1},
   int64[16, 1] even = {EVEN}, int64[16, 1] odd = {ODD}> {
    r = Reshape(x, apart)  a1, b1 = Split <axis = -1, num_outputs = 2> (r)  a = Squeeze(a1, last)  b = Squeeze(b1, last)
    ac = Mul(a, c)  bs = Mul(b, t)  d = Sub(ac, bs)  as = Mul(a, t)  bc = Mul(b, c)  e = Add(as, bc)
    z = ConstantOfShape(shape)  dt = Transpose <perm = [3, 1, 2, 0]> (d)  et = Transpose <perm = [3, 1, 2, 0]> (e)
    u = ScatterND(z, even, dt)  w = ScatterND(u, odd, et)  y = Transpose <perm = [3, 1, 2, 0]> (w)
  }
"""


def turned(folder: Path) -> Path:
    """The rotary embedding of Wan, as dynamo exports it."""
    text = TURNED
    for word, first in (("EVEN", 0), ("ODD", 1)):
        text = text.replace(word, ", ".join(map(str, range(first, 32, 2))))
    path = folder / "turned.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def test_a_rotary_embedding_by_assignments_is_found(tmp_path: Path) -> None:
    result = fuse(turned(tmp_path), tmp_path / "fused.onnx", load_patterns(), Options())
    assert [rewrite.pattern for rewrite in result.rewrites] == ["rotary-embedding"]
    assert result.verdict is not None and result.verdict.verdict == "equivalent"
    assert result.simplified.simpler
    assert not {"ScatterND", "Concat"} & result.operators_after.keys()


def test_who_asks_about_the_pattern_learns_that_it_is_found(tmp_path: Path) -> None:
    result = explain(turned(tmp_path), load_patterns(), Options(only=("rotary-embedding",)))
    assert [rewrite.pattern for rewrite in result.rewrites] == ["rotary-embedding"]


@pytest.mark.parametrize("options", [Options(simplify=False), Options(only=("rotary-embedding",))])
def test_assignments_stay_where_the_model_is_not_simplified(tmp_path: Path, options: Options) -> None:
    result = fuse(turned(tmp_path), tmp_path / "fused.onnx", load_patterns(), options)
    assert result.operators_after["ScatterND"] == 2 and not result.rewrites


OWN = """id: own-update
summary: Rows that are written into a value and then turned
match: |
  y = Transpose(ScatterND(Relu(Relu(x)), rows, new), perm=[2, 1, 0])
replace:
  standard: |
    y = Transpose(ScatterND(Relu(x), rows, new), perm=[2, 1, 0])
example: {x: "float32[2, 3, 4]", rows: "int64[2, 1] in [0, 1]", new: "float32[2, 3, 4]"}
"""


def test_a_pattern_of_the_user_can_name_a_scatter(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[2, 3, 4] x, float[2, 3, 4] new) => (float[4, 3, 2] y) <int64[2, 1] rows = {0, 1}> {
      n = Relu(x) m = Relu(n) s = ScatterND(m, rows, new) y = Transpose <perm = [2, 1, 0]> (s) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    (tmp_path / "own_update.yaml").write_text(OWN)
    library = load_patterns((tmp_path / "own_update.yaml",))
    result = fuse(tmp_path / "model.onnx", None, library, Options(prefer="fusion", dry_run=True))
    assert "own-update" in {rewrite.pattern for rewrite in result.rewrites}
