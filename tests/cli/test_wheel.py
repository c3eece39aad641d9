"""The wheel: what is installed holds the patterns and the tables, and finds them without a checkout."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from onnx_subgraph.language.library import headers
from tests.cli.conftest import ROOT

pytest.importorskip("hatchling", reason="the wheel is built with what is installed, without a network")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a wheel of this checkout unpacks to."""
    folder = tmp_path_factory.mktemp("wheel")
    code = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, cwd=ROOT, check=True)
    with zipfile.ZipFile(folder / done.stdout.split()[-1]) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_everything_that_is_no_python_is_in_the_wheel(wheel: Path) -> None:
    inside = [f for f in (ROOT / "onnx_subgraph").rglob("*") if f.suffix in {".json", ".jinja", ".css"} or f.name == "py.typed"]
    beside = list((ROOT / "patterns").rglob("*.yaml"))
    kernels = ["onnx_subgraph/kernels/source" / f.relative_to(ROOT / "kernels") for f in (ROOT / "kernels").glob("*.[ch]")]
    assert kernels
    for file in (*(f.relative_to(ROOT) for f in inside), *("onnx_subgraph" / f.relative_to(ROOT) for f in beside), *kernels):
        assert (wheel / file).is_file(), f"{file} is not in the wheel"
    assert not (wheel / "cli.py").exists(), "cli.py runs from a checkout and is no module"


def test_an_installed_wheel_lists_the_same_patterns(wheel: Path, tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import onnx_subgraph; from onnx_subgraph.language.library import headers;"
        "print(onnx_subgraph.__file__); print(*sorted(h.id for h in headers()))"
    )
    command = [sys.executable, "-P", "-c", code, str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    home, ids = done.stdout.splitlines()
    assert Path(home).is_relative_to(wheel)
    assert ids.split() == sorted(header.id for header in headers())


def test_an_installed_wheel_finds_the_sources_of_the_kernels(wheel: Path, tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "from onnx_subgraph.kernels.build import source_folder; print(source_folder())"
    )
    command = [sys.executable, "-P", "-c", code, str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert Path(done.stdout.strip()) == wheel / "onnx_subgraph" / "kernels" / "source"


def test_the_package_says_its_license_and_command(wheel: Path) -> None:
    (info,) = wheel.glob("*.dist-info")
    assert "License-Expression: Apache-2.0" in (info / "METADATA").read_text(encoding="utf-8")
    assert (info / "licenses" / "LICENSE").is_file()
    assert "onnx-subgraph = onnx_subgraph.__main__:main" in (info / "entry_points.txt").read_text(encoding="utf-8")
