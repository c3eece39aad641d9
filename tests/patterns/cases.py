"""Models that show one pattern alone: ONNX text in `cases/<id>.yaml`, under `fuses` and `keeps` as in a pattern file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.language.reading import read_cases
from onnx_subgraph.language.source import read_file

FOLDER = Path(__file__).with_name("cases")


def with_cases(pattern: Pattern) -> Pattern:
    """The pattern with its test models from this folder."""
    file = FOLDER / f"{pattern.id.replace('-', '_')}.yaml"
    if not file.is_file():
        return pattern
    fields = read_file(file)
    return replace(
        pattern,
        fuses=(*pattern.fuses, *read_cases(fields.get("fuses"), "fuses")),
        keeps=(*pattern.keeps, *read_cases(fields.get("keeps"), "keeps")),
    )
