"""The ways to call an operator: which inputs are present, their types, and the values of attributes.

An attribute that may be any number gets a number that no graph contains (`_placeholder`). Where the body has this number, the
graph has the actual one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from onnx_subgraph.model.element_types import FLOATS, tensor_type
from onnx_subgraph.operators import AttributeSpec, Formal, Schema
from onnx_subgraph.operators.bodies import Operand

_FLAGS = frozenset(
    {"align_corners", "interleaved", "is_causal", "keepdims", "noop_with_empty_axes", "periodic"},
)
"""Boolean attributes."""
_TYPES = frozenset({"output_datatype", "softmax_precision", "stash_type"})
"""Attributes whose value is a float type."""
_WORDS: Mapping[str, tuple[str, ...]] = {"approximate": ("none", "tanh")}
"""Attributes with a fixed set of texts."""
_TOGETHER = ("num_heads",)
"""Suffixes of attributes that must all be present or all be absent."""
MODES = range(4)
_OTHER_TYPES = (ir.DataType.BOOL, ir.DataType.INT64)
"""Types that an operand may have besides the type of the result."""
_ANY_NUMBER = 7919
_ANY_FLOAT = 7919.5


@dataclass(frozen=True, slots=True)
class Call:
    """One way to call an operator. attributes: those that are set. operands: None for an omitted one."""

    attributes: tuple[tuple[str, Any], ...]
    operands: tuple[Operand | None, ...]
    placeholders: Mapping[float, str] = field(default_factory=dict, compare=False)


class Calls:
    """The ways to call an operator whose result has this type and rank."""

    def __init__(self, schema: Schema, dtype: ir.DataType, rank: int | None) -> None:
        self._placeholders = {_placeholder(spec, i): name for i, (name, spec) in enumerate(schema.attributes.items())}
        self._rank = rank
        types = [_types(formal, dtype) for formal in schema.inputs]
        operands = tuple(None if f.optional else (int(t[0]), rank) for f, t in zip(schema.inputs, types, strict=True))
        required = {n: self._number(n) for n, spec in schema.attributes.items() if spec.required}
        self.plain = Call(tuple(required.items()), operands, self._placeholders)
        inputs = [(i, f, t) for i, (f, t) in enumerate(zip(schema.inputs, types, strict=True))]
        self._operands = [(i, [(int(t), rank) for t in (ts if f.optional else ts[1:])]) for i, f, ts in inputs]
        self._attributes = self._changes(schema)

    def _number(self, name: str) -> float | int:
        return next(number for number, known in self._placeholders.items() if known == name)

    def _changes(self, schema: Schema) -> list[Mapping[str, Any]]:
        """The settings of attributes other than absent; attributes that belong together are set together."""
        changes: list[Mapping[str, Any]] = []
        together: dict[str, dict[str, Any]] = {}
        for name, spec in schema.attributes.items():
            suffix = next((s for s in _TOGETHER if name.endswith(s)), None)
            if suffix is not None:
                together.setdefault(suffix, {})[name] = self._number(name)
            else:
                changes += [{name: value} for value in self._values(spec)]
        return [*changes, *together.values()]

    def _values(self, spec: AttributeSpec) -> Iterator[Any]:
        if spec.type == "INTS":
            yield (self._number(spec.name),)
        elif spec.type == "STRING":
            yield from (word for word in _WORDS.get(spec.name, ()) if word != spec.default)
        elif spec.type == "FLOAT":
            yield self._number(spec.name)
        elif spec.type == "INT" and not spec.required:
            yield from (value for value in self._whole_numbers(spec) if value != spec.default)

    def _whole_numbers(self, spec: AttributeSpec) -> Iterator[int]:
        if spec.name == "axis":
            yield from range(-(self._rank or 0), self._rank or 0)
        elif spec.name in _FLAGS:
            yield from (0, 1)
        elif spec.name in _TYPES:
            yield from sorted(map(int, FLOATS))
        elif spec.name.endswith("_mode"):
            yield from MODES
        else:
            yield int(self._number(spec.name))

    def beside(self, call: Call) -> Iterator[Call]:
        """The calls that differ from `call` in one operand (present, absent, or another type) or in one attribute."""
        for index, choices in self._operands:
            for choice in (*choices, self.plain.operands[index]):
                if choice != call.operands[index]:
                    operands = (*call.operands[:index], choice, *call.operands[index + 1 :])
                    yield Call(call.attributes, operands, self._placeholders)
        said = dict(call.attributes)
        for change in self._attributes:
            if any(said.get(name) != value for name, value in change.items()):
                other = {**said, **change}
            else:
                other = {name: value for name, value in said.items() if name not in change}
            yield Call(tuple(sorted(other.items())), call.operands, self._placeholders)


def _placeholder(spec: AttributeSpec, index: int) -> float:
    return _ANY_FLOAT + index if spec.type == "FLOAT" else _ANY_NUMBER + index


def _types(formal: Formal, dtype: ir.DataType) -> list[ir.DataType]:
    """The types that an operand may have, the type of the result first."""
    likely = [t for t in (dtype, *_OTHER_TYPES) if tensor_type(t) in formal.types]
    return list(dict.fromkeys(likely)) or [t for t in ir.DataType if t and tensor_type(t) in formal.types][:1] or [dtype]
