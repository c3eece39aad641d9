"""A lowering in a separate file: it has priority, is proved with every formula, and is named when it is wrong or unused."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import onnx
import pytest

from onnx_subgraph.errors import PatternError
from onnx_subgraph.language.library import headers, load_patterns
from onnx_subgraph.proving import prove
from tests.cli.conftest import Run

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "lowerings" / "fast_gelu_of_the_standard.yaml"
LANGUAGE = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
(DOCUMENTED,) = re.findall(r"<!-- lowering -->\n```yaml\n# (\S+)\n(.*?)```\n", LANGUAGE, re.DOTALL)
SAMPLE = ROOT / "sample_models" / "gpt2_dynamo.onnx"
WRONG = "lowers: FastGelu\nsummary: The exact one\nonnxruntime: y = com.microsoft.Gelu(x)\n"
TANH = 'y = Gelu(x, approximate="tanh")'
MISTAKES = {
    "summary: S\nonnxruntime: y = Neg(x)": "`onnxruntime` is not a key of a pattern",
    "lowers: Gelo\nsummary: S\nonnxruntime: y = Neg(x)": "`Gelo` is not a canonical operator",
    "lowers: Gelu\nonnxruntime: y = Neg(x)": "`summary` is missing",
    "lowers: Gelu\nsummary: S": "there is no replacement for `Gelu`",
    "lowers: Gelu\nsummary: S\nfunction: y = Neg(x)": "`function` is not a key of a lowering",
    "lowers: Gelu\nsummary: S\nonnxruntime: z = Neg(x)": "the lines don't give `y`",
    "lowers: Gelu\nsummary: S\nonnxruntime: y = Neg(v)": "`v` has no meaning here",
    "lowers: Gelu\nsummary: S\nonnxruntime: y = Nag(x)": "`Nag`",
    "lowers: Gelu\nsummary: S\nonnxruntime: {where: v.rank == 3, lines: y = Neg(x)}": "`v` is not an argument",
    "lowers: Gelu\nsummary: S\nonnxruntime: {where: x.is_constant, lines: y = Neg(x)}": "`.is_constant` is not a fact about",
    "lowers: Gelu\nsummary: S\nonnxruntime: {without: x, lines: y = Neg(x)}": "`without` has become a sentence",
    "lowers: Swish\nsummary: S\nlet: beta = gamma\nonnxruntime: y = Neg(x)": "`gamma` is not an attribute",
}


def operators_of(path: Path) -> Counter[str]:
    return Counter(f"{node.domain}.{node.op_type}".lstrip(".") for node in onnx.load(path).graph.node)


def test_the_documented_file_exists() -> None:
    path, text = DOCUMENTED
    assert ROOT / path == EXAMPLE
    assert EXAMPLE.read_text(encoding="utf-8") == text


def test_it_is_proved_with_each_formula_of_its_operator() -> None:
    library = load_patterns([EXAMPLE])
    formulas = [p for p in library.patterns if p.raised is not None and p.raised.operator.name == "FastGelu"]
    assert formulas
    for pattern in formulas:
        first, *others = pattern.blocks("onnxruntime")
        assert first.lowering == str(EXAMPLE) and not any(block.lowering for block in others)
        assert not prove(pattern).failures


def test_headers_say_what_patterns_say() -> None:
    assert [(h.id, h.targets) for h in headers([EXAMPLE])] == [(p.id, p.targets) for p in load_patterns([EXAMPLE]).patterns]


def test_the_first_of_two_files_has_priority(tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(WRONG, encoding="utf-8")
    for given in ([EXAMPLE, other], [other, EXAMPLE]):
        blocks = load_patterns(given).get("fast-gelu").blocks("onnxruntime")
        assert [block.lowering for block in blocks] == [*map(str, given), ""]


def test_a_lowering_without_its_operator_is_an_error() -> None:
    with pytest.raises(PatternError, match="`FastGelu` is not a canonical operator"):
        load_patterns([EXAMPLE], built_in=False)


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_shown_at_its_place(text: str, tmp_path: Path) -> None:
    path = tmp_path / "lowering.yaml"
    path.write_text(text + "\n", encoding="utf-8")
    with pytest.raises(PatternError, match=MISTAKES[text]) as raised:
        load_patterns([path])
    assert raised.value.span is not None and raised.value.span.file == str(path)


def test_the_model_is_raised_to_the_opset_that_it_needs(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    result = run("fuse", SAMPLE, "--patterns", EXAMPLE, "--only", "fast-gelu", "-o", out)
    assert result.code == 0, result.err
    assert operators_of(out)["Gelu"] == 1 and "com.microsoft.FastGelu" not in operators_of(out)


def test_the_reason_why_it_is_not_used_is_reported(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    result = run("fuse", SAMPLE, "--patterns", EXAMPLE, "--only", "fast-gelu", "--opset", "keep", "-o", out)
    assert result.code == 0, result.err
    assert operators_of(out)["com.microsoft.FastGelu"] == 1
    said = " ".join(result.out.split())
    assert f"is replaced by com.microsoft.FastGelu, and not as in {EXAMPLE}: Gelu needs opset 20, the model has 18" in said


OTHER_PROVIDER = "asks for `'CUDAExecutionProvider' in providers`, and providers is [CPUExecutionProvider]"


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("x.dtype == float32 and x.rank == 3", ""),
        ("[x.rank == 3, 'x.shape[2] % 100 == 0']", "its `where` asks for `x.shape[2] % 100 == 0`, and x.shape[2] % 100 is "),
        ("x.shape[1] == 7", "its `where` asks for `x.shape[1] == 7`, and whether x.shape[1] "),
        ('providers == ["CPUExecutionProvider"]', ""),
        ('"CUDAExecutionProvider" in providers', OTHER_PROVIDER),
        ('x is None or "CUDAExecutionProvider" in providers', OTHER_PROVIDER),
    ],
    ids=["true", "false", "unknown", "this provider", "another provider", "a value that is there"],
)
def test_it_is_used_where_its_sentences_are_true(where: str, reason: str, run: Run, tmp_path: Path) -> None:
    path, out = tmp_path / "some.yaml", tmp_path / "out.onnx"
    sentence = where if where.startswith("[") else f"'{where}'"
    path.write_text(f"lowers: FastGelu\nsummary: S\nonnxruntime:\n  where: {sentence}\n  lines: {TANH}\n", encoding="utf-8")
    result = run("fuse", SAMPLE, "--patterns", path, "--only", "fast-gelu", "-o", out)
    assert result.code == 0, result.err
    assert operators_of(out)["Gelu" if not reason else "com.microsoft.FastGelu"] == 1
    assert reason in " ".join(result.out.split())


def test_a_wrong_lowering_is_undone_and_named(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(WRONG, encoding="utf-8")
    result = run("fuse", SAMPLE, "--patterns", path, "--only", "fast-gelu", "--dry-run", "-v")
    assert f"is undone: as in {path}, its result" in result.err
    assert f"and not as in {path}" not in " ".join(result.out.split()), "this is told once, as what was undone"
    (failure, *_) = prove(load_patterns([path]).get("fast-gelu")).failures
    assert failure.startswith("a fused instance differs")


def test_a_lowering_that_is_never_used_fails_its_proof(tmp_path: Path) -> None:
    path = tmp_path / "never.yaml"
    path.write_text("lowers: Swish\nsummary: Twice\nonnxruntime: y = Concat(x, x, axis=0)\n", "utf-8")
    failures = prove(load_patterns([path]).get("silu")).failures
    assert any(failure.startswith(f"the lowering {path} was never proved for onnxruntime") for failure in failures), failures
