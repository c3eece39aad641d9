"""A model with a raised opset has to load wherever the original loads."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from onnx_subgraph.errors import ModelError
from onnx_subgraph.model.opset import raise_opset
from onnx_subgraph.rewriting.raising import check_raised
from tests.rewriting.stage import LOADABILITY, read, run


def test_an_operator_that_runs_by_its_definition_may_not_run_after_raising() -> None:
    """LeakyRelu of double has no kernel. onnxruntime inlines its definition at opset 16, but not at 23."""
    text = """<ir_version: 8, opset_import: ["": 16]>
    g (%s[N, 4] x) => (%s[N, 4] y) { y = LeakyRelu<alpha = 0.2>(x) }"""
    double, single = text.replace("%s", "double"), text.replace("%s", "float")
    with pytest.raises(ModelError, match="raised to opset 23, the model would not load: LeakyRelu on CPUExecutionProvider"):
        check_raised(raise_opset(read(double), 23), [LOADABILITY])
    check_raised(raise_opset(read(single), 23), [LOADABILITY])
    assert run(onnx.parser.parse_model(double), {"x": np.ones((2, 4))})
