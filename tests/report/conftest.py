"""Fixtures for the tests of the page: the patterns, and a real fused model."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnx_subgraph.language.library import Library, load_patterns
from onnx_subgraph.options import Options
from onnx_subgraph.pipeline import fuse
from onnx_subgraph.report.entry import Entry

ROOT = Path(__file__).parents[2]

PATTERNS = ("layer-normalization", "gelu", "bias-gelu")
"""Those that the model is fused by, so that a new pattern changes no test of the page."""


@pytest.fixture(scope="session")
def library() -> Library:
    return load_patterns()


@pytest.fixture(scope="session")
def bert(library: Library, tmp_path_factory: pytest.TempPathFactory) -> Entry:
    """A real fused model, with every fusion whatever its measured speed."""
    output = tmp_path_factory.mktemp("html") / "bert.onnx"
    model = ROOT / "sample_models/bert_torchscript.onnx"
    return Entry(model, 0, fuse(model, output, library, Options(only=PATTERNS, prefer="fusion", excerpts=True, sites=True)))
