"""Patterns for the tests of proofs: catalogue patterns by id, and patterns that a test writes."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import indent

from onnx_subgraph.language.library import Library, load_patterns
from onnx_subgraph.language.pattern import Pattern


@cache
def catalogue() -> Library:
    return load_patterns()


def written(match: str, replace: str, example: str, **more: str) -> Pattern:
    """A pattern with this formula, its replacement for onnxruntime, its example, and further keys as YAML."""
    keys = "".join(f"{key.replace('_', '-')}: {value}\n" for key, value in more.items())
    text = f"id: probe\nsummary: A probe\nmatch: |\n{indent(match, '  ')}\n"
    text += f"replace:\n  onnxruntime: {replace}\n{keys}example: {example}\n"
    with TemporaryDirectory() as folder:
        path = Path(folder) / "probe.yaml"
        path.write_text(text)
        return load_patterns([path], built_in=False).get("probe")
