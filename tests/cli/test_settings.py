"""The settings file of a project: it gives defaults for the command line, and a mistake is reported with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run

MODEL = Path(__file__).parents[2] / "sample_models" / "bert_dynamo.onnx"
GATE = """
id: gate
summary: x times its own sigmoid, twice
formula: |
  y = x * Sigmoid(x) * Sigmoid(x)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for settings files; the command runs in a folder below it."""
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    return tmp_path


def write(folder: Path, text: str, name: str = "onnx-subgraph.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def target(run: Run, *options: object) -> str:
    """The target of the fusions."""
    return str(run(*options, "fuse", MODEL, "--no-verify", "--dry-run", "--json").json["target"])


def test_a_project_file_in_a_parent_folder_is_read_and_the_command_line_has_priority(run: Run, project: Path) -> None:
    write(project, '[tool.onnx-subgraph]\ntarget = "function"\n', "pyproject.toml")
    assert target(run) == "function"
    assert target(run, "--no-settings") == "onnxruntime"
    assert run("fuse", MODEL, "--no-verify", "--dry-run", "--json", "--target", "standard").json["target"] == "standard"


def test_the_table_of_a_command_has_priority_and_is_for_that_command_only(run: Run, project: Path) -> None:
    write(project, 'target = "function"\n[fuse]\ntarget = "standard"\n[partition]\nbackend = ["reference"]\nmin-nodes = 1\n')
    assert target(run) == "standard"
    done = run("partition", MODEL, "--dry-run", "--json")
    assert done.code == 0 and done.json["backend"] == "reference", "a required option may stand in the file"


def test_the_nearest_file_counts_and_in_one_folder_the_tools_own_file(run: Run, project: Path) -> None:
    write(project, '[tool.onnx-subgraph]\ntarget = "function"\n', "pyproject.toml")
    write(project, 'target = "standard"\n')
    assert target(run) == "standard"
    write(project / "below", "[tool.other]\nx = 1\n", "pyproject.toml")
    assert target(run) == "standard", "a project file without settings of ours says nothing"
    write(project / "below", '[tool.onnx-subgraph]\ntarget = "function"\n', "pyproject.toml")
    assert target(run) == "function"
    other = write(project, 'target = "standard"\n', "other.toml")
    assert target(run, "--settings", other) == "standard"


def test_paths_are_relative_to_the_file(run: Run, project: Path) -> None:
    (project / "own").mkdir()
    write(project / "own", GATE, "gate.yaml")
    write(project, 'patterns = ["own"]\nquiet = false\n')
    assert "gate" in run("list-patterns").out


def test_flags_numbers_and_lists(run: Run, project: Path) -> None:
    write(project, '[fuse]\nskip = ["gelu", "layer-normalization,bias-gelu"]\nno-verify = true\nseed = 3\nmin-gain = 0\n')
    done = run("fuse", MODEL, "--dry-run", "--json")
    assert done.code == 2 and "fuse.min-gain is no option of fuse" in done.err
    write(project, '[fuse]\nskip = ["gelu", "layer-normalization,bias-gelu"]\nno-verify = true\nseed = 3\n')
    done = run("fuse", MODEL, "--dry-run", "--json")
    assert done.json["verification"]["verdict"] == "not-run"
    assert not {"gelu", "layer-normalization"} & {fusion["pattern"] for fusion in done.json["fusions"]}


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ('output-dir = "od"', ["-o", "out.onnx", "--no-verify"]),
        ('output = "out.onnx"', ["--output-dir", ".", "--no-verify"]),
        ("verbose = true", ["-q", "--no-verify", "--dry-run"]),
        ("quiet = true", ["--verbose", "--no-verify", "--dry-run"]),
        ('expect = "old.yaml"', ["--write-expect", "new.yaml", "--no-verify", "--dry-run"]),
        ("strict = true\nsites = true", ["--no-verify", "--dry-run"]),
        ("no-verify = true", ["--strict", "--dry-run"]),
        ("dry-run = true\njobs = 2", ["--bench", "-o", "out.onnx"]),
        ("tune = true", ["--sites-only", "--dry-run"]),
        ('executor = "local"', ["-j", "2", "--no-verify", "--dry-run"]),
    ],
)
@pytest.mark.parametrize("at", ["[fuse]\n", ""])
def test_an_option_of_the_command_line_replaces_what_it_excludes(
    run: Run, project: Path, plain: Path, at: str, text: str, options: list[str]
) -> None:
    """The command line has priority, and the file has no part in what the user asks for."""
    settings = write(project, at + text, "named.toml")
    done = run("--settings", settings, "fuse", plain, *options)
    assert done.code == 0, done.err


def test_the_table_of_a_command_replaces_what_it_excludes(run: Run, project: Path, plain: Path) -> None:
    write(project, "verbose = true\n[fuse]\nquiet = true\nno-verify = true\n")
    done = run("fuse", plain, "--dry-run")
    assert (done.code, done.out) == (0, "")


def test_options_of_one_place_still_exclude_each_other(run: Run, project: Path, plain: Path) -> None:
    write(project, "[fuse]\nquiet = true\nverbose = true\n")
    done = run("fuse", plain, "--dry-run")
    assert done.code == 2 and "--quiet and --verbose exclude each other" in done.err
    write(project, "[fuse]\nbench = true\ndry-run = true\n")
    done = run("fuse", plain, "-j", "1")
    assert done.code == 2 and "--bench" in done.err, "an option with its usual value excludes nothing"


def test_a_wrong_command_line_is_reported_as_without_settings(run: Run, project: Path, plain: Path) -> None:
    write(project, "[fuse]\nquiet = true\n")
    done = run("fuse", plain, "--no-such-option")
    assert done.code == 2 and "No such option" in done.err


def test_a_file_that_can_not_be_read_is_an_error_and_is_not_skipped(run: Run, project: Path, plain: Path) -> None:
    """A user whose settings are ignored in silence does not learn why."""
    write(project, 'target = "standard"\n')
    broken = write(project / "below", "[tool.onnx-subgraph]\ntarget = \n", "pyproject.toml")
    done = run("fuse", plain, "--dry-run")
    assert done.code == 2 and f"Error: {broken}: " in done.err and "hint: " in done.err
    broken.write_text('[tool]\n"onnx-subgraph" = 3\n', encoding="utf-8")
    done = run("fuse", plain, "--dry-run")
    assert done.code == 2 and f"{broken}: tool.onnx-subgraph is 3, and no table" in done.err
    broken.write_text("[tool.other]\nx =", encoding="utf-8")
    assert target(run) == "standard", "another tool's mistake is no concern of ours"
    broken.unlink()
    own = project / "below" / "onnx-subgraph.toml"
    own.mkdir()
    done = run("fuse", plain, "--dry-run")
    assert done.code == 2 and f"Error: {own}: " in done.err
    own.rmdir()
    own.symlink_to(project / "none.toml")
    done = run("fuse", plain, "--dry-run")
    assert done.code == 2 and f"{own}: No such file or directory\nhint: name another with --settings" in done.err


def test_a_byte_order_mark_is_no_mistake(run: Run, project: Path) -> None:
    """Editors of Windows write one."""
    (project / "onnx-subgraph.toml").write_text('target = "standard"\n', encoding="utf-8-sig")
    assert target(run) == "standard"
    (project / "below" / "pyproject.toml").write_text('[tool.onnx-subgraph]\ntarget = "function"\n', encoding="utf-8-sig")
    assert target(run) == "function"


def test_to_name_a_file_and_to_want_none_is_a_contradiction(run: Run, project: Path, plain: Path) -> None:
    settings = write(project, 'target = "standard"\n')
    done = run("--settings", settings, "--no-settings", "fuse", plain, "--dry-run")
    assert done.code == 2 and "--settings and --no-settings exclude each other; leave one out" in done.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[fuse]\nskip = ["gelux"]', "there is no pattern `gelux`\nhint: did you mean"),
        ('targte = "function"', "targte is no option of a command\nhint: did you mean 'target'?"),
        ("[fuze]\nseed = 1", "[fuze] is no command\nhint: did you mean 'fuse'?"),
        ("[fuse]\nsede = 1", "fuse.sede is no option of fuse\nhint: did you mean 'seed'?"),
        ("[fuse]\nno-verify = 1", "no-verify = 1 is no value of this option\nhint: write true or false"),
        ("[fuse]\nseed = [1]", "seed = [1] is no value of this option"),
        ("[fuse]\nskip = [[1]]", "hint: write a list of texts or numbers"),
        ("[fuse]\nseed =", "Invalid value (at end of document)"),
        ('[fuse]\ntarget = "none"', "'none' is not one of"),
        ('executor = "dask://host:1"', "executor loads code, which only a file named with --settings may do"),
        ('custom-op-library = "x.so"', "custom-op-library loads code, which only a file named with --settings may do"),
    ],
)
def test_a_mistake_is_reported_with_its_file(run: Run, project: Path, text: str, said: str) -> None:
    path = write(project, text)
    done = run("fuse", MODEL, "--dry-run")
    assert done.code == 2 and said in done.err and str(path) in done.err


@pytest.mark.parametrize(
    "text",
    ["name: pack\nversion: 1.0.0\nlibraries: [evil.so]\n", '{name: pack, version: 1.0.0, "libraries": [evil.so]}'],
    ids=["block", "flow"],
)
def test_a_pack_with_libraries_is_loaded_only_if_the_user_names_the_file(run: Run, project: Path, text: str) -> None:
    (project / "pack").mkdir()
    write(project / "pack", text, "pack.yaml")
    write(project / "pack", GATE, "gate.yaml")
    path = write(project, 'patterns = "pack"')
    done = run("list-patterns")
    assert done.code == 2 and "the pack pack loads libraries, which only a file named with --settings may do" in done.err
    named = run("--settings", path, "list-patterns")
    assert named.code == 0 and "gate" in named.out, "who names the file has named what it names"


def test_sessions_ignore_settings_files(project: Path) -> None:
    from onnx_subgraph import InferenceSession, SessionSettings

    write(project / "below", "[fuse]\nsede = 1")
    session = InferenceSession(MODEL, settings=SessionSettings(cache=project / "cache", strict=True))
    assert session.prepared.fusions
