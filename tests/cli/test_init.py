"""`init` writes a pack that proves and installs, and overwrites nothing. Watching proves each saved change."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from onnx_subgraph.cli import watching
from onnx_subgraph.language.pack import read_pack
from tests.cli.conftest import Run


def test_a_new_pack_proves(run: Run, tmp_path: Path) -> None:
    done = run("init", tmp_path / "my-pack")
    assert done.code == 0 and "my-pack is written" in done.out
    package = tmp_path / "my-pack" / "my_pack"
    proved = run("test-patterns", "squared-relu", "--patterns", package)
    assert proved.code == 0 and "squared-relu" in proved.out
    assert "my-pack 0.1.0" in run("list-patterns", "squared-relu", "--patterns", package).out


def test_pip_is_given_a_folder_and_not_the_name_of_a_published_package(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "pip install ./ip " in run("init", "ip").out
    assert f"pip install {tmp_path / 'other'} " in run("init", tmp_path / "other").out


def test_the_folder_around_a_pack_is_an_error_that_names_the_pack(run: Run, tmp_path: Path) -> None:
    run("init", tmp_path / "mine")
    result = run("list-patterns", "--patterns", tmp_path / "mine")
    assert result.code == 2
    assert f"hint: give the pack itself: {tmp_path / 'mine' / 'mine'}" in result.err


def test_it_installs_under_its_name(run: Run, tmp_path: Path) -> None:
    answer = run("init", tmp_path / "somewhere", "--name", "our-fusions", "--json").json
    assert answer["name"] == "our-fusions" and all(Path(file).is_file() for file in answer["files"])
    project = tomllib.loads((tmp_path / "somewhere" / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["onnx_subgraph.packs"] == {"our-fusions": "our_fusions"}
    files = sorted((tmp_path / "somewhere").rglob("*.yaml"))
    kept = project["tool"]["setuptools"]["package-data"]["our_fusions"]
    assert all(any(file.match(f"our_fusions/{glob}") for glob in kept) for file in files) and len(files) == 2


@pytest.mark.parametrize("name", ["My-Pack", "my_pack", "-x", "1st", "a b", ""])
def test_an_invalid_name_is_an_error(run: Run, tmp_path: Path, name: str) -> None:
    done = run("init", tmp_path / "new", "--name", name)
    assert done.code == 2 and "can't be the name of a pack" in done.err and not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["onnx-subgraph", "json", "class", "import"])
def test_a_name_that_python_gives_another_meaning_is_an_error(run: Run, tmp_path: Path, name: str) -> None:
    """The pack could be written and installed, but not imported, so no command would find its patterns."""
    done = run("init", tmp_path / name)
    assert done.code == 2 and "has a meaning in Python" in done.err and "hint: give another name with --name" in done.err
    assert not list(tmp_path.iterdir())
    assert run("init", tmp_path / name, "--name", "my-pack").code == 0, "the folder may have any name"


def test_a_pack_is_as_readable_as_other_folders(run: Run, tmp_path: Path) -> None:
    run("init", tmp_path / "my-pack")
    assert (tmp_path / "my-pack").stat().st_mode & 0o777 == 0o755


def test_a_file_in_the_way_stays(run: Run, tmp_path: Path) -> None:
    (tmp_path / "my-pack").write_text("mine")
    done = run("init", tmp_path / "my-pack")
    assert done.code == 2 and "is there already" in done.err and (tmp_path / "my-pack").read_text() == "mine"


def test_a_pack_that_cannot_be_moved_into_its_place_leaves_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "rename", fail)
    done = run("init", tmp_path / "my-pack")
    assert done.code == 2 and "disk full" in done.err and not list(tmp_path.iterdir())


def test_nothing_is_overwritten(run: Run, tmp_path: Path) -> None:
    (tmp_path / "my-pack").mkdir()
    assert run("init", tmp_path / "my-pack").code == 0, "an empty folder is as good as none"
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    done = run("init", tmp_path / "my-pack")
    assert done.code == 2 and "is there already" in done.err
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_a_folder_that_cannot_be_written(run: Run, tmp_path: Path) -> None:
    done = run("init", tmp_path / "missing" / "my-pack")
    assert done.code == 2
    wanted = f"can't be written: there is no folder {tmp_path / 'missing'}\nhint: make it first, or name another folder"
    assert wanted in done.err and not list(tmp_path.iterdir())


def test_watching_proves_changes_and_waits_until_mistakes_are_corrected(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("init", tmp_path / "my-pack")
    package = tmp_path / "my-pack" / "my_pack"
    file = package / "activation" / "squared_relu.yaml"
    good = file.read_text()
    edits = iter([good.replace("Relu(x)", "Relu(x"), good.replace("** 2", "** 3"), None])

    def turn(_: float) -> None:
        edit = next(edits)
        if edit is None:
            raise KeyboardInterrupt
        file.write_text(edit)
        os.utime(file, ns=(0, file.stat().st_mtime_ns + 1))

    monkeypatch.setattr(watching.time, "sleep", turn)
    done = run("test-patterns", "--patterns", package, "--watch")
    assert done.code == 2 and "Interrupted" in done.err
    assert done.out.count("squared-relu") >= 2 and "squared_relu.yaml:3:" in done.err
    assert done.err.count("^C ends it") == 3


def test_only_changed_patterns_and_those_that_share_a_change_are_proved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [tmp_path / name for name in ("a.yaml", "b.yaml", "group/c.yaml", "group/formulas.yaml", "notes.txt")]
    (tmp_path / "group").mkdir()
    for file in files:
        file.write_text("x")
    edits: Iterator[Path] = iter([files[0], files[4], files[3]])
    monkeypatch.setattr(watching.time, "sleep", lambda _: next(edits).write_text("more"))
    seen = watching.changes([tmp_path])
    assert next(seen) == set(files[:4])
    assert next(seen) == {files[0]}
    assert next(seen) == {files[2], files[3]}, "a text is nobody's"


def test_watching_needs_something_to_watch(run: Run) -> None:
    done = run("test-patterns", "--watch")
    assert done.code == 2 and "nothing to watch" in done.err


def test_the_pack_file_reads(run: Run, tmp_path: Path) -> None:
    run("init", tmp_path / "p")
    assert read_pack(tmp_path / "p" / "p").name == "p"


@pytest.mark.parametrize("name", ["numpy", "onnx-ir", "yaml"])
def test_the_name_of_an_installed_package_is_an_error(run: Run, tmp_path: Path, name: str) -> None:
    """`pip install` of the pack would replace that package, or hide it."""
    done = run("init", tmp_path / name)
    assert done.code == 2 and not list(tmp_path.iterdir())
    assert "is a package that is installed here" in done.err and "hint: give another name with --name" in done.err
