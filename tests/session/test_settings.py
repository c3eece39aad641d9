"""Settings come from environment variables, and an invalid variable is named."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnx_subgraph import InferenceSession, SessionSettings, StaticSession, UsageError
from onnx_subgraph.session.settings import VARIABLES, asked_for, cache_folder, is_strict

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


def test_the_other_variables_set_their_settings_too() -> None:
    """White space, empty parts and capitals mean nothing, and 0 is a number where it can be used."""
    given = {
        "STATIC": " 1 ",
        "TARGET": "native",
        "NUMERICS": "bf16",
        "SKIP": "gelu, ,",
        "PATTERNS": os.pathsep.join(["", "a", ""]),
        "CUSTOM_OP_LIBRARIES": os.pathsep.join(["", "b", "c"]),
        "CONSTANT_INITIALIZERS": "YES",
        "KEEP_SUBNORMALS": "True",
        "SIMPLIFY": "OFF",
        "DEADLINE": "0.5",
        "CHECK": "0",
        "RETRY": "0",
        "CACHE": "Off",
        "CACHE_SIZE": "512KiB",
        "BACKEND": "None",
        "MEASURE": "",
    }
    assert SessionSettings.of_environment({f"ONNX_SUBGRAPH_{name}": text for name, text in given.items()}) == SessionSettings(
        static=True,
        target="native",
        numerics="bf16",
        skip=("gelu",),
        patterns=Path("a"),
        libraries=("b", "c"),
        constant_initializers=True,
        keep_subnormals=True,
        simplify=False,
        deadline=0.5,
        check=0.0,
        retry=0.0,
        cache=None,
        cache_bytes=512 << 10,
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("STRICT", "perhaps"),
        ("CACHE_SIZE", "much"),
        ("CACHE_SIZE", "-1"),
        ("CACHE_SIZE", "nan"),
        ("CACHE_SIZE", "5q"),
        ("CACHE_SIZE", "1e30"),
        ("TIMEOUT", "0"),
        ("DEADLINE", "0"),
        ("CHECK", "2"),
        ("BACKEND", ";"),
        ("TARGET", "nativ"),
        ("NUMERICS", "bf17"),
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
    [
        ("", "", False),
        ("1", "", True),
        ("", "openvino", True),
        ("0", "openvino", False),
        ("1", "off", True),
        ("", "off", False),
        ("perhaps", "openvino", False),
    ],
)
def test_a_variable_turns_the_hook_on_or_off(session: str, backend: str, asked: bool) -> None:
    assert asked_for({"ONNX_SUBGRAPH_SESSION": session, "ONNX_SUBGRAPH_BACKEND": backend}) is asked


def test_a_variable_for_static_sessions_turns_the_hook_on_too() -> None:
    assert asked_for({"ONNX_SUBGRAPH_STATIC": "1"})
    assert not asked_for({"ONNX_SUBGRAPH_STATIC": "1", "ONNX_SUBGRAPH_SESSION": "0"})
    assert not asked_for({"ONNX_SUBGRAPH_STATIC": "0"})


def test_failures_raise_where_a_variable_asks_for_it() -> None:
    assert [is_strict({"ONNX_SUBGRAPH_STRICT": text}) for text in ("1", "", "OFF", "perhaps")] == [True, False, False, True]


def test_every_variable_is_documented() -> None:
    page = (ROOT / "docs" / "sessions.md").read_text(encoding="utf-8")
    for name in VARIABLES:
        assert f"`ONNX_SUBGRAPH_{name}`" in page


def test_one_name_needs_no_list_and_several_may_be_in_one() -> None:
    assert SessionSettings(skip="gelu").skip == SessionSettings(skip=["gelu"]).skip == ("gelu",)
    assert SessionSettings(backend=["openvino", "onnxruntime"]).backend == "openvino;onnxruntime"


@pytest.mark.parametrize(
    "wrong",
    [
        {"backend": ""},
        {"backend": ";"},
        {"backend": []},
        {"check": 5},
        {"check": -1},
        {"check": float("nan")},
        {"retry": float("inf")},
        {"retry": -1},
        {"timeout": -1},
        {"deadline": 0},
        {"cache_bytes": "1G"},
        {"cache_bytes": -1},
        {"cache": b"folder"},
        {"target": "nativ"},
        {"numerics": "bf17"},
        {"numerics": "bf17", "target": "native"},
        {"numerics": "bf16"},
    ],
    ids=str,
)
def test_settings_that_cannot_be_used_are_refused_with_a_hint(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))) as raised:
        SessionSettings(**wrong)
    assert raised.value.hint


def test_settings_and_limits_of_another_class_are_refused(gelu: Path) -> None:
    with pytest.raises(UsageError, match="settings is of type dict"):
        InferenceSession(gelu, settings={"backend": None})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="limits is of type int"):
        StaticSession(gelu, limits=5)  # type: ignore[arg-type]


def test_paths_stay_where_they_are_when_the_program_changes_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = SessionSettings(cache="here", patterns="patterns", libraries=["a.so"], backend="camera.yaml; openvino")
    read = SessionSettings.of_environment({"ONNX_SUBGRAPH_PATTERNS": "patterns", "ONNX_SUBGRAPH_BACKEND": "camera.yaml"})
    monkeypatch.chdir(tmp_path.parent)
    made, read = replace(made), replace(read)
    assert made.cache == tmp_path / "here"
    assert made.patterns == read.patterns == (tmp_path / "patterns",)
    assert made.libraries == (tmp_path / "a.so",)
    assert made.backend == f"{tmp_path / 'camera.yaml'};openvino"
    assert read.backend == str(tmp_path / "camera.yaml")


def test_a_schedule_finds_the_patterns_of_its_session(gelu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session was made in another folder."""
    monkeypatch.chdir(tmp_path)
    grow = "{select: node.operator == 'Erf', output: consumer.operator == 'Add'}"
    Path("mine.yaml").write_text(f"id: mine\nsummary: x\ngrow: {grow}\nreplace: {{function: My}}\n")
    here = SessionSettings(patterns="mine.yaml", target="function", cache="cache", strict=True)
    session = StaticSession(gelu, settings=here)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert session.warm({"x": np.zeros((2, 8), np.float32)}, 60)
