"""The wheel contains the patterns and tables, and the installed package finds them without a checkout."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from onnx_subgraph.language.library import headers
from tests.cli.conftest import ROOT

MACHINES = {"x86_64": 62, "aarch64": 183}
"""Processors, and their numbers in an ELF file (`e_machine`)."""
pytest.importorskip("hatchling", reason="the wheel is built with what is installed, without a network")


DIST = os.environ.get("ONNX_SUBGRAPH_DIST")
"""A folder of distributions to try, as `make dist` makes them; without it a pure wheel is built and tried."""


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the distributions of this checkout."""
    if DIST:
        return ROOT / DIST
    folder = tmp_path_factory.mktemp("dist")
    code = "import sys; from hatchling import build; print(build.build_wheel(sys.argv[1]), build.build_sdist(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, cwd=ROOT, check=True)
    return folder


@pytest.fixture(scope="module", params=["any", "x86_64", "aarch64"])
def wheel(request: pytest.FixtureRequest, dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which a wheel is unpacked."""
    found = list(dist.glob(f"*-{request.param}.whl")) + list(dist.glob(f"*_{request.param}.whl"))
    if not found and not DIST:
        pytest.skip("`make dist` builds this one and tries it")
    (archive,) = found
    folder = tmp_path_factory.mktemp(request.param)
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(folder)
    return folder


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """The Python of an environment with the package's dependencies and nothing of this checkout."""
    venv.create(tmp_path / "venv", with_pip=False, symlinks=os.name == "posix")
    (python,) = (tmp_path / "venv").glob("*/python*[!0-9.]") if os.name == "nt" else [tmp_path / "venv" / "bin" / "python"]
    (site,) = {Path(sysconfig.get_path("purelib", vars={"base": str(tmp_path / "venv")}))}
    site.joinpath("needed.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return python


def test_a_wheel_fuses_a_model_and_has_its_kernels_where_there_is_no_checkout(wheel: Path, empty: Path, tmp_path: Path) -> None:
    """It runs in an environment of its own. A wheel for this processor contains the compiled library and needs no compiler."""
    environment = {"PATH": "", "PYTHONPATH": str(wheel), "XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)}

    def run(*words: str | Path) -> str:
        command = [empty, "-P", "-m", "onnx_subgraph", *words]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=True)
        return done.stdout

    (info,) = wheel.glob("*.dist-info")
    version = info.stem.split("-")[1]
    assert run("--version").split()[-1] == version
    fused = run("fuse", ROOT / "sample_models" / "gpt2_dynamo.onnx", "-o", "fused.onnx")
    assert "equivalent" in fused and (tmp_path / "fused.onnx").is_file()
    library = wheel / "onnx_subgraph" / "kernels" / "compiled" / "onnx_subgraph_kernels.so"
    if library.is_file() and wheel.name.startswith(platform.machine()):
        assert str(library) in run("kernels")


def test_a_wheel_for_one_processor_has_the_library_for_it(wheel: Path) -> None:
    library = wheel / "onnx_subgraph" / "kernels" / "compiled" / "onnx_subgraph_kernels.so"
    machine = next((number for name, number in MACHINES.items() if wheel.name.startswith(name)), None)
    assert library.is_file() == (machine is not None)
    if machine is not None:
        content = library.read_bytes()
        assert content[:4] == b"\x7fELF" and int.from_bytes(content[18:20], "little") == machine


def test_the_source_distribution_is_a_checkout(dist: Path) -> None:
    """It contains everything needed to test and build the package."""
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    wanted = ("pyproject.toml", "hatch_build.py", "Makefile", "README.md", "cli.py", "tests/conftest.py", "kernels/kernels.c")
    assert names >= {*wanted, "patterns/pack.yaml", "sample_models/gpt2_dynamo.onnx", "docs/README.md", "benchmarks/README.md"}


def test_every_data_file_is_in_the_wheel(wheel: Path) -> None:
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


def test_the_metadata_has_the_license_and_the_command(wheel: Path) -> None:
    (info,) = wheel.glob("*.dist-info")
    assert "License-Expression: Apache-2.0" in (info / "METADATA").read_text(encoding="utf-8")
    assert (info / "licenses" / "LICENSE").is_file()
    assert "onnx-subgraph = onnx_subgraph.__main__:main" in (info / "entry_points.txt").read_text(encoding="utf-8")
