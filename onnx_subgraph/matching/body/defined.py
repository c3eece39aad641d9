"""A standard operator at an opset with the function bodies of its calls; cached per process."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import onnx_ir as ir

from onnx_subgraph import operators
from onnx_subgraph.matching.body.calls import Call, Calls
from onnx_subgraph.matching.body.function import Body
from onnx_subgraph.operators import Schema
from onnx_subgraph.operators.bodies import body, body_version, depends_on_call

_TYPICAL = (ir.DataType.FLOAT, 4)
"""The result's type and rank used to find what all bodies have in common."""

Starts = Mapping[str, tuple[Call, ...]]
"""Last operator of a body → the calls to start the search from."""


@dataclass(frozen=True, eq=False)
class Defined:
    """An operator that the standard defines by a function body. opset: the opset that its bodies should use."""

    name: str
    version: int
    opset: int
    schema: Schema

    def body(self, call: Call) -> Body | None:
        """The body of a call; None where there is none, or where it computes nothing."""
        return _body(self.name, self.version, self.opset, call)

    def calls(self, dtype: ir.DataType, rank: int | None) -> Calls:
        """The ways to call it for a result of this type and rank."""
        return _calls(self, dtype, rank)

    def starts(self, dtype: ir.DataType, rank: int | None) -> Starts:
        """The simplest calls: one for each choice of inputs, because replacing one input by another takes two steps.

        Also one for each set of operators, because the simplest call may need one that the graph does not have.
        """
        return _starts(self, dtype, rank)

    @cached_property
    def typical(self) -> tuple[Body, ...]:
        """The bodies of the simplest call and its neighbours."""
        calls = self.calls(*_TYPICAL)
        return tuple(known for call in (calls.plain, *calls.beside(calls.plain)) if (known := self.body(call)) is not None)

    @cached_property
    def core(self) -> frozenset[str]:
        """The operators that all bodies have; a graph without one of them has no such body."""
        plain = self.body(self.calls(*_TYPICAL).plain)
        if plain is not None and not depends_on_call(self.name, self.version):
            return plain.operators
        each = [known.operators for known in self.typical]
        return frozenset.intersection(*each) if each else frozenset()


@lru_cache(maxsize=1024)
def defined(name: str, opset: int) -> Defined | None:
    """The operator at an opset, in its first version if it is newer; None where it has no function body."""
    version = body_version(name, opset)
    schema = None if version is None else operators.schema(name, "", version)
    return None if version is None or schema is None else Defined(name, version, max(opset, version), schema)


@lru_cache(maxsize=1024)
def _calls(operator: Defined, dtype: ir.DataType, rank: int | None) -> Calls:
    return Calls(operator.schema, dtype, rank)


@lru_cache(maxsize=1024)
def _starts(operator: Defined, dtype: ir.DataType, rank: int | None) -> Starts:
    calls = operator.calls(dtype, rank)
    found: dict[str, dict[object, Call]] = defaultdict(dict)
    for call in (calls.plain, *calls.beside(calls.plain)):
        known = operator.body(call)
        if known is not None:
            there = tuple(operand is None for operand in call.operands)
            for end in known.ends:
                found[end].setdefault((there, known.operators), call)
    return {end: tuple(each.values()) for end, each in found.items()}


@lru_cache(maxsize=8192)
def _body(name: str, version: int, opset: int, call: Call) -> Body | None:
    try:
        proto = body(name, version, dict(call.attributes), call.operands, 1, opset)
    except Exception:  # onnx refuses an invalid call
        return None
    return None if proto is None else _read(proto.SerializeToString())


@lru_cache(maxsize=8192)
def _read(proto: bytes) -> Body | None:
    """One object for each distinct body; None for a body that computes nothing."""
    import onnx

    return Body(onnx.FunctionProto.FromString(proto)) or None
