"""Decide what a provider loads that is not on this machine, from the checked-in table of kernels.

An operator loads where the table has a kernel for its version and floating types, or where the standard defines it by other
operators and the provider inlines it. The table is of one version of onnxruntime; the installed version is not asked.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnx_subgraph.errors import UsageError
from onnx_subgraph.operators import schema
from onnx_subgraph.operators.kernels import KernelTable, kernel_table, providers
from onnx_subgraph.rewriting.loadability import Loadability, NoKernel, Operand, definition, floating


class Assumed(Loadability):
    """Loadability on one provider, from the table of kernels. Raises UsageError where the provider has no table."""

    def __init__(self, provider: str) -> None:
        super().__init__(provider)
        self._table = table_of(provider)

    def inlines(self, operator_name: str, opset: int, inputs: Sequence[Operand | None]) -> bool:
        """Whether the table has no kernel for a standard operator that the standard defines by others."""
        return definition(operator_name, opset) is not None and not self._has_kernel(operator_name, "", opset, inputs)

    def _ask(
        self,
        operator_name: str,
        domain: str,
        opset: int,
        inputs: Sequence[Operand | None],
        outputs: Sequence[Operand | None],
        attributes: tuple[ir.Attr, ...],
    ) -> str | None:
        if self._has_kernel(operator_name, domain, opset, inputs) or self.inlines(operator_name, opset, inputs):
            return None
        return NoKernel(
            f"no kernel for these types on {self.provider} of onnxruntime {self._table.onnxruntime}, which is assumed"
        )

    def _has_kernel(self, operator_name: str, domain: str, opset: int, inputs: Sequence[Operand | None]) -> bool:
        known = schema(operator_name, domain, opset)
        if known is None:
            return False
        dtypes = floating(inputs)
        kernels = self._table.kernels.get((domain, operator_name), ())
        return any(kernel.serves(known.since_version) and dtypes <= kernel.types for kernel in kernels)


def table_of(provider: str) -> KernelTable:
    """The table of a provider's kernels. Raises UsageError, with the providers that have one, where it has none."""
    table = kernel_table(provider)
    if table is None:
        raise UsageError(f"there is no table of what {provider} loads", hint=f"there is one for {', '.join(sorted(providers()))}")
    return table
