"""What a provider that is not installed is assumed to load: the operators of its table and no others."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from onnx_subgraph.errors import UsageError
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
        ("FusedConv", "com.microsoft", 1, FLOAT, True),
        ("QMoE", "com.microsoft", 1, FLOAT, False),
        ("Nonesuch", "com.microsoft", 1, FLOAT, False),
    ],
)
def test_cuda(operator: str, domain: str, opset: int, operand: Operand, loads: bool) -> None:
    reason = CUDA.reason(operator, domain, opset, [operand])
    assert (reason is None) is loads
    assert loads or "CUDAExecutionProvider of onnxruntime 1." in str(reason)


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
