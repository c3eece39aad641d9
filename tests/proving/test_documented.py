"""The patterns in docs/language.md prove. A pattern with several outputs has to provide each of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from onnx_subgraph.language.library import load_patterns
from onnx_subgraph.proving import prove
from tests.matching.graphs import found, model

TEXT = (Path(__file__).parents[2] / "docs" / "language.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"<!-- pattern -->\n```yaml\n(.*?)```\n", re.DOTALL)
DOCUMENTED = {re.search(r"^id: (.*)$", text, re.MULTILINE)[1]: text for text in BLOCK.findall(TEXT)}  # type: ignore[index]
(WRITTEN,) = BLOCK.findall(TEXT.partition("## Several outputs")[2].partition("\n## ")[0])
PLAIN = """
id: plain
summary: The parts of a value, each turned
match: |
  lo, hi = split(Exp(x), axis=-1, parts=2)
example: {x: "float32[4, 8]"}
"""


@pytest.mark.parametrize("text", [WRITTEN, PLAIN], ids=["documented", "without-a-replacement"])
def test_a_pattern_of_several_outputs_is_proved(text: str, tmp_path: Path) -> None:
    name = re.search(r"^id: (.*)$", text, re.MULTILINE)
    assert name is not None
    path = tmp_path / f"{name[1].replace('-', '_')}.yaml"
    path.write_text(text, encoding="utf-8")
    pattern = load_patterns([path], built_in=False).get(name[1])
    assert len(pattern.results) == 2
    proof = prove(pattern)
    assert not proof.failures
    assert all(proof.targets[target] for target in pattern.targets)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_a_documented_pattern_is_proved(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name.replace('-', '_')}.yaml"
    path.write_text(DOCUMENTED[name], encoding="utf-8")
    assert not prove(load_patterns([path], built_in="raises:" in DOCUMENTED[name]).get(name)).failures


def test_every_result_of_the_last_line_is_provided(tmp_path: Path) -> None:
    (tmp_path / "plain.yaml").write_text(PLAIN, encoding="utf-8")
    pattern = load_patterns([tmp_path / "plain.yaml"], built_in=False).get("plain")
    text = "e = Exp(x) y, z = Split<axis = 1, num_outputs = 2>(e)"
    (match,) = found(pattern, model(text, inputs="float[4, 8] x", outputs="y, z")).matches
    assert set(match.roots) == {"lo", "hi"}
