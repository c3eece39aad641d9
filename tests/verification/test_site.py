"""Each rewrite is checked alone: wrong ones are found, more accurate ones are allowed, and undecidable ones have a reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnx_subgraph import FuseResult, Options, fuse, load_patterns
from onnx_subgraph.verification import side, site
from onnx_subgraph.verification.accuracy import accuracy
from tests.verification.models import write
from tests.verification.planted import BRANCH, FLAT, GELU, NORM, SOFTPLUS, layers, patterns

SAMPLES = Path(__file__).parents[2] / "sample_models"


def held(model: Path, only: tuple[str, ...], *packs: Path) -> FuseResult:
    return fuse(model, None, load_patterns(packs), Options(only=only, sites=True, dry_run=True))


def test_a_more_accurate_fusion_is_never_wrong() -> None:
    exact = np.linspace(-3, 3, 24)
    unfused, fused = (exact * 1.01).astype(np.float32), exact.astype(np.float32)
    assert accuracy(fused, unfused, exact).holds
    assert not accuracy(unfused, fused, exact).holds


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
def test_an_error_of_a_thousandth_is_found_for_results_of_any_size(size: float) -> None:
    exact = np.linspace(-3, 3, 24) * size
    unfused, wrong = exact.astype(np.float32), (exact * 1.001).astype(np.float32)
    assert accuracy(unfused, unfused, exact).holds
    assert not accuracy(wrong, unfused, exact).holds


def test_a_fusion_that_avoids_an_overflow_is_right(tmp_path: Path) -> None:
    """e^100 is infinite in float32 but not in float64, and no kernel of Softplus computes it."""
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[n, 8] x) => (float[n, 8] y) <float one = {1.0}, float hundred = {100.0}> {
      far = Add (x, hundred)
      power = Exp (far)
      sum = Add (one, power)
      y = Log (sum)
    }
    """
    (undone,) = held(write(tmp_path / "m.onnx", text), ("steady-softplus",), patterns(tmp_path, SOFTPLUS)).undone
    assert undone.found == "model", "its output is another one, so it is not the same model"
    assert undone.site is not None and undone.site.holds, "and yet the fusion is not what is wrong"
    assert undone.site.fused < undone.site.unfused


@pytest.mark.parametrize("end", ["Identity", "Sign"])
def test_a_wrong_fusion_is_found_even_if_the_end_of_the_network_hides_it(tmp_path: Path, end: str) -> None:
    model = layers(tmp_path / "m.onnx", [1e-5, 1e-2, 1e-5], end)
    pack = patterns(tmp_path, NORM)
    result = held(model, ("forgetful-norm",), pack)
    (undone,) = result.undone
    assert (undone.rewrite.root, undone.found, undone.output) == ("g1", "site", "g1")
    assert undone.original is not None and undone.original < undone.bound < undone.error
    assert [check.rewrite.root for check in result.sites] == ["g0", "g2"]
    assert all(check.accuracy is not None and check.accuracy.holds for check in result.sites)


@pytest.mark.parametrize("name", ["bert_torchscript", "llama_float16_dynamo", "mobilenet_v3_dynamo"])
def test_every_fusion_of_real_exports_can_be_checked_and_is_right(name: str) -> None:
    result = held(SAMPLES / f"{name}.onnx", ())
    assert len(result.sites) == len(result.rewrites) > 5 and not result.undone
    assert [check.unknown for check in result.sites if check.accuracy is None] == []


SHOWN = """
id: shown
summary: A mask whose hidden scores are numbers
match: |
  y = Where(mask, x, -inf) + 1
replace:
  standard: y = Where(mask, x, -60.0) + 1
example: {x: "float32[2, 8]", mask: "bool[8]"}
"""


@pytest.mark.parametrize("least", [1e6, -1e6], ids=["a branch that no run takes", "a branch that every run takes"])
def test_an_infinite_constant_stays_infinite(tmp_path: Path, least: float) -> None:
    """Where the truth is infinite because of an overflow, any result would do. Here it is a hidden score."""
    text = f"""
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[n, 8] x, bool[8] mask) => (float[n, 8] y) <float one = {{1.0}}, float zero = {{0.0}}, float least = {{{least}}}> {{
      most = ReduceMax <keepdims = 0> (x)  c = Greater (most, least)  endless = Div (one, zero)  hidden = Neg (endless)
      y = If (c) <then_branch = t () => (float[n, 8] u) {{ w = Where (mask, x, hidden) a = Add (w, one) u = Softmax (a) }},
                  else_branch = e () => (float[n, 8] v) {{ v = Neg (x) }}>
    }}
    """
    result = held(write(tmp_path / "m.onnx", text), ("shown",), patterns(tmp_path, SHOWN))
    (undone,) = result.undone
    assert (undone.found, undone.output, undone.problem) == ("site", "a", "is -59, not -inf")


LOGARITHM = """
id: logarithm
summary: A power by its logarithm, which is NaN for negative numbers
match: |
  y = Exp(Log(x)) * z
replace:
  standard: y = x * z
ASSUMES
example: {x: "float32[2, 8]", z: "float32[2, 8]"}
"""


@pytest.mark.parametrize("least", [1e6, -1e6], ids=["a branch that no run takes", "a branch that every run takes"])
def test_a_result_without_a_number_stays_so(tmp_path: Path, least: float) -> None:
    """Both branches hide it in the end, and another end would not."""
    text = f"""
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[n, 8] x, float[n, 8] z) => (float[n, 8] y) <float zero = {{0.0}}, float least = {{{least}}}> {{
      most = ReduceMax <keepdims = 0> (x)  c = Greater (most, least)
      y = If (c) <then_branch = t () => (float[n, 8] u) {{
                    l = Log (x) e = Exp (l) a = Mul (e, z) n = Less (x, zero) u = Where (n, zero, a) }},
                  else_branch = e () => (float[n, 8] v) {{ v = Neg (x) }}>
    }}
    """
    model, only = write(tmp_path / "m.onnx", text), ("logarithm",)
    (undone,) = held(model, only, patterns(tmp_path, LOGARITHM.replace("ASSUMES\n", ""))).undone
    assert (undone.found, undone.output) == ("site", "a") and undone.problem.endswith(", not nan")
    kept = fuse(model, None, load_patterns([tmp_path / "pack"]), Options(only=only, fix_overflows=True, dry_run=True))
    assert not kept.undone and kept.verdict.verdict == "equivalent"
    assuming = held(model, only, patterns(tmp_path / "assuming", LOGARITHM.replace("ASSUMES", "assumes: finite")))
    assert not assuming.undone and [check.proved for check in assuming.sites] == [True]


SHARE = """
id: share
summary: A Softmax that is right where its own definition overflows
match: |
  e = Exp(x)
  y = e / ReduceSum(e, axes=[-1])
replace:
  standard: y = Softmax(x, axis=-1)
example: {x: "float32[2, 8]"}
"""


def test_what_overflows_even_in_float64_may_become_a_number(tmp_path: Path) -> None:
    """e^800 is infinite in float64. The network hides the rows that have it."""
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[n, 2, 8] x) => (float[n, 2, 8] y) <float zero = {0.0}, float most = {80.0}, float[2, 1] far = {1, 9999}> {
      f = Mul (x, far)  e = Exp (f)  s = ReduceSum <keepdims = 1> (e, last)  p = Div (e, s)
      m = ReduceMax <axes = [-1]> (f)  h = Greater (m, most)  y = Where (h, zero, p)
    }
    """
    model = write(tmp_path / "m.onnx", text, last=np.array([-1]))
    result = held(model, ("share",), patterns(tmp_path, SHARE))
    assert not result.undone and [check.proved for check in result.sites] == [True]


STEEP = """
id: steep
summary: A sigmoid that overflows as it did before
match: |
  y = Abs(Exp(x) / (1 + Exp(x)))
replace:
  standard: |
    e = Exp(x)
    y = e / (e + {one})
example: {{x: "float32[2, 8]"}}
"""


@pytest.mark.parametrize("one", [1.0, 1.1])
def test_an_overflow_may_stay_as_it_was(tmp_path: Path, one: float) -> None:
    """e^100 is infinite in float32, where infinity by infinity is NaN. In float64 the quotient is 1."""
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[n] x) => (float[n] y) <float one = {1.0}> {
      power = Exp (x)  sum = Add (one, power)  part = Div (power, sum)  y = Abs (part)
    }
    """
    feeds = tmp_path / "feeds.npz"
    np.savez(feeds, x=np.linspace(-100, 100, 16, dtype=np.float32))
    options = Options(only=("steep",), inputs=feeds, sites=True, dry_run=True)
    pack = patterns(tmp_path, STEEP.format(one=one))
    result = fuse(write(tmp_path / "m.onnx", text), None, load_patterns([pack]), options)
    assert [check.proved for check in result.sites] == [True] * (one == 1)
    assert [undone.found for undone in result.undone] == ["site"] * (one != 1)


COUNTED = """
id: counted
summary: Whether something is not less than a number
match: |
  y = Not(Less(Floor(k * x), 2))
where: k.is_constant
replace:
  standard: y = GreaterOrEqual(Floor(k * x), 2.0)
example: {x: "float32[2, 8]", k: 0.0204}
"""


def test_what_a_rounding_decides_may_be_as_in_the_original(tmp_path: Path) -> None:
    """98 times the float32 number next to 1/49 is 2 in float32, and less in float64."""
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[n] x) => (bool[n] y) <float two = {2.0}> {
      m = Mul (x, k)  f = Floor (m)  less = Less (f, two)  y = Not (less)
    }
    """
    model, feeds = write(tmp_path / "m.onnx", text, k=np.array(1 / 49, np.float32)), tmp_path / "feeds.npz"
    np.savez(feeds, x=np.arange(100, dtype=np.float32))
    options = Options(only=("counted",), inputs=feeds, dry_run=True)
    result = fuse(model, None, load_patterns(patterns(tmp_path, COUNTED)), options)
    assert not result.undone and [rewrite.pattern for rewrite in result.rewrites] == ["counted"]


@pytest.mark.parametrize("number", [17, 19], ids=["float8e4m3fn", "float8e5m2"])
def test_a_result_of_eight_bits_is_compared(tmp_path: Path, number: int) -> None:
    pack = patterns(
        tmp_path,
        f"""
id: positive
summary: The absolute value of a positive number
match: |
  y = Cast(Abs(Exp(x)), to={number})
replace:
  standard: y = Cast(Exp(x), to={number})
example: {{x: "float32[2, 8]"}}
""",
    )
    text = f"""
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[n, 8] x) => (float[n, 8] y) {{ e = Exp (x)  a = Abs (e)  c = Cast <to = {number}> (a)  y = Cast <to = 1> (c) }}
    """
    result = held(write(tmp_path / "m.onnx", text), ("positive",), pack)
    assert not result.undone and [check.proved for check in result.sites] == [True]


def test_a_fusion_inside_a_body_is_checked_on_random_values(tmp_path: Path) -> None:
    model = write(tmp_path / "m.onnx", BRANCH)
    checks = held(model, ("gelu",)).sites
    assert {(check.rewrite.place.scope, check.values, check.proved) for check in checks} == {
        ("z.then_branch", "drawn", True),
        ("", "flowing", True),
    }


def test_dependent_values_are_not_drawn_independently(tmp_path: Path) -> None:
    """The second replacement reads a value of the first, before it is reshaped back to four axes.

    The replaced nodes read all four.

    The original model does not have that value, so it is computed by the first replacement.
    """
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[2, 3, 4, 5] x) => (float[2, 3, 4, 5] y) <float root = {1.4142135}, float one = {1.0}, float half = {0.5}> {
      r = Div (x, root)
      e = Erf (r)
      a = Add (e, one)
      p = Mul (x, a)
      g = Mul (p, half)
      s = Sigmoid (g)
      y = Mul (g, s)
    }
    """
    gelu = FLAT.format(name="gelu", formula="0.5 * x * (1 + Erf(x / sqrt(2)))", operator="Gelu", rest="")
    silu = FLAT.format(name="silu", formula="x * Sigmoid(x)", operator="QuickGelu", rest=", alpha=1.0")
    result = held(write(tmp_path / "m.onnx", text), ("flat-gelu", "flat-silu"), patterns(tmp_path, gelu, silu))
    assert [rewrite.pattern for rewrite in result.rewrites] == ["flat-gelu", "flat-silu"]
    assert [(check.values, check.proved) for check in result.sites] == [("flowing", True)] * 2


STEPS = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[B, 2, N, 4] q, float[B, N, 4] k, float[B, N, 4] v) => (float[B, 2, N, 4] y) <float s = {0.5}> {
  scores = Einsum<equation = "bhid,bjd->bhij">(q, k)
  scaled = Mul(scores, s)
  p = Softmax<axis = -1>(scaled)
  y = Einsum<equation = "bhij,bjd->bhid">(p, v)
}
"""
TAKEN = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[B, N, 8] q, float[B, N, 4] k, float[B, N, 4] v) => (float[B, N, 8] y)
  <float s = {0.5}, float least = {-3.4e38}, float one = {1.0},
   int64[4] apart = {0, 0, 2, 4}, int64[3] whole = {0, 0, 8}> {
  heads = Reshape(q, apart)
  by_heads = Transpose<perm = [0, 2, 1, 3]>(heads)
  n = Shape<start = 1, end = 2>(q)
  square = Concat<axis = 0>(n, n)
  ones = Expand(one, square)
  above = Trilu(ones)
  hidden = Cast<to = 9>(above)
  scores = Einsum<equation = "bhid,bjd->bhij">(by_heads, k)
  scaled = Mul(scores, s)
  masked = Where(hidden, least, scaled)
  p = Softmax<axis = -1>(masked)
  o = Einsum<equation = "bhij,bjd->bhid">(p, v)
  back = Transpose<perm = [0, 2, 1, 3]>(o)
  y = Reshape(back, whole)
}
"""
ROW = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[B, 8, 4] x, float[4, 4] w) => (float[B, 4] y)
  <float root = {1.4142135}, float one = {1.0}, float half = {0.5},
   int64[1] zero = {0}, int64[1] one_row = {1}, int64[2] shape = {0, 4}> {
  s = MatMul(x, w)
  t = Add(s, x)
  r = Div (t, root)
  e = Erf (r)
  a = Add (e, one)
  p = Mul (t, a)
  g = Mul (p, half)
  first = Slice(g, zero, one_row, one_row)
  y = Reshape(first, shape)
}
"""


@pytest.mark.parametrize(
    ("text", "only", "pattern"),
    [(STEPS, ("fused-matmul",), "fused-matmul"), (TAKEN, (), "multi-head-attention"), (ROW, (), "gelu")],
    ids=["a step of an Einsum", "a step that a later rewrite takes", "the one row that is read of a value"],
)
def test_what_a_change_that_is_no_rewrite_added_is_captured_after_it(
    tmp_path: Path, text: str, only: tuple[str, ...], pattern: str
) -> None:
    """The original model does not have it."""
    checks = held(write(tmp_path / "m.onnx", text), only).sites
    assert checks[0].rewrite.pattern == pattern
    assert all((check.values, check.proved) == ("flowing", True) for check in checks)


SWOLLEN = """
id: swollen-product
summary: A product whose factor grows by a hundredth
match: y = 0.5 * (a @ b)
replace:
  onnxruntime: y = com.microsoft.FusedMatMul(a, b, alpha=0.505)
example: {a: "float32[2, 3, 4]", b: "float32[2, 4, 5]"}
"""


def test_a_wrong_fusion_of_what_another_change_added_is_found_where_it_is(tmp_path: Path) -> None:
    result = held(write(tmp_path / "m.onnx", STEPS), ("swollen-product",), patterns(tmp_path, SWOLLEN))
    (undone,) = result.undone
    assert (undone.rewrite.pattern, undone.found, result.verdict.verdict) == ("swollen-product", "site", "equivalent")


def test_a_replacement_that_does_not_run_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = side.open_session

    def refuse(proto: bytes, provider: str, *, optimised: bool) -> object:
        return side.Failure("no such kernel") if b"FastGelu" in proto else opened(proto, provider, optimised=optimised)

    monkeypatch.setattr(side, "open_session", refuse)
    result = held(layers(tmp_path / "m.onnx", [1e-5]), ("sloppy-gelu",), patterns(tmp_path, GELU))
    (undone,) = result.undone
    assert undone.problem.startswith("does not run on ") and undone.problem.endswith(": no such kernel")


@pytest.mark.parametrize("size", [1, 2, 100])
def test_checking_in_batches_gives_the_same_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    model = layers(tmp_path / "m.onnx", [1e-5] * 3)
    once = held(model, ("layer-normalization", "gelu")).sites
    monkeypatch.setattr(site, "FIRST_BATCH", size)
    monkeypatch.setattr(site, "BATCH_BYTES", size * 1000)
    assert held(model, ("layer-normalization", "gelu")).sites == once


def test_weights_in_external_data_are_found(tmp_path: Path) -> None:
    import onnx

    inside = layers(tmp_path / "m.onnx", [1e-5, 1e-2])
    outside = tmp_path / "outside.onnx"
    onnx.save(onnx.load(inside), outside, save_as_external_data=True, location="weights.bin", size_threshold=0)
    pack = patterns(tmp_path, NORM)
    found, expected = (held(model, ("forgetful-norm", "gelu"), pack) for model in (outside, inside))
    assert found.undone == expected.undone and found.sites == expected.sites and found.sites
