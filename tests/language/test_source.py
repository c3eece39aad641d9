"""YAML with places: every character of a scalar maps to its place in the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_subgraph.errors import PatternError
from onnx_subgraph.language.source import MAX_BYTES, Fields, Items, Scalar, read_file, read_text

lines = st.lists(st.text("ab =(é)[]:#'\"", max_size=10).map(str.rstrip), min_size=1, max_size=4)


@given(lines, st.integers(1, 6), st.integers(0, 3))
@settings(deadline=None, max_examples=100)
def test_a_place_in_a_block_is_its_place_in_the_file(block: list[str], indent: int, above: int) -> None:
    """Law: at(line, column) of a literal block gives the place of the same character in the file."""
    body = "\n".join(" " * indent + line if line else "" for line in ["a", *block])
    text = "# é\n" * above + f"match: |\n{body}\nafter: 1\n"
    scalar = read_text(text, "f.yaml").get("match")
    assert isinstance(scalar, Scalar)
    for number, line in enumerate(scalar.text.split("\n"), 1):
        for column, character in enumerate(line, 1):
            span = scalar.at(number, column)
            assert text.split("\n")[span.line - 1] == span.text
            assert span.text[span.column - 1] == character


@pytest.mark.parametrize(
    ("text", "column"),
    [("k: y = x", 4), ("k: 'y = x'", 5), ('k: "y = x"', 5), ("{k: y = x}", 5), ("é: y = x", 4), ('k: "\\x79 = x"', 4)],
)
def test_a_place_in_one_line(text: str, column: int) -> None:
    """A scalar with an escape has only one place, its start."""
    scalar = read_text(text, "f.yaml").entries[0][1]
    assert isinstance(scalar, Scalar)
    assert scalar.text == "y = x"
    assert scalar.at(1, 1).column == column


def test_scalars_keep_their_text() -> None:
    fields = read_text("a: no\nb: [1e-5, '1']\nc: {y: ~}\n", "f.yaml")
    assert [key.text for key, _ in fields.entries] == ["a", "b", "c"]
    several, inner = fields.get("b"), fields.get("c")
    assert isinstance(several, Items)
    assert isinstance(inner, Fields)
    assert [item.text for item in several.items if isinstance(item, Scalar)] == ["1e-5", "1"]
    assert inner.key("y") is not None
    assert fields.get("d") is None


@pytest.mark.parametrize(
    ("content", "message", "place"),
    [
        (b"", "empty", (1, 1)),
        (b"# nothing\n", "empty", (1, 1)),
        (b"- a\n", "not a mapping", (1, 1)),
        (b"a: 1\n---\nb: 2\n", "second document", (2, 1)),
        (b"a: \xff\n", "not UTF-8", (1, 4)),
        ("é: ok\nb: é".encode("latin-1"), "not UTF-8", (1, 1)),
        (b"a: 1\nb: \x07", "control character", (2, 4)),
        (b"a:\n\tb: 1", "not valid YAML", (2, 1)),
        (b"a: &b c", "anchors", (1, 4)),
        (b"a: *b", "anchors", (1, 4)),
        (b"a: !!python/object:os.system {}", "tag", (1, 4)),
        (b"[" * 500, "levels deep", (1, 18)),
        (b"- " * 500, "levels deep", (1, 35)),
        (b"? " * 500, "levels deep", (1, 35)),
        (b"a" * (MAX_BYTES + 1), "larger", (1, 1)),
        (b"{[a]: 3}", "a key is a word", (1, 2)),
    ],
)
def test_invalid_yaml_is_refused(tmp_path: Path, content: bytes, message: str, place: tuple[int, int]) -> None:
    file = tmp_path / "a.yaml"
    file.write_bytes(content)
    with pytest.raises(PatternError) as raised:
        read_file(file)
    span = raised.value.span
    assert message in raised.value.message
    assert span is not None
    assert (span.file, span.line, span.column) == (str(file), *place)


@pytest.mark.parametrize("opening", ["[", "- ", "? "])
def test_hostile_nesting_is_refused_with_its_place(opening: str) -> None:
    """libyaml may refuse 100,000 levels before this reader counts them."""
    with pytest.raises(PatternError, match=r"deep|depth") as raised:
        read_text(opening * 100_000, "f.yaml")
    assert raised.value.span is not None
    assert raised.value.span.line == 1


def test_a_byte_order_mark_and_windows_lines_are_read(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: |\r\n  y = x\r\n  z = y\r\n")
    scalar = read_file(file).get("b")
    assert isinstance(scalar, Scalar)
    assert scalar.text == "y = x\nz = y\n"
    assert (scalar.at(2, 5).line, scalar.at(2, 5).column) == (4, 7)


@given(st.text() | st.text(alphabet=" \n\t:-[]{}|>&*!#'\"%?,ab1\u2028\x85\r\0\ufeff"))
@settings(deadline=None, max_examples=300)
def test_any_text_is_data_or_a_pattern_error(text: str) -> None:
    """Law: bad text raises only PatternError, with a place that can be shown."""
    try:
        read_text(text, "f.yaml")
    except PatternError as error:
        assert error.span is not None
        assert str(error)
