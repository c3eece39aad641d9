"""`docs/report.schema.json` describes the output of --json: real outputs are valid, and incomplete ones are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from onnx_subgraph import Options, explain, fuse, verify
from onnx_subgraph.errors import Span
from onnx_subgraph.expectation.check import Check
from onnx_subgraph.language.library import headers, load_patterns
from onnx_subgraph.proving import Proof
from onnx_subgraph.report import json as report

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs" / "report.schema.json").read_text(encoding="utf-8"))
MODEL = ROOT / "tests" / "cli" / "data" / "rounded_gelu.onnx"
SAMPLE = ROOT / "sample_models" / "unet_dynamo.onnx"
LIBRARY = load_patterns()


def validate(answer: Any, schema: Any, kind: str | None = None) -> None:
    """Raise ValidationError unless `answer` is valid, as this kind. Whether the schema is valid is a test of its own."""
    wanted = schema if kind is None else {**schema, "anyOf": [{"$ref": f"#/$defs/{kind}"}]}
    jsonschema.Draft202012Validator(wanted).validate(answer)


def check(answer: Any, kind: str) -> None:
    """Assert that `answer`, as JSON, is valid as this kind and for the schema as a whole."""
    answer = json.loads(json.dumps(answer, allow_nan=False))
    validate(answer, SCHEMA, kind)
    validate(answer, SCHEMA)


def closed(schema: Any) -> Any:
    """`schema` without room for unnamed keys."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: False if (key, part) == ("additionalProperties", True) else closed(part) for key, part in schema.items()}


def test_the_schema_is_a_valid_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_a_fusion(tmp_path: Path) -> None:
    answer = report.fusion(fuse(SAMPLE, tmp_path / "out.onnx", LIBRARY, Options()))
    assert answer["fusions"] and answer["skipped"] and answer["verification"]["runs"]
    check(answer, "fuse")
    failure = report.failure(Path("m.onnx"), "is empty")
    check(failure, "failure")
    check({"models": [answer, failure]}, "several")
    validate(answer, closed(SCHEMA), "fuse")


def test_expectations() -> None:
    result = fuse(MODEL, None, LIBRARY, Options(verify=False, dry_run=True))
    place = Span("expected.yaml", 3, 5, 2, "    nodes: 3")
    checks = [Check("nodes", "3", "4", met=False, span=place, reasons=("why",))]
    answer = {**report.fusion(result), "expectations": report.expectations(checks)}
    check(answer, "fuse")
    validate(answer, closed(SCHEMA), "fuse")


def test_an_explanation() -> None:
    answer = report.explanation(explain(MODEL, LIBRARY, Options()))
    assert answer["near_misses"]
    check(answer, "explain")
    validate(answer, closed(SCHEMA), "explain")


def test_a_comparison() -> None:
    check({"reference": "a", "candidate": "b", **report.verdict(verify(MODEL, MODEL))}, "verify")
    check({"reference": "a", "candidate": "b", **report.verdict(verify(MODEL, SAMPLE))}, "verify")


def test_lists_and_proofs() -> None:
    check({"patterns": [report.header(header) for header in headers()]}, "patterns")
    check({**report.header(headers()[0]), "source": "id: …"}, "pattern")
    proof = Proof("gelu", 40, ("not fused",), {"standard": 20}, notes=("a note",), unproved={"onnxruntime": "no kernel"})
    check({"patterns": [report.proof(proof)]}, "proofs")


@pytest.mark.parametrize("key", ["model", "fusions", "verification"])
def test_an_output_with_a_missing_key_is_invalid(key: str) -> None:
    answer = report.fusion(fuse(MODEL, None, LIBRARY, Options(verify=False, dry_run=True)))
    del answer[key]
    with pytest.raises(jsonschema.ValidationError):
        check(answer, "fuse")


def test_the_page_names_every_key_of_an_object_that_a_command_prints() -> None:
    page = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    commands = (
        "fuse",
        "failure",
        "several",
        "explain",
        "verify",
        "proofs",
        "partition",
        "inline",
        "benches",
        "mine",
        "new-pattern",
    )
    keys = {key for command in commands for key in SCHEMA["$defs"][command].get("properties", {})}
    assert {key for key in keys if f"`{key}`" not in page and f'"{key}"' not in page} == set()
