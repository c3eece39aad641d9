"""`fuse` on a model with a wrong fusion: it is reported and undone, and the other fusions stay. `--strict` writes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import jsonschema
import onnx
import pytest

from tests.cli.conftest import PLAIN, ROOT, Run, save
from tests.verification.planted import NORM, layers, patterns

SCHEMA = json.loads((ROOT / "docs" / "report.schema.json").read_text(encoding="utf-8"))


@pytest.fixture
def arguments(tmp_path: Path) -> list[object]:
    """Twelve layers, the eighth with another epsilon, and a wrong pattern that ignores the epsilon."""
    model = layers(tmp_path / "m.onnx", [1e-5] * 7 + [1e-2] + [1e-5] * 4)
    return ["fuse", model, "--patterns", patterns(tmp_path, NORM), "--only", "forgetful-norm,gelu"]


@pytest.mark.parametrize("quiet", [[], ["-q"]], ids=["", "quiet"])
def test_one_wrong_site_of_twelve_layers_is_named_and_undone(
    run: Run, arguments: list[object], quiet: list[str], tmp_path: Path
) -> None:
    result = run(*arguments, *quiet)
    assert result.code == 0
    assert result.err.startswith(f"Warning: {tmp_path / 'm.onnx'}: forgetful-norm at g7 is undone: its result g7 is 0.00")
    assert "from the truth; " in result.err and len(result.err.splitlines()) == 1
    assert "Not equivalent, and undone" in result.out and "23 fusions" in result.out
    assert "Each fusion by itself" not in result.out
    operators = [node.op_type for node in onnx.load(tmp_path / "m.fused.onnx").graph.node]
    assert (operators.count("LayerNormalization"), operators.count("Gelu")) == (11, 12)


def test_the_search_for_the_wrong_site_is_told(run: Run, arguments: list[object]) -> None:
    """In a slow model it takes many verifications."""
    assert "the outputs differ: which rewrite changes them?" in run(*arguments, "-v", "--dry-run").err


NOUGHT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 2, 4, 4] x) => (float[n, 2, 4, 4] y) <float[2, 2, 1, 1] w = {1, 2, 3, 4}, float[1, 2, 1, 1] beta = {0, 0}> {
  c = Conv(x, w) b = Mul(c, beta) y = Add(x, b)
}"""


def test_what_nothing_shows_to_be_right_is_not_called_different(run: Run, tmp_path: Path) -> None:
    """As in NAFNet before it is trained: the factor behind each convolution is 0."""
    result = run("fuse", save(NOUGHT, tmp_path / "m.onnx"))
    assert result.code == 0 and "conv-affine at b is undone: nothing shows it to be right" in result.err
    assert "Not shown to be right, and undone" in result.out and "Not equivalent" not in result.out


def test_an_error_is_planted_at_one_place_alone(run: Run, tmp_path: Path) -> None:
    """Another convolution, whose factor is not 0, shows nothing of the first."""
    text = NOUGHT.replace("y)", "y, float[n, 2, 4, 4] z)", 1).replace("{0, 0}>", "{0, 0}, float[1, 2, 1, 1] gamma = {2, 3}>")
    text = text.replace("y = Add(x, b)", "y = Add(x, b) d = Conv(x, w) z = Mul(d, gamma)")
    answer = run("fuse", save(text, tmp_path / "m.onnx"), "--json").json
    assert [one["node"] for one in answer["undone"]] == ["b"]
    assert [one["pattern"] for one in answer["fusions"]] == ["conv-affine"]


def test_sites_that_are_wrong_in_the_same_way_are_told_once(run: Run, tmp_path: Path) -> None:
    model = layers(tmp_path / "m.onnx", [1e-5, 1e-2, 1e-2, 1e-5, 1e-2])
    result = run("fuse", model, "--patterns", patterns(tmp_path, NORM), "--only", "forgetful-norm,gelu", "--json")
    (warning,) = result.err.splitlines()
    assert "forgetful-norm at g1 and 2 other places is undone: its result g1 is 0.0" in warning
    assert [one["node"] for one in result.json["undone"]] == ["g1", "g2", "g4"]


def test_strict_writes_nothing(run: Run, arguments: list[object], tmp_path: Path) -> None:
    result = run(*arguments, "--strict")
    assert result.code == 1
    assert "forgetful-norm at g7 is undone" in result.err and "nothing written" in result.out
    assert not (tmp_path / "m.fused.onnx").exists()


def test_the_object_names_the_site_the_error_and_the_bound(run: Run, arguments: list[object]) -> None:
    result = run(*arguments, "--json", "--sites")
    jsonschema.validate(result.json, SCHEMA)
    (undone,) = result.json["undone"]
    assert (undone["pattern"], undone["node"], undone["found"], undone["output"]) == ("forgetful-norm", "g7", "site", "g7")
    assert undone["original"] < undone["bound"] < undone["error"] and undone["replaces"][-1] == "g7"
    sites = result.json["sites"]
    assert len(sites) == 23 and all(site["holds"] and site["error"] <= site["bound"] for site in sites)


def test_the_table_has_a_row_for_every_fusion(run: Run, arguments: list[object]) -> None:
    out = run(*arguments, "--sites").out
    table = out[out.index("Each fusion by itself") :]
    rows = [line for line in table.splitlines() if line.startswith(("gelu ", "forgetful-norm "))]
    assert len(rows) == 23 and all(row.endswith(" yes") for row in rows)


@pytest.mark.parametrize("option", ["--strict", "--sites"])
def test_without_verification_no_fusion_is_undone(run: Run, arguments: list[object], option: str) -> None:
    result = run(*arguments, "--no-verify", option)
    assert result.code == 2 and "--no-verify" in result.err


def test_an_undone_fusion_is_in_the_annotations_of_ci(run: Run, arguments: list[object], tmp_path: Path) -> None:
    junit, summary = tmp_path / "junit.xml", tmp_path / "summary.md"
    files = ["--junit", junit, "--summary", summary, "--annotations"]
    lenient = run(*arguments, *files)
    assert 'failures="0"' in junit.read_text() and "forgetful-norm at g7 is undone" in summary.read_text()
    assert "::warning" in lenient.out + lenient.err
    strict = run(*arguments, *files, "--strict")
    assert "fusion: forgetful-norm at g7" in junit.read_text() and "not written: 1 wrong fusion" in summary.read_text()
    assert "::error" in strict.out + strict.err


BATCHES = """<ir_version: 10, opset_import: ["" : 21]>
g (float[A, 4, S, 8] q, float[B, 4, T, 8] k, float[C, 4, T, 8] v, float[D, 1, S, T] mask) => (float[E, 4, S, 8] y) {
  t = Transpose<perm = [0, 1, 3, 2]> (k) s = MatMul (q, t) c = Constant<value_float = 0.35> () m = Mul (s, c)
  a = Add (m, mask) p = Softmax<axis = -1> (a) y = MatMul (p, v)
}"""


@pytest.fixture
def batches(tmp_path: Path) -> Path:
    """Attention whose mask may have a larger batch than the queries: MatMul broadcasts, the operator Attention does not."""
    onnx.save(onnx.parser.parse_model(BATCHES), tmp_path / "batches.onnx")
    return tmp_path / "batches.onnx"


def test_a_fusion_that_fails_where_one_of_two_batches_is_one_is_undone(run: Run, batches: Path) -> None:
    result = run("fuse", batches, "--target", "standard", "--prefer", "fusion")
    assert result.code == 0 and "multi-head-attention at y is undone: it does not run on " in result.err
    assert "k of shape [1, " in result.err and "q of shape [2, " in result.err
    assert "/onnxruntime_src/" not in result.err, "a line of onnxruntime's source is no reason"


def test_with_the_shapes_that_a_user_gives_it_is_kept(run: Run, batches: Path) -> None:
    shapes = [f"--shape={name}=2x{rest}" for name, rest in [("q", "4x7x8"), ("k", "4x5x8"), ("v", "4x5x8"), ("mask", "1x7x5")]]
    result = run("fuse", batches, "--target", "standard", "--prefer", "fusion", *shapes)
    assert result.code == 0 and not result.err and "multi-head-attention" in result.out


@pytest.fixture
def relu_six(tmp_path: Path) -> list[object]:
    """The options for a pattern that is wrong for large values."""
    text = """
      id: relu-six
      summary: Relu as a Clip at 6
      match: y = Relu(x)
      replace: {standard: "y = Clip(x, 0.0, 6.0)"}
      example: {x: "float32[2, 8]"}
    """
    (tmp_path / "relu_six.yaml").write_text(dedent(text))
    return ["--patterns", tmp_path / "relu_six.yaml", "--only", "relu-six", "--target", "standard"]


def test_a_pattern_that_is_wrong_for_large_values_is_undone(run: Run, relu_six: list[object], tmp_path: Path) -> None:
    result = run("fuse", save(PLAIN.replace("y = Abs (x)", "z = Relu (x) y = Sin (z)"), tmp_path / "m.onnx"), *relu_six)
    assert result.code == 0 and "relu-six at z is undone" in result.err
    assert [node.op_type for node in onnx.load(tmp_path / "m.fused.onnx").graph.node] == ["Relu", "Sin"]


def test_a_pattern_that_is_wrong_at_one_place_is_undone_where_only_other_values_would_show_it(
    run: Run, relu_six: list[object], tmp_path: Path
) -> None:
    """No value of this model reaches 6 at `z`: it is the Relu of a sine."""
    model = save(PLAIN.replace("y = Abs (x)", "r = Relu (x) s = Sin (r) z = Relu (s) y = Cos (z)"), tmp_path / "m.onnx")
    result = run("fuse", model, *relu_six)
    assert result.code == 0 and "relu-six at r is undone" in result.err
    assert "relu-six at z is undone: on drawn values, its result z is " in result.err
    assert [node.op_type for node in onnx.load(tmp_path / "m.fused.onnx").graph.node] == ["Relu", "Sin", "Relu", "Cos"]


def test_a_lowering_that_is_wrong_at_one_place_is_replaced_where_only_other_values_would_show_it(
    run: Run, tmp_path: Path
) -> None:
    """No value of this model reaches 6 at `z`: it is the GELU of a sine. The operator's own lowering is right at both places."""
    (tmp_path / "low.yaml").write_text("lowers: Gelu\nsummary: Bounded\nonnxruntime: y = Min(com.microsoft.Gelu(x), 6.0)\n")
    gelu = "{0}u = Div({1}, root) {0}e = Erf({0}u) {0}s = Add({0}e, one) {0}p = Mul({1}, {0}s) {0} = Mul({0}p, half)"
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[n, 8] x) => (float[n, 8] y)
      <float half = {{0.5}}, float one = {{1}}, float root = {{1.4142135}}, float many = {{9}}> {{
      l = Mul(x, many) {gelu.format("r", "l")} s = Sin(r) {gelu.format("z", "s")} y = Cos(z) }}"""
    result = run("fuse", save(text, tmp_path / "m.onnx"), "--patterns", tmp_path / "low.yaml", "--only", "gelu")
    first, second = result.err.splitlines()
    assert result.code == 0 and f"gelu at r is undone: as in {tmp_path / 'low.yaml'}, its result r is " in first
    assert f"gelu at z is undone: as in {tmp_path / 'low.yaml'}, on drawn values, its result z is " in second
    assert second.endswith("; it is replaced by com.microsoft.Gelu instead")
    operators = [node.op_type for node in onnx.load(tmp_path / "m.fused.onnx").graph.node]
    assert operators == ["Mul", "Gelu", "Sin", "Gelu", "Cos"]
