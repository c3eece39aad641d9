"""`--resume`: a killed run continues where it stopped, and every model whose result could differ is made again."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnx_subgraph import pipeline
from onnx_subgraph.cli.tuning import Tuner
from onnx_subgraph.options import Options
from tests.cli.conftest import GELU, Run, forked, save

PATTERN = """
id: mine
summary: {}
match: y = Abs(x)
example: {{x: "float32[2, 8]"}}
"""


@pytest.fixture
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Five models."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "zoo").mkdir()
    for number in range(5):
        save(GELU.replace("8]", f"{number + 4}]"), tmp_path / "zoo" / f"{number}.onnx")
    return tmp_path


@pytest.fixture
def fused(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the models, recorded as they are fused."""
    names: list[str] = []
    real = pipeline.fuse

    def fuse(model: Path, *rest: Any) -> object:
        names.append(model.name)
        return real(model, *rest)

    monkeypatch.setattr(pipeline, "fuse", fuse)
    return names


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.skipif(sys.platform == "win32", reason="signals as on POSIX")
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_killed_run_goes_on_where_it_was(zoo: Path, cache: Path, run: Run, fused: list[str], jobs: str) -> None:
    """The files equal those of an uninterrupted run bit for bit, and finished models are not fused again."""
    assert run("fuse", "zoo", "--output-dir", "whole").code == 0
    command = ["fuse", str(zoo / "zoo"), "--output-dir", str(zoo / "out"), "-j", jobs]
    (zoo / "program").mkdir()
    killed = forked(KILLED, *command, folder=zoo / "program", ONNX_SUBGRAPH_CACHE=str(cache))
    assert killed.code == -signal.SIGKILL
    done = {path.name for path in (zoo / "out").glob("*.onnx")}
    assert len(done) >= 2 and done < {f"{number}.onnx" for number in range(5)}  # two processes finish in any order
    fused.clear()
    resumed = run(*command[:4], "--resume", "--json")
    assert resumed.code == 0
    assert len(fused) <= 3 and len(done - {*fused}) >= 2
    assert files(zoo / "out") == files(zoo / "whole")
    reports = resumed.json["models"]
    assert [Path(report["model"]).name for report in reports] == [f"{number}.onnx" for number in range(5)]
    assert [report.get("resumed", False) for report in reports] == [f"{number}.onnx" not in fused for number in range(5)]
    assert f"{5 - len(fused)} of 5 models left out, because an earlier run has fused them" in resumed.err


KILLED = """
import multiprocessing, os, signal, sys
from onnx_subgraph.cli import main, resuming


class Notes(resuming.Notes):
    count = 0
    def keep(self, task, report):
        super().keep(task, report)
        Notes.count += 1
        if Notes.count == 2:
            os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":  # and not where a process of its own reads this
    multiprocessing.current_process()._config["daemon"] = False  # so that it may have such
    resuming.Notes = Notes
    sys.exit(main())
"""


def change_model(zoo: Path) -> list[str]:
    save(GELU.replace("8]", "5]").replace("gelu (", "other ("), zoo / "zoo" / "1.onnx")
    return []


def change_output(zoo: Path) -> list[str]:
    (zoo / "out" / "1.onnx").write_bytes((zoo / "zoo" / "1.onnx").read_bytes())
    return []


def remove_output(zoo: Path) -> list[str]:
    (zoo / "out" / "1.onnx").unlink()
    return []


def change_pattern(zoo: Path) -> list[str]:
    (zoo / "mine.yaml").write_text(PATTERN.format("another text"), encoding="utf-8")
    return []


@pytest.mark.parametrize(
    ("change", "again"),
    [
        (lambda zoo: [], 0),
        (change_model, 1),
        (change_output, 1),
        (remove_output, 1),
        (change_pattern, 5),
        (lambda zoo: ["--target", "standard"], 5),
        (lambda zoo: ["--rtol", "0.1"], 5),
        (lambda zoo: ["--prefer", "fusion"], 5),
    ],
    ids=["nothing", "a model", "an output", "no output", "a pattern", "the target", "the bound", "what is preferred"],
)
def test_a_model_whose_inputs_changed_is_fused_again(
    zoo: Path, run: Run, fused: list[str], change: Callable[[Path], list[str]], again: int
) -> None:
    (zoo / "mine.yaml").write_text(PATTERN.format("a text"), encoding="utf-8")
    command = ["fuse", "zoo", "--output-dir", "out", "--patterns", "mine.yaml"]
    assert run(*command).code == 0
    assert len(fused) == 5
    fused.clear()
    options = change(zoo)
    assert run(*command, *options, "--resume").code == 0
    assert len(fused) == again
    fused.clear()
    assert run(*command, *options, "--resume").code == 0
    assert fused == []


def test_another_version_fuses_all_again(zoo: Path, run: Run, fused: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("fuse", "zoo", "--output-dir", "out").code == 0
    fused.clear()
    monkeypatch.setattr("onnx_subgraph.session.ingredients.versions", lambda: "another")
    assert run("fuse", "zoo", "--output-dir", "out", "--resume").code == 0
    assert len(fused) == 5


@pytest.mark.parametrize(
    ("changed", "again"),
    [("model", ["1.onnx"]), ("model of an older time", ["1.onnx"]), ("inputs", ["1.onnx", "2.onnx"])],
)
def test_a_model_whose_files_change_while_it_is_fused_is_not_recorded(
    changed: str, again: list[str], zoo: Path, run: Run, fused: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [save(GELU, zoo / "zoo" / f"{number}.onnx") for number in (1, 2)]
    np.savez(inputs := zoo / "feeds.npz", x=np.ones((2, 8), np.float32))
    command = ["fuse", *models, "--output-dir", "out", "--inputs", inputs]
    real = pipeline.fuse

    def fuse(model: Path, *rest: Any) -> object:
        result = real(model, *rest)
        if changed == "inputs":
            np.savez(inputs, x=np.zeros((2, 8), np.float32))
        elif model == models[0]:
            model.write_bytes(model.read_bytes() + b"\x22\x00")  # an empty field
            if "older" in changed:
                os.utime(model, (1e9, 1e9))
        return result

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "fuse", fuse)
        assert run(*command).code == 0
    fused.clear()
    assert run(*command, "--resume").code == 0
    assert fused == again


def test_measured_choices_are_not_recorded(zoo: Path, run: Run, fused: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`--tune` chooses the fusions by measured times, which may differ in a later run."""
    monkeypatch.setattr(Tuner, "measure", property(lambda tuner: as_it_is if tuner.tune else None))
    assert run("fuse", "zoo", "--output-dir", "out", "--tune").code == 0
    fused.clear()
    assert run("fuse", "zoo", "--output-dir", "out", "--resume").code == 0
    assert len(fused) == 5


def as_it_is(model: Path, library: object, options: Options, tell: object) -> Options:
    return options


def test_a_failed_model_is_tried_again(zoo: Path, run: Run, fused: list[str]) -> None:
    (zoo / "zoo" / "3.onnx").write_bytes(b"no model")
    for _ in range(2):
        fused.clear()
        result = run("fuse", "zoo", "--output-dir", "out", "--resume")
        assert result.code == 2 and "4 of 5 models passed" in result.out
    assert fused == ["3.onnx"]


@pytest.mark.parametrize("option", [["--report", "pages"], ["--junit", "j.xml"], ["--write-expect", "e.yaml"], ["--dry-run"]])
def test_options_that_need_all_results_are_refused(zoo: Path, run: Run, option: list[str]) -> None:
    result = run("fuse", "zoo", "--output-dir", "out", "--resume", *option)
    assert result.code == 2
    assert f"{option[0]} needs the results of all models, but --resume leaves some out" in result.err
    assert not (zoo / "out").exists()


def test_without_a_cache_all_are_fused_with_a_message(
    zoo: Path, run: Run, fused: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONNX_SUBGRAPH_CACHE", "off")
    for _ in range(2):
        result = run("fuse", "zoo", "--output-dir", "out", "--resume")
        assert result.code == 0 and "nothing can be resumed, because there is no cache" in result.err
    assert len(fused) == 10
    assert os.environ["ONNX_SUBGRAPH_CACHE"] == "off"
