"""Ask onnxruntime whether an execution provider loads an operator for given dtypes.

onnxruntime's kernel registrations alone are misleading: a double SkipLayerNormalization kernel is registered, but its schema
rejects double; float16 Gelu has no kernel, but loads through inserted casts. So the answer comes from a session of one node, with
optimisation off. Answers are cached in the object.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import onnx_ir as ir

from onnx_subgraph import custom_ops
from onnx_subgraph.model.attributes import attribute_proto
from onnx_subgraph.model.element_types import FLOATS, tensor_type
from onnx_subgraph.operators import schema
from onnx_subgraph.operators.kernels import Kernel, kernel_table, limit_of
from onnx_subgraph.operators.names import KNOWN_DOMAINS

CPU = "CPUExecutionProvider"


@dataclass(frozen=True, slots=True)
class Operand:
    """One input or output of the probe. dtype: of a tensor. rank: None where unknown. constant: its bytes, if it is one.

    A kernel may require that an input is an initializer (axes, sizes), so small constants are passed to the probe. shape: of a
    constant its static shape; otherwise the sizes that the probe declares, None for a dynamic one. Without shape the probe
    declares no sizes, and one answer serves all sizes.
    """

    dtype: ir.DataType
    rank: int | None = None
    constant: bytes | None = None
    shape: tuple[int | None, ...] = ()


class NoKernel(str):
    """Why an operator does not load: the provider has no kernel for it with these types. Another provider may have one."""

    __slots__ = ()


class NoSuchOperator(str):
    """Why an operator does not load: neither onnxruntime nor a library of this run has it."""

    __slots__ = ()


_DOUBLE = tensor_type(ir.DataType.DOUBLE)
"""The type that needs its own kernel.

onnxruntime casts double down to float, and a function's body has its constants in float. So the result would lack precision.
"""
_TYPES = {dtype: tensor_type(dtype) for dtype in FLOATS}
"""The floating types, for which kernels differ, by their names in kernels."""
_ASKED_SAFELY = frozenset({CPU, "AzureExecutionProvider"})
_NEWEST = 2**31 - 1
ANY = Operand(ir.DataType.UNDEFINED)
"""An output whose dtype the schema determines."""


class Loadability:
    """Answers for one provider. A provider that the installed onnxruntime lacks loads nothing (but see `assumed`)."""

    def __init__(self, provider: str) -> None:
        self.provider = provider
        self._known: dict[object, str | None] = {}

    @property
    def is_available(self) -> bool:
        """Whether the installed onnxruntime has the provider."""
        return self.provider in _available()

    def reason(
        self,
        operator_name: str,
        domain: str,
        opset: int,
        inputs: Sequence[Operand | None],
        outputs: Sequence[Operand | None] = (ANY,),
        attributes: Iterable[ir.Attr] = (),
    ) -> str | None:
        """Why the provider does not load the operator, or None if it does.

        inputs, outputs: one for each, None for an omitted one. The schema determines an output of dtype UNDEFINED.
        """
        listed = tuple(attributes)
        key = (operator_name, domain, opset, tuple(inputs), tuple(outputs), _signature(listed))
        if key not in self._known:
            limit = limit_of(self.provider, operator_name, domain, [o is not None for o in inputs], listed)
            asked = NoKernel(limit) if limit else self._ask(operator_name, domain, opset, inputs, outputs, listed)
            self._known[key] = asked
        return self._known[key]

    def inlines(self, operator_name: str, opset: int, inputs: Sequence[Operand | None]) -> bool:
        """Whether the provider has no kernel for a standard operator of these dtypes and runs its definition instead.

        That is correct, but no faster than the unfused nodes. An operator without a definition is never inlined: it loads with
        casts or not at all. A provider without registered kernels compiles what it can, and inlines nothing.
        """
        since, dtypes = definition(operator_name, opset), floating(inputs)
        if since is None or not self.is_available or not _kernels(self.provider):
            return False
        kernels = [k for k in _kernels(self.provider).get(("", operator_name), ()) if k.serves(since)]
        if any(dtypes <= kernel.types for kernel in kernels if dtypes and kernel.types):
            return False
        if not kernels or (dtypes and any(kernel.types for kernel in kernels)):
            return True
        return self._is_inlined(operator_name, opset, inputs)  # the registrations do not tell which types are supported

    def _is_inlined(self, operator_name: str, opset: int, inputs: Sequence[Operand | None]) -> bool:
        key = ("apart", operator_name, opset, tuple(inputs))
        if key not in self._known:
            known = schema(operator_name, "", opset)
            outputs = (ANY,) * (1 if known is None else known.min_outputs)
            self._known[key] = _why_inlined(_probe(operator_name, "", opset, inputs, outputs, ()), self.provider, operator_name)
        return self._known[key] is not None

    def definition_error(
        self,
        operator_name: str,
        opset: int,
        inputs: Sequence[Operand | None],
        outputs: Sequence[Operand | None],
        attributes: Iterable[ir.Attr],
    ) -> str | None:
        """Why a standard operator that `inlines` can't be run by its definition, or None."""
        listed = tuple(attributes)
        key = ("definition", operator_name, opset, tuple(inputs), tuple(outputs), _signature(listed))
        if key not in self._known:
            probe = _probe(operator_name, "", opset, inputs, outputs, listed)
            self._known[key] = _session_error(probe, self.provider) if self.is_available else None
        return self._known[key]

    def _ask(
        self,
        operator_name: str,
        domain: str,
        opset: int,
        inputs: Sequence[Operand | None],
        outputs: Sequence[Operand | None],
        attributes: tuple[ir.Attr, ...],
    ) -> str | None:
        if not self.is_available:
            return f"{self.provider} is not part of this onnxruntime"
        theirs = domain not in KNOWN_DOMAINS and bool(custom_ops.libraries())
        doubles = any(o is not None and o.dtype == ir.DataType.DOUBLE for o in inputs)
        error: str | None = NoKernel(f"no kernel for double on {self.provider}")
        if theirs or not doubles or any(_DOUBLE in k.types for k in _kernels(self.provider).get((domain, operator_name), ())):
            error = _session_error(_probe(operator_name, domain, opset, inputs, outputs, attributes), self.provider)
        if error is not None and not theirs and (domain, operator_name) not in _schemas():  # to list these takes longer
            return NoSuchOperator(f"this onnxruntime does not know {f'{domain}.' if domain else ''}{operator_name}")
        return error


@cache
def _available() -> frozenset[str]:
    import onnxruntime

    return frozenset(onnxruntime.get_available_providers())


@cache
def _schemas() -> frozenset[tuple[str, str]]:
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    return frozenset(("" if s.domain == "ai.onnx" else s.domain, s.name) for s in state.get_all_operator_schema())


def floating(operands: Sequence[Operand | None]) -> frozenset[str]:
    """The floating types among the operands, by their names in kernels."""
    return frozenset(_TYPES[o.dtype] for o in operands if o is not None and o.dtype in _TYPES)


@cache
def definition(operator_name: str, opset: int) -> int | None:
    """The version of a standard operator in effect at `opset`, if the standard defines it as a function; else None."""
    from onnx import defs

    try:
        schema: Any = defs.get_schema(operator_name, opset)  # onnx's type stubs lack parts of a schema
    except defs.SchemaError:
        return None
    return schema.since_version if schema.has_function or schema.has_context_dependent_function else None


@cache
def _kernels(provider: str) -> Mapping[tuple[str, str], tuple[Kernel, ...]]:
    """The kernels that a provider has registered, by domain and operator.

    Listing them is safe only where onnxruntime has no other provider than the CPU's: otherwise it starts each provider, and 1.24
    and 1.31 end the process if that fails. There the checked-in table is used.
    """
    if _available() - _ASKED_SAFELY:
        table = kernel_table(provider)
        return table.kernels if table is not None else {}
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    known, found = frozenset(_TYPES.values()), dict[tuple[str, str], list[Kernel]]()
    for kernel in state.get_all_opkernel_def():
        if kernel.provider == provider:
            first, last = kernel.version_range
            types = known.intersection(chain.from_iterable(kernel.type_constraints.values()))
            found.setdefault((kernel.domain, kernel.op_name), []).append(Kernel(first, None if last == _NEWEST else last, types))
    return {key: tuple(kernels) for key, kernels in found.items()}


def _probe(
    operator_name: str,
    domain: str,
    opset: int,
    inputs: Sequence[Operand | None],
    outputs: Sequence[Operand | None],
    attributes: tuple[ir.Attr, ...],
) -> bytes:
    from onnx import TensorProto, ValueInfoProto, helper

    names = ["" if o is None else f"i{i}" for i, o in enumerate(inputs)]
    results = ["" if o is None else f"o{i}" for i, o in enumerate(outputs)]
    node = helper.make_node(operator_name, names, results, name="probe", domain=domain)
    node.attribute.extend(map(attribute_proto, attributes))
    feeds, initializers = [], []
    for name, operand in zip(names, inputs, strict=True):
        if operand is None:
            continue
        if operand.constant is not None:
            dims = [d for d in operand.shape if d is not None]
            initializers.append(TensorProto(name=name, data_type=int(operand.dtype), dims=dims, raw_data=operand.constant))
            continue
        sizes = operand.shape or (None,) * (operand.rank or 0)
        declared = None if operand.rank is None else [f"{name}_{d}" if s is None else s for d, s in enumerate(sizes)]
        feeds.append(helper.make_tensor_value_info(name, int(operand.dtype), declared))
    provided = [
        helper.make_tensor_value_info(r, int(o.dtype), None) if o.dtype else ValueInfoProto(name=r)
        for r, o in zip(results, outputs, strict=True)
        if o is not None
    ]
    graph = helper.make_graph([node], "probe", feeds, provided, initializers)
    versions: Mapping[str, int] = {"": opset} if not domain else {"": 17, domain: opset}
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(d, v) for d, v in versions.items()])
    model.ir_version = 8 if versions[""] < 19 else 10
    serialized: bytes = model.SerializeToString()
    return serialized


def _why_inlined(model: bytes, provider: str, operator_name: str) -> str | None:
    """Why the loaded model of one node no longer has that node, or None if it has."""
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "loaded.onnx"
        reason = _session_error(model, provider, path)
        if reason is not None:
            return reason
        found = {node.op_type for node in onnx.load(path).graph.node}
    return None if operator_name in found else "it is inlined"


def _session_error(model: bytes, provider: str, written: Path | None = None) -> str | None:
    """Why a session does not load a model, or None. written: where to save the model as loaded."""
    import onnxruntime
    from onnxruntime.capi.onnxruntime_inference_collection import InferenceSession  # even if a hook replaced the public name

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    if written is not None:
        options.optimized_model_filepath = str(written)
    if provider != CPU:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    try:
        custom_ops.register(options)
        InferenceSession(model, options, providers=[provider])
    except Exception as error:  # onnxruntime's error classes have no common base
        return _sentence(str(error))
    return None


def _sentence(message: str) -> str:
    text = message.strip().splitlines()[0]
    if text.startswith("[ONNXRuntimeError]"):
        text = text.split(" : ", 3)[-1]
    if "is not a registered function/op" in text:
        return NoSuchOperator("no library of this run has it")
    return NoKernel("it has no kernel for it") if text.startswith("Could not find an implementation for") else text


def _signature(attributes: tuple[ir.Attr, ...]) -> tuple[tuple[str, bytes], ...]:
    return tuple(sorted((a.name, attribute_proto(a).SerializeToString(deterministic=True)) for a in attributes))
