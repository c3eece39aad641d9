"""Loadability is found by trying: these are cases where onnxruntime's kernel registrations suggest otherwise."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from onnx_subgraph.rewriting.loadability import Loadability, Operand
from tests.rewriting.stage import LOADABILITY

FLOAT, DOUBLE, HALF = (Operand(d, 2) for d in (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16))
BYTE = Operand(ir.DataType.INT8, 2)


def test_a_kernel_for_a_type_that_the_schema_forbids_does_not_load() -> None:
    reason = LOADABILITY.reason("SkipLayerNormalization", "com.microsoft", 1, [DOUBLE, DOUBLE, Operand(ir.DataType.DOUBLE, 1)])
    assert reason is not None and "double" in reason


def test_an_operator_without_a_kernel_loads_with_inserted_casts() -> None:
    assert LOADABILITY.reason("Gelu", "com.microsoft", 1, [HALF]) is None


@pytest.mark.parametrize(("operator", "domain", "opset"), [("Gelu", "com.microsoft", 1), ("Gelu", "", 20), ("HardSwish", "", 18)])
def test_a_double_is_not_computed_in_float(operator: str, domain: str, opset: int) -> None:
    """They load, with casts to float or a function body with float constants, and lose half of the digits."""
    assert LOADABILITY.reason(operator, domain, opset, [DOUBLE]) == "no kernel for double on CPUExecutionProvider"
    assert LOADABILITY.reason(operator, domain, opset, [FLOAT]) is None


def test_a_double_with_a_kernel_of_its_own_loads() -> None:
    scale = Operand(ir.DataType.DOUBLE, 1)
    assert LOADABILITY.reason("LayerNormalization", "", 17, [DOUBLE, scale]) is None
    assert LOADABILITY.reason("Clip", "", 18, [DOUBLE]) is None
    assert LOADABILITY.reason("Reshape", "", 18, [DOUBLE, Operand(ir.DataType.INT64, 1)]) is None


@pytest.mark.parametrize("operator", ["GroupNorm", "BiasAdd", "BiasSplitGelu"])
def test_an_operator_for_other_providers_does_not_load_on_the_cpu(operator: str) -> None:
    x = Operand(ir.DataType.FLOAT16, 4)
    one = Operand(ir.DataType.FLOAT, 1)
    assert LOADABILITY.reason(operator, "com.microsoft", 1, [x, one, one]) is not None


def test_an_unknown_operator_is_refused_without_opening_a_session() -> None:
    assert LOADABILITY.reason("Nonesuch", "com.microsoft", 1, [FLOAT]) == "this onnxruntime does not know com.microsoft.Nonesuch"


def test_answers_are_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    loadability = Loadability("CPUExecutionProvider")
    assert loadability.reason("Gelu", "com.microsoft", 1, [FLOAT]) is None
    monkeypatch.setattr("onnx_subgraph.rewriting.loadability._session_error", lambda *_: pytest.fail("asked twice"))
    assert loadability.reason("Gelu", "com.microsoft", 1, [FLOAT]) is None


def test_a_provider_that_is_not_installed_loads_nothing() -> None:
    assert Loadability("NonesuchProvider").reason("Relu", "", 17, [FLOAT]) == "NonesuchProvider is not part of this onnxruntime"


@pytest.mark.parametrize(
    ("operator", "opset", "operand", "inlined"),
    [
        ("GroupNormalization", 21, FLOAT, True),
        ("Mish", 22, FLOAT, True),
        ("Gelu", 20, HALF, True),
        ("Gelu", 20, FLOAT, False),
        ("LayerNormalization", 17, HALF, False),
        ("RMSNormalization", 23, HALF, False),
        ("LpNormalization", 22, FLOAT, False),
        ("Clip", 13, FLOAT, False),
        ("Clip", 13, BYTE, False),  # onnxruntime's list of kernels covers float types only
        ("DynamicQuantizeLinear", 11, FLOAT, False),
        ("Conv", 17, HALF, False),  # has no definition: it loads with casts
    ],
)
def test_what_has_a_definition_and_no_kernel_is_inlined(operator: str, opset: int, operand: Operand, inlined: bool) -> None:
    assert LOADABILITY.inlines(operator, opset, [operand]) is inlined


def test_a_provider_that_is_not_installed_inlines_nothing() -> None:
    assert not Loadability("NonesuchProvider").inlines("GroupNormalization", 21, [FLOAT])


def test_given_sizes_are_declared() -> None:
    """EmbedLayerNormalization needs the width of its tables."""
    ids, line = Operand(ir.DataType.INT32, 2), Operand(ir.DataType.FLOAT, 1)
    table = Operand(ir.DataType.FLOAT, 2, shape=(None, 8))
    names = ("EmbedLayerNormalization", "com.microsoft", 1)
    zero = ir.AttrInt64("mask_index_type", 0)
    open_, sized = ([ids, None, t, t, None, line, line] for t in (FLOAT, table))
    assert "dimension size is known" in (LOADABILITY.reason(*names, open_, attributes=[zero]) or "")
    assert LOADABILITY.reason(*names, sized, attributes=[zero]) is not None  # also the rows of the tables
    table = Operand(ir.DataType.FLOAT, 2, shape=(10, 8))
    line = Operand(ir.DataType.FLOAT, 1, shape=(8,))
    assert LOADABILITY.reason(*names, [ids, None, table, table, None, line, line], attributes=[zero]) is None
