"""A pattern that was merged into another one: commands still accept its old id and name the new one."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser
import pytest

from onnx_subgraph import Options, fuse, load_patterns
from onnx_subgraph.language.library import headers
from tests.cli.conftest import Run

SAID = "Warning: the pattern `conv-clip` is a part of `conv-activation` now; write that"
CONV = """<ir_version: 8, opset_import: ["": 17]>
m (float[1, 2, 4, 4] x, float[3, 2, 1, 1] w) => (float[1, 3, 4, 4] y) <float low = {0}, float high = {6}>
{ c = Conv(x, w) y = Clip(c, low, high) }"""


@pytest.fixture
def conv(tmp_path: Path) -> Path:
    onnx.save(onnx.parser.parse_model(CONV), tmp_path / "conv.onnx")
    return tmp_path / "conv.onnx"


def fused(run: Run, *arguments: object) -> tuple[dict[str, int], str]:
    """The patterns that fused, and the messages on standard error."""
    result = run("fuse", *arguments, "--dry-run", "--no-verify", "--json")
    assert result.code == 0, result.err
    return {f["pattern"]: f["count"] for f in result.json["fusions"]}, result.err


def test_options_accept_the_former_id(run: Run, conv: Path) -> None:
    assert fused(run, conv, "--only", "conv-clip") == ({"conv-activation": 1}, f"{SAID}\n")
    assert fused(run, conv, "--only", "conv-activation,conv-clip") == ({"conv-activation": 1}, f"{SAID}\n")
    assert fused(run, conv, "--skip", "conv-clip") == ({}, f"{SAID}\n")
    assert fused(run, conv, "--only", "conv-activation") == ({"conv-activation": 1}, "")


def test_every_command_that_takes_a_pattern_accepts_the_former_id(run: Run, conv: Path) -> None:
    for command in (["list-patterns", "conv-clip"], ["explain", conv, "conv-clip"], ["test-patterns", "conv-clip"]):
        result = run(*command)
        assert result.code == 0 and SAID in result.err, command
        assert "conv-activation" in result.out


def test_python_accepts_it_as_well(conv: Path) -> None:
    library = load_patterns()
    assert library.get("conv-clip").id == "conv-activation"
    skipped = fuse(conv, None, library, Options(dry_run=True, verify=False, skip=("conv-clip",)))
    assert not skipped.rewrites
    only = fuse(conv, None, library, Options(dry_run=True, verify=False, only=("conv-clip",)))
    assert [rewrite.pattern for rewrite in only.rewrites] == ["conv-activation"]


def test_an_expectation_accepts_it_with_its_place(run: Run, conv: Path) -> None:
    expected = conv.with_name("expected.yaml")
    expected.write_text("models:\n  conv.onnx:\n    fusions:\n      conv-clip: 1\n", encoding="utf-8")
    result = run("fuse", conv, "--dry-run", "--no-verify", "--expect", expected)
    assert result.code == 0
    assert f"Warning: {expected}:4:7: the pattern `conv-clip` is a part of `conv-activation` now; write that" in result.err


def test_two_expectations_for_one_merged_pattern_are_refused(run: Run, conv: Path) -> None:
    expected = conv.with_name("expected.yaml")
    text = "models:\n  conv.onnx:\n    fusions:\n      conv-activation: 0\n      conv-clip: 1\n"
    expected.write_text(text, encoding="utf-8")
    result = run("fuse", conv, "--dry-run", "--no-verify", "--expect", expected)
    assert result.code == 2
    assert f"{expected}:5:7: `conv-clip` is a part of `conv-activation` now, which line 4 is about" in result.err
    assert "hint: write one `conv-activation:` for both" in result.err


def test_a_users_pattern_keeps_its_id(run: Run, conv: Path) -> None:
    """A built-in pattern that formerly had this id does not hide the user's pattern."""
    own = conv.with_name("conv_clip.yaml")
    own.write_text(
        "id: conv-clip\nsummary: Mine\nmatch: y = Clip(Conv(x, w), min=0, max=6)\n"
        'example: {x: "float32[1, 2, 4, 4]", w: "float32[3, 2, 1, 1]"}\n',
        encoding="utf-8",
    )
    assert fused(run, conv, "--only", "conv-clip", "--target", "function", "--patterns", own) == ({"conv-clip": 1}, "")


def test_no_built_in_pattern_has_a_former_id_of_another() -> None:
    known = headers()
    former = [name for header in known for name in header.formerly]
    assert len(former) == len(set(former))
    assert not {header.id for header in known} & set(former)
