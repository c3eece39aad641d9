"""Many models: every command prints one table with the reason of each failure, and JSON has all models."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import onnx_subgraph.timing.bench  # noqa: F401 - the module has the name of a function
from tests.cli.conftest import GELU, PLAIN, ROOT, Run, save

SCHEMA = Draft202012Validator(json.loads((ROOT / "docs" / "report.schema.json").read_text(encoding="utf-8")))


@pytest.fixture
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two models of one name, the first of which fuses, and a file between them that is not a model."""
    monkeypatch.chdir(tmp_path)
    for folder in ("a", "c"):
        Path("zoo", folder).mkdir(parents=True)
    save(GELU, Path("zoo/a/m.onnx"))
    Path("zoo/b.onnx").write_bytes(b"no model")
    save(PLAIN, Path("zoo/c/m.onnx"))
    return tmp_path


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the measurement of memory, which takes a process for each model."""
    monkeypatch.setattr(sys.modules["onnx_subgraph.timing.bench"], "peak", lambda *_: None)


def row(out: str, model: str) -> str:
    """The row of a model in the table, which is the last output."""
    (line,) = [line for line in out.rpartition("\nmodel ")[2].splitlines() if line.startswith(f"zoo/{model} ")]
    return line


@pytest.mark.usefixtures("zoo")
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_fuse_keeps_the_tree_and_goes_on(run: Run, jobs: str) -> None:
    result = run("fuse", "zoo", "--output-dir", "out", "-j", jobs)
    assert result.code == 2
    assert sorted(path.relative_to("out").as_posix() for path in Path("out").rglob("*.onnx")) == ["a/m.onnx", "c/m.onnx"]
    assert "2 of 3 models passed" in result.out
    assert row(result.out, "a/m.onnx").split()[1:] == ["5", "→", "1", "1", "equivalent", "fused"]
    assert row(result.out, "c/m.onnx").endswith("unchanged: nothing fused")
    assert row(result.out, "b.onnx").endswith("zoo/b.onnx: is a text file, not an ONNX model")
    assert "hint: " in result.err and "hint: " not in result.out


@pytest.mark.usefixtures("zoo")
def test_fuse_leaves_out_what_it_writes_into_the_folder_that_it_searches(run: Run) -> None:
    Path("zoo/b.onnx").unlink()
    assert run("fuse", "zoo", "--output-dir", "zoo/out").code == 0
    before = {path: path.read_bytes() for path in Path("zoo").rglob("*.onnx")}
    again = run("fuse", "zoo", "--output-dir", "zoo/out")
    assert (again.code, again.err) == (0, "zoo/out: 2 files in it left out, because the output is written there\n")
    assert {path: path.read_bytes() for path in Path("zoo").rglob("*.onnx")} == before


@pytest.mark.usefixtures("zoo")
def test_fuse_does_not_write_into_the_folder_that_it_searches_itself(run: Run) -> None:
    result = run("fuse", "zoo", "--output-dir", "zoo")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("Error: zoo/a/m.onnx is read, so it can't be written\n")


@pytest.mark.usefixtures("zoo")
def test_quiet_shows_the_table_where_something_failed(run: Run) -> None:
    assert "2 of 3 models passed" in run("fuse", "zoo", "-q", "--dry-run").out
    Path("zoo/b.onnx").unlink()
    assert run("fuse", "zoo", "-q", "--dry-run").out == ""


@pytest.mark.usefixtures("zoo")
def test_pages_keep_the_tree(run: Run) -> None:
    run("fuse", "zoo", "--dry-run", "--report", "pages")
    assert sorted(page.relative_to("pages").as_posix() for page in Path("pages").rglob("*.html")) == ["a/m.html", "c/m.html"]


@pytest.mark.usefixtures("zoo")
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_explain_reports_each_model(run: Run, jobs: str) -> None:
    result = run("explain", "zoo", "-j", jobs)
    assert result.code == 2
    assert "2 of 3 models explained" in result.out
    assert row(result.out, "a/m.onnx").split()[1:4] == ["5", "1", "0"]
    assert row(result.out, "b.onnx").endswith("zoo/b.onnx: is a text file, not an ONNX model")


@pytest.mark.usefixtures("zoo")
def test_mine_uses_the_models_that_it_can_read(run: Run) -> None:
    result = run("mine", "zoo")
    assert result.code == 2 and "2 of 3 models mined" in result.out
    assert row(result.out, "a/m.onnx").split()[1] == "5"
    assert row(result.out, "b.onnx").endswith("zoo/b.onnx: is a text file, not an ONNX model")
    assert run("mine", "zoo/b.onnx").out == ""


@pytest.mark.usefixtures("zoo")
def test_bench_times_one_model_after_another(run: Run) -> None:
    result = run("bench", "zoo", "--budget", "0.05", "--threads", "1")
    assert result.code == 2 and "2 of 3 models measured" in result.out
    assert row(result.out, "a/m.onnx").endswith("m.fused.onnx in onnxruntime")
    assert row(result.out, "c/m.onnx").endswith("nothing in it fuses")
    assert row(result.out, "b.onnx").endswith("zoo/b.onnx: is a text file, not an ONNX model")


@pytest.mark.usefixtures("zoo")
def test_bench_takes_the_candidates_of_a_folder(run: Run) -> None:
    Path("zoo/b.onnx").unlink()
    assert run("fuse", "zoo", "--output-dir", "out").code == 0
    result = run("bench", "zoo", "out", "--budget", "0.05", "--threads", "1", "--json")
    assert result.code == 0
    assert [[one["model"] for one in bench["models"]] for bench in result.json["benches"]] == [
        ["zoo/a/m.onnx", "out/a/m.onnx"],
        ["zoo/c/m.onnx", "out/c/m.onnx"],
    ]
    wrong = run("bench", "zoo", "zoo/a/m.onnx")
    assert wrong.code == 2 and "zoo/a/m.onnx is no folder, and there are several models" in wrong.err


@pytest.mark.usefixtures("zoo")
@pytest.mark.parametrize(
    ("words", "key"),
    [(["fuse", "--dry-run"], "models"), (["explain"], "models"), (["bench", "--budget", "0.05"], "benches"), (["mine"], "each")],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_json_has_all_models_and_follows_its_schema(run: Run, words: list[str], key: str) -> None:
    result = run(words[0], "zoo", *words[1:], "--json")
    assert result.code == 2
    SCHEMA.validate(result.json)
    assert [one["model"] for one in result.json[key]] == ["zoo/a/m.onnx", "zoo/b.onnx", "zoo/c/m.onnx"]
    assert ["error" in one for one in result.json[key]] == [False, True, False]


@pytest.mark.usefixtures("zoo")
def test_a_rank_among_many_models_becomes_a_pattern(run: Run) -> None:
    """`new-pattern` takes the same arguments as `mine`, which numbers the units over all models."""
    for folder in ("a", "c"):
        save(WAVE, Path("zoo", folder, "m.onnx"))
    Path("zoo/b.onnx").unlink()
    assert "`onnx-subgraph new-pattern MODEL… --mined 1 " in run("mine", "zoo").out
    made = run("new-pattern", "zoo", "--mined", "1", "--id", "wave", "-o", "wave.yaml", "--json")
    assert made.code == 0 and made.json["places"] == 2


WAVE = """
<ir_version: 8, opset_import: ["" : 17]>
wave (float[batch, 8] x) => (float[batch, 8] y)
{
  s = Sin (x)
  c = Cos (s)
  y = Add (x, c)
}
"""
