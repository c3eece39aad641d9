"""The cache key depends on the content of everything that determines a prepared model, and on nothing else."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from onnx_subgraph import SessionSettings
from onnx_subgraph.kernels import build
from onnx_subgraph.session import digest, ingredients
from onnx_subgraph.session.digest import Memory

PATTERN = """
id: twice
summary: Two of the same
pattern: y = Add(x, x)
replacement: y = Mul(x, 2)
"""
CAPABILITY = """
id: camera
summary: A camera
runs: onnxruntime
operators:
  Relu:
"""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a pattern, a backend in YAML, a library, and an installed package with a backend and a selector."""
    (tmp_path / "patterns").mkdir()
    (tmp_path / "patterns" / "twice.yaml").write_text(PATTERN)
    (tmp_path / "patterns" / "own.so").write_bytes(b"machine code")
    (tmp_path / "camera.yaml").write_text(CAPABILITY)
    (tmp_path / "library.so").write_bytes(b"machine code")
    package = tmp_path / "site" / "plugged"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "backend.py").write_text("class Plugged: ...\n")
    (tmp_path / "site" / "solo.py").write_text("class Solo: ...\n")
    install(tmp_path, version="1", selector="plugged.backend:Plugged")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.delenv("ONNX_SUBGRAPH_ISA", raising=False)
    return tmp_path


def install(world: Path, *, version: str, selector: str) -> None:
    information = world / "site" / "plugged-1.dist-info"
    information.mkdir(exist_ok=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: plugged\nVersion: {version}\n")
    backends = "plugged = plugged.backend:Plugged\nsolo = solo:Solo\n"
    points = f"[onnx_subgraph.backends]\n{backends}[onnx_subgraph.selectors]\nmine = {selector}\n"
    (information / "entry_points.txt").write_text(points)


def settings(world: Path, **more: object) -> SessionSettings:
    given = {"backend": str(world / "camera.yaml"), "patterns": world / "patterns", "libraries": world / "library.so"}
    return replace(SessionSettings(cache=None), **(given | more))  # type: ignore[arg-type]


def key(world: Path, **more: object) -> str:
    return ingredients.ingredients(settings(world, **more), Memory(world / "memory"))


def edited(path: str, old: str, new: str) -> Callable[[Path], object]:
    def edit(world: Path) -> None:
        content = (world / path).read_bytes()
        assert old.encode() in content
        (world / path).write_bytes(content.replace(old.encode(), new.encode()))

    return edit


DECIDES: dict[str, Callable[[Path], object]] = {
    "a pattern": edited("patterns/twice.yaml", "Mul(x, 2)", "Mul(2, x)"),
    "a new pattern": lambda world: (world / "patterns" / "more.yaml").write_text(PATTERN.replace("twice", "more")),
    "a pattern that is gone": lambda world: (world / "patterns" / "twice.yaml").unlink(),
    "a backend in YAML": edited("camera.yaml", "Relu", "Tanh"),
    "what that backend runs on": edited("camera.yaml", "runs: onnxruntime", "runs: plugged"),
    "a library, by as many bytes": edited("library.so", "machine", "another"),
    "a library in a pack, by as many bytes": edited("patterns/own.so", "machine", "another"),
    "the code of a module": edited("site/solo.py", "...", "name = 'solo'"),
    "the code of a package": edited("site/plugged/backend.py", "...", "name = 'plugged'"),
    "a new file of a package": lambda world: (world / "site" / "plugged" / "kernels.yaml").write_text("x: 1"),
    "the version of a package": lambda world: install(world, version="2", selector="plugged.backend:Plugged"),
    "what a package registers": lambda world: install(world, version="1", selector="plugged.backend:Other"),
}
DOES_NOT: dict[str, Callable[[Path], object]] = {
    "nothing": lambda world: None,
    "the time of a file": lambda world: os.utime(world / "camera.yaml", (1, 1)),
    "a file that nobody reads": lambda world: (world / "patterns" / "notes.txt").write_text("later"),
    "compiled Python": lambda world: (world / "site" / "plugged" / "backend.pyc").write_bytes(b"x"),
    "a package that registers nothing": lambda world: (world / "site" / "other.py").write_text("x = 1"),
}


@pytest.mark.parametrize("edit", DECIDES.values(), ids=DECIDES)
def test_everything_relevant_changes_the_key(edit: Callable[[Path], object], world: Path) -> None:
    before = key(world)
    edit(world)
    assert key(world) != before


@pytest.mark.parametrize("edit", DOES_NOT.values(), ids=DOES_NOT)
def test_nothing_else_changes_the_key(edit: Callable[[Path], object], world: Path) -> None:
    before = key(world)
    edit(world)
    assert key(world) == before


def test_each_file_of_several_backends_is_part_of_the_key(world: Path) -> None:
    several = {"backend": f"plugged; {world / 'camera.yaml'}"}
    before = key(world, **several)
    DECIDES["a backend in YAML"](world)
    assert key(world, **several) != before


def test_of_a_package_of_very_many_files_only_the_version_counts(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingredients, "MOST_FILES", 1)
    before = key(world)
    DECIDES["the code of a package"](world)
    assert key(world) == before
    DECIDES["the version of a package"](world)
    assert key(world) != before


def test_a_file_that_is_not_there_has_a_key_too(world: Path) -> None:
    """The code that uses it reports the error."""
    missing = world / "missing.so"
    before = key(world, libraries=missing)
    missing.write_bytes(b"machine code")
    assert key(world, libraries=missing) != before


def test_the_sources_of_our_kernels_are_part_of_the_key_for_them(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "source_folder", lambda: world)
    (world / "rows.c").write_text("int one;")
    before = key(world), key(world, target="native")
    (world / "rows.c").write_text("int two;")
    assert (key(world) == before[0], key(world, target="native") == before[1]) == (True, False)


def test_the_processor_is_part_of_the_key_of_measured_choices(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ways: dict[str, dict[str, object]] = {"plain": {}, "measured": {"measure": True}, "native": {"target": "native"}}
    before = {name: key(world, **more) for name, more in ways.items()}
    monkeypatch.setattr(os, "cpu_count", lambda: 77)
    assert [key(world, **more) != before[name] for name, more in ways.items()] == [False, True, True]


@pytest.mark.parametrize("variable", ["ISA", "KERNELS"])
def test_the_choice_of_our_kernels_is_part_of_the_key_for_them(
    variable: str, world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = key(world), key(world, target="native")
    monkeypatch.setenv(f"ONNX_SUBGRAPH_{variable}", "avx2")
    assert (key(world) == before[0], key(world, target="native") == before[1]) == (True, False)


def test_the_version_of_onnxruntime_is_part_of_the_key(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    before = key(world)
    monkeypatch.setattr(onnxruntime, "__version__", "99.0")
    digest.versions.cache_clear()  # as in a new process
    try:
        assert key(world) != before
    finally:
        digest.versions.cache_clear()


def test_unchanged_files_are_not_read_again(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in world.rglob("*"):
        os.utime(path, (1, 1))
    before = key(world)
    read: list[Path] = []
    real = digest.file_digest
    monkeypatch.setattr(digest, "file_digest", lambda path: read.append(path) or real(path))
    assert key(world) == before and read == []


def test_no_plugin_is_imported_to_compute_its_digest(world: Path) -> None:
    (world / "site" / "plugged" / "__init__.py").write_text("raise SystemExit('imported')")
    key(world)
    assert "plugged" not in sys.modules
