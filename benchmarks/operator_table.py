"""Writes `onnx_subgraph/operators/contrib.json`: the schemas of onnxruntime's operators beyond the ONNX standard.

Run `python benchmarks/operator_table.py` after raising the version of onnxruntime that the project is developed with. The table
has the domain com.microsoft, onnxruntime's own operators of the default domain, and the version of onnxruntime.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as state

from onnx_subgraph.operators.schemas import default_value

TARGET = Path(__file__).resolve().parents[1] / "onnx_subgraph" / "operators" / "contrib.json"
OPTIONS = {"Single": "", "Optional": "?", "Variadic": "*"}


def main() -> None:
    """Writes the table."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    standard = {(s.domain, s.name) for s in onnx.defs.get_all_schemas_with_history()}
    schemas = [
        s
        for s in state.get_all_operator_schema()
        if s.domain in ("", "com.microsoft") and (s.domain, s.name) not in standard and not s.deprecated
    ]
    types = sorted({tuple(sorted(t)) for s in schemas for f in (*s.inputs, *s.outputs) for t in [accepted(s, f)]})
    index = {t: i for i, t in enumerate(types)}
    operators: dict[str, list[dict[str, Any]]] = {}
    for schema in sorted(schemas, key=lambda s: (s.domain, s.name, s.since_version)):
        operators.setdefault(schema.domain, []).append(row(schema, index))
    lines = [
        f'"onnxruntime": {json.dumps(onnxruntime.__version__)}',
        '"types": [\n  ' + ",\n  ".join(map(json.dumps, types)) + "\n ]",
        '"operators": {\n  '
        + ",\n  ".join(
            f"{json.dumps(domain)}: [\n   " + ",\n   ".join(json.dumps(r, sort_keys=True) for r in rows) + "\n  ]"
            for domain, rows in operators.items()
        )
        + "\n }",
    ]
    TARGET.write_text("{\n " + ",\n ".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{sum(map(len, operators.values()))} schemas of onnxruntime {onnxruntime.__version__} in {TARGET}")


def row(schema: Any, index: dict[tuple[str, ...], int]) -> dict[str, Any]:
    """One schema as the table holds it."""

    def formals(sources: Any) -> list[list[Any]]:
        return [[f.name, OPTIONS[f.option.name], index[tuple(sorted(accepted(schema, f)))]] for f in sources]

    return {
        "name": schema.name,
        "since": schema.since_version,
        "inputs": formals(schema.inputs),
        "outputs": formals(schema.outputs),
        "inputs_range": [schema.min_input, schema.max_input],
        "outputs_range": [schema.min_output, schema.max_output],
        "attributes": {name: [a.type.name, a.required, default(a)] for name, a in sorted(schema.attributes.items())},
    }


def accepted(schema: Any, formal: Any) -> set[str]:
    """The types that a formal parameter accepts: those of its type parameter, or the one it names."""
    for constraint in schema.type_constraints:
        if constraint.type_param_str == formal.typeStr:
            return set(constraint.allowed_type_strs)
    return {formal.typeStr}


def default(attribute: Any) -> Any:
    """The default of an attribute, or None."""
    if not attribute._default_value:
        return None
    return default_value(onnx.AttributeProto.FromString(attribute._default_value))


if __name__ == "__main__":
    main()
