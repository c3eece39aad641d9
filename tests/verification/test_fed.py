"""Random results of a model are found by running it twice, if it has operators that may be random."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from onnx_subgraph import Options, fuse, load_patterns, verify
from onnx_subgraph.verification import fed
from onnx_subgraph.verification.case import Case
from onnx_subgraph.verification.sessions import Session
from onnx_subgraph.verification.verdict import Verdict

TEXT = """
<ir_version: 8, opset_import: ["" : 17, "{domain}" : 1]>
g (float[4] x) => (float[4] y) {{ y = {domain}{dot}Relu (x) }}
"""


@pytest.mark.parametrize(("domain", "runs"), [("", 0), ("made.up", 1)])
def test_a_model_is_run_twice_only_if_an_operator_is_unknown(domain: str, runs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = TEXT.format(domain=domain, dot="." if domain else "").replace(', "" : 1', "")
    made: list[object] = []

    def run(session: Session, feeds: object) -> dict[str, np.ndarray]:
        made.append(feeds)
        return {"y": np.ones(4, np.float32)}

    monkeypatch.setattr(fed, "run", run)
    case = Case({}, 0, {"x": np.ones(4, np.float32)}, {"y": np.ones(4, np.float32)})
    session = Session(None, ("y",))
    found = fed.fed(ir.from_proto(onnx.parser.parse_model(text)), session, [case], lambda model: session)
    assert isinstance(found, fed.Fed) and len(made) == runs


RENAMED = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[4, 8] x) => (float[4, 8] y, float[4, 8] z)
<float root = {1.4142135}, float one = {1}, float half = {0.5}> {
  [div] d = Div (x, root) [erf] e = Erf (d) [add] s = Add (e, one) [mul] p = Mul (x, s) [out] y = Mul (p, half)
  [draw] r = OPERATOR (y) [pass] z = Identity (r)
}
"""


@pytest.mark.parametrize("operator", ["RandomNormalLike", "Bernoulli"])
def test_a_random_result_with_a_new_name_is_fed_as_well(operator: str, tmp_path: Path) -> None:
    """The Identity goes, and the random node gives the output itself."""
    text = RENAMED.replace("OPERATOR (y)", f"{operator} (u)").replace("[draw]", "[clip] u = Sigmoid (y) [draw]")
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    result = fuse(tmp_path / "model.onnx", tmp_path / "fused.onnx", load_patterns(), Options())
    written = onnx.load(tmp_path / "fused.onnx")
    assert "Identity" not in [node.op_type for node in written.graph.node]
    assert result.verdict.verdict == "equivalent" and not result.undone
    assert [rewrite.pattern for rewrite in result.rewrites] == ["gelu"]


TURNED = """
<ir_version: 8, opset_import: ["" : 19]>
g (float[4, 4] a, float[4, 4] b, float[4] c) => (float[4, 4] y, float[4] z)
<float half = {0.5}, bool train = {1}, int64[1] last = {-1}> {
  s = Transpose <perm = [1, 0]> (a) t = Transpose <perm = [1, 0]> (b) p = Gemm (s, t, c)
  y = Dropout (t, half, train) z = ReduceSum <keepdims = 0> (p, last)
}
"""


@pytest.mark.parametrize("target", ["onnxruntime", "function"])
def test_the_operand_of_a_random_operator_is_compared_without_a_node_of_its_own(target: str, tmp_path: Path) -> None:
    """onnxruntime fuses a Transpose away that only an Identity reads besides a Gemm, and then does not load the model."""
    onnx.save(onnx.parser.parse_model(TURNED), tmp_path / "model.onnx")
    result = fuse(tmp_path / "model.onnx", tmp_path / "fused.onnx", load_patterns(), Options(target=target))
    assert [rewrite.pattern for rewrite in result.rewrites] == ["gemm-transpose"] and result.verdict.verdict == "equivalent"


DRAWING = '<ir_version: 8, opset_import: ["" : 17]> g (float[N, 8] x) => (float[N, 8] y) BODY'
NORMAL = "[r] r = RandomNormalLike (x) y = Add (x, r)"
IN_A_BODY = """c = Constant <value = bool {1}> () [r] r = If (c) <
  then_branch = t () => (float[N, 8] u) { u = RandomNormalLike (x) }, else_branch = e () => (float[N, 8] v) { v = Neg (x) }>
  y = Add (x, r)"""
ROUNDED = "p = Sigmoid (x) [r] r = Bernoulli (p) y = Mul (x, r)"
STORED = f"<float[8] p = {{{', '.join(['0.1'] * 8)}}}> | r = Bernoulli (p) y = Add (x, r)"
SHAPED = "r = RandomNormalLike (x) y = Add (x, r)"
OTHERS = {
    "no random operator": (NORMAL, "[r] r = Constant <value = float[1] {100}> () y = Add (x, r)"),
    "no random operator at an output": ("[y] y = RandomNormalLike (x)", "[y] y = Mul (x, x)"),
    "a rounding": (ROUNDED, ROUNDED.replace("Bernoulli", "Round")),
    "another operator": (NORMAL, NORMAL.replace("Normal", "Uniform")),
    "another scale": (NORMAL, NORMAL.replace("RandomNormalLike", "RandomNormalLike <scale = 3.0>")),
    "another seed": (NORMAL.replace("Like", "Like <seed = 1.0>"), NORMAL.replace("Like", "Like <seed = 2.0>")),
    "a probability that is stored": (STORED, STORED.replace("0.1", "0.9")),
    "another shape": (SHAPED, "h = ReduceSum <keepdims = 0> (x) r = RandomNormalLike (h) y = Add (x, r)"),
    "another operator in a body": (IN_A_BODY, IN_A_BODY.replace("Normal", "Uniform")),
}


def compared(one: str, other: str, folder: Path) -> Verdict:
    for name, text in (("one", one), ("other", other)):
        weights, _, body = text.rpartition("|")
        onnx.save(onnx.parser.parse_model(DRAWING.replace("BODY", f"{weights} {{ {body} }}")), folder / f"{name}.onnx")
    return verify(folder / "one.onnx", folder / "other.onnx")


@pytest.mark.parametrize(("one", "other"), OTHERS.values(), ids=OTHERS)
def test_a_model_that_draws_other_numbers_is_different(one: str, other: str, tmp_path: Path) -> None:
    """The results of the original are not fed in the place of whatever has the same name."""
    verdict = compared(one, other, tmp_path)
    assert verdict.verdict == "different", verdict
    if one not in (STORED, SHAPED):
        assert not verdict.random and verdict.reason.startswith("the candidate draws other numbers than ")
    else:  # the operator is the same, and what it reads differs
        assert {run.output for run in verdict.runs if not run.equal} == {"input 0 of r"}


@pytest.mark.parametrize("body", [NORMAL, ROUNDED, IN_A_BODY])
def test_a_model_that_draws_the_same_is_equivalent(body: str, tmp_path: Path) -> None:
    """A default may be written."""
    other = body.replace("RandomNormalLike (", "RandomNormalLike <scale = 1.0> (")
    verdict = compared(body, other, tmp_path)
    assert verdict.verdict == "equivalent" and len(verdict.random) == 1


BY_REFERENCE = """<ir_version: 8, opset_import: ["" : 17, "my" : 1]> g (float[n, 8] x) => (float[n, 8] y) {
  r = my.F <s = SCALE> (x) y = Add (x, r) }
<opset_import: ["" : 17], domain: "my"> F <s> (a) => (b) { FIRST SECOND b = Add (c, d) }
"""
TWO = ("c = RandomNormalLike <scale : float = @s> (a)", "d = RandomUniformLike (a)")


def test_functions_draw_the_same_in_any_order_and_with_the_attributes_of_the_call(tmp_path: Path) -> None:
    def written(name: str, scale: float, first: str, second: str) -> Path:
        text = BY_REFERENCE.replace("SCALE", str(scale)).replace("FIRST", first).replace("SECOND", second)
        onnx.save(onnx.parser.parse_model(text), tmp_path / name)
        return tmp_path / name

    one = written("one.onnx", 1.0, *TWO)
    assert verify(one, written("other.onnx", 1.0, *reversed(TWO))).verdict == "equivalent"
    verdict = verify(one, written("scaled.onnx", 2.0, *TWO))
    assert verdict.verdict == "different" and verdict.reason.startswith("the candidate draws other numbers than ")


SHIFTED = "t = Sub (x, mean) s = Mul (t, t) r = RandomNormalLike (s) y = Add (s, r)"


def test_the_truth_of_a_random_model_has_the_numbers_that_it_drew(tmp_path: Path) -> None:
    """Otherwise the original itself would seem inaccurate, and large inputs would not be compared."""
    other = SHIFTED.replace("t = Sub (x, mean)", "c = Clip (x, low) t = Sub (c, mean)")
    weights = "mean = Constant <value = float {1}> () low = Constant <value = float {-60}> ()"
    verdict = compared(f"{weights} {SHIFTED}", f"{weights} {other}", tmp_path)
    assert verdict.verdict == "different", verdict


def test_how_far_optimisation_moves_a_random_model_is_measured_on_the_same_numbers(tmp_path: Path) -> None:
    """Otherwise other random numbers would count as rounding, which large noise has a lot of."""
    noise = "r = RandomNormalLike <scale = 1000.0> (x) y = Add (c, r)"
    constants = "zero = Constant <value = float {0}> () six = Constant <value = float {6}> ()"
    verdict = compared(f"c = Relu (x) {noise}", f"{constants} c = Clip (x, zero, six) {noise}", tmp_path)
    assert verdict.verdict == "different", verdict
