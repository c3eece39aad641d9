"""Norms as exporters write them, in several steps that patterns take in turn."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx
import onnx.parser
import pytest

from onnx_subgraph.language.library import Library, load_patterns
from onnx_subgraph.options import Options
from onnx_subgraph.pipeline import fuse

SEQUENCE = """<ir_version: 8, opset_import: ["" : 20]> g (float[b, s, 8] x) => (float[b, s, 8] y)
  <int64[1] axis = {2}, int64[1] minus = {-1}, int64[1] one = {1}, float n = {8}, float eps = {1e-5},
   float[8] w = {1, 2, 3, 4, 5, 6, 7, 8}, float[8] c = {8, 7, 6, 5, 4, 3, 2, 1}>"""
IMAGES = """<ir_version: 8, opset_import: ["" : 20]> g (float[b, 8, h, w] x) => (float[b, 8, h, w] y)
  <int64[1] axis = {1}, int64[1] minus = {-1}, float n = {8}, float eps = {1e-5}>"""
SIZES = """{name}0 = Shape <start = 0, end = 1> ({name}) {name}1 = Shape <start = 1, end = 2> ({name})
  {name}2 = Shape <start = 2, end = 3> ({name}) {name}r = Reshape({name}1, minus)
  {name}3 = Concat <axis = 0> ({name}0, axis, {name}r, {name}2) {name}k = Reshape({name}, {name}3)"""
EXPORTS: Mapping[str, tuple[str, str]] = {
    "torch.var_mean by torch's second exporter, over the last axis": (
        "layer-normalization",
        f"""{SEQUENCE} {{
          m = ReduceMean <keepdims = 1> (x, axis) d = Sub(x, m) q = Mul(d, d) v = ReduceMean <keepdims = 0> (q, axis)
          v0 = Shape <start = 0, end = 1> (v) v1 = Shape <start = 1, end = 2> (v) v2 = Reshape(v0, minus)
          v3 = Concat <axis = 0> (v2, v1, one) vk = Reshape(v, v3)
          s = ReduceSum <keepdims = 0> (x, axis) s0 = Shape <start = 0, end = 1> (s) s1 = Shape <start = 1, end = 2> (s)
          s3 = Concat <axis = 0> (s0, s1, one) sk = Reshape(s, s3) mean = Div(sk, n) e = Sub(x, mean)
          a = Add(vk, eps) r = Sqrt(a) i = Reciprocal(r) t = Mul(e, i) u = Mul(t, w) y = Add(u, c) }}""",
    ),
    "timm's LayerNorm2d by torch's second exporter, for images of any size": (
        "layer-normalization-channels",
        f"""{IMAGES} {{
          m = ReduceMean <keepdims = 1> (x, axis) d = Sub(x, m) q = Mul(d, d) v = ReduceMean <keepdims = 0> (q, axis)
          {SIZES.format(name="v")} s = ReduceSum <keepdims = 0> (x, axis) {SIZES.format(name="s")}
          mean = Div(sk, n) e = Sub(x, mean) a = Add(vk, eps) r = Sqrt(a) i = Reciprocal(r) y = Mul(e, i) }}""",
    ),
}


@pytest.fixture(scope="module")
def library() -> Library:
    return load_patterns()


@pytest.mark.parametrize(("pattern", "text"), EXPORTS.values(), ids=EXPORTS)
def test_the_norm_is_found(pattern: str, text: str, library: Library, tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), model)
    result = fuse(model, tmp_path / "fused.onnx", library, Options(prefer="fusion"))
    assert result.verdict.verdict == "equivalent"
    assert pattern in {rewrite.pattern for rewrite in result.rewrites}


@pytest.mark.parametrize(("variance", "assumed"), [("Add(v, eps)", set()), ("Identity(v)", {"nonzero"})])
def test_a_norm_without_an_epsilon_assumes_that_no_row_is_constant(
    variance: str, assumed: set[str], library: Library, tmp_path: Path
) -> None:
    """Where all elements of a row are equal, onnxruntime's kernel may give NaN and the original -1, or the other way round."""
    body = f"""{{ m = ReduceMean <keepdims = 1> (x, axis) d = Sub(x, m) q = Mul(d, d)
      v = ReduceMean <keepdims = 1> (q, axis) a = {variance} r = Sqrt(a) i = Div(d, r) t = Mul(i, w) y = Add(t, c) }}"""
    model = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(SEQUENCE + body), model)
    result = fuse(model, tmp_path / "fused.onnx", library, Options())
    assert [(one.pattern, one.assumes) for one in result.rewrites] == [("layer-normalization", assumed)]


BOUNDED = """{ l = ReduceL2(x, minus) low = Constant<value_float = 1e-12>() k = Clip(l, low) z = Shape(x) e = Expand(k, z)
  d = Div(x, e) t = Mul(d, n) u = Mul(t, w) y = Mul(u, n) }"""
SCALED = """{ r = SimplifiedLayerNormalization <axis = -1, epsilon = 1e-26> (x, w) y = Mul(r, c) }"""


@pytest.mark.parametrize(
    ("body", "pattern", "assumed"),
    [(BOUNDED, "rms-normalization", {"nonzero"}), (SCALED, "rms-normalization-affine", set())],
    ids=["the RMSNorm of x-transformers", "a bound that is there already"],
)
def test_a_bound_of_a_norm_is_assumed_where_it_becomes_an_epsilon(
    body: str, pattern: str, assumed: set[str], library: Library, tmp_path: Path
) -> None:
    model, fused = tmp_path / "model.onnx", tmp_path / "fused.onnx"
    onnx.save(onnx.parser.parse_model(SEQUENCE + body), model)
    result = fuse(model, fused, library, Options())
    assert result.verdict.verdict == "equivalent"
    assert [(one.pattern, one.assumes) for one in result.rewrites] == [(pattern, assumed)]
    assert [node.op_type for node in onnx.load(fused).graph.node] == ["SimplifiedLayerNormalization"]


GROUPS = """<ir_version: 10, opset_import: ["" : 21]> g (float[n, 4, 6, 6] x) => (float[n, 4, 6, 6] y)
  <int64[3] groups = {0, 2, -1}, float[2] one = {1, 1}, float[2] zero = {0, 0},
   float[4, 1, 1] w = {1, 2, 3, 4}, float[4, 1, 1] c = {4, 3, 2, 1}> {
  r = Reshape(x, groups) n = InstanceNormalization(r, one, zero) s = Shape(x) i = Reshape(n, s) t = Mul(i, w) y = Add(t, c) }"""


def test_what_group_norm_assumes_is_told(tmp_path: Path) -> None:
    """onnxruntime runs it on the CPU by its definition, which computes E[x²] - E[x]²: NaN for an image of one colour."""
    model = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(GROUPS), model)
    (rewrite,) = fuse(model, None, load_patterns(), Options(target="standard", dry_run=True)).rewrites
    assert rewrite.op == "GroupNormalization" and "centred" in rewrite.assumes
    (rewrite,) = fuse(model, None, load_patterns(), Options(target="function", dry_run=True)).rewrites
    assert "centred" not in rewrite.assumes
