"""Operator schemas: history, defaults and onnxruntime's own operators."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from onnx_subgraph import operators
from onnx_subgraph.operators import AttributeSpec, Formal


def test_the_schema_depends_on_the_opset() -> None:
    before, after = operators.schema("ReduceMean", "", 17), operators.schema("ReduceMean", "", 18)
    assert before is not None
    assert after is not None
    assert (before.since_version, after.since_version) == (13, 18)
    assert "axes" in before.attributes
    assert after.input("axes") == 1
    assert after.inputs[1].optional
    assert operators.schema("ReduceMean", "ai.onnx", 17) is before


@pytest.mark.parametrize(
    ("name", "domain", "attribute"),
    [
        ("LayerNormalization", "", AttributeSpec("epsilon", "FLOAT", False, 1e-5)),
        ("SkipLayerNormalization", "com.microsoft", AttributeSpec("epsilon", "FLOAT", False, 1e-12)),
        ("SimplifiedLayerNormalization", "", AttributeSpec("axis", "INT", False, -1)),
        ("Gelu", "", AttributeSpec("approximate", "STRING", False, "none")),
        ("Concat", "", AttributeSpec("axis", "INT", True, None)),
        ("LeakyRelu", "", AttributeSpec("alpha", "FLOAT", False, 0.01)),
        ("TfIdfVectorizer", "", AttributeSpec("ngram_counts", "INTS", True, None)),
        ("MatMulNBits", "com.microsoft", AttributeSpec("K", "INT", True, None)),
    ],
)
def test_attributes_have_their_types_and_defaults(name: str, domain: str, attribute: AttributeSpec) -> None:
    schema = operators.schema(name, domain)
    assert schema is not None
    assert schema.attributes[attribute.name] == attribute


def test_inputs_have_names_options_and_types() -> None:
    schema = operators.schema("SkipLayerNormalization", "com.microsoft", 1)
    assert schema is not None
    assert [(f.name, f.optional) for f in schema.inputs] == [
        ("input", False),
        ("skip", False),
        ("gamma", False),
        ("beta", True),
        ("bias", True),
    ]
    assert "tensor(float)" in schema.inputs[0].types
    assert "tensor(double)" not in schema.inputs[0].types
    concat = operators.schema("Concat")
    assert concat is not None
    assert concat.inputs[0].variadic
    assert isinstance(concat.inputs[0], Formal)


def test_an_unknown_or_withdrawn_operator_has_no_schema() -> None:
    assert operators.schema("Gelu", "", 19) is None
    assert operators.schema("Upsample", "", 10) is None
    assert operators.schema("Upsample", "", 9) is not None
    assert operators.schema("Nothing") is None
    assert operators.schema("Relu", "my.domain") is None
    assert operators.history("Nothing") == ()


def test_history_is_the_latest_first() -> None:
    assert [s.since_version for s in operators.history("Softmax")] == [13, 11, 1]
    assert operators.history("Softmax")[0] is operators.schema("Softmax")
    assert operators.is_standard("Upsample")
    assert not operators.is_standard("SimplifiedLayerNormalization")


def test_every_operator_of_the_standard_agrees_with_onnx() -> None:
    """Law: names, counts and attributes are onnx's own."""
    latest = operators.latest_opset()
    for name in operators.operator_names(""):
        schema = operators.schema(name, "", latest)
        if schema is None or not operators.is_standard(name):
            continue
        source = onnx.defs.get_schema(name, latest, "")
        assert [f.name for f in schema.inputs] == [f.name for f in source.inputs]
        assert set(schema.attributes) == set(source.attributes)
        assert schema.min_inputs <= schema.max_inputs


def test_the_table_names_its_source() -> None:
    table = json.loads((Path(operators.__file__).parent / "contrib.json").read_text(encoding="utf-8"))
    assert table["onnxruntime"].count(".") == 2
    assert set(table["operators"]) == {"", "com.microsoft"}
    assert operators.domains()[0] == ""


def test_the_versions_and_names_of_operators_are_those_that_onnx_lists() -> None:
    listed: dict[tuple[str, str], list[int]] = {}
    for one in onnx.defs.get_all_schemas_with_history():
        versions = listed.setdefault((one.domain, one.name), [])
        if not one.deprecated and (one.domain or one.since_version <= operators.latest_opset()):
            versions.append(one.since_version)
    for (domain, name), versions in listed.items():
        assert operators.is_standard(name, domain) == bool(versions)
        if versions:
            assert [schema.since_version for schema in operators.history(name, domain)] == sorted(versions, reverse=True)
            assert name in operators.operator_names(domain)


def test_the_types_of_operands_are_those_that_onnx_gives() -> None:
    """Ours are those of their variables: onnx 1.20 can't give the types of an operand."""
    seen = 0
    for source in onnx.defs.get_all_schemas():
        schema = operators.schema(source.name, source.domain, source.since_version)
        if schema is None or source.domain == "ai.onnx.ml":  # maps are spelled in two ways
            continue
        for ours, theirs in zip((*schema.inputs, *schema.outputs), (*source.inputs, *source.outputs), strict=True):
            assert ours.types == frozenset(theirs.types), (source.name, ours.name)
            seen += 1
    assert seen > 500
