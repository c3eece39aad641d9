"""The execution providers of this machine. Tests for others are skipped."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import onnx
import pytest

from onnx_subgraph.errors import UsageError
from onnx_subgraph.verification.sessions import check_providers, open_session

SAMPLES = Path(__file__).parents[2] / "sample_models"
RELU = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Relu (x) }')


@cache
def starts(provider: str) -> bool:
    """Whether a session with this provider can be created here."""
    try:
        check_providers([provider])
        open_session(RELU.SerializeToString(), provider, optimised=False)
    except UsageError:
        return False
    return True


def needs(provider: str) -> pytest.MarkDecorator:
    """Skip a test if this onnxruntime lacks the provider or the provider does not start."""
    return pytest.mark.skipif(not starts(provider), reason=f"{provider} does not start here")
