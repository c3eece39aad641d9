"""The JSON Schema for editors agrees with the reader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from onnx_subgraph.language import grow, operator_reading, reading
from onnx_subgraph.language.library import built_in_packs, pattern_files
from onnx_subgraph.targets import WRITTEN

FOLDER = Path(reading.__file__).parent
SCHEMAS = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.schema.json")}
SCHEMA = SCHEMAS["pattern.schema.json"]
OPERATOR_SCHEMA = SCHEMAS["operator.schema.json"]
LOWERING_SCHEMA = SCHEMAS["lowering.schema.json"]
SAMPLES = Path(__file__).parent / "data"
LOWERINGS = Path(__file__).parents[2] / "docs" / "examples" / "lowerings"


def validate(content: Any) -> None:
    """Validate the content of a file with the editors' schema, which selects the rules by the kind of file."""
    jsonschema = pytest.importorskip("jsonschema")
    referencing = pytest.importorskip("referencing")
    registry = referencing.Registry().with_resources(
        (name, referencing.Resource.from_contents(schema)) for name, schema in SCHEMAS.items()
    )
    jsonschema.Draft202012Validator(SCHEMAS["file.schema.json"], registry=registry).validate(content)


def test_the_schema_has_the_keys_of_the_reader() -> None:
    properties = SCHEMA["properties"]
    assert tuple(properties) == (*reading.KEYS, "each")
    assert set(properties["replace"]["properties"]) == {*WRITTEN, "function"}
    assert tuple(properties["grow"]["properties"]) == grow.KEYS
    assert SCHEMA["$defs"]["assumption"]["enum"] == list(reading.ASSUMPTIONS)
    assert all(entry.get("description") for entry in properties.values())
    assert tuple(OPERATOR_SCHEMA["properties"]) == operator_reading.KEYS
    assert all(entry.get("description") for entry in OPERATOR_SCHEMA["properties"].values())
    assert tuple(LOWERING_SCHEMA["properties"]) == operator_reading.LOWERING_KEYS
    assert all(entry.get("description") for entry in LOWERING_SCHEMA["properties"].values())
    assert LOWERING_SCHEMA["$defs"].items() <= OPERATOR_SCHEMA["$defs"].items()


@pytest.mark.parametrize(
    "file", [f for p in (SAMPLES, LOWERINGS, *built_in_packs()) for f in pattern_files(p, empty=True)], ids=lambda f: f.stem
)
def test_the_schema_accepts_what_the_reader_accepts(file: Path) -> None:
    validate(yaml.safe_load(file.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "text",
    [
        *("id: a", "{id: A, summary: s, match: y = x}", "{id: a, summary: s, match: y = x, wehre: []}", "[]"),
        *("{id: a, summary: s}", "{id: a, summary: s, grow: {keep: [region.size > 1]}}"),
        *("{lowers: A, summary: s}", "{lowers: A, onnxruntime: y = x}", "{lowers: A, summary: s, native: y = x}"),
        *("{lowers: A, summary: s, standard: {where: b}}", "{operator: A, summary: s, source: s, inputs: {x: all}}"),
    ],
)
def test_the_schema_refuses_what_the_reader_refuses(text: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    with pytest.raises(jsonschema.ValidationError):
        validate(yaml.safe_load(text))
