"""The next process that writes to a folder removes what a killed process left there. Files of other processes stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from onnx_subgraph import temporary
from onnx_subgraph.cli import main
from onnx_subgraph.errors import ModelError
from onnx_subgraph.files.atomic import written_whole
from tests.cli.conftest import GELU, ROOT, save

POSIX = pytest.mark.skipif(os.name != "posix", reason="locks and signals as on POSIX")
HOST = temporary._HOST
DEAD = 2**22 + 1
"""No process has this number."""

KILLED = """
import os, signal, sys
from pathlib import Path
from onnx_subgraph import temporary
from onnx_subgraph.cli import main
from onnx_subgraph.errors import ModelError
from onnx_subgraph.files.atomic import written_whole

def die(*_): os.kill(os.getpid(), signal.SIGKILL)

folder, when = Path(sys.argv[1]), sys.argv[2]
with temporary.folder() as other, written_whole(folder / "m.onnx.data", folder / "m.onnx") as files:
    (other / "weights").write_bytes(b"many")
    for file in files:
        file.write(b"new")
    if when == "writing":
        die()
    replace, calls = Path.replace, []
    def counted(*paths):
        calls.append(paths)
        replace(*paths)
        if len(calls) == int(when):
            die()
    Path.replace = counted
"""


def killed(folder: Path, when: str) -> None:
    """Start a process that writes a model and its data into `folder`, and kill it. Its temporary folder is inside `folder`."""
    done = subprocess.run([sys.executable, "-c", KILLED, folder, when], cwd=ROOT, env={**os.environ, "TMPDIR": str(folder)})
    assert done.returncode == -signal.SIGKILL


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@POSIX
def test_the_next_write_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    killed(tmp_path, "writing")
    assert len(names(tmp_path)) == 3
    with written_whole(tmp_path / "other") as (file,):
        file.write(b"x")
    assert names(tmp_path) == {"other"}


@POSIX
@pytest.mark.parametrize(
    "when", ["1", "2", "3", "4"], ids=["set one aside", "set both aside", "put one in place", "put both in place"]
)
def test_a_model_and_its_data_are_both_old_or_both_new(tmp_path: Path, when: str) -> None:
    for name in ("m.onnx", "m.onnx.data"):
        (tmp_path / name).write_bytes(b"old")
    killed(tmp_path, when)
    temporary.sweep(tmp_path)
    assert names(tmp_path) == {"m.onnx", "m.onnx.data"}
    assert {path.read_bytes() for path in tmp_path.iterdir()} == {b"new" if when == "4" else b"old"}


@POSIX
def test_fuse_cleans_the_folders_that_it_writes_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    killed(tmp_path, "writing")
    killed(place, "writing")
    assert main(["fuse", str(save(GELU, tmp_path / "gelu.onnx"))]) == 0
    assert names(tmp_path) == {"gelu.onnx", "gelu.fused.onnx", "temporary"}
    assert names(place) <= {".ses"}  # onnxruntime's


def test_files_of_a_running_process_stay(tmp_path: Path) -> None:
    with written_whole(tmp_path / "a"):
        before = names(tmp_path)
        temporary.sweep(tmp_path)
        assert names(tmp_path) == before


@POSIX
def test_a_lock_protects_files_of_a_process_in_another_container(tmp_path: Path) -> None:
    """The process number is not in use here, but the process holds its lock."""
    path = tmp_path / f".m.onnx.onnx-subgraph-{HOST}-{DEAD}-0.tmp"
    path.touch()
    with temporary.locked(path):
        temporary.sweep(tmp_path)
        assert path.exists()
    temporary.sweep(tmp_path)
    assert not path.exists()


@pytest.mark.parametrize("process", [os.getpid(), DEAD], ids=["runs here", "does not run here"])
def test_files_from_another_machine_are_removed_after_a_day(tmp_path: Path, process: int) -> None:
    path = tmp_path / f".m.onnx.onnx-subgraph-another_{HOST}-{process}-0.tmp"
    path.touch()
    temporary.sweep(tmp_path)
    assert path.exists()
    os.utime(path, (0, 0))
    temporary.sweep(tmp_path)
    assert not path.exists()


@POSIX
def test_files_of_another_user_stay_while_the_process_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / (name := f".m.onnx.onnx-subgraph-{HOST}-{DEAD}-0.tmp")).touch()

    def refuse(*_: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    temporary.sweep(tmp_path)
    assert names(tmp_path) == {name}


@POSIX
def test_locks_protect_what_is_in_use_if_the_process_can_not_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As from another container."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(temporary, "_is_running", lambda pid: False)
    with temporary.folder(), written_whole(tmp_path / "m.onnx"):
        before = names(tmp_path)
        temporary.sweep(tmp_path)
        assert names(tmp_path) == before


@POSIX
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("lock", [temporary.alone, temporary.locked])
def test_a_forked_process_that_leaves_the_block_leaves_the_lock(
    tmp_path: Path, lock: Callable[[Path], AbstractContextManager[None]]
) -> None:
    (path := tmp_path / "lock").touch()
    left, leaving = os.pipe()
    with ExitStack() as block:
        block.enter_context(lock(path))
        child = os.fork()
        if not child:
            try:
                block.close()
                os.write(leaving, b"x")
            finally:  # whatever happens, it runs no more tests
                os._exit(0)
        os.close(leaving)
        assert os.read(left, 1)
        os.close(left)
        os.waitpid(child, 0)
        assert temporary._is_locked(path)


@POSIX
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("lock", [temporary.alone, temporary.locked])
def test_a_lock_is_free_though_a_process_was_forked_meanwhile(
    tmp_path: Path, lock: Callable[[Path], AbstractContextManager[None]]
) -> None:
    """As in a server that forks its workers while a thread prepares a model."""
    (path := tmp_path / "lock").touch()
    waiting, going = os.pipe()
    with lock(path):
        child = os.fork()
        if not child:  # it lives on, and leaves no block
            os.close(going)
            os.read(waiting, 1)
            os._exit(0)
    free = not temporary._is_locked(path)
    os.close(going)
    os.close(waiting)
    os.waitpid(child, 0)
    assert free


@POSIX
def test_a_link_with_such_a_name_stays(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"mine")
    (tmp_path / (name := f".m.onnx.onnx-subgraph-{HOST}-{DEAD}-0.tmp")).symlink_to("m.onnx")
    temporary.sweep(tmp_path)
    assert names(tmp_path) == {"m.onnx", name}


def test_a_file_is_written_to_a_folder_that_can_not_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path) -> Iterator[Path]:
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr(Path, "iterdir", refuse)
        with written_whole(tmp_path / "m.onnx") as (file,):
            file.write(b"x")
    assert names(tmp_path) == {"m.onnx"}


@POSIX
def test_work_that_another_process_did_not_complete_restores_nothing(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"new")
    (tmp_path / f".m.onnx.onnx-subgraph-{HOST}-{DEAD}-0.old").write_bytes(b"old")
    (tmp_path / f".n.onnx.onnx-subgraph-{HOST}-{DEAD + 1}-0.tmp").touch()
    temporary.sweep(tmp_path)
    assert names(tmp_path) == {"m.onnx"} and (tmp_path / "m.onnx").read_bytes() == b"new"


@POSIX
def test_a_program_that_goes_to_another_folder_cleans_that_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f".m.onnx.onnx-subgraph-{HOST}-{DEAD}-0.tmp").touch()
        monkeypatch.chdir(tmp_path / name)
        with written_whole(Path("m.onnx")) as (file,):
            file.write(b"x")
        assert names(tmp_path / name) == {"m.onnx"}


@pytest.mark.parametrize(
    "name",
    [
        ".m.onnx.1234567.0.tmp",
        "m.onnx.tmp",
        f"onnx-subgraph-{HOST}-{DEAD}-0.onnx",
        "onnx-subgraph-notes-2026-03-04",
        ".x.tmp",
    ],
)
def test_other_files_stay(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    os.utime(tmp_path / name, (0, 0))
    temporary.sweep(tmp_path)
    assert names(tmp_path) == {name}


def test_work_that_was_given_up_can_not_write_its_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After it was given up, the work can no longer move its temporary files into place."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "mine").write_bytes(b"old")
    files = temporary.separate()
    with pytest.raises(ModelError), temporary.folder() as folder, written_whole(tmp_path / "mine") as (file,):
        (folder / "weights").touch()
        file.write(b"new")
        temporary.clean_up(files)
        assert names(tmp_path) == {"mine"}
    assert (tmp_path / "mine").read_bytes() == b"old"


def test_complete_work_in_one_folder_stays_if_that_in_another_is_given_up(tmp_path: Path) -> None:
    """The old file was about to be removed."""
    (tmp_path / "m.onnx").write_bytes(b"new")
    old = temporary.beside(tmp_path / "m.onnx", "old")
    old.write_bytes(b"old")
    (tmp_path / "other").mkdir()
    (other := temporary.beside(tmp_path / "other" / "m.onnx")).touch()
    temporary.clean_up({old, other})
    assert names(tmp_path) == {"m.onnx", "other"} and not names(tmp_path / "other")
    assert (tmp_path / "m.onnx").read_bytes() == b"new"


def test_only_files_that_are_left_stay_noted(tmp_path: Path) -> None:
    files = temporary.separate()
    with temporary.folder() as folder:
        assert files == {folder}
    with temporary.noted(left := temporary.beside(tmp_path / "m.onnx")):
        left.touch()
    assert files == {left}


@POSIX
@pytest.mark.parametrize("given_up", [True, False])
def test_files_that_are_set_aside_are_restored_by_who_gives_the_work_up_alone(
    given_up: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by a process in another container, which sees a lock."""
    pair = (tmp_path / "m.onnx.data", tmp_path / "m.onnx")
    for path in pair:
        path.write_bytes(b"old")
    monkeypatch.setattr(temporary, "_is_running", lambda pid: False)
    files, replace, calls = temporary.separate(), Path.replace, list[Path]()

    def counted(self: Path, target: Path) -> Path:
        calls.append(self)
        if len(calls) == 3:  # both are set aside
            temporary.clean_up(files) if given_up else temporary.sweep(tmp_path)
            assert [path.exists() for path in pair] == [given_up] * 2
            raise KeyboardInterrupt
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", counted)
    with pytest.raises(KeyboardInterrupt), written_whole(*pair):
        pass
    assert names(tmp_path) == {path.name for path in pair} and {path.read_bytes() for path in pair} == {b"old"}
