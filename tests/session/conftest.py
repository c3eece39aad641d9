"""Models for sessions, and a cache that all tests of this folder share, so that each model is prepared once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from onnx_subgraph import SessionSettings

GELU = """
<ir_version: 8, opset_import: ["" : 17]>
gelu (float[batch, 8] x) => (float[batch, 8] y)
<float half = {0.5}, float one = {1.0}, float root = {1.4142135}>
{
  scaled = Div (x, root)
  erf = Erf (scaled)
  sum = Add (erf, one)
  product = Mul (x, sum)
  y = Mul (product, half)
}
"""
PLAIN = """
<ir_version: 8, opset_import: ["" : 17]>
plain (float[batch, 8] x) => (float[batch, 8] y) { y = Abs (x) }
"""


@pytest.fixture(autouse=True)
def _forked(forked_commands: None) -> None:
    """All tests of this folder run commands in forks."""


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def settings(shared_cache: Path) -> SessionSettings:
    """Strict settings, so that every failure raises."""
    return SessionSettings(cache=shared_cache, strict=True)


@pytest.fixture
def gelu(tmp_path: Path) -> Path:
    """A model with one GELU, written as basic operators."""
    return save(GELU, tmp_path / "gelu.onnx")


@pytest.fixture
def x() -> np.ndarray:
    return np.linspace(-3, 3, 24, dtype=np.float32).reshape(3, 8)


def save(text: str, path: Path) -> Path:
    onnx.save(onnx.parser.parse_model(text), path)
    return path
