"""`--report` on the command line: where pages are written, and that they change nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnx_subgraph.cli.page import plan_pages
from onnx_subgraph.errors import UsageError
from tests.cli.conftest import Run, save


def test_the_report_is_a_separate_page(run: Run, gelu: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert run("fuse", gelu, "--report", page).code == 0
    assert "<!doctype html>" in page.read_text(encoding="utf-8")
    assert "com.microsoft.Gelu" in page.read_text(encoding="utf-8")
    assert (tmp_path / "gelu.fused.onnx").exists()


def test_a_report_does_not_change_the_model(run: Run, gelu: Path, tmp_path: Path) -> None:
    """The written model and the output are the same, byte for byte."""
    with_page = run("fuse", gelu, "-o", tmp_path / "a.onnx", "--report", tmp_path / "a.html", "--json")
    without = run("fuse", gelu, "-o", tmp_path / "b.onnx", "--json")
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    assert with_page.json["fusions"] == without.json["fusions"]


def test_a_dry_run_has_a_report(run: Run, gelu: Path, tmp_path: Path) -> None:
    assert run("fuse", gelu, "--dry-run", "--report", tmp_path / "a.html").code == 0
    assert "Nothing was written." in (tmp_path / "a.html").read_text(encoding="utf-8")
    assert not (tmp_path / "gelu.fused.onnx").exists()


def test_a_refused_model_has_a_report(run: Run, gelu: Path, tmp_path: Path) -> None:
    """A refused model is what users want a report on."""
    assert run("fuse", gelu, "--rtol", "0", "--atol", "0", "--report", tmp_path / "a.html").code == 1
    assert "Different" in (tmp_path / "a.html").read_text(encoding="utf-8")


def test_several_models_have_a_page_each(run: Run, gelu: Path, plain: Path, tmp_path: Path) -> None:
    """Pages go to a folder, which is created. A model that can't be read has no page, and no other page has its name."""
    torn = tmp_path / "torn.onnx"
    torn.write_bytes(b"no model")
    assert run("fuse", gelu, torn, plain, "-j", "2", "--report", tmp_path / "pages").code == 2
    assert sorted(page.name for page in (tmp_path / "pages").iterdir()) == ["gelu.html", "plain.html"]
    assert 'class="graph"' in (tmp_path / "pages" / "gelu.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("report", ["m.onnx", "m.fused.onnx", "missing/report.html"])
def test_a_page_overwrites_no_model_and_its_folder_exists(report: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"would be written twice, or is read|there is no folder"):
        plan_pages((Path("m.onnx"),), Path(report), [Path("m.fused.onnx")])


def test_two_models_of_one_name_can_not_have_pages_in_one_folder(tmp_path: Path) -> None:
    models = (Path("a/m.onnx"), Path("b/m.onnx"))
    with pytest.raises(UsageError, match=r"m\.html would be written twice"):
        plan_pages(models, tmp_path, [Path("a/n"), Path("b/n")])


def test_explain_writes_a_page_and_says_the_same(run: Run, tmp_path: Path) -> None:
    model = Path(__file__).parent / "data/rounded_gelu.onnx"
    with_page, without = run("explain", model, "gelu", "--report", tmp_path / "a.html"), run("explain", model, "gelu")
    assert (with_page.code, with_page.out) == (0, without.out)
    words = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "<mark>x / sqrt(2)</mark>" in words and "0.704225" in words


def test_explain_shows_the_nearest_place_even_where_an_operator_is_missing(run: Run, tmp_path: Path) -> None:
    """Who writes a pattern wants to see it; the printed answer is one sentence."""
    lines = "  h = Tanh(x)\n  s = Sigmoid(h)\n  y = h * Softplus(s)\n"
    written = f'id: gate\nsummary: A gate\nmatch: |\n{lines}example:\n  x: "float32[2, 8]"\n'
    (tmp_path / "gate.yaml").write_text(written, encoding="utf-8")
    model = save(
        """<ir_version: 8, opset_import: ["" : 17]> gate (float[2,3] x) => (float[2,3] y)
        { h = Tanh(x) s = Sigmoid(h) p = Softsign(s) y = Mul(h, p) }""",
        tmp_path / "m.onnx",
    )
    told = run("explain", model, "gate", "--patterns", tmp_path / "gate.yaml", "--report", tmp_path / "a.html")
    assert told.code == 0 and "gate is not in the model" in told.out and "Nearly matched" not in told.out
    words = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "gate is not in the model" in words and "<mark>Softplus(s)</mark>" in words and "<b>Tanh</b>" in words


def test_explain_refuses_a_page_in_the_place_of_the_model(run: Run, gelu: Path) -> None:
    before = gelu.read_bytes()
    assert run("explain", gelu, "--report", gelu).code == 2
    assert gelu.read_bytes() == before
