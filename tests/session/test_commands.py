"""Commands in child processes: what they are told, how long they may run, and what becomes of their answers."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable
from multiprocessing import spawn
from pathlib import Path

import pytest

from onnx_subgraph.errors import SessionError
from onnx_subgraph.session import commands
from onnx_subgraph.session.commands import FailedError, Patience, run
from onnx_subgraph.session.digest import PACKAGE

PATIENT = Patience(60.0, None)
Told = Callable[..., dict[str, object]]

posix = pytest.mark.skipif(os.name != "posix", reason="a script stands in for Python")


@pytest.fixture
def told(tmp_path: Path) -> Told:
    """Run a command with a script of the shell in the place of Python."""
    before = spawn.get_executable()

    def by(script: str, patience: Patience = PATIENT) -> dict[str, object]:
        (tmp_path / "python").write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (tmp_path / "python").chmod(0o755)
        multiprocessing.set_executable(str(tmp_path / "python"))
        try:
            return run(("fuse",), tmp_path / "m.onnx", tmp_path / "out.onnx", patience)
        finally:
            multiprocessing.set_executable(before)

    return by


def test_a_settings_file_has_no_effect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of the command line are for the user's own calls; one that can't be read would end every command."""
    (tmp_path / "onnx-subgraph.toml").write_text("?", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FailedError, match=r"absent\.onnx"):
        run(("fuse",), tmp_path / "absent.onnx", tmp_path / "out.onnx", PATIENT)


@posix
def test_a_command_has_the_import_path_of_the_program_and_none_of_its_settings(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {"ONNX_SUBGRAPH_ISA": "avx2", "ONNX_SUBGRAPH_KERNELS": "here", "OTHER": "1"}
    for name, value in {**kept, "ONNX_SUBGRAPH_BACKEND": "openvino", "ONNX_SUBGRAPH_SESSION": "1"}.items():
        monkeypatch.setenv(name, value)
    elsewhere = [place for place in sys.path if place != str(PACKAGE.parent)]
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(PACKAGE / "session" / "site"), *elsewhere])
    names = (*kept, "ONNX_SUBGRAPH_BACKEND", "ONNX_SUBGRAPH_SESSION", "PYTHONPATH")
    given = " ".join(f'"${name}"' for name in names)
    found = told(f"printf '{json.dumps(dict.fromkeys(names, '%s'))}' {given}")
    first, *others = str(found.pop("PYTHONPATH")).split(os.pathsep)
    assert found == {**kept, "ONNX_SUBGRAPH_BACKEND": "", "ONNX_SUBGRAPH_SESSION": "0"}
    assert first == str(tmp_path) and str(PACKAGE.parent) in others and str(PACKAGE / "session" / "site") not in others


@posix
@pytest.mark.parametrize("code", [0, 1, 2])
def test_an_answer_counts_whatever_the_verdict(told: Told, code: int) -> None:
    assert told(f"""echo '{{"found": 1}}'; exit {code}""") == {"found": 1}


@posix
@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo '{}'; exit 3", "`onnx-subgraph fuse` ended with exit code 3"),
        ("echo '{}'; kill -9 $$", "`onnx-subgraph fuse` ended with signal 9"),
        ("echo 1 >&2; echo 'Error: a' >&2; echo b >&2; echo c >&2", "`onnx-subgraph fuse` ended with exit code 0: a b c"),
        ("echo '[]'", "`onnx-subgraph fuse` ended with exit code 0"),
        ("""echo '{"error": "no such file"}'; exit 2""", "no such file"),
    ],
)
def test_without_an_answer_the_error_says_how_the_command_ended(told: Told, script: str, message: str) -> None:
    with pytest.raises(FailedError) as caught:
        told(script)
    assert caught.value.message == message


@posix
@pytest.mark.parametrize("ended", ["stopped", "late"])
def test_a_command_that_is_not_waited_for_ends(told: Told, tmp_path: Path, ended: str) -> None:
    stop = threading.Event()
    if ended == "stopped":
        stop.set()
    message = {"stopped": "it was not waited for", "late": "`onnx-subgraph fuse` took longer than 0 s"}[ended]
    with pytest.raises(SessionError) as caught:
        told(f"sleep 1; touch {tmp_path}/done; echo '{{}}'", Patience(60.0 if ended == "stopped" else 0.0, stop))
    assert caught.value.message == message and isinstance(caught.value, FailedError) == (ended == "late")
    assert not (tmp_path / "done").exists()


@posix
def test_a_python_that_does_not_start_is_named(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "_python", lambda: "/no/such/python")
    with pytest.raises(SessionError, match="/no/such/python can't be run: No such file"):
        told("")


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="the system has no policy for idle time")
@pytest.mark.parametrize("aside", [True, False])
def test_a_command_in_the_background_runs_when_nothing_else_does(
    told: Told, monkeypatch: pytest.MonkeyPatch, aside: bool
) -> None:
    policies: list[int] = []
    monkeypatch.setattr(os, "sched_setscheduler", lambda pid, policy, parameters: policies.append(policy))
    assert told("echo '{}'", Patience(60.0, None, aside=aside)) == {}
    assert policies == [os.SCHED_IDLE] * aside
