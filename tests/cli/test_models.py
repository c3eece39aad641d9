"""How models are named: files, folders, globs and lists, and their paths in an output folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from onnx_subgraph.cli.models import find_models
from onnx_subgraph.errors import UsageError
from tests.cli.conftest import Run


@pytest.fixture
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Models in folders, some with equal names, beside files that are not models."""
    monkeypatch.chdir(tmp_path)
    for name in ("zoo/b.onnx", "zoo/a/m.onnx", "zoo/c/d/m.onnx", "zoo/c/notes.txt", "zoo/.venv/x.onnx", "zoo/a/.hidden.onnx"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()
    Path("empty").mkdir()
    return tmp_path


LISTED = """
# what we ship
zoo/b.onnx

zoo/c
zoo/a/*.onnx
"""


@pytest.mark.usefixtures("zoo")
def test_a_file_whose_name_is_a_glob_too_is_named_as_it_is() -> None:
    for name in ("m[1].onnx", "m1.onnx"):
        Path(name).touch()
    assert find_models([Path("m[1].onnx")]).paths == (Path("m[1].onnx"),)


@pytest.mark.parametrize(
    ("words", "paths", "below"),
    [
        (["zoo/b.onnx"], ["zoo/b.onnx"], ["b.onnx"]),
        (["zoo/b.onnx", "zoo/a/m.onnx"], ["zoo/b.onnx", "zoo/a/m.onnx"], ["b.onnx", "m.onnx"]),
        (["zoo"], ["zoo/a/m.onnx", "zoo/b.onnx", "zoo/c/d/m.onnx"], ["a/m.onnx", "b.onnx", "c/d/m.onnx"]),
        (["zoo/c"], ["zoo/c/d/m.onnx"], ["d/m.onnx"]),
        (["zoo/*.onnx"], ["zoo/b.onnx"], ["b.onnx"]),
        (["zoo/**/m.onnx"], ["zoo/a/m.onnx", "zoo/c/d/m.onnx"], ["a/m.onnx", "c/d/m.onnx"]),
        (["zoo/**/*.onnx"], ["zoo/a/m.onnx", "zoo/b.onnx", "zoo/c/d/m.onnx"], ["a/m.onnx", "b.onnx", "c/d/m.onnx"]),
        (["zoo/a/**"], ["zoo/a/m.onnx"], ["m.onnx"]),
        (["zoo/[ab]*/*.onnx"], ["zoo/a/m.onnx"], ["a/m.onnx"]),
        (["zoo/b.onnx", "zoo"], ["zoo/b.onnx", "zoo/a/m.onnx", "zoo/c/d/m.onnx"], ["b.onnx", "a/m.onnx", "c/d/m.onnx"]),
        (["zoo/b.onnx", "zoo/a/../b.onnx"], ["zoo/b.onnx"], ["b.onnx"]),
        (["zoo", "zoo/b.onnx"], ["zoo/a/m.onnx", "zoo/b.onnx", "zoo/c/d/m.onnx"], ["a/m.onnx", "b.onnx", "c/d/m.onnx"]),
        (["@l.txt"], ["zoo/b.onnx", "zoo/c/d/m.onnx", "zoo/a/m.onnx"], ["zoo/b.onnx", "zoo/c/d/m.onnx", "zoo/a/m.onnx"]),
    ],
    ids=str,
)
@pytest.mark.usefixtures("zoo")
def test_arguments_name_models(words: Sequence[str], paths: Sequence[str], below: Sequence[str]) -> None:
    """In the order of the arguments, sorted within each, every file once.

    Entries of a list keep their paths below the list's folder.
    """
    Path("l.txt").write_text(LISTED, encoding="utf-8")
    models = find_models([Path(word) for word in words])
    assert [path.as_posix() for path in models.paths] == paths
    assert [path.as_posix() for path in models.below] == below


def test_the_entries_of_a_list_are_relative_to_it(zoo: Path) -> None:
    """An entry outside the list's folder keeps only its file name."""
    (zoo / "empty" / "l.txt").write_text(f"../zoo/b.onnx\n{zoo}/zoo/c\n", encoding="utf-8")
    models = find_models([Path("@empty/l.txt")])
    assert [path.resolve().relative_to(zoo.resolve()).as_posix() for path in models.paths] == ["zoo/b.onnx", "zoo/c/d/m.onnx"]
    assert [path.as_posix() for path in models.below] == ["b.onnx", "d/m.onnx"]


@pytest.mark.usefixtures("zoo")
@pytest.mark.parametrize("word", ["zoo", "zoo/**/*.onnx", "zoo/**/**/*.onnx", "**/m.onnx", "zoo/*/**/*.onnx", "zoo/**"])
def test_links_between_folders_give_no_file_twice(word: str) -> None:
    """Links that lead back would give every file many times, and two of them more paths than can be searched."""
    before = {path.resolve() for path in find_models([Path("zoo"), Path(word)]).paths}
    for name in ("up", "back"):
        Path("zoo/a", name).symlink_to("..", target_is_directory=True)
        Path("zoo/c/d", name).symlink_to("../..", target_is_directory=True)
    paths = find_models([Path("zoo"), Path(word)]).paths
    assert len(paths) == len(before) and {path.resolve() for path in paths} == before


@pytest.mark.usefixtures("zoo")
def test_a_link_to_a_folder_is_searched_where_it_is_named() -> None:
    """`*` in a glob names it, and so do its own name and the start of a glob."""
    Path("other").symlink_to("zoo/c", target_is_directory=True)
    for word in ("other", "other/**/*.onnx", "oth*/**/m.onnx", "*/d/m.onnx"):
        assert [path.as_posix() for path in find_models([Path(word)]).paths] == ["other/d/m.onnx"], word


@pytest.mark.usefixtures("zoo")
def test_a_link_to_a_file_is_a_model_of_its_own_name() -> None:
    Path("zoo/a/alias.onnx").symlink_to("m.onnx")
    assert [path.name for path in find_models([Path("zoo/a/*.onnx")]).paths] == ["alias.onnx", "m.onnx"]


@pytest.mark.usefixtures("zoo")
def test_a_link_that_leads_to_itself_names_a_missing_file() -> None:
    Path("loop").symlink_to("loop")
    assert find_models([Path("loop/x.onnx")]).paths == (Path("loop/x.onnx"),)


@pytest.mark.usefixtures("zoo")
def test_a_list_may_begin_with_a_byte_order_mark() -> None:
    Path("l.txt").write_text("zoo/b.onnx\n", encoding="utf-8-sig")
    assert find_models([Path("@l.txt")]).paths == (Path("zoo/b.onnx"),)


@pytest.mark.usefixtures("zoo")
def test_an_existing_file_is_not_read_as_a_glob_or_list() -> None:
    """Even if its name could be a glob or a list."""
    for name in ("m[1].onnx", "@m.onnx"):
        Path(name).touch()
        models = find_models([Path(name)])
        assert (models.paths, models.several) == ((Path(name),), False)


@pytest.mark.usefixtures("zoo")
def test_a_glob_a_folder_or_a_list_stands_for_several_models() -> None:
    """So the output has the same form, however many models exist."""
    Path("l.txt").write_text("zoo/b.onnx\n", encoding="utf-8")
    assert all(find_models([Path(word)]).several for word in ("zoo/a", "zoo/*.onnx", "@l.txt"))
    assert not find_models([Path("zoo/b.onnx")]).several


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("empty", "empty: is a folder without models"),
        ("zoo/*.pt", "zoo/*.pt: there is no such file"),
        ("@none.txt", "none.txt: No such file or directory"),
        ("@blank.txt", "blank.txt: is a list without models"),
        ("@nested.txt", "nested.txt: the entry @blank.txt is a list itself"),
        ("@stale.txt", "empty: is a folder without models"),
    ],
)
@pytest.mark.usefixtures("zoo")
@pytest.mark.parametrize("command", ["fuse", "mine", "bench", "explain"])
def test_an_argument_that_names_no_model_is_one_message(run: Run, command: str, word: str, said: str) -> None:
    for name, text in (("blank.txt", "# none\n"), ("nested.txt", "@blank.txt\n"), ("stale.txt", "empty\n")):
        Path(name).write_text(text, encoding="utf-8")
    result = run(command, word)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"Error: {said}") and "\nhint: " in result.err


def test_the_errors_are_usage_errors() -> None:
    with pytest.raises(UsageError):
        find_models([Path("@no-such-list")])
