"""What kernels of CUDA refuse or do slowly, found on a GPU: `fuse` must not write it, also where no GPU is at hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

from onnx_subgraph.language.library import Library, load_patterns
from onnx_subgraph.options import Options
from onnx_subgraph.pipeline import fuse
from onnx_subgraph.result import FuseResult
from tests.patterns.test_sinks import MODEL, SINKS

GROUPS = """<ir_version: 8, opset_import: ["" : 18]>
g ({type}[b, 8, 4, 4] x) => ({type}[b, 8, 4, 4] y)
  <int64[3] groups = {{0, 2, -1}}, float[2] one = {{1, 1}}, float[2] zero = {{0, 0}}, int64[4] whole = {{0, 8, 4, 4}},
   float[8, 1, 1] w = {{1, 2, 3, 4, 5, 6, 7, 8}}, float[8, 1, 1] c = {{8, 7, 6, 5, 4, 3, 2, 1}}> {{
  r = Reshape(x, groups) n = InstanceNormalization(r, one, zero) i = Reshape(n, whole) t = Mul(i, w) y = Add(t, c) }}"""
CONVOLUTION = """<ir_version: 8, opset_import: ["" : 18]>
g (float[b, 4, 16, 16] x, float[4, 4, 3, 3] w) => (float[b, 4, 14, 14] y) {{ c = Conv {given} (x, w) y = Relu(c) }}"""
HEADS = """<ir_version: 8, opset_import: ["" : 18]>
g (float[b, s, 32] x{also}) => (float[b, s, 32] y) <float[32, 96] w = {{{weights}}}, float[96] c = {{{biases}}},
  int64[3] parts = {{32, 32, 32}}, int64[4] apart = {{0, 0, 4, 8}}, int64[3] joined = {{0, 0, 32}}, float root = {{2.828427}}> {{
  p = MatMul(x, w) a = Add(p, c) q, k, v = Split <axis = -1> (a, parts)
  qr = Reshape(q, apart) kr = Reshape(k, apart) vr = Reshape(v, apart) qt = Transpose <perm = [0, 2, 1, 3]> (qr)
  kt = Transpose <perm = [0, 2, 3, 1]> (kr) vt = Transpose <perm = [0, 2, 1, 3]> (vr)
  d = MatMul(qt, kt) u = Div(d, root) {masked} z = Softmax <axis = -1> (m) o = MatMul(z, vt)
  t = Transpose <perm = [0, 2, 1, 3]> (o) y = Reshape(t, joined) }}"""


@pytest.fixture(scope="module")
def library() -> Library:
    return load_patterns()


def fused(text: str, folder: Path, library: Library) -> tuple[FuseResult, onnx.ModelProto]:
    path, model = folder / "model.onnx", onnx.parser.parse_model(text)
    if model.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT16:
        for weight in [t for t in model.graph.initializer if t.data_type == onnx.TensorProto.FLOAT]:
            weight.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weight).astype(np.float16), weight.name))
    onnx.save(model, path)
    options = Options(providers=(), assumed=("CUDAExecutionProvider",), verify=False)
    result = fuse(path, folder / "fused.onnx", library, options)
    assert result.output is not None
    return result, onnx.load(result.output)


@pytest.mark.parametrize("element", ["float", "float16"])
def test_group_norm_has_its_scale_and_shift_in_float32(element: str, library: Library, tmp_path: Path) -> None:
    """The kernel refuses them in float16, when it runs."""
    _, model = fused(GROUPS.format(type=element), tmp_path, library)
    (node,) = [n for n in model.graph.node if n.op_type == "GroupNorm"]
    kinds = {t.name: t.data_type for t in model.graph.initializer}
    assert [kinds[name] for name in node.input[1:]] == [onnx.TensorProto.FLOAT] * 2


def test_silu_goes_into_group_norm(library: Library, tmp_path: Path) -> None:
    text = GROUPS.format(type="float").replace("y = Add(t, c)", "a = Add(t, c) s = Sigmoid(a) y = Mul(a, s)")
    _, model = fused(text, tmp_path, library)
    (node,) = [n for n in model.graph.node if n.op_type == "GroupNorm"]
    assert {a.name: a.i for a in node.attribute}["activation"] == 1
    assert {n.op_type for n in model.graph.node} == {"GroupNorm", "Transpose"}


def test_an_attention_with_a_mask_and_a_sink_is_not_that_of_groups(library: Library, tmp_path: Path) -> None:
    result, _ = fused(MODEL.format(sunk=SINKS["Flint"], keys="s", size=8), tmp_path, library)
    assert result.operators_after["Attention"] == 1 and "com.microsoft.GroupQueryAttention" not in result.operators_after


@pytest.mark.parametrize("given", ["", '<auto_pad = "NOTSET">', "<group = 1>"])
def test_a_convolution_keeps_its_activation(given: str, library: Library, tmp_path: Path) -> None:
    result, _ = fused(CONVOLUTION.format(given=given), tmp_path, library)
    assert not result.rewrites and [s.pattern for s in result.skipped] == ["conv-activation"]
    assert "slower than the unfused graph on CUDAExecutionProvider" in result.skipped[0].reason


@pytest.mark.parametrize("low", [-np.inf, -1e4])
def test_a_row_that_the_mask_hides_is_the_same_after_packing(low: float, library: Library, tmp_path: Path) -> None:
    """On the CPU, which has both kernels. com.microsoft's gives NaN for a row of -inf, the standard's 0."""
    weights = ", ".join(str(i % 7 / 10 - 0.3) for i in range(8 * 48))
    text = f"""<ir_version: 10, opset_import: ["" : 23]> g (float[b, s, 8] x, float[b, 1, s, s] m) => (float[b, s, 16] y)
      <float[8, 48] w = {{{weights}}}, int64[3] p = {{16, 16, 16}}> {{ z = MatMul(x, w) q, k, v = Split <axis = -1> (z, p)
      y = Attention <q_num_heads = 4, kv_num_heads = 4> (q, k, v, m) }}"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    options = Options(prefer="fusion", only=("packed-attention-operator",))
    result = fuse(tmp_path / "m.onnx", tmp_path / "f.onnx", library, options)
    assert result.operators_after["com.microsoft.Attention"] == 1 and result.verdict.verdict == "equivalent"
    mask = np.zeros((1, 1, 3, 3), np.float32)
    mask[0, 0, 1] = low
    feeds = {"x": np.random.default_rng(0).normal(size=(1, 3, 8)).astype(np.float32), "m": mask}
    before, after = (
        onnxruntime.InferenceSession(tmp_path / name, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
        for name in ("m.onnx", "f.onnx")
    )
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)


def test_packing_the_standards_attention_says_what_it_assumes(library: Library) -> None:
    """Its kernel gives 0 for a row of the mask that is the lowest finite number; com.microsoft's gives the mean."""
    assert library.get("packed-attention-operator").assumes == {"visible"}
    assert not library.get("packed-attention").assumes


@pytest.mark.parametrize(
    ("also", "masked"), [("", "m = Identity(u)"), (", float[b, 1, s, s] mask", "m = Add(u, mask)")], ids=["plain", "masked"]
)
def test_packed_projections_go_into_attention(also: str, masked: str, library: Library, tmp_path: Path) -> None:
    weights, biases = (", ".join(str(i % 7 - 3) for i in range(n)) for n in (32 * 96, 96))
    result, _ = fused(HEADS.format(also=also, masked=masked, weights=weights, biases=biases), tmp_path, library)
    assert result.operators_after["com.microsoft.Attention"] == 1
    assert "MatMul" not in result.operators_after and "Split" not in result.operators_after


MASKED = """<ir_version: 10, opset_import: ["" : 23]>
g (float[b, 4, s, 8] q, float[b, {groups}, s, 8] k, float[b, {groups}, s, 8] v, float[b, {masks}, s, s] mask)
  => (float[b, s, 32] y)
  <int64[5] more = {{1, 1, 2, 1, 1}}, int64[4] all = {{0, 4, -1, 8}}, int64[3] joined = {{0, -1, 32}}, int64[1] two = {{2}},
   float root = {{0.35}}, float zero = {{0}}> {{
  {shared}
  kt = Transpose <perm = [0, 1, 3, 2]> (keys) d = MatMul(q, kt) u = Mul(d, root) m = Add(u, mask) z = Softmax <axis = -1> (m)
  {guard} o = MatMul(p, values) t = Transpose <perm = [0, 2, 1, 3]> (o) y = Reshape(t, joined) }}"""
GUARD = "nan = IsNaN(z) p = Where(nan, zero, z)"
REPEATED = """k5 = Unsqueeze(k, two) kx = Tile(k5, more) keys = Reshape(kx, all)
  v5 = Unsqueeze(v, two) vx = Tile(v5, more) values = Reshape(vx, all)"""
ALONE = "keys = Identity(k) values = Identity(v)"


def bounds(model: onnx.ModelProto) -> list[float]:
    """The finite numbers that a model chooses masks from, or bounds them with."""
    stored = [onnx.numpy_helper.to_array(t) for t in model.graph.initializer]
    return [float(a) for a in stored if a.dtype == np.float32 and a.size == 1 and np.isfinite(a)]


def test_a_mask_of_the_lowest_number_is_above_what_counts_as_no_key(library: Library, tmp_path: Path) -> None:
    text = MASKED.format(groups=2, masks=1, shared=REPEATED, guard="p = Identity(z)")
    text = text.replace("float[b, 1, s, s] mask", "bool[b, 1, s, s] keep").replace("m = Add(u, mask)", "m = Where(keep, u, low)")
    result, model = fused(text.replace("float zero = {0}", "float low = {-3.4028234663852886e38}"), tmp_path, library)
    assert result.operators_after["Attention"] == 1
    assert -1e30 < 3 * min(bounds(model)) < -1e29, "also where three masks hide an element"


@pytest.mark.parametrize("low", [-np.inf, -3.4028234663852886e38])
@pytest.mark.parametrize("masks", [1, 4])
@pytest.mark.parametrize("groups", [2, 4])
def test_rows_that_a_mask_hides_are_those_of_the_original(
    low: float, masks: int, groups: int, library: Library, tmp_path: Path
) -> None:
    """Run on the CPU. On CUDA the standard's Attention takes a mask of -1e30 and less for no keys, whose row is 0."""
    is_infinite = np.isinf(low)
    text = MASKED.format(
        groups=groups,
        masks=masks,
        shared=REPEATED if groups == 2 else ALONE,
        guard=GUARD if is_infinite else "p = Identity(z)",
    )
    result, model = fused(text, tmp_path, library)
    operators = result.operators_after
    is_standard = operators["Attention"] == 1
    assert is_standard == (groups == 2 and (not is_infinite or masks == 1))
    assert is_standard or operators["com.microsoft.MultiHeadAttention"] == 1
    assert "IsNaN" not in operators and ("ReduceMax" in operators) == is_infinite
    assert not is_standard or min(bounds(model)) > -1e30
    rng = np.random.default_rng(0)
    feeds = {name: rng.normal(size=(2, n, 5, 8)).astype(np.float32) for name, n in (("q", 4), ("k", groups), ("v", groups))}
    feeds["mask"] = np.zeros((2, masks, 5, 5), np.float32)
    feeds["mask"][1, -1, 3:] = low  # no keys at all
    feeds["mask"][0, :, :, 3:] = low
    before, after = (
        onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
        for path in (tmp_path / "model.onnx", tmp_path / "fused.onnx")
    )
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)
