"""Settings come from environment variables, and an invalid variable is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onnx_subgraph import SessionSettings, UsageError
from onnx_subgraph.session.settings import VARIABLES, asked_for, cache_folder

ROOT = Path(__file__).parents[2]


def test_without_variables_all_settings_have_their_defaults() -> None:
    assert SessionSettings.of_environment({"HOME": "/home/me"}) == SessionSettings(cache=cache_folder({"HOME": "/home/me"}))


def test_each_variable_sets_its_setting() -> None:
    settings = SessionSettings.of_environment(
        {
            "ONNX_SUBGRAPH_SESSION": "0",
            "ONNX_SUBGRAPH_BACKEND": "openvino",
            "ONNX_SUBGRAPH_ISOLATED": "1",
            "ONNX_SUBGRAPH_MEASURE": "yes",
            "ONNX_SUBGRAPH_TARGET": "standard",
            "ONNX_SUBGRAPH_SKIP": "gelu, mish",
            "ONNX_SUBGRAPH_PATTERNS": os.pathsep.join(["a", "b"]),
            "ONNX_SUBGRAPH_VERIFY": "no",
            "ONNX_SUBGRAPH_STRICT": "1",
            "ONNX_SUBGRAPH_CACHE": "/somewhere",
            "ONNX_SUBGRAPH_CACHE_SIZE": "1.5G",
            "ONNX_SUBGRAPH_TIMEOUT": "7",
        }
    )
    assert settings == SessionSettings(
        enabled=False,
        backend="openvino",
        isolated=True,
        measure=True,
        target="standard",
        skip=("gelu", "mish"),
        patterns=(Path("a"), Path("b")),
        verify=False,
        strict=True,
        cache=Path("/somewhere"),
        cache_bytes=3 << 29,
        timeout=7.0,
    )
    assert SessionSettings.of_environment({"ONNX_SUBGRAPH_CACHE": "off"}).cache is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("STRICT", "perhaps"),
        ("CACHE_SIZE", "much"),
        ("CACHE_SIZE", "-1"),
        ("CACHE_SIZE", "nan"),
        ("TIMEOUT", "0"),
        ("BACKEND", ";"),
    ],
)
def test_an_invalid_variable_is_named(name: str, text: str) -> None:
    with pytest.raises(UsageError, match=f"ONNX_SUBGRAPH_{name}={text}"):
        SessionSettings.of_environment({f"ONNX_SUBGRAPH_{name}": text})


@pytest.mark.skipif(os.name != "posix", reason="the convention of Unix desktops")
def test_the_cache_is_in_the_platforms_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("HOME", "/home/me")
    assert cache_folder({"XDG_CACHE_HOME": "/caches"}) == Path("/caches/onnx-subgraph")
    assert cache_folder({"XDG_CACHE_HOME": "relative"}) == Path("/home/me/.cache/onnx-subgraph")


@pytest.mark.parametrize(
    ("session", "backend", "asked"),
    [("", "", False), ("1", "", True), ("", "openvino", True), ("0", "openvino", False), ("1", "off", True), ("", "off", False)],
)
def test_a_variable_turns_the_hook_on_or_off(session: str, backend: str, asked: bool) -> None:
    assert asked_for({"ONNX_SUBGRAPH_SESSION": session, "ONNX_SUBGRAPH_BACKEND": backend}) is asked


def test_every_variable_is_documented() -> None:
    page = (ROOT / "docs" / "sessions.md").read_text(encoding="utf-8")
    for name in VARIABLES:
        assert f"`ONNX_SUBGRAPH_{name}`" in page


def test_the_cache_stays_where_it_is_when_the_program_changes_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert SessionSettings(cache="here").cache == tmp_path / "here"
