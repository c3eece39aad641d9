"""Bodies that do not depend on the call have the same nodes in every call."""

from __future__ import annotations

import pytest

from onnx_subgraph.language.library import load_patterns
from onnx_subgraph.matching.body.defined import defined
from onnx_subgraph.operators import latest_opset
from onnx_subgraph.operators.bodies import depends_on_call

NAMES = [*load_patterns().get("function-body").bodies]


@pytest.mark.parametrize("opset", [13, 17, latest_opset()])
def test_bodies_of_one_operator_have_the_same_operators(opset: int) -> None:
    """So the body of one call tells what all bodies have."""
    known = [operator for name in NAMES if (operator := defined(name, opset)) is not None]
    fixed = [operator for operator in known if not depends_on_call(operator.name, operator.version)]
    assert fixed and len(fixed) < len(known)
    for operator in fixed:
        assert {body.operators for body in operator.typical} == {operator.core}
