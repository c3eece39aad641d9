"""Laws of the cache: an entry is made once, completely or not at all, checked when read, and evicted by least recent use."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path
from typing import Any

import onnx
import pytest

from onnx_subgraph import ModelError
from onnx_subgraph.session import cache as caches
from onnx_subgraph.session import digest
from onnx_subgraph.session.cache import ABANDONED_SECONDS, IN_USE_SECONDS, Cache, Fill
from onnx_subgraph.session.digest import Memory

KEYS = [f"{number:02x}" + "0" * 62 for number in range(8)]


def filling(content: bytes, made: list[bytes]) -> Fill:
    def fill(folder: Path) -> dict[str, Any]:
        made.append(content)
        (folder / "model.onnx").write_bytes(content)
        return {"fusions": 3}

    return fill


def test_an_entry_is_made_once_and_then_found(tmp_path: Path) -> None:
    made: list[bytes] = []
    first = Cache(tmp_path, 1 << 20).get(KEYS[0], filling(b"model", made))
    second = Cache(tmp_path, 1 << 20).get(KEYS[0], filling(b"other", made))
    assert made == [b"model"]
    assert not first.found and second.found
    assert second.model is not None and second.model.read_bytes() == b"model" and second.note == {"fusions": 3}


@pytest.mark.parametrize("damage", ["cut", "changed", "gone", "manifest", "no manifest", "not json's shape", "another note"])
def test_a_damaged_entry_is_made_again(tmp_path: Path, damage: str) -> None:
    made: list[bytes] = []
    cache = Cache(tmp_path, 1 << 20)
    folder = cache.get(KEYS[0], filling(b"model", made)).folder
    match damage:
        case "cut":
            (folder / "model.onnx").write_bytes(b"mod")
        case "changed":
            (folder / "model.onnx").write_bytes(b"MODEL")
        case "gone":
            (folder / "model.onnx").unlink()
        case "manifest":
            (folder / "entry.json").write_text("{")
        case "no manifest":
            (folder / "entry.json").unlink()
        case "not json's shape":
            (folder / "entry.json").write_text("[]")
        case "another note":
            manifest = folder / "entry.json"
            manifest.write_text(manifest.read_text().replace('"fusions": 3', '"fusions": 7'))
    entry = cache.get(KEYS[0], filling(b"model", made))
    assert made == [b"model", b"model"] and entry.note == {"fusions": 3}
    assert entry.model is not None and entry.model.read_bytes() == b"model"


def test_an_entry_that_another_process_renews_is_not_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is renewed between our looking at its files and the end of that look."""
    made: list[bytes] = []
    folder = Cache(tmp_path, 1 << 20).get(KEYS[0], filling(b"model", made)).folder
    (folder / "model.onnx").write_bytes(b"MODEL")
    looked = caches._is_whole

    def renewed_meanwhile(path: Path, known: dict[str, Any]) -> bool:
        whole = looked(path, known)
        monkeypatch.setattr(caches, "_is_whole", looked)
        Cache(tmp_path, 1 << 20).get(KEYS[0], filling(b"model", made))
        return whole

    monkeypatch.setattr(caches, "_is_whole", renewed_meanwhile)
    assert Cache(tmp_path, 1 << 20).get(KEYS[0], filling(b"third", made)).found
    assert made == [b"model", b"model"]


@pytest.mark.parametrize("kind", ["file", "link to a folder", "link to nothing"])
def test_what_is_in_the_place_of_an_entry_makes_room_and_leaves_nothing(tmp_path: Path, kind: str) -> None:
    made: list[bytes] = []
    (elsewhere := tmp_path / "elsewhere").mkdir()
    (elsewhere / "file").write_text("mine")
    (place := tmp_path / "cache" / "entries" / KEYS[0]).parent.mkdir(parents=True)
    match kind:
        case "file":
            place.write_text("no folder")
        case "link to a folder":
            place.symlink_to(elsewhere)
        case "link to nothing":
            place.symlink_to(tmp_path / "nothing")
    assert Cache(tmp_path / "cache", 1 << 20).get(KEYS[0], filling(b"model", made)).model == place / "model.onnx"
    assert list(place.parent.iterdir()) == [place] and not place.is_symlink()
    assert (elsewhere / "file").read_text() == "mine"


def test_a_copied_entry_is_valid(tmp_path: Path) -> None:
    made: list[bytes] = []
    folder = Cache(tmp_path, 1 << 20).get(KEYS[0], filling(b"model", made)).folder
    os.utime(folder / "model.onnx", (1, 1))
    assert Cache(tmp_path, 1 << 20).get(KEYS[0], filling(b"model", made)).found


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(30, "Read-only file system")])
def test_an_entry_is_found_in_a_read_only_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    """As in an image that was built by another user, or is mounted read-only. A new entry says what to do."""
    made: list[bytes] = []
    Cache(tmp_path, 1 << 20).get(KEYS[0], filling(b"model", made))
    opened = Path.open

    def refuse(path: object, *arguments: Any, **options: Any) -> Any:
        raise error

    monkeypatch.setattr(os, "utime", refuse)
    monkeypatch.setattr(Path, "rename", refuse)
    monkeypatch.setattr(Path, "open", lambda path, mode="r", **o: refuse(path) if "a" in mode else opened(path, mode, **o))
    assert Cache(tmp_path, 1 << 20).get(KEYS[0], filling(b"other", made)).found
    assert made == [b"model"]
    with pytest.raises(OSError, match="ONNX_SUBGRAPH_CACHE names another one, or off"):
        Cache(tmp_path, 1 << 20).get(KEYS[1], filling(b"other", made))


def test_a_failed_entry_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> dict[str, Any]:
        (folder / "model.onnx").write_bytes(b"half")
        raise ModelError("no")

    cache = Cache(tmp_path, 1 << 20)
    with pytest.raises(ModelError):
        cache.get(KEYS[0], fail)
    assert list((tmp_path / "entries").iterdir()) == []


def test_a_cache_folder_that_cannot_be_made_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"the cache folder can't be made .*; ONNX_SUBGRAPH_CACHE names another one, or off"):
        Cache(tmp_path / "file" / "cache", 1 << 20).get(KEYS[0], filling(b"model", []))


def test_the_least_recently_used_entry_is_evicted_first(tmp_path: Path) -> None:
    for position, key in enumerate(KEYS[:3]):
        folder = Cache(tmp_path, 3500).get(key, filling(bytes(1000), [])).folder
        os.utime(folder / "entry.json", (position, position))
    cache = Cache(tmp_path, 3500)
    cache.get(KEYS[0], filling(b"", []))  # used now, so that the second is the least recent
    cache.get(KEYS[3], filling(bytes(1000), []))
    assert {path.name for path in cache.entries()} == {KEYS[0], KEYS[2], KEYS[3]}


def test_a_new_entry_is_kept_whatever_its_size(tmp_path: Path) -> None:
    old = Cache(tmp_path, 100).get(KEYS[0], filling(bytes(50), []))
    os.utime(old.folder / "entry.json", (1, 1))
    entry = Cache(tmp_path, 100).get(KEYS[1], filling(bytes(1000), []))
    assert Cache(tmp_path, 100).entries() == [entry.folder]


def test_an_entry_that_was_just_used_is_kept_for_its_user(tmp_path: Path) -> None:
    """Another process has prepared it, or found it, and may not have loaded it yet."""
    entry = Cache(tmp_path, 100).get(KEYS[0], filling(bytes(1000), []))
    os.utime(entry.folder / "entry.json", (1, 1))
    assert Cache(tmp_path, 100).get(KEYS[0], filling(b"", [])).found
    Cache(tmp_path, 100).get(KEYS[1], filling(bytes(1000), []))
    assert entry.model is not None
    os.utime(entry.folder / "entry.json", (time.time() - 2 * IN_USE_SECONDS,) * 2)
    Cache(tmp_path, 100).get(KEYS[2], filling(bytes(1000), []))
    assert entry.model is None


def test_a_cache_keeps_what_it_gave(tmp_path: Path) -> None:
    """A session gets two models from one cache, and loads them when both are ready."""
    cache = Cache(tmp_path, 100)
    first = cache.get(KEYS[0], filling(bytes(1000), []))
    os.utime(first.folder / "entry.json", (1, 1))
    cache.get(KEYS[1], filling(bytes(1000), []))
    assert first.model is not None


def test_files_of_a_dead_process_are_removed_after_a_time(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 1 << 20)
    (tmp_path / "entries").mkdir()
    old, young = tmp_path / "entries" / ".old", tmp_path / "entries" / ".young"
    for folder in (old, young):
        folder.mkdir()
    long_ago = time.time() - 2 * ABANDONED_SECONDS
    os.utime(old, (long_ago, long_ago))
    cache.get(KEYS[0], filling(b"", []))
    assert not old.exists() and young.exists()


@pytest.mark.skipif(os.name != "posix", reason="needs the locks of the system")
def test_a_request_for_an_entry_in_the_making_waits_for_it(tmp_path: Path) -> None:
    made: list[bytes] = []
    entered = threading.Event()

    def slowly(folder: Path) -> dict[str, Any]:
        entered.set()
        time.sleep(0.2)
        return filling(b"model", made)(folder)

    maker = threading.Thread(target=lambda: Cache(tmp_path, 1 << 20).get(KEYS[0], slowly))
    maker.start()
    assert entered.wait(10)
    assert Cache(tmp_path, 1 << 20).get(KEYS[0], filling(b"other", made)).found
    maker.join()
    assert made == [b"model"]


def test_the_digest_depends_on_the_content_and_not_the_name(tmp_path: Path) -> None:
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Abs (x) }')
    for name in ("a.onnx", "b.onnx"):
        onnx.save(model, tmp_path / name)
    memory = Memory(tmp_path / "memory")
    assert memory.model(tmp_path / "a.onnx") == memory.model(tmp_path / "b.onnx") == memory.model(model.SerializeToString())
    model.graph.node[0].op_type = "Neg"
    onnx.save(model, tmp_path / "b.onnx")
    assert memory.model(tmp_path / "a.onnx") != memory.model(tmp_path / "b.onnx")


def with_data(folder: Path, value: float) -> Path:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add (x, w) }'
    model = onnx.parser.parse_model(text)
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.np.full(2, value, "float32"), "w"))
    folder.mkdir(exist_ok=True)
    onnx.save(model, folder / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    return folder / "m.onnx"


def test_the_digest_depends_on_external_data(tmp_path: Path) -> None:
    one, other = with_data(tmp_path / "one", 1.0), with_data(tmp_path / "other", 2.0)
    assert one.read_bytes() == other.read_bytes()
    memory = Memory(tmp_path / "memory")
    assert memory.model(one) != memory.model(other)
    assert memory.model(one.read_bytes(), one.parent) == memory.model(one)
    assert memory.model(one.read_bytes(), other.parent) == memory.model(other)


def test_a_digest_is_cached_until_the_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = with_data(tmp_path / "one", 1.0)
    for file in path.parent.iterdir():
        os.utime(file, (1, 1))
    read: list[Path] = []
    real = digest.file_digest
    monkeypatch.setattr(digest, "file_digest", lambda file: read.append(file) or real(file))
    first = Memory(tmp_path / "memory").model(path)
    assert len(read) == 2
    assert Memory(tmp_path / "memory").model(path) == first and len(read) == 2
    (path.parent / "m.data").write_bytes(bytes(8))
    assert Memory(tmp_path / "memory").model(path) != first and len(read) == 3


def test_the_digest_of_a_recently_written_file_is_not_cached(tmp_path: Path) -> None:
    """Within the resolution of the clock, the file may change again and keep its time."""
    path = with_data(tmp_path / "one", 1.0)
    memory = Memory(tmp_path / "memory")
    first, state = memory.model(path), (path.parent / "m.data").stat()
    (path.parent / "m.data").write_bytes(bytes(8))
    os.utime(path.parent / "m.data", ns=(state.st_atime_ns, state.st_mtime_ns))
    assert memory.model(path) != first


def test_a_note_that_can_not_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, *_: Any, **__: Any) -> None:
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    Memory(tmp_path).remember("file", "a", {})
    assert not list(tmp_path.iterdir())


def test_a_damaged_note_is_forgotten(tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    memory.remember("locations", "a", {"locations": ["model.data"]})
    (note,) = tmp_path.iterdir()
    note.write_text(note.read_text().replace("model.data", "nodel.data"))
    assert memory.recall("locations", "a") == {}


def test_data_outside_the_folder_is_not_read(tmp_path: Path) -> None:
    path = with_data(tmp_path / "one", 1.0)
    proto = onnx.load(path, load_external_data=False)
    proto.graph.initializer[0].external_data[0].value = "../secret"
    (tmp_path / "secret").write_bytes(bytes(8))
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match=r"\.\./secret"):
        Memory(None).model(path)
