"""What a provider that is not installed is assumed to load: the operators of its table and no others."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from onnx_subgraph.errors import UsageError
from onnx_subgraph.operators import schema
from onnx_subgraph.operators.kernels import kernel_table, providers
from onnx_subgraph.rewriting.assumed import Assumed
from onnx_subgraph.rewriting.loadability import CPU, Loadability, Operand

FLOAT, HALF, DOUBLE = (Operand(dtype, 3) for dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE))
CUDA = Assumed("CUDAExecutionProvider")


@pytest.mark.parametrize(
    ("operator", "domain", "opset", "operand", "loads"),
    [
        ("GroupNorm", "com.microsoft", 1, HALF, True),
        ("GroupNorm", "com.microsoft", 1, DOUBLE, False),
        ("SkipLayerNormalization", "com.microsoft", 1, FLOAT, True),
        ("SkipLayerNormalization", "com.microsoft", 1, DOUBLE, False),
        ("LayerNormalization", "", 17, HALF, True),
        ("SimplifiedLayerNormalization", "", 17, FLOAT, True),
        ("Relu", "", 18, FLOAT, True),
        ("Mish", "", 22, FLOAT, True),  # by its definition
        ("Attention", "", 23, HALF, True),
        ("QMoE", "com.microsoft", 1, DOUBLE, False),
        ("Nonesuch", "com.microsoft", 1, FLOAT, False),
    ],
)
def test_cuda(operator: str, domain: str, opset: int, operand: Operand, loads: bool) -> None:
    reason = CUDA.reason(operator, domain, opset, [operand])
    assert (reason is None) is loads
    assert loads or "CUDAExecutionProvider of onnxruntime 1." in str(reason)


@pytest.mark.parametrize(("activation", "loads"), [("Relu", True), ("Tanh", False), (None, False)])
def test_a_kernel_that_takes_one_value_of_an_attribute(activation: str | None, loads: bool) -> None:
    given = () if activation is None else (ir.AttrString("activation", activation),)
    reason = CUDA.reason("FusedConv", "com.microsoft", 1, [FLOAT, FLOAT], attributes=given)
    assert reason == (None if loads else "its kernel on CUDAExecutionProvider takes only activation=Relu")


@pytest.mark.parametrize(("bias", "sink", "loads"), [(True, False, True), (False, True, True), (True, True, False)])
def test_a_kernel_that_does_not_take_two_inputs_together(bias: bool, sink: bool, loads: bool) -> None:
    operands = [*[FLOAT] * 3, *[None] * 7, FLOAT if bias else None, FLOAT if sink else None]
    reason = CUDA.reason("GroupQueryAttention", "com.microsoft", 1, operands)
    assert reason == (
        None if loads else "its kernel on CUDAExecutionProvider does not take attention_bias and head_sink together"
    )


def test_what_has_a_definition_and_no_kernel_is_inlined() -> None:
    assert CUDA.inlines("Mish", 22, [FLOAT]) and CUDA.inlines("GroupNormalization", 21, [FLOAT])
    assert not CUDA.inlines("Gelu", 20, [FLOAT]) and not CUDA.inlines("Relu", 18, [FLOAT])


@pytest.mark.parametrize("operator", ["Gelu", "LayerNormalization", "Mish", "Softplus", "Relu", "HardSwish", "Swish"])
@pytest.mark.parametrize("opset", [17, 20, 22, 24])
@pytest.mark.parametrize("operand", [FLOAT, HALF, DOUBLE], ids=["float", "half", "double"])
def test_the_table_of_the_cpu_agrees_with_its_kernels(operator: str, opset: int, operand: Operand) -> None:
    """The CPU provider is available everywhere, so it shows that the table is read correctly."""
    assert Assumed(CPU).inlines(operator, opset, [operand]) == Loadability(CPU).inlines(operator, opset, [operand])


def test_a_provider_without_a_table_is_named_with_those_that_have_one() -> None:
    with pytest.raises(UsageError, match="no table of what XnnpackExecutionProvider loads") as caught:
        Assumed("XnnpackExecutionProvider")
    assert caught.value.hint is not None and "CUDAExecutionProvider" in caught.value.hint


def test_every_table_has_its_version() -> None:
    for provider in providers():
        table = kernel_table(provider)
        assert table is not None and table.onnxruntime.count(".") == 2 and len(table.kernels) > 100


def test_limits_name_inputs_and_attributes_of_the_schema() -> None:
    for provider in providers():
        table = kernel_table(provider)
        assert table is not None
        for (domain, name), limits in table.limits.items():
            known = schema(name, domain)
            assert known is not None
            assert all(limit.apart <= {formal.name for formal in known.inputs} for limit in limits)
            assert all(not limit.attribute or limit.attribute in known.attributes for limit in limits)
