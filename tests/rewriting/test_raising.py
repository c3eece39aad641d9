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


def test_a_model_is_not_raised_to_a_definition_that_overflows() -> None:
    """Of Softplus in float16 onnxruntime runs log(exp(x) + 1) from opset 18 on: infinity at 89."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (%s[N, 4] x) => (%s[N, 4] y) { y = Softplus(x) }"""
    half, single = text.replace("%s", "float16"), text.replace("%s", "float")
    with pytest.raises(ModelError, match=r"raised to opset 18, Softplus would be computed by its definition, which overflows"):
        check_raised(raise_opset(read(half), 18), [LOADABILITY])
    check_raised(raise_opset(read(single), 18), [LOADABILITY])
    (finite,) = run(onnx.parser.parse_model(half), {"x": np.full((2, 4), 100, np.float16)})
    assert np.isfinite(finite).all()


def test_operators_on_sequences_are_no_obstacle() -> None:
    """Paddle exports an assignment to a slice with a SequenceMap, which onnxruntime runs by its definition."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[n, 4] x) => (float[a, b] y) {
      s = SplitToSequence(x) m = SequenceMap <body = each (float[n, 4] a) => (float[n, 4] d) { d = Neg(a) }> (s)
      y = ConcatFromSequence<axis = 0>(m) }"""
    check_raised(raise_opset(read(text), 23), [LOADABILITY])
