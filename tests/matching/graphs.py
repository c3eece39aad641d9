"""Small graphs from text and patterns from a formula, for the tests of the matcher."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import onnx.parser
import onnx_ir as ir

from onnx_subgraph.language.library import load_patterns
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.matching.find import Found, find
from onnx_subgraph.model.shapes import infer_shapes


def pattern(match: str, replace: str, *, example: str, **extra: str) -> Pattern:
    """A pattern with this formula. extra: more keys of the file, as YAML."""
    lines = ["id: probe", "summary: A probe", "match: |", *(f"  {line.strip()}" for line in match.strip().splitlines())]
    lines += ["replace:", f"  onnxruntime: {replace}", f"example: {example}", *(f"{k}: {v}" for k, v in extra.items())]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "probe.yaml"
        path.write_text("\n".join(lines) + "\n")
        return load_patterns([path], built_in=False).get("probe")


def model(text: str, *, opset: int = 18, inputs: str = "float[N, 8] x", outputs: str = "y", constants: str = "") -> ir.Model:
    """A model from the body of a graph, with inferred shapes. constants: initializers, `float half = {0.5}, …`."""
    declared = f" <{constants}>" if constants else ""
    source = (
        f'<ir_version: 8, opset_import: ["" : {opset}, "com.microsoft" : 1]>\ng ({inputs}) => ({outputs}){declared} {{ {text} }}'
    )
    made = ir.from_proto(onnx.parser.parse_model(source))
    infer_shapes(made)
    return made


def found(probe: Pattern, graph: ir.Model) -> Found:
    return find(graph, [probe])


def matches(probe: Pattern, graph: ir.Model) -> int:
    return len(found(probe, graph).matches)
