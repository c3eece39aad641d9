"""The JSON Schema for editors says what the reader says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from onnx_subgraph.language import grow, operator_reading, reading
from onnx_subgraph.language.library import built_in_packs, pattern_files
from onnx_subgraph.language.pattern import TARGETS

SCHEMA = json.loads((Path(reading.__file__).parent / "pattern.schema.json").read_text(encoding="utf-8"))
OPERATOR_SCHEMA = json.loads((Path(reading.__file__).parent / "operator.schema.json").read_text(encoding="utf-8"))
SAMPLES = Path(__file__).parent / "data"


def test_the_schema_has_the_keys_of_the_reader() -> None:
    properties = SCHEMA["properties"]
    assert tuple(properties) == (*reading.KEYS, "each")
    assert set(properties["replace"]["properties"]) == set(TARGETS)
    assert tuple(properties["grow"]["properties"]) == grow.KEYS
    assert SCHEMA["$defs"]["assumption"]["enum"] == list(reading.ASSUMPTIONS)
    assert all(entry.get("description") for entry in properties.values())
    assert tuple(OPERATOR_SCHEMA["properties"]) == operator_reading.KEYS
    assert all(entry.get("description") for entry in OPERATOR_SCHEMA["properties"].values())


@pytest.mark.parametrize(
    "file", [f for p in (SAMPLES, *built_in_packs()) for f in pattern_files(p, empty=True)], ids=lambda f: f.stem
)
def test_the_schema_accepts_what_the_reader_accepts(file: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    jsonschema.validate(content, OPERATOR_SCHEMA if "operator" in content else SCHEMA)


@pytest.mark.parametrize(
    "text",
    [
        *("id: a", "{id: A, summary: s, match: y = x}", "{id: a, summary: s, match: y = x, wehre: []}", "[]"),
        *("{id: a, summary: s}", "{id: a, summary: s, grow: {keep: [region.size > 1]}}"),
    ],
)
def test_the_schema_refuses_what_the_reader_refuses(text: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(text), SCHEMA)
