"""`fuse --compare-ort`: the report has two tables and one line; JSON has the same facts."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema

from tests.cli.conftest import ROOT, Run

SCHEMA = json.loads((ROOT / "docs" / "report.schema.json").read_text(encoding="utf-8"))


def test_the_report_shows_the_fusions_of_onnxruntime(run: Run, gelu: Path) -> None:
    out = run("fuse", gelu, "--dry-run", "--compare-ort").out
    part = out[out.index("What onnxruntime does by itself on CPUExecutionProvider") :]
    assert "1 node by itself, 1 with ours; 0 of our 1 fusion it does not make; none of its own blocked" in part
    rows = [line.split() for line in part.splitlines()]
    assert ["com.microsoft.Gelu", "1", "1", "0", "0"] in rows
    assert ["gelu", "com.microsoft.Gelu", "1", "com.microsoft.Gelu"] in rows


def test_the_json_has_the_same_facts(run: Run, gelu: Path) -> None:
    answer = run("fuse", gelu, "--dry-run", "--compare-ort", "--json").json
    jsonschema.validate(answer, SCHEMA)
    (work,) = answer["onnxruntime"]
    assert work["fusions"] == [{"op": "com.microsoft.Gelu", "output": "y", "fate": "kept", "by": "com.microsoft.Gelu"}]
    assert run("fuse", gelu, "--dry-run", "--json").json["onnxruntime"] == []
