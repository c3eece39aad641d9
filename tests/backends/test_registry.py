"""Backends are found by name, including those of other packages. Only the requested backend is imported."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from onnx_subgraph.backends import names
from onnx_subgraph.backends.names import backend_names
from onnx_subgraph.backends.registry import find_backend
from onnx_subgraph.errors import UsageError
from tests.engine.backends import Scripted

ROOT = Path(__file__).parents[2]


def register(monkeypatch: pytest.MonkeyPatch, **places: str) -> None:
    points = EntryPoints(EntryPoint(name, place, names.GROUP) for name, place in places.items())
    monkeypatch.setattr(names, "entry_points", lambda group: points.select(group=group))


def test_the_built_in_backends_are_listed() -> None:
    assert backend_names()[:3] == ("onnxruntime", "openvino", "reference")
    assert find_backend("onnxruntime").name == "onnxruntime" and find_backend("reference").version


def test_a_package_registers_one_under_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, mine="tests.engine.backends:Scripted")
    assert backend_names()[-1] == "mine" and isinstance(find_backend("mine"), Scripted)


def test_options_follow_a_colon_and_are_part_of_the_name() -> None:
    assert find_backend("onnxruntime:CPUExecutionProvider").name == "onnxruntime:CPUExecutionProvider"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("reference:fast", "backend reference takes no options"),
        ("onnxruntime:CPU", "execution provider CPU is not in this onnxruntime"),
        ("nobody:fast", "there is no backend nobody;"),
    ],
)
def test_an_unknown_option_is_an_error(name: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        find_backend(name)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("no.such.module:Thing", "backend mine can't be loaded from no.such.module:Thing"),
        ("tests.engine.backends:Nothing", "has no attribute 'Nothing'"),
        ("tests.engine.backends:region", "is no Backend"),
    ],
)
def test_a_backend_that_can_not_be_created_is_named(place: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, mine=place)
    with pytest.raises(UsageError, match=words):
        find_backend("mine")


def test_without_its_library_openvino_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(UsageError, match=r"needs the package openvino(?s:.)*pip install 'onnx-subgraph\[openvino\]'"):
        find_backend("openvino")


def test_listing_names_imports_no_backend() -> None:
    code = (
        "import sys; from onnx_subgraph.backends.names import backend_names; backend_names(); "
        "print([m for m in ('openvino', 'onnxruntime') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
