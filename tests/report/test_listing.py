"""Laws of the list of patterns: nothing is cut off or wider than requested, and every pattern occurs once."""

from __future__ import annotations

import pytest

from onnx_subgraph.language.header import Header
from onnx_subgraph.language.library import headers
from onnx_subgraph.report import listing


def header(name: str, group: str, summary: str = "…") -> Header:
    return Header(name, group, summary, ("onnxruntime", "function"), f"patterns/{group}/{name}.yaml", 0)


def test_the_list_is_by_group() -> None:
    known = [header("gelu", "activation"), header("mish", "activation"), header("gemm", "linear")]
    lines = listing.pattern_list(known, 120).splitlines()
    assert [line.split()[0] for line in lines if line][:-1] == ["activation", "gelu", "mish", "linear", "gemm"]
    assert lines[-1].startswith("3 patterns")


@pytest.mark.parametrize("width", [80, 100, 160, 240])
def test_every_word_is_printed_at_any_width(width: int) -> None:
    known = headers()
    text = listing.pattern_list(known, width)
    assert max(map(len, text.splitlines())) <= width
    for one in known:
        assert text.count(f"  {one.id} ") == 1
        assert set(one.summary.split()) <= set(text.split())


def test_one_pattern_is_printed_as_in_its_file_without_test_models() -> None:
    source = "match: |\n  y = 0.5 * x * (1 + Erf(x / sqrt(2)))\n"
    models = "keeps:\n  - why: a second reader\n    model: |\n      g (…)\nassumes: finite\n"
    assert "keeps" not in listing.pattern(header("gelu", "activation"), source + models)
    assert "assumes: finite" in listing.pattern(header("gelu", "activation"), source + models)
    assert source.strip() in listing.pattern(header("gelu", "activation"), source)
