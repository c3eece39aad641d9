"""`fuse --target native`: one file that runs with the library of kernels, or without it by its functions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from onnx_subgraph import InferenceSession, SessionSettings, kernels
from onnx_subgraph.kernels.compilers import compilers
from tests.cli.conftest import Run

SAMPLES = Path(__file__).resolve().parents[2] / "sample_models"
LAYER = """<ir_version: 8, opset_import: ["": 17]>
g (float[N, 3, 8] x, float[N, 3, 6] r) => (float[N, 3, 6] y)
<float[8, 6] w = {WEIGHTS}, float[6] b = {1, 2, 3, 4, 5, 6}, float one = {1}, float half = {0.5}, float root = {1.4142135}> {
    m = MatMul(x, w) h = Add(m, b) d = Div(h, root) e = Erf(d) o = Add(e, one) s = Mul(h, o) a = Mul(s, half) y = Add(r, a)
}""".replace("WEIGHTS", ", ".join(f"{(k * 7 % 13 - 6) / 8}" for k in range(48)))


@pytest.fixture(scope="module")
def library() -> Path:
    if next(compilers(), None) is None:
        pytest.skip("there is no C compiler here")
    return kernels.path()


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def outputs(model: Path, library: Path | None, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    if library is not None:
        options.register_custom_ops_library(str(library))
    found: list[np.ndarray] = onnxruntime.InferenceSession(model, options).run(None, feeds)
    return found


def test_a_layer_becomes_one_node_that_runs_with_and_without_the_library(library: Path, tmp_path: Path, run: Run) -> None:
    model, fused = tmp_path / "layer.onnx", tmp_path / "fused.onnx"
    onnx.save(onnx.parser.parse_model(LAYER), model)
    ran = run("fuse", str(model), "--target", "native", "-o", str(fused))
    assert ran.code == 0 and "the model ran by the kernels for" in ran.out
    (node,) = onnx.load(fused).graph.node
    assert (node.domain, node.op_type, list(node.input)) == ("onnx_subgraph", "Linear", ["x", "w", "b", "", "r"])
    assert [(a.name, a.s) for a in node.attribute] == [("act", b"Gelu")]
    feeds = {"x": drawn(2, 3, 8), "r": drawn(2, 3, 6)}
    (truth,) = outputs(model, None, feeds)
    for found in (outputs(fused, library, feeds)[0], outputs(fused, None, feeds)[0]):
        np.testing.assert_allclose(found, truth, rtol=1e-5, atol=1e-5)


def test_random_results_are_fed_to_the_kernels_as_well(library: Path, tmp_path: Path, run: Run) -> None:
    """The noise of a decoder, as in VITS: each run draws it anew, so it is drawn once, for the original and all others."""
    model, fused = tmp_path / "noisy.onnx", tmp_path / "fused.onnx"
    noisy = LAYER.replace("y = Add(r, a)", "n = RandomNormalLike(a) t = Add(r, a) y = Add(t, n)")
    onnx.save(onnx.parser.parse_model(noisy), model)
    ran = run("fuse", str(model), "--target", "native", "-o", str(fused))
    assert ran.code == 0 and "the model ran by the kernels for" in ran.out and "undone" not in ran.out
    assert [node.op_type for node in onnx.load(fused).graph.node] == ["Linear", "RandomNormalLike", "Add", "Add"]
    assert run("verify", str(model), str(fused)).code == 0


def test_a_kernel_that_is_not_faster_here_is_not_used(
    library: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below AVX2 the library leaves products to onnxruntime, unless `ONNX_SUBGRAPH_KERNELS` tells it to run all of them."""
    monkeypatch.setenv(kernels.library.ISA, "baseline")
    model, fused = tmp_path / "layer.onnx", tmp_path / "fused.onnx"
    onnx.save(onnx.parser.parse_model(LAYER), model)
    strengths = []
    for which in ("", "all"):
        monkeypatch.setenv("ONNX_SUBGRAPH_KERNELS", which)
        ran = run("fuse", str(model), "--target", "native", "-o", str(fused), "--json")
        assert [node.op_type for node in onnx.load(fused).graph.node] == ["Linear"]
        strengths.append(ran.json["verification"]["strength"])
        options = onnxruntime.SessionOptions()
        options.register_custom_ops_library(str(library))
        options.optimized_model_filepath = str(tmp_path / "runs.onnx")
        onnxruntime.InferenceSession(fused, options)
        assert ("Linear" in {node.op_type for node in onnx.load(tmp_path / "runs.onnx").graph.node}) == (which == "all")
    assert strengths == ["body", "kernel"]


TOKENS = """<ir_version: 8, opset_import: ["": 17]>
g (float[N, 5, 8] q, float[N, 7, 8] k, float[N, 7, 8] v, float[8] s, float[8] b) => (float[N, 5, 8] y)
<int64[4] apart = {0, 0, 2, 4}, int64[3] joined = {0, 0, 8}, float scale = {0.5}> {
    q4 = Reshape(q, apart) k4 = Reshape(k, apart) v4 = Reshape(v, apart)
    qh = Transpose <perm = [0, 2, 1, 3]> (q4) kh = Transpose <perm = [0, 2, 3, 1]> (k4) vh = Transpose <perm = [0, 2, 1, 3]> (v4)
    m = MatMul(qh, kh) c = Mul(m, scale) p = Softmax(c) o = MatMul(p, vh)
    t = Transpose <perm = [0, 2, 1, 3]> (o) a = Reshape(t, joined)
    y = LayerNormalization <axis = -1, epsilon = 1e-5> (a, s, b)
}"""


def test_attention_reads_and_writes_heads_without_layout_nodes(library: Path, tmp_path: Path, run: Run) -> None:
    """No Transpose or Reshape is left around it. Its definition computes the same."""
    model, fused = tmp_path / "tokens.onnx", tmp_path / "fused.onnx"
    onnx.save(onnx.parser.parse_model(TOKENS), model)
    assert run("fuse", str(model), "--target", "native", "-o", str(fused)).code == 0
    assert [node.op_type for node in onnx.load(fused).graph.node] == ["Attention", "LayerNorm"]
    feeds = {"q": drawn(2, 5, 8), "k": drawn(2, 7, 8), "v": drawn(2, 7, 8), "s": drawn(8), "b": drawn(8)}
    (truth,) = outputs(model, None, feeds)
    for found in (outputs(fused, library, feeds)[0], outputs(fused, None, feeds)[0]):
        np.testing.assert_allclose(found, truth, rtol=1e-5, atol=1e-5)


SPELLED = """<ir_version: 8, opset_import: ["" : 17]> g (float[n, d] x, float[d] s) => (float[n, d] y) <float eps = {1e-5}> {
  q = Mul(x, x) v = ReduceMean <axes = [-1]> (q) e = Add(v, eps) r = Sqrt(e) n = Div(x, r) y = Mul(n, s) }"""
OPERATOR = """<ir_version: 8, opset_import: ["" : 17]> g (float[n, d] x, float[d] s) => (float[n, d] y) {
  y = LayerNormalization(x, s) }"""


@pytest.mark.parametrize(("text", "kernel"), [(SPELLED, "RMSNorm"), (OPERATOR, "LayerNorm")])
def test_the_size_of_a_row_may_be_symbolic(text: str, kernel: str, library: Path, tmp_path: Path, run: Run) -> None:
    model, fused = tmp_path / "rows.onnx", tmp_path / "fused.onnx"
    onnx.save(onnx.parser.parse_model(text), model)
    ran = run("fuse", str(model), "--target", "native", "-o", str(fused))
    assert ran.code == 0 and "Bug" not in ran.out
    assert [node.op_type for node in onnx.load(fused).graph.node] == [kernel]
    feeds = {"x": drawn(3, 7), "s": drawn(7)}
    np.testing.assert_allclose(outputs(fused, library, feeds)[0], outputs(model, None, feeds)[0], rtol=1e-5, atol=1e-5)


def test_without_the_library_the_function_calls_kernels_of_onnxruntime(library: Path, tmp_path: Path, run: Run) -> None:
    """The native target's function body calls onnxruntime's operator; the body for target function is the definition."""
    model, fused = tmp_path / "tokens.onnx", tmp_path / "fused.onnx"
    onnx.save(onnx.parser.parse_model(TOKENS), model)
    held = {}
    for target in ("native", "function"):
        assert run("fuse", str(model), "--target", target, "-o", str(fused)).code == 0
        held[target] = {f.name: {node.op_type for node in f.node} for f in onnx.load(fused).functions}
    assert "MultiHeadAttention" in held["native"]["Attention"] and "Softmax" in held["function"]["Attention"]
    assert held["native"]["LayerNorm"] == {"LayerNormalization"} and "LayerNorm" not in held["function"]


def test_operands_that_are_split_by_heads_stay_split(library: Path, tmp_path: Path, run: Run) -> None:
    """Attention takes each operand in the layout that it has; no Reshape or Transpose is added."""
    text = TOKENS.replace("float[N, 5, 8] q,", "float[N, 2, 5, 4] qh,").replace("q4 = Reshape(q, apart)", "")
    text = text.replace("qh = Transpose <perm = [0, 2, 1, 3]> (q4)", "")
    model, fused = tmp_path / "tokens.onnx", tmp_path / "fused.onnx"
    onnx.save(onnx.parser.parse_model(text), model)
    assert run("fuse", str(model), "--target", "native", "-o", str(fused)).code == 0
    (node,) = [node for node in onnx.load(fused).graph.node if node.op_type == "Attention"]
    assert list(node.input)[:3] == ["qh", "k", "v"]
    feeds = {"qh": drawn(2, 2, 5, 4), "k": drawn(2, 7, 8), "v": drawn(2, 7, 8), "s": drawn(8), "b": drawn(8)}
    (truth,) = outputs(model, None, feeds)
    for found in (outputs(fused, library, feeds)[0], outputs(fused, None, feeds)[0]):
        np.testing.assert_allclose(found, truth, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["bert_torchscript", "llama_dynamo", "llama_float16_dynamo", "mobilenet_v3_torchscript"])
def test_networks_run_with_and_without_the_library(name: str, library: Path, tmp_path: Path, run: Run) -> None:
    ran = run("fuse", str(SAMPLES / f"{name}.onnx"), "--target", "native", "-o", str(tmp_path / "fused.onnx"), "--json")
    assert ran.code == 0
    result = ran.json
    verification = result["verification"]
    assert verification["verdict"] == "equivalent" and verification["strength"] == "kernel"
    (way,) = verification["also"]
    assert way.startswith("the kernels for ") and any(one["provider"] == way for one in verification["runs"])
    if "Linear" in {node.op_type for node in onnx.load(tmp_path / "fused.onnx").graph.node}:
        assert any(fusion["op"] == "onnx_subgraph.Linear" and fusion["function"] for fusion in result["fusions"])


def halved(text: str) -> onnx.ModelProto:
    """A float32 model, converted to float16 throughout."""
    model = onnx.parser.parse_model(text)
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor).astype(np.float16), tensor.name))
    return model


def test_float16_stays_float16_with_and_without_the_library(library: Path, tmp_path: Path, run: Run) -> None:
    model, fused = tmp_path / "layer.onnx", tmp_path / "fused.onnx"
    for text, operators in ((LAYER, ["Linear"]), (TOKENS, ["Attention", "LayerNorm"])):
        onnx.save(halved(text), model)
        ran = run("fuse", str(model), "--target", "native", "-o", str(fused), "--json")
        assert ran.code == 0 and ran.json["verification"]["strength"] == "kernel"
        assert [node.op_type for node in onnx.load(fused).graph.node] == operators
        inputs = onnxruntime.InferenceSession(model).get_inputs()
        feeds = {i.name: drawn(*(2 if isinstance(n, str) else n for n in i.shape)).astype(np.float16) for i in inputs}
        (truth,) = outputs(model, None, feeds)
        for found in (outputs(fused, library, feeds)[0], outputs(fused, None, feeds)[0]):
            assert found.dtype == np.float16
            np.testing.assert_allclose(found, truth, rtol=4e-3, atol=4e-3)


MASKED = """<ir_version: 8, opset_import: ["": 17]>
g (float[N, 2, 5, 8] q, float[N, 2, 7, 8] k, float[N, 2, 7, 4] v, bool[N, 1, 5, 7] m) => (float[N, 2, 5, 4] y)
<float scale = {0.5}, float low = {-65504}> {
    t = Transpose <perm = [0, 1, 3, 2]> (k) s = MatMul(q, t) c = Mul(s, scale)
    f = Where(m, c, low) p = Softmax(f) y = MatMul(p, v)
}"""


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_fully_masked_rows_are_the_mean_of_the_values(dtype: type, library: Path, tmp_path: Path, run: Run) -> None:
    """The mask is below float16's range, in float32. The kernel takes operands of one type, so the others are cast."""
    model, fused = tmp_path / "masked.onnx", tmp_path / "fused.onnx"
    onnx.save(onnx.parser.parse_model(MASKED) if dtype is np.float32 else halved(MASKED), model)
    ran = run("fuse", str(model), "--target", "native", "-o", str(fused), "--json")
    assert ran.code == 0 and ran.json["verification"]["verdict"] == "equivalent"
    assert "onnx_subgraph.Attention" in {f"{node.domain}.{node.op_type}" for node in onnx.load(fused).graph.node}
    feeds = {"q": drawn(2, 2, 5, 8).astype(dtype), "k": drawn(2, 2, 7, 8).astype(dtype), "v": drawn(2, 2, 7, 4).astype(dtype)}
    tolerance = 1e-5 if dtype is np.float32 else 4e-3
    feeds["m"] = np.arange(5)[:, None] > np.zeros((2, 1, 5, 7))
    for found in (outputs(fused, library, feeds)[0], outputs(fused, None, feeds)[0]):
        np.testing.assert_allclose(found, outputs(model, None, feeds)[0], rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(found[:, :, 0], feeds["v"].mean(axis=2), rtol=tolerance, atol=tolerance)


def test_other_types_have_no_kernel(library: Path, tmp_path: Path, run: Run) -> None:
    model = tmp_path / "layer.onnx"
    onnx.save(onnx.parser.parse_model(LAYER.replace("float[", "double[").replace("float ", "double ")), model)
    ran = run("fuse", str(model), "--target", "native", "-o", str(tmp_path / "fused.onnx"))
    assert ran.code == 0 and "onnx_subgraph.Linear" not in ran.out


def test_patterns_that_need_a_kernel_are_used_by_the_native_target_only(tmp_path: Path, run: Run) -> None:
    model = tmp_path / "layer.onnx"
    onnx.save(onnx.parser.parse_model(LAYER), model)
    for target in ("onnxruntime", "standard", "function"):
        assert "linear" not in run("fuse", str(model), "--target", target, "--dry-run").out
    asked = run("fuse", str(model), "--dry-run", "--only", "linear")
    assert "--target native or function" in asked.out


def test_without_a_compiler_the_message_says_what_is_missing(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CC", str(tmp_path / "no-compiler"))
    kernels.path.cache_clear()
    model = tmp_path / "layer.onnx"
    onnx.save(onnx.parser.parse_model(LAYER), model)
    try:
        ran = run("fuse", str(model), "--target", "native")
    finally:
        kernels.path.cache_clear()
    assert ran.code == 2 and "the C compiler in CC" in ran.err and "onnx-subgraph[kernels]" in ran.err
    assert not (tmp_path / "layer.fused.onnx").exists()


def test_a_library_that_does_not_load_gives_no_verdict(
    library: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that ran only by its definitions is not written as native."""
    missing = kernels.Description(tmp_path / "missing.so", ("baseline",), "baseline", ("Linear",))
    monkeypatch.setattr(kernels, "describe", lambda: missing)
    model = tmp_path / "layer.onnx"
    onnx.save(onnx.parser.parse_model(LAYER), model)
    ran = run("fuse", str(model), "--target", "native", "-o", str(tmp_path / "fused.onnx"))
    assert ran.code != 0 and not (tmp_path / "fused.onnx").exists()
    assert "missing.so" in ran.out + ran.err


OWN = """
operator: Doubled
summary: Twice the absolute value
source: a test
inputs: {x: "[…]"}
definition: y = 2 * Abs(x)
native: float32
formulas:
  - id: doubled
    summary: Twice the absolute value
    match: y = 2 * Abs(x)
    raises: y = onnx_subgraph.Doubled(x)
    example: {x: "float32[2, 8]"}
"""


def test_an_operator_that_the_library_lacks_is_not_reported_as_a_kernel(library: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "doubled.yaml").write_text(OWN, encoding="utf-8")
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[N, 8] x) => (float[N, 8] y) <float two = {2}> { a = Abs(x) y = Mul(a, two) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    ran = run("fuse", tmp_path / "m.onnx", "--patterns", tmp_path / "mine", "--target", "native", "--dry-run", "--json")
    assert [fusion["op"] for fusion in ran.json["fusions"]] == ["onnx_subgraph.Doubled"]
    assert ran.json["verification"]["verdict"] == "equivalent" and ran.json["verification"]["strength"] == "body"


@pytest.mark.parametrize("numerics", ["bf16x3", "bf16"])
def test_numerics_are_set_on_the_node_and_their_error_is_reported(numerics: str, library: Path, tmp_path: Path, run: Run) -> None:
    """The definition ignores them: without the library, the model computes the same, bit for bit."""
    model, plain, fused = tmp_path / "layer.onnx", tmp_path / "plain.onnx", tmp_path / "fused.onnx"
    onnx.save(onnx.parser.parse_model(LAYER), model)
    assert run("fuse", model, "--target", "native", "-o", plain).code == 0
    ran = run("fuse", model, "--target", "native", "--numerics", numerics, "-o", fused)
    assert (
        ran.code == 0
        and f", {numerics} as well" in ran.out
        and "of its largest element from float64; onnxruntime's own is" in ran.out
    )
    (node,) = onnx.load(fused).graph.node
    assert ("numerics", numerics.encode()) in [(a.name, a.s) for a in node.attribute]
    assert "numerics" not in {a.name for node in onnx.load(plain).graph.node for a in node.attribute}
    feeds = {"x": drawn(2, 3, 8), "r": drawn(2, 3, 6)}
    np.testing.assert_array_equal(outputs(fused, None, feeds)[0], outputs(plain, None, feeds)[0])
    verification = run("fuse", model, "--target", "native", "--numerics", numerics, "--dry-run", "--json").json["verification"]
    (rounding,) = verification["roundings"]
    assert rounding["output"] == "y" and rounding["onnxruntime"] < 1e-6 and rounding["kernels"] < 2e-2
    widest = {one["bound"] for one in verification["runs"] if one["provider"] != "CPUExecutionProvider"}
    assert min(widest) > 50 * max(one["bound"] for one in verification["runs"] if one["provider"] == "CPUExecutionProvider")


WIDE = """<ir_version: 8, opset_import: ["": 17]>
g (float[N, 64] x) => (float[N, 9] y) <float[64, 9] w = {WEIGHTS}> { y = MatMul(x, w) }""".replace(
    "WEIGHTS", ", ".join(f"{(k * 37 % 101 - 50) / 77}" for k in range(64 * 9))
)


def test_bfloat16_rounds_and_the_report_has_the_error(library: Path, tmp_path: Path, run: Run) -> None:
    model, fused = tmp_path / "wide.onnx", tmp_path / "fused.onnx"
    onnx.save(onnx.parser.parse_model(WIDE), model)
    ran = run("fuse", model, "--target", "native", "--numerics", "bf16", "-o", fused, "--json")
    (rounding,) = ran.json["verification"]["roundings"]
    assert ran.code == 0 and rounding["kernels"] > 1e-4
    assert all(one["provider"] == "CPUExecutionProvider" or one["error"] > 1e-4 for one in ran.json["verification"]["runs"])
    feeds = {"x": drawn(5, 64)}
    rounded, truth = outputs(fused, library, feeds)[0], outputs(model, None, feeds)[0]
    assert 1e-4 < np.abs(rounded - truth).max() < 0.1


def test_numerics_need_the_native_target(tmp_path: Path, run: Run) -> None:
    model = tmp_path / "layer.onnx"
    onnx.save(onnx.parser.parse_model(LAYER), model)
    ran = run("fuse", model, "--numerics", "bf16")
    assert ran.code == 2 and "bf16 is for the kernels of the target native, not for onnxruntime" in ran.err
    assert "add --target native, or leave --numerics out" in ran.err and not (tmp_path / "layer.fused.onnx").exists()


@pytest.mark.usefixtures("forked_commands")
def test_a_session_takes_numerics(library: Path, tmp_path: Path) -> None:
    model = tmp_path / "wide.onnx"
    onnx.save(onnx.parser.parse_model(WIDE), model)
    feeds, found = {"x": drawn(5, 64)}, {}
    environment = {
        "ONNX_SUBGRAPH_TARGET": "native",
        "ONNX_SUBGRAPH_NUMERICS": "bf16",
        "ONNX_SUBGRAPH_CACHE": str(tmp_path / "cache"),
    }
    exact = SessionSettings(target="native", strict=True, cache=tmp_path / "cache")
    for name, settings in {"float32": exact, "bf16": SessionSettings.of_environment(environment)}.items():
        found[name] = InferenceSession(model, settings=settings).run(None, feeds)[0]
    assert 1e-4 < np.abs(found["bf16"] - found["float32"]).max() < 0.1


@pytest.mark.usefixtures("forked_commands")
def test_a_session_loads_the_library_by_itself(library: Path, tmp_path: Path) -> None:
    model = tmp_path / "layer.onnx"
    onnx.save(onnx.parser.parse_model(LAYER), model)
    settings = SessionSettings(target="native", strict=True, cache=tmp_path / "cache")
    feeds = {"x": drawn(2, 3, 8), "r": drawn(2, 3, 6)}
    options = onnxruntime.SessionOptions()
    for given in (None, options, options):  # onnxruntime can load a library once only
        session = InferenceSession(model, given, settings=settings)
        assert session.prepared.fusions == 1
        np.testing.assert_allclose(session.run(None, feeds)[0], outputs(model, None, feeds)[0], rtol=1e-5, atol=1e-5)
