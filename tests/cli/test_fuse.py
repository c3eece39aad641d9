"""`fuse` on the command line: which files it writes, the exit codes, and many models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnx_subgraph import __version__
from onnx_subgraph.cli.fused import exit_code
from onnx_subgraph.cli.job import Failure
from onnx_subgraph.cli.outputs import plan_outputs
from onnx_subgraph.errors import ModelError, UsageError
from onnx_subgraph.options import Options
from onnx_subgraph.result import FuseResult
from onnx_subgraph.rewriting import rounds
from onnx_subgraph.rewriting.rewrite import Rewrite
from onnx_subgraph.simplification.simplify import Simplified
from onnx_subgraph.verification.verdict import Verdict
from tests.cli.conftest import GELU, Run, save

BERT = Path(__file__).parents[2] / "sample_models" / "bert_torchscript.onnx"

RESULT = FuseResult(
    model=Path("m.onnx"),
    output=Path("m.fused.onnx"),
    nodes_before=5,
    nodes_after=1,
    opset_before=17,
    opset_after=17,
    target="onnxruntime",
    providers=("CPUExecutionProvider",),
    rewrites=(Rewrite("gelu", "com.microsoft.Gelu", "y", ("a", "b"), 1),),
    near_misses=(),
    skipped=(),
    verdict=Verdict("equivalent"),
    seconds={},
)


# Which files are written


def test_a_model_is_written_beside_itself() -> None:
    assert plan_outputs((Path("a/m.onnx"), Path("n")), None, None) == [Path("a/m.fused.onnx"), Path("n.fused.onnx")]


def test_in_another_folder_files_keep_their_names(tmp_path: Path) -> None:
    assert plan_outputs((Path("a/m.onnx"), Path("n.onnx")), None, tmp_path) == [tmp_path / "m.onnx", tmp_path / "n.onnx"]


def test_no_input_model_is_overwritten(tmp_path: Path) -> None:
    """Also through a link, and where the output of one model is another input."""
    model = tmp_path / "m.onnx"
    model.touch()
    (tmp_path / "link.onnx").symlink_to(model)
    for models, output in [((model,), model), ((model,), tmp_path / "link.onnx"), ((model, tmp_path / "m.fused.onnx"), None)]:
        with pytest.raises(UsageError, match="is read, so it can't be written"):
            plan_outputs(models, output, None)


def test_fusing_all_models_of_a_folder_again_gives_the_same(run: Run, gelu: Path, plain: Path) -> None:
    """The second run skips the outputs of the first, fused and copied. Outputs of outputs are not made either."""
    folder = gelu.parent
    first = run("fuse", *sorted(folder.glob("*.onnx")))
    assert (first.code, first.err) == (0, "")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    again = run("fuse", *sorted(folder.glob("*.onnx")))
    assert again.code == 0
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    for model in (gelu, plain):
        made = model.with_suffix(".fused.onnx")
        assert f"{made}: left out, because an earlier run made it of {model}, which is fused again\n" in again.err
    assert run("fuse", made).code == 0
    chain = run("fuse", *sorted(folder.glob("*.onnx")))
    assert (chain.code, chain.err.count("left out")) == (0, 3)


def test_a_model_that_only_has_an_output_like_name_is_not_overwritten(run: Run, gelu: Path, plain: Path) -> None:
    other = plain.rename(gelu.with_suffix(".fused.onnx"))
    before = other.read_bytes()
    result = run("fuse", gelu, other)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"Error: {other} is read, so it can't be written\n")
    assert other.read_bytes() == before


def test_a_fused_model_names_its_producer_and_a_copy_is_unchanged(run: Run, gelu: Path, plain: Path) -> None:
    assert run("fuse", gelu, plain).code == 0
    (entry,) = onnx.load(gelu.with_suffix(".fused.onnx")).metadata_props
    assert (entry.key, entry.value) == ("onnx_subgraph.written_by", f"onnx-subgraph {__version__}")
    assert plain.with_suffix(".fused.onnx").read_bytes() == plain.read_bytes()


# Exit codes


@pytest.mark.parametrize(
    ("verdict", "verify", "code"),
    [
        (Verdict("equivalent"), True, 0),
        (Verdict("different"), True, 1),
        (Verdict("not-run", reason="no feeds"), True, 2),
        (Verdict("not-run", reason="--no-verify"), False, 0),
    ],
)
def test_the_exit_code_is_the_verdict(verdict: Verdict, verify: bool, code: int) -> None:
    assert exit_code(replace(RESULT, verdict=verdict), verify) == code


def test_a_model_in_which_nothing_fuses_is_a_success() -> None:
    assert exit_code(replace(RESULT, rewrites=(), unchanged=True, verdict=Verdict("not-run")), True) == 0


def test_the_verdict_of_a_copy_is_one_sentence(run: Run, plain: Path) -> None:
    printed = run("fuse", plain).out
    assert "verdict  equivalent: nothing fused, so the file is the original, byte for byte\n" in printed


def test_a_failure_gives_exit_code_2() -> None:
    assert exit_code(Failure("why"), True) == 2


# Many models, with a pipeline whose result depends on the model's name


def answer(
    model: Path, output: Path | None, library: Any, options: Options, progress: Callable[[str], None], accepts: Any = None
) -> FuseResult:
    match model.stem:
        case "broken":
            raise ModelError(f"{model} is no ONNX model")
        case "bug":
            raise KeyError("lost")
        case "different":
            return replace(RESULT, model=model, output=None, verdict=Verdict("different"))
        case _:
            return replace(RESULT, model=model, output=output)


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnx_subgraph.pipeline.fuse", answer)


@pytest.mark.usefixtures("answered")
def test_one_model_is_one_object(run: Run) -> None:
    result = run("fuse", "a.onnx", "--json")
    assert result.code == 0
    assert (result.json["model"], result.json["output"]) == ("a.onnx", "a.fused.onnx")
    assert result.err == ""


@pytest.mark.usefixtures("answered")
def test_several_models_are_a_list_in_their_order_and_a_failure_stops_none_of_them(run: Run) -> None:
    result = run("fuse", "a.onnx", "broken.onnx", "bug.onnx", "b.onnx", "--json")
    assert result.code == 2
    models = result.json["models"]
    assert [model["model"] for model in models] == ["a.onnx", "broken.onnx", "bug.onnx", "b.onnx"]
    assert models[1] == {"model": "broken.onnx", "output": None, "error": "broken.onnx is no ONNX model"}
    assert "Error: broken.onnx is no ONNX model\n" in result.err
    assert "Error: bug.onnx: KeyError: 'lost'\nThis is a bug" in result.err


@pytest.mark.parametrize(
    ("models", "code"), [(["a"], 0), (["a", "different"], 1), (["different", "broken", "a"], 2), (["broken"], 2)], ids=str
)
@pytest.mark.usefixtures("answered")
def test_the_exit_code_is_the_worst(run: Run, models: list[str], code: int) -> None:
    assert run("fuse", *(f"{model}.onnx" for model in models)).code == code


@pytest.mark.usefixtures("answered")
def test_every_option_reaches_the_pipeline(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[Options] = []

    def record(
        model: Path, output: Path | None, library: Any, options: Options, progress: Callable[[str], None], accepts: Any = None
    ) -> FuseResult:
        seen.append(options)
        return answer(model, output, library, options, progress)

    monkeypatch.setattr("onnx_subgraph.pipeline.fuse", record)
    feeds = tmp_path / "feeds.npz"
    np.savez(feeds, x=np.zeros(2))
    run("fuse", "a.onnx")
    assert seen.pop() == Options()
    options = "--target function --provider A --provider B --no-verify --rtol 0.1 --atol 0.2 --seed 3 --shape x=1x2 --shape s="
    assert run("fuse", "a.onnx", *options.split(), "--inputs", feeds, "--opset", "18", "--dry-run").code == 0
    assert seen.pop() == Options(
        target="function",
        providers=("A", "B"),
        verify=False,
        rtol=0.1,
        atol=0.2,
        seed=3,
        shapes={"x": (1, 2), "s": ()},
        inputs=feeds,
        opset="18",
        dry_run=True,
    )


@pytest.mark.usefixtures("answered")
def test_an_output_folder_is_made_and_an_empty_one_is_not_left(run: Run, tmp_path: Path) -> None:
    assert run("fuse", "a.onnx", "--output-dir", tmp_path / "new").code == 0
    assert not (tmp_path / "new").exists()  # the pipeline of this test writes nothing


# With the real pipeline, in this process and in others


def test_a_spelled_out_gelu_is_fused_and_the_original_is_untouched(run: Run, gelu: Path) -> None:
    import onnxruntime

    before = gelu.read_bytes()
    result = run("fuse", gelu, "--json")
    assert (result.code, result.err) == (0, "")
    assert result.json["verification"]["verdict"] == "equivalent"
    assert [fusion["op"] for fusion in result.json["fusions"]] == ["com.microsoft.Gelu"]
    assert result.json["output"] == str(gelu.with_name("gelu.fused.onnx"))
    onnxruntime.InferenceSession(result.json["output"], providers=["CPUExecutionProvider"])
    assert gelu.read_bytes() == before


BEFORE_A_PRODUCT = """
<ir_version: 8, opset_import: ["" : 17]>
m (float[batch, 2] x) => (float[batch, 2] y)
<float root = {1.4142135}, float one = {1}, float half = {0.5}, float[2, 2] w = {1, 2, 3, 4}> {
  scaled = Div (x, root)
  erf = Erf (scaled)
  sum = Add (erf, one)
  product = Mul (x, sum)
  g = Mul (product, half)
  y = MatMul (g, w)
}
"""


def test_types_that_the_standard_can_not_infer_are_written(run: Run, tmp_path: Path) -> None:
    # Tools that infer types, such as onnxruntime's quantizer, stop at an operator of onnxruntime otherwise.
    out = tmp_path / "out.onnx"
    assert run("fuse", save(BEFORE_A_PRODUCT, tmp_path / "m.onnx"), "-o", out).code == 0
    fused = onnx.load(out)
    assert [node.op_type for node in fused.graph.node] == ["Gelu", "MatMul"] and fused.graph.node[0].domain == "com.microsoft"
    (declared,) = fused.graph.value_info
    assert declared.name == "g" and declared.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    assert not declared.type.tensor_type.HasField("shape"), "an inferred shape is not written"


def test_inferred_shapes_are_not_written(run: Run, tmp_path: Path) -> None:
    """Onnxruntime plans its buffers by declared shapes: with some inferred shapes it runs 4 % slower than with none."""
    assert run("fuse", BERT, "-o", tmp_path / "bert.onnx", "--no-verify").code == 0
    assert not onnx.load(BERT).graph.value_info
    written = onnx.load(tmp_path / "bert.onnx").graph.value_info
    assert written and not any(value.type.tensor_type.HasField("shape") for value in written)


@pytest.mark.parametrize("there", [".", "elsewhere"])
def test_a_model_with_external_data_is_fused_verified_and_runs(run: Run, gelu: Path, there: str) -> None:
    import onnx
    import onnxruntime

    model = gelu.with_name("external.onnx")
    onnx.save(
        onnx.load(gelu), model, save_as_external_data=True, location="weights.bin", size_threshold=0, convert_attribute=True
    )
    result = run("fuse", model, "-o", folder(gelu.parent / there) / "out.onnx", "--json")
    assert (result.code, result.err) == (0, "")
    assert result.json["verification"]["verdict"] == "equivalent"
    onnxruntime.InferenceSession(result.json["output"], providers=["CPUExecutionProvider"])


def folder(path: Path) -> Path:
    path.mkdir(exist_ok=True)
    return path


def test_the_same_model_gives_the_same_bytes(run: Run, gelu: Path, tmp_path: Path) -> None:
    assert run("fuse", gelu, "-o", tmp_path / "1.onnx").code == 0
    assert run("fuse", gelu, "-o", tmp_path / "2.onnx").code == 0
    assert (tmp_path / "1.onnx").read_bytes() == (tmp_path / "2.onnx").read_bytes()


def test_a_model_in_which_nothing_fuses_is_copied_byte_for_byte(run: Run, plain: Path, tmp_path: Path) -> None:
    result = run("fuse", plain, "--output-dir", tmp_path / "out")
    assert result.code == 0
    assert "nothing fused" in result.out
    assert (tmp_path / "out" / "plain.onnx").read_bytes() == plain.read_bytes()


def test_a_dry_run_writes_nothing(run: Run, gelu: Path) -> None:
    result = run("fuse", gelu, "--dry-run", "--json")
    assert (result.code, result.json["output"]) == (0, None)
    assert list(gelu.parent.iterdir()) == [gelu]


def test_several_processes_give_what_one_process_gives(run: Run, tmp_path: Path) -> None:
    """Also the same order. A model that can't be read does not stop the others."""
    models = [save(GELU, tmp_path / f"{name}.onnx") for name in "ab"]
    models.insert(1, tmp_path / "missing.onnx")
    one = run("fuse", *models, "--output-dir", tmp_path / "1", "-j", "1", "--json")
    two = run("fuse", *models, "--output-dir", tmp_path / "2", "-j", "2", "--json")
    assert one.code == two.code == 2
    assert [m["model"] for m in two.json["models"]] == list(map(str, models))
    assert ["error" in m for m in two.json["models"]] == [False, True, False]
    assert one.err == two.err
    for name in "ab":
        assert (tmp_path / "1" / f"{name}.onnx").read_bytes() == (tmp_path / "2" / f"{name}.onnx").read_bytes()


# Unusual but valid models


def test_an_output_that_is_an_initializer_keeps_its_declaration(run: Run, tmp_path: Path) -> None:
    """Such an output has no node and no value_info: its type is declared only on the output."""
    model = save(GELU.replace("(float[batch, 8] y)", "(float[batch, 8] y, float one)"), tmp_path / "model.onnx")
    assert run("fuse", model).code == 0
    (_, one) = onnx.load(tmp_path / "model.fused.onnx").graph.output
    assert one == onnx.load(model).graph.output[1]


@pytest.mark.parametrize("text", ["inf", "-inf", "nan"])
def test_an_infinite_constant_does_not_match_a_finite_one(run: Run, tmp_path: Path, text: str) -> None:
    """A relative tolerance must not allow it: any finite difference is within a fraction of infinity."""
    proto = onnx.parser.parse_model(GELU)
    proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.array(text, np.float32), "half"))
    onnx.save(proto, tmp_path / "model.onnx")
    assert run("fuse", tmp_path / "model.onnx", "--no-verify", "--dry-run", "--json").json["fusions"] == []


def test_a_string_input_beside_numbers_is_verified(run: Run, tmp_path: Path) -> None:
    """No numbers can be drawn for the string input, but the model is still verified."""
    source = GELU.replace("17]", "19]").replace("(float[batch, 8] x)", "(float[batch, 8] x, string[2] a, string[2] b)")
    source = source.replace("=> (float[batch, 8] y)", "=> (float[batch, 8] y, bool[2] same)")
    result = run("fuse", save(source.replace("  y =", "  same = Equal (a, b)\n  y ="), tmp_path / "model.onnx"), "--json")
    assert result.code == 0 and result.json["verification"]["verdict"] == "equivalent"


def test_subnormal_weights_that_matter_are_kept_and_reported(tmp_path: Path, run: Run) -> None:
    """All values behind the first output are as small as its weight. The fusions elsewhere stay."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[N, 1] x) => (float[N, 1] y, float[N, 1] z)
    <float[1, 1] w = {1e-40}> { y = MatMul(x, w) s = Sigmoid(x) z = Mul(x, s) }"""
    model = save(text, tmp_path / "m.onnx")
    ran = run("fuse", model)
    assert ran.code == 0 and "1 subnormal number of w is kept: with zeros in their place" in ran.out and "silu" in ran.out
    stored = {
        tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(tmp_path / "m.fused.onnx").graph.initializer
    }
    assert 0 < stored["w"][0, 0] < 1e-38
    answer = run("fuse", model, "--json", "--dry-run").json
    assert answer["unflushed"] == [{"weight": "w", "count": 1, "elements": 1}] and "flushed" not in answer


@pytest.mark.parametrize(("weight", "unflushed"), [(1e-40, 1), (1.0, 0)])
def test_a_wrong_simplification_is_taken_back_and_reported(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, weight: float, unflushed: int
) -> None:
    """Also together with zeros in the place of subnormal numbers that matter. The fusions elsewhere stay."""

    def wrongly(model: ir.Model) -> Simplified:
        for node in (found := [node for node in model.graph if node.op_type == "Tanh"]):
            node.op_type = "Sin"
        return Simplified(simpler=len(found))

    monkeypatch.setattr(rounds, "simplify", wrongly)
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[N, 1] x) => (float[N, 1] y, float[N, 1] z, float[N, 1] t)
    <float[1, 1] w = {{{weight}}}> {{ y = MatMul(x, w) s = Sigmoid(x) z = Mul(x, s) t = Tanh(x) }}"""
    answer = run("fuse", save(text, tmp_path / "m.onnx"), "--json").json
    assert answer["unsimplified"]["simpler"] == 1 and "simplified" not in answer and "flushed" not in answer
    assert len(answer.get("unflushed", [])) == unflushed and [one["pattern"] for one in answer["fusions"]] == ["silu"]
    assert answer["verification"]["verdict"] == "equivalent"


def test_subnormal_weights_become_zeros_and_the_report_says_so(tmp_path: Path, run: Run) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[N, 2] x) => (float[N, 2] y)
    <float[2, 2] w = {1e-40, 1.0, 2.0, -1e-39}> { y = MatMul(x, w) }"""
    model = save(text, tmp_path / "m.onnx")
    ran = run("fuse", model)
    assert ran.code == 0 and "weights  2 subnormal numbers of w are zeros now" in ran.out and "equivalent" in ran.out
    (stored,) = onnx.load(tmp_path / "m.fused.onnx").graph.initializer
    assert onnx.numpy_helper.to_array(stored).tolist() == [[0.0, 1.0], [2.0, 0.0]]
    answer = run("fuse", model, "--json", "--dry-run").json
    assert answer["flushed"] == [{"weight": "w", "count": 2, "elements": 4}] and not answer["unchanged"]
    for words in (("--keep-subnormals",), ("--only", "gelu")):
        ran = run("fuse", model, "-o", tmp_path / "kept.onnx", *words)
        assert ran.code == 0 and "zeros now" not in ran.out
        assert (tmp_path / "kept.onnx").read_bytes() == model.read_bytes()
