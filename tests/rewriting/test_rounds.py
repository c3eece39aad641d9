"""The rounds of rewriting and simplification leave nothing for a second run."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser
import pytest

from onnx_subgraph import Options, fuse, load_patterns

LIBRARY = load_patterns()
DECIDED = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N, 8] x) => (float[N, 8] y) <bool yes = {1}, float root = {1.4142135}, float one = {1}, float half = {0.5}> {
  d = Div(x, root)
  e = If(yes) <then_branch = t () => (float[N, 8] a) { a = Erf(d) }, else_branch = f () => (float[N, 8] b) { b = Neg(d) }>
  s = Add(e, one) p = Mul(x, s) y = Mul(p, half)
}"""
DIVIDED = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2, 8] x) => (float[2, 8] y) <float one = {1}> { s = Softplus(x) t = Transpose<perm = [0, 1]>(s) y = Sub(one, t) }"""

SHARED = """<ir_version: 8, opset_import: ["" : 12]>
g (float[2, 3] x) => (float[2, 3] y, float[2, 3] z) <float one = {1}> {
  i = Identity(x) a = Abs(i) b = Add(a, one) y = Div(i, b) z = Relu(i)
}"""

BESIDE = """<ir_version: 8, opset_import: ["" : 18]>
g (float[2, 8] x, float[2, 8] b, float[2, 8] c) => (float[2, 8] y) <float[8] w = {1, 2, 1, 2, 1, 2, 1, 2}> {
  n = LpNormalization<axis = -1, p = 2>(x) m = Mul(n, b) d = Div(m, c) l = LayerNormalization<axis = -1>(d, w) y = Add(l, n)
}"""


@pytest.mark.parametrize(
    ("text", "target", "pattern"),
    [
        (DECIDED, "onnxruntime", "gelu"),
        (DIVIDED, "function", "elementwise-region"),
        (SHARED, "standard", "function-body"),
        (BESIDE, "function", "around-normalization"),
    ],
    ids=[
        "an If that is decided",
        "a node without effect",
        "an Identity with other readers",
        "a region beside a region",
    ],
)
def test_a_second_run_fuses_nothing(text: str, target: str, pattern: str, tmp_path: Path) -> None:
    model, once, twice = (tmp_path / f"{name}.onnx" for name in ("model", "once", "twice"))
    onnx.save(onnx.parser.parse_model(text), model)
    first = fuse(model, once, LIBRARY, Options(target=target))
    assert first.verdict.verdict == "equivalent" and {rewrite.pattern for rewrite in first.rewrites} == {pattern}
    assert not fuse(once, twice, LIBRARY, Options(target=target)).rewrites


MASKED = """<ir_version: 8, opset_import: ["" : 17]>
g (float[B, 2, 4, 8] q, float[B, 2, 8, 4] k, float[B, 2, 4, 8] v, bool[B, 1, 4, 4] m) => (float[B, 2, 4, 8] y)
<float scale = {0.35355338}, float zero = {0}, float one = {1}, int64[1] last = {3}> {
  s = MatMul(q, k) c = Mul(s, scale) p = Softmax<axis = 3>(c)
  f = Cast<to = 1>(m) o = Mul(p, f) t = ReduceSum(o, last) g = Greater(t, zero)
  d = Where(g, t, one) r = Div(o, d) w = Where(g, r, zero) y = MatMul(w, v)
}"""


VARIED = """<ir_version: 8, opset_import: ["" : 18]>
g (float[B, 3, 4, 5] x) => (float[B, 3, 4, 5] y)
<int64[1] axis = {1}, int64[4] kept = {0, 1, 4, 5}, float least = {0.00001},
 float[1, 3, 1, 1] w = {2, 3, 4}, float[1, 3, 1, 1] b = {1, 0, 2}> {
  m = ReduceMean(x, axis) d = Sub(x, m) q = Mul(d, d) v = ReduceMean<keepdims = 0>(q, axis) r = Reshape(v, kept)
  e = Add(r, least) s = Sqrt(e) n = Div(d, s) p = Mul(n, w) y = Add(p, b)
}"""


@pytest.mark.parametrize(
    ("text", "patterns"),
    [(MASKED, ["softmax-mask", "multi-head-attention"]), (VARIED, ["layer-normalization-channels"])],
    ids=["a scaled product of attention", "scale and shift of a norm whose variance has no axis of channels"],
)
def test_a_late_pattern_takes_nothing_from_one_that_a_later_round_completes(
    text: str, patterns: list[str], tmp_path: Path
) -> None:
    """fused-matmul would hide the scaled product, and channel-affine scale and shift, before the larger pattern is found."""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    found = fuse(tmp_path / "model.onnx", tmp_path / "fused.onnx", LIBRARY, Options())
    assert found.verdict.verdict == "equivalent"
    assert [rewrite.pattern for rewrite in found.rewrites] == patterns


def test_a_late_pattern_is_found_where_nothing_else_is(tmp_path: Path) -> None:
    text = MASKED.replace("w = Where(g, r, zero) y = MatMul(w, v)", "y = MatMul(c, v)")
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    found = fuse(tmp_path / "model.onnx", tmp_path / "fused.onnx", LIBRARY, Options())
    assert {rewrite.pattern for rewrite in found.rewrites} == {"fused-matmul"}


NEARLY = """<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 4] x, float[4, 3] w) => (float[n, 3] y) <float half = {0.5}, float one = {1}, float root = {1.42}> {
  a = Mul(x, half) b = Div(x, root) c = Erf(b) d = Add(c, one) e = Mul(a, d) p = MatMul(e, w) y = Mul(p, half)
}"""


def test_near_misses_are_told_although_a_late_pattern_changes_the_graph(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(NEARLY), tmp_path / "model.onnx")
    found = fuse(tmp_path / "model.onnx", None, LIBRARY, Options(dry_run=True))
    assert [rewrite.pattern for rewrite in found.rewrites] == ["fused-matmul"]
    assert "gelu" in {miss.pattern for miss in found.near_misses}


FREED = """<ir_version: 8, opset_import: ["" : 17]>
g (float[B, 4, 8] x, float[B, 4, 3] v) => (float[B, 8, 3] y, float[4, B, 8] z) {
  t = Transpose<perm = [0, 2, 1]>(x) y = MatMul(t, v) z = Transpose<perm = [2, 0, 1]>(t)
}"""


def test_what_a_late_pattern_frees_is_found_in_the_same_run(tmp_path: Path) -> None:
    """The product no longer reads the transposed value, so both Transposes become one."""
    onnx.save(onnx.parser.parse_model(FREED), tmp_path / "model.onnx")
    found = fuse(tmp_path / "model.onnx", tmp_path / "fused.onnx", LIBRARY, Options())
    assert [rewrite.pattern for rewrite in found.rewrites] == ["fused-matmul", "rearrange-rearrange"]
    assert not fuse(tmp_path / "fused.onnx", None, LIBRARY, Options(dry_run=True)).rewrites


ZEROS = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2, 2] x) => (float[2, 2] y) <int64[2] shape = {4, 4}, int64[1] three = {3}, int64[1] one = {1}, int64[1] zero = {0}> {
  z = ConstantOfShape(shape) a = Slice(z, one, three, zero) b = Slice(a, one, three, one) y = Add(x, b)
}"""


def test_what_is_moved_from_constants_is_computed_in_advance_and_not_fused(tmp_path: Path) -> None:
    """The fusion would be gone in the output, and as everything is zero, nothing could show it to be right."""
    onnx.save(onnx.parser.parse_model(ZEROS), tmp_path / "model.onnx")
    result = fuse(tmp_path / "model.onnx", tmp_path / "fused.onnx", LIBRARY, Options())
    assert result.verdict.verdict == "equivalent" and not result.rewrites and not result.undone
    assert [node.op_type for node in onnx.load(tmp_path / "fused.onnx").graph.node if node.op_type != "Constant"] == ["Add"]


ABSOLUTE = """id: absolute
summary: The absolute value of an absolute value
match: |
  y = Abs(Abs(x))
replace:
  standard: |
    y = Abs(x)
example:
  x: float32[2, 8]
"""


@pytest.mark.parametrize("length", [4, 16])
def test_rounds_that_do_not_come_to_an_end_are_told(length: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round halves the chain. After two of them something is left of 16, and nothing of 4."""
    monkeypatch.setattr("onnx_subgraph.rewriting.rounds.MOST_ROUNDS", 2)
    (tmp_path / "absolute.yaml").write_text(ABSOLUTE)
    model = tmp_path / "model.onnx"
    chain = " ".join(f"v{number + 1} = Abs(v{number})" for number in range(length))
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[2, 8] v0) => (float[2, 8] v{length}) {{ {chain} }}'
    onnx.save(onnx.parser.parse_model(text), model)
    result = fuse(model, None, load_patterns([tmp_path]), Options(only=("absolute",), dry_run=True))
    assert result.verdict.verdict == "equivalent" and (result.nodes_after > 1) is (length > 4)
    told = {(skip.pattern, skip.reason) for skip in result.skipped}
    assert told == (
        {("absolute", "after 2 rounds of matching and rewriting it could be replaced again")} if length > 4 else set()
    )
    assert all("matches its own replacement" in skip.change for skip in result.skipped)


def test_a_model_is_simplified_though_rounds_do_not_come_to_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnx_subgraph.rewriting.rounds.MOST_ROUNDS", 1)
    (tmp_path / "absolute.yaml").write_text(ABSOLUTE)
    model, fused = tmp_path / "model.onnx", tmp_path / "fused.onnx"
    chain = " ".join(f"v{number + 1} = Abs(v{number})" for number in range(16))
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[2, 8] v0) => (float[2, 8] y) <float one = {{1}}>
      {{ {chain} t = Mul(v16, one) y = Neg(t) }}"""
    onnx.save(onnx.parser.parse_model(text), model)
    fuse(model, fused, load_patterns([tmp_path]), Options())
    operators = [node.op_type for node in onnx.load(fused).graph.node]
    assert operators.count("Abs") > 1 and "Mul" not in operators
