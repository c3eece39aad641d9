"""The expectation file: what it may contain, the message for every mistake, and which section applies to which model.

The mistakes are in `data/mistakes.txt`, divided by `====`: a title, the file, and after `----` the exact message.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onnx_subgraph.errors import ExpectationError
from onnx_subgraph.expectation.expectation import Expectation
from onnx_subgraph.expectation.reading import KEYS, read_expectation
from onnx_subgraph.language.library import headers
from onnx_subgraph.paths import name_for, short_names

PATTERNS = {"gelu", "layer-normalization", "mish"}
CASES = [
    (title, text, message)
    for title, _, (text, message) in (
        (*case.partition("\n")[:2], case.partition("\n")[2].split("\n----\n"))
        for case in (Path(__file__).parent / "data" / "mistakes.txt").read_text(encoding="utf-8").rstrip("\n").split("\n====\n")
    )
]
GOOD = """
models:
  encoder/model.onnx:
    fusions:
      gelu: at least 2
      layer-normalization: {count: 5, attributes: {epsilon: [1e-5, 1e-12], axis: -1}}
    near-misses: {mish: at most 1}
    nodes: at most 300
    size: at most 1.5 MB
    providers: [CPUExecutionProvider]
    tolerance: 1e-4
  model.onnx:
    nodes: 3
"""


def read(text: str, folder: Path) -> Expectation:
    file = folder / "expected.yaml"
    file.write_text(text, encoding="utf-8")
    return read_expectation(file, PATTERNS)


@pytest.mark.parametrize(("text", "message"), [case[1:] for case in CASES], ids=[case[0].replace(" ", "-") for case in CASES])
def test_a_mistake_has_a_place_a_caret_and_a_hint(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ExpectationError) as raised:
        read(text, tmp_path)
    assert str(raised.value).replace(str(tmp_path) + "/", "") == message


def test_the_example_of_the_page_is_one(tmp_path: Path) -> None:
    """`docs/ci.md` shows every key that exists, with existing patterns."""
    page = (Path(__file__).parents[2] / "docs" / "ci.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"(?<=<!-- expectation -->\n```yaml\n)(.*?)(?=```\n)", page, re.DOTALL)
    (tmp_path / "expected.yaml").write_text(example, encoding="utf-8")
    expectation = read_expectation(tmp_path / "expected.yaml", {header.id for header in headers()})
    assert set(re.findall(r"(?m)^    ([a-z-]+):", example)) == set(KEYS)
    assert len(expectation.sections) == 1


def test_a_missing_file_says_how_one_is_made(tmp_path: Path) -> None:
    with pytest.raises(ExpectationError, match=r"cannot read .*: No such file or directory\nhint: `fuse … --write-expect"):
        read_expectation(tmp_path / "expected.yaml", PATTERNS)


def test_everything_that_can_be_expected_is_read(tmp_path: Path) -> None:
    section = read(GOOD, tmp_path).sections[0]
    gelu, normalization = section.fusions["gelu"], section.fusions["layer-normalization"]
    assert gelu.count is not None and gelu.count.allows(2) and gelu.count.allows(9) and not gelu.count.allows(1)
    assert normalization.count is not None and normalization.count.allows(5) and not normalization.count.allows(6)
    assert {name: values.values for name, values in normalization.attributes.items()} == {"epsilon": (1e-5, 1e-12), "axis": (-1,)}
    assert section.near_misses is not None and section.near_misses["mish"].allows(0)
    assert section.nodes is not None and section.nodes.number == 300
    assert section.size is not None and section.size.number == 1_500_000
    assert list(section.providers) == ["CPUExecutionProvider"]
    assert section.tolerance is not None and section.tolerance.value == 1e-4


def test_only_what_the_file_mentions_is_expected(tmp_path: Path) -> None:
    section = read(GOOD, tmp_path).sections[1]
    assert (section.near_misses, section.size, section.tolerance, section.fusions, section.providers) == (
        None,
        None,
        None,
        {},
        {},
    )


def test_a_section_is_for_the_models_whose_path_ends_with_its_name(tmp_path: Path) -> None:
    """The longest name that fits wins, in any build folder.

    A model without a section is an error, an unused section is reported.
    """
    expectation = read(GOOD, tmp_path)
    assert expectation.section(Path("build/encoder/model.onnx")).model == "encoder/model.onnx"
    assert expectation.section(Path("/tmp/decoder/model.onnx")).model == "model.onnx"
    with pytest.raises(ExpectationError, match=r"there is no section for the model my_model\.onnx"):
        expectation.section(Path("my_model.onnx"))
    assert [section.model for section in expectation.unused([Path("decoder/model.onnx")])] == ["encoder/model.onnx"]


def test_a_link_is_called_by_its_own_name(tmp_path: Path) -> None:
    """In a download cache, a link leads to a file named by its checksum; the link's own name counts."""
    (tmp_path / "e3b0c4").touch()
    (tmp_path / "model.onnx").symlink_to(tmp_path / "e3b0c4")
    assert read(GOOD, tmp_path).section(tmp_path / "model.onnx").model == "model.onnx"


@given(
    st.lists(
        st.lists(st.sampled_from(["a", "b", "model"]), min_size=1, max_size=3).map(lambda parts: Path(*parts, "m.onnx")),
        min_size=1,
        max_size=5,
        unique=True,
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("folder", ["b", "model", "elsewhere"])
def test_each_model_gets_its_own_name_back(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, models: list[Path]
) -> None:
    """Law: in a file with the names of a run, each model of that run finds the section that was made for it.

    The working folder may have the name of a folder of models.
    """
    (tmp_path / folder).mkdir(exist_ok=True)
    with monkeypatch.context() as here:
        here.chdir(tmp_path / folder)
        written = short_names(models)
        assert len(set(written.values())) == len(models)
        for model, name in written.items():
            assert name_for(model, written.values()) == name


@given(st.text() | st.text(alphabet=" \n\t:-[]{}|>&*!#'\"%?,ab1é\u2028\x85\r\0"))
@settings(deadline=None, max_examples=200)
def test_any_text_is_refused_with_a_place(text: str) -> None:
    """Law: reading raises nothing but ExpectationError, and it says where."""
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder, pytest.raises(ExpectationError) as raised:
        file = Path(folder) / "expected.yaml"
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        read_expectation(file, PATTERNS)
    assert raised.value.span is not None


@given(st.data())
@settings(deadline=None, max_examples=200)
def test_a_damaged_file_is_read_or_refused(data: st.DataObject) -> None:
    """Law: the same for a good file in which one character was replaced, doubled or dropped."""
    from tempfile import TemporaryDirectory

    place = data.draw(st.integers(0, len(GOOD) - 1))
    put = data.draw(st.sampled_from(["", GOOD[place] * 2, *"()[]{}|=:,.*/-+@#'\"\n\t _1xA"]) | st.characters(codec="utf-8"))
    with TemporaryDirectory() as folder:
        try:
            read(GOOD[:place] + put + GOOD[place + 1 :], Path(folder))
        except ExpectationError as error:
            assert error.span is not None
