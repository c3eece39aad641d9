"""`mine` and `new-pattern`: tables, JSON, the report page, and files that are never overwritten."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import onnx
import pytest

from tests.cli.conftest import Run
from tests.mining.models import network, otherwise, saved, spelled

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "report.schema.json").read_text(encoding="utf-8"))


def check(answer: object, kind: str) -> None:
    jsonschema.validate(answer, {**SCHEMA, "anyOf": [{"$ref": f"#/$defs/{kind}"}]})


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return saved(tmp_path / "net.onnx", network(spelled, spelled, spelled))


def test_from_a_model_to_a_fusion(run: Run, tmp_path: Path, model: Path) -> None:
    """The whole workflow: mine, write, prove, fuse, also in another model. Afterwards the unit is covered."""
    other = saved(tmp_path / "other.onnx", network(otherwise, otherwise))
    mined = run("mine", model, other)
    assert mined.code == 0 and "Sin(a * x) ** 2" in mined.out
    written = tmp_path / "wave.yaml"
    made = run("new-pattern", model, other, "--mined", "1", "--id", "wave", "-o", written)
    assert made.code == 0 and "all hold" in made.out and f"found at 2 places of {other}" in made.out
    fused = run("fuse", other, "--patterns", written, "--target", "function", "-o", tmp_path / "out.onnx", "--json").json
    assert {f["pattern"] for f in fused["fusions"]} == {"wave"} and sum(f["count"] for f in fused["fusions"]) == 2
    assert fused["verification"]["verdict"] == "equivalent"
    assert run("mine", model, "--patterns", written, "--json").json["units"] == []


def test_json(run: Run, tmp_path: Path, model: Path) -> None:
    answer = run("mine", model, "--json").json
    check(answer, "mine")
    (unit,) = answer["units"]
    assert (unit["rank"], unit["times"], unit["nodes"], len(unit["places"])) == (1, 3, 5, 3)
    made = run("new-pattern", model, "--mined", "1", "--id", "wave", "-o", tmp_path / "wave.yaml", "--json").json
    check(made, "new-pattern")
    assert made["places"] == 3 and made["found"] == [{"model": str(model), "count": 3}]


def test_with_a_profile_the_units_that_take_most_time_come_first(run: Run, tmp_path: Path) -> None:
    """A Pow moves as many bytes as an Add but takes many times as long. Nodes without names have times as well."""
    slow = "\n".join(f"s{i} = Pow (x, e)\n t{i} = Atan (s{i})\n" for i in range(2)) + "a = Add (t0, t1)"
    fast = "n = Neg (a)\n c = Ceil (n)\n f = Neg (c)\n y = Ceil (f)"
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[4096, 8] x) => (float[4096, 8] y, float[4096, 8] w)
        <float e = {{1.7}}> {{ {slow} {fast} z = Shape (y) r = Reshape (x, z) q = Abs (r) o = Sign (q) w = Neg (o) }}"""
    model = tmp_path / "net.onnx"
    onnx.save(onnx.parser.parse_model(text), model)
    plain, timed = (run("mine", model, "--json", *words).json for words in ((), ("--profile",)))
    check(timed, "mine")
    assert plain["milliseconds"] is None and all(unit["milliseconds"] is None for unit in plain["units"])
    times = [unit["milliseconds"] for unit in timed["units"]]
    assert times == sorted(times, reverse=True) and 0 < sum(times) <= timed["milliseconds"]
    assert sorted(u["key"] for u in plain["units"]) == sorted(u["key"] for u in timed["units"])
    assert "time: of that of all nodes, measured" in run("mine", model, "--profile").out


def test_a_model_that_does_not_run_has_no_profile_and_the_message_names_it(run: Run, tmp_path: Path) -> None:
    model = tmp_path / "own.onnx"
    text = """<ir_version: 8, opset_import: ["" : 17, "no.where" : 1]>
        g (float[4] x) => (float[4] y) { a = no.where.F (x) b = Sin (a) y = Atan (b) }"""
    onnx.save(onnx.parser.parse_model(text), model)
    told = run("mine", model, "--profile")
    assert (told.code, told.out) == (2, "")
    assert told.err.startswith(f"Error: {model}: onnxruntime does not load it") and "hint: leave --profile out" in told.err
    assert told.err.count(str(tmp_path)) == told.err.count("own.onnx"), "no path of a temporary file"
    assert run("mine", model).code == 0


def test_the_page_draws_each_unit(run: Run, tmp_path: Path, model: Path) -> None:
    pytest.importorskip("fast_sugiyama")
    assert run("mine", model, "--report", tmp_path / "page.html").code == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Sin(a * x) ** 2" in page and "<svg" in page and "<script" not in page


def test_a_page_never_overwrites_a_model(run: Run, model: Path) -> None:
    pytest.importorskip("fast_sugiyama")
    before = model.read_bytes()
    assert run("mine", model, "--report", model).code == 2
    assert model.read_bytes() == before


def test_an_existing_file_is_not_overwritten(run: Run, tmp_path: Path, model: Path) -> None:
    (tmp_path / "wave.yaml").write_text("mine", encoding="utf-8")
    result = run("new-pattern", model, "--mined", "1", "--id", "wave", "-o", tmp_path / "wave.yaml")
    assert result.code == 2 and "is there already" in result.err
    assert (tmp_path / "wave.yaml").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "say once what the pattern is written from"),
        (["--mined", "1", "--nodes", "a"], "say once what the pattern is written from"),
        (["--from", "a"], "say once what the pattern is written from"),
        (["--mined", "7"], "no rank 7"),
        (["--nodes", "nothing"], "has no node 'nothing'"),
    ],
)
def test_mistakes(run: Run, tmp_path: Path, model: Path, arguments: list[str], message: str) -> None:
    result = run("new-pattern", model, *arguments, "--id", "wave", "-o", tmp_path / "wave.yaml")
    assert result.code == 2 and message in result.err and not (tmp_path / "wave.yaml").exists()


def test_the_file_has_the_name_of_the_id(run: Run, tmp_path: Path, model: Path) -> None:
    result = run("new-pattern", model, "--mined", "1", "--id", "my-wave", "-o", tmp_path / "wave.yaml")
    assert result.code == 2 and "my_wave.yaml" in result.err


def test_nothing_to_mine(run: Run, tmp_path: Path) -> None:
    plain = saved(tmp_path / "m.onnx", '<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) { y = Abs (x) }')
    result = run("mine", plain)
    assert result.code == 0 and "Nothing is left to fuse" in result.out
