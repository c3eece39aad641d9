"""What the tests of the page share: the patterns, and a real model, really fused."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnx_subgraph.language.library import Library, load_patterns
from onnx_subgraph.pipeline import FuseResult, Options, fuse

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def library() -> Library:
    return load_patterns()


@pytest.fixture(scope="session")
def bert(library: Library, tmp_path_factory: pytest.TempPathFactory) -> FuseResult:
    """A real model, really fused."""
    output = tmp_path_factory.mktemp("html") / "bert.onnx"
    return fuse(ROOT / "sample_models/bert_torchscript.onnx", output, library, Options(excerpts=True))
