"""Replacements for operators that are slow in onnxruntime: they are written, proved, and about as accurate."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

from onnx_subgraph import Options, fuse, load_patterns

LOG_MEL = """<ir_version: 8, opset_import: ["" : 17]>
mel (float[batch, length] x, float[{size}] w) => (float[batch, frames, 8] y)
<int64 step = {{{step}}}, float least = {{1e-10}}, int64[1] axes = {{-1}}, float[{bins}, 8] bank> {{
    s = STFT(x, step, w)
    p = ReduceSumSquare <axes = [-1], keepdims = 0> (s)
    m = MatMul(p, bank)
    c = Clip(m, least)
    y = Log(c)
}}"""


def log_mel(folder: Path, size: int, *, narrow: bool = False) -> Path:
    """The first layers of a speech recognizer: the logarithm of a spectrum in bands. narrow: bands of one bin each."""
    bins, generator = size // 2 + 1, np.random.default_rng(size)
    proto = onnx.parser.parse_model(LOG_MEL.format(size=size, step=size // 2, bins=bins))
    bank = np.eye(bins, 8) if narrow else generator.random((bins, 8))
    weights = {"w": np.hanning(size), "bank": bank}
    del proto.graph.input[1:]
    kept = [tensor for tensor in proto.graph.initializer if tensor.name not in weights]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(kept)
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(a.astype("f4"), name) for name, a in weights.items())
    path = folder / f"mel{size}.onnx"
    onnx.save(proto, path)
    return path


@pytest.mark.parametrize("size", [320, 400, 512])
def test_a_spectrum_is_about_as_near_to_the_truth_as_onnxruntimes(size: int, tmp_path: Path) -> None:
    original = log_mel(tmp_path, size)
    result = fuse(original, tmp_path / "fused.onnx", load_patterns(), Options(shapes={"x": (2, 4 * size)}))
    assert result.verdict.verdict == "equivalent", result.verdict
    assert {rewrite.pattern for rewrite in result.rewrites} == {"stft-convolution", "power-of-pairs", "conv-1d"}
    assert {rewrite.op for rewrite in result.rewrites if rewrite.pattern == "conv-1d"} == {"Conv"}  # and no Squeeze beside it
    x = np.random.default_rng(0).standard_normal((2, 4 * size)).astype("f4")
    ours, theirs = (onnxruntime.InferenceSession(path).run(None, {"x": x})[0] for path in (result.output, original))
    weights = {t.name: onnx.numpy_helper.to_array(t).astype("f8") for t in onnx.load(original).graph.initializer}
    frames = np.lib.stride_tricks.sliding_window_view(x.astype("f8"), size, axis=1)[:, :: size // 2] * weights["w"]
    truth = np.log(np.abs(np.fft.rfft(frames)) ** 2 @ weights["bank"])
    assert np.abs(ours - truth).max() <= max(1.5 * np.abs(theirs - truth).max(), 1e-5)


def test_the_error_of_onnxruntime_is_allowed_as_noise(tmp_path: Path) -> None:
    """In bands of one bin, onnxruntime's own error is far larger than the rounding of the band."""
    original = log_mel(tmp_path, 400, narrow=True)
    result = fuse(original, tmp_path / "fused.onnx", load_patterns(), Options(shapes={"x": (2, 8000)}))
    assert (result.verdict.verdict, result.undone) == ("equivalent", ()) and len(result.rewrites) == 3


@pytest.mark.parametrize("target", ["standard", "function"])
def test_slow_operators_are_replaced_for_onnxruntime_only(target: str, tmp_path: Path) -> None:
    """Other runtimes may be fast at these operators, and a function for a single operator would be useless."""
    original = log_mel(tmp_path, 400)
    result = fuse(original, tmp_path / "fused.onnx", load_patterns(), Options(target=target, prefer="fusion", verify=False))
    assert {skip.pattern for skip in result.skipped} == {"stft-convolution", "power-of-pairs"}
    assert {"STFT", "ReduceSumSquare"} <= {node.op_type for node in onnx.load(result.output or original).graph.node}


@pytest.mark.parametrize("slopes", [(0.1, 0.9), (-0.3, 0.5), (0.5, 2.0)])
def test_a_prelu_computes_the_same_for_every_number(slopes: tuple[float, float], tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1, 2, N, 5] x) => (float[1, 2, N, 5] y) { y = PRelu(x, slope) }'
    )
    slope = np.asarray(slopes, "f4").reshape(2, 1, 1)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(slope, "slope"))
    onnx.save(proto, tmp_path / "model.onnx")
    result = fuse(tmp_path / "model.onnx", tmp_path / "fused.onnx", load_patterns(), Options(prefer="fusion"))
    assert [rewrite.pattern for rewrite in result.rewrites] == ["prelu"] and result.verdict.verdict == "equivalent"
    numbers = np.array(
        [-np.inf, -3.0e38, -1.0, -1e-45, -0.0, 0.0, 1e-45, 1.0, 3.0e38, np.inf, np.nan, -2.5, 7.0, 1e-38, -1e-38], "f4"
    )
    x = np.broadcast_to(numbers.reshape(1, 1, 3, 5), (1, 2, 3, 5)).copy()
    ours = onnxruntime.InferenceSession(result.output).run(None, {"x": x})[0]
    with np.errstate(over="ignore", invalid="ignore"):
        np.testing.assert_array_equal(ours, np.where(x < 0, x * slope, x))


SCORES = """<ir_version: 8, opset_import: ["" : 23]>
g (float[2, 4, 24, 16] q, float[2, 4, 16, 24] k, float[2, 4, 24, 16] v, {mask}, float[2, 24, 24] gate) => (float[2, 4, 24, 16] y)
<float[24, 4] table, int64[1] one = {{1}}, int64[2] at = {{0, 3}}, float[24, 24] places>
{{ {body} s = MatMul(q, k) m = Add(s, b) p = Softmax(m) y = MatMul(p, v) }}"""
BIASES = {
    "a mask for all heads": ("float[2, 1, 24, 24] b", "", True, {"IsInf", "Clip", "Where"}),
    "a mask of each head, which may be raised": ("float[2, 4, 24, 24] b", "", False, set()),
    "a gated table": (
        "float[24] unread",
        """i = Cast <to = 7> (places) t = Gather(table, i) r = Transpose <perm = [2, 0, 1]> (t)
        h = Sigmoid(gate) g = Unsqueeze(h, one) b = Mul(g, r)""",
        True,
        set(),
    ),
}


@pytest.mark.parametrize(("mask", "body", "attends", "beside"), BIASES.values(), ids=BIASES)
def test_a_mask_of_each_head_is_not_raised(mask: str, body: str, attends: bool, beside: set[str], tmp_path: Path) -> None:
    """To keep the lowest number from Attention takes three passes over a mask, unless it has bounds."""
    proto = onnx.parser.parse_model(SCORES.format(mask=mask, body=body))
    draw = np.random.default_rng(0)
    arrays = {"table": draw.standard_normal((24, 4)).astype("f4"), "places": draw.integers(0, 24, (24, 24)).astype("f4")}
    del proto.graph.input[5:]
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
    onnx.save(proto, tmp_path / "model.onnx")
    result = fuse(tmp_path / "model.onnx", tmp_path / "fused.onnx", load_patterns(), Options())
    assert (result.verdict.verdict, result.undone) == ("equivalent", ())
    used = {node.op_type for node in onnx.load(result.output).graph.node}
    assert ("Attention" in used) == attends and used & {"IsInf", "Clip", "Where"} == beside
