"""Drawn values do not contradict each other: neither their sizes, nor a value and what it is computed from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from onnx_subgraph import Options, fuse, load_patterns
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.rewriting.cutting import Cutting, cut
from onnx_subgraph.rewriting.outline import Outline
from onnx_subgraph.rewriting.read_values import repeating_values, triangular_values
from onnx_subgraph.rewriting.rewrite import Place, Rewrite
from onnx_subgraph.verification.drawn import _as_known, _sizes
from tests.verification.models import write


def test_a_dimension_that_is_an_expression_of_a_known_size_agrees_with_it() -> None:
    """A piece behind `x.reshape(3 * batch, …)` may read the batch too. Drawn apart, the sizes would contradict each other."""
    model = ir.from_onnx_text("""<ir_version: 8, opset_import: ["" : 17]>
    piece (float[stacked, 4] x, float[batch, 4] z) => (float[stacked, 4] y) { y = Relu(x) }""")
    x, z = model.graph.inputs
    x.shape, z.shape = ir.Shape(["3*batch", "other"]), ir.Shape(["apart", 4])
    sizes = next(_sizes(model, {"batch": 5}))
    assert sizes["3*batch"] == 15 and "other" in sizes and "apart" in sizes


def test_a_residual_that_the_convolution_is_computed_from_is_checked_apart(tmp_path: Path) -> None:
    """The values are so small that others are drawn. Then z and r are independent, so nothing may compute r from z."""
    draw = np.random.default_rng(0).standard_normal
    weights = {
        "v": (1e-9 * draw((4, 4, 1, 1))).astype(np.float32),
        "w": draw((4, 4, 1, 1)).astype(np.float32),
        "b": np.zeros(4, np.float32),
    }
    model = write(
        tmp_path / "residual.onnx",
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[N, 4, 5, 5] x) => (float[N, 4, 5, 5] y) <int64[8] none = {0, 0, 0, 0, 0, 0, 0, 0}> {
            z = Conv(x, v) h = Conv(z, w) r = Relu(h) p = Pad(r, none) c = Conv(p, w, b) y = Add(z, c)
        }""",
        **weights,
    )
    result = fuse(model, None, load_patterns(), Options(prefer="fusion", dry_run=True))
    assert result.undone == ()
    assert ("c", "y") in [rewrite.replaces for rewrite in result.rewrites]


@pytest.mark.parametrize(("table", "how"), [("Concat <axis = -1> (f, f)", "halves"), ("Reshape (t, flat)", "pairs")])
@pytest.mark.parametrize("size", [4, 3])
def test_values_that_repeat_in_the_model_repeat_when_they_are_drawn(tmp_path: Path, table: str, how: str, size: int) -> None:
    """Where rows have no halves at the drawn sizes, nothing is known of them."""
    model = write(
        tmp_path / "table.onnx",
        f"""<ir_version: 8, opset_import: ["" : 17]> g (float[b, 3, 2] f, float[b, 3, 4] x) => (float[b, 3, 4] y)
        <int64[1] last = {{-1}}, int64[4] twice = {{1, 1, 1, 2}}, int64[3] flat = {{0, 0, 4}}, float half = {{0.5}}> {{
            u = Unsqueeze(f, last) t = Tile(u, twice) c = {table} p = Mul(x, c) s = Sigmoid(p) y = Mul(p, s) }}""",
    )
    loaded = ir.load(model)
    infer_shapes(loaded)
    outline, nodes = Outline(loaded), [node for node in loaded.graph if node.op_type in ("Mul", "Sigmoid")]
    before = cut(nodes, list(loaded.graph.outputs), loaded.graph, outline, lambda _: None)
    repeating = repeating_values(before, nodes, Constants(loaded))
    assert repeating == {"c": how}
    cutting = Cutting(Rewrite("", "", "", (), 0, root="y", place=Place("", "", ("y",))), before, before, (), repeating=repeating)
    values = {"x": np.arange(size, dtype=np.float32), "c": np.arange(size, dtype=np.float32)}
    known = _as_known(values, cutting)
    assert known["x"].tolist() == list(range(size))
    assert known["c"].tolist() == ([0, 1, 2] if size == 3 else [0, 1, 0, 1] if how == "halves" else [0, 0, 1, 1])


def test_a_state_of_zeros_is_drawn_otherwise(tmp_path: Path) -> None:
    """Every element is 0 in every run, and the replacement reads it too: zeros would show nothing of it."""
    model = write(
        tmp_path / "state.onnx",
        """<ir_version: 8, opset_import: ["" : 17]> g (float[b, 3, 4] x) => (float[b, 3, 4] y)
        <float[1] none = {0}, int64[1] zero = {0}, int64[1] one = {1}, int64[2] rest = {4, 3}> {
          shape = Shape (x) b = Slice (shape, zero, one) sizes = Concat <axis = 0> (b, rest) state = Expand (none, sizes)
          t = Transpose <perm = [1, 0, 2]> (state) u = Transpose <perm = [1, 2, 0]> (t) y = Add (x, u) }""",
    )
    result = fuse(model, None, load_patterns(), Options(simplify=False, dry_run=True))
    assert [rewrite.pattern for rewrite in result.rewrites] == ["rearrange-rearrange"] and result.undone == ()


def test_a_causal_mask_is_not_drawn_at_random_where_the_replacement_leaves_it_out(tmp_path: Path) -> None:
    """Its length is known only in a run, so it is no constant."""
    model = write(
        tmp_path / "causal.onnx",
        """<ir_version: 8, opset_import: ["" : 17]> g (float[b, s, s] x) => (float[b, s, s] y)
        <bool one = {1}, float zero = {0}, float low = {-9}, int64 next = {1}> {
            n = Shape <start = 1, end = 2> (x)  size = Concat <axis = 0> (n, n)  ones = Expand (one, size)
            hidden = Trilu (ones, next)  mask = Where (hidden, low, zero)  u = Relu (x)
            none = Expand (zero, n)  y = Sum (u, mask, none) }""",
    )
    loaded = ir.load(model)
    infer_shapes(loaded)
    node = next(node for node in loaded.graph if node.op_type == "Sum")
    before, after = (cut([node], list(node.outputs), loaded.graph, Outline(loaded), lambda _: None) for _ in range(2))
    triangles = triangular_values(before, [node], Constants(loaded))
    assert triangles == {"mask": (0, -9)}
    rewrite = Rewrite("", "", "", (), 0, root="y", place=Place("", "", ("y",)))
    values = {"u": np.ones((1, 2, 2), np.float32), "mask": np.ones((2, 2), np.float32)}
    assert (_as_known(values, Cutting(rewrite, before, after, (), triangles=triangles))["mask"] == 1).all()
    after.graph.inputs.pop(1)
    known = _as_known(values, Cutting(rewrite, before, after, (), triangles=triangles))
    assert known["mask"].tolist() == [[0, -9], [0, 0]] and (known["u"] == 1).all()
