"""A backend declared by a file: the file lists what it supports, and another backend runs it.

It shows what a machine that is not at hand could run of a model, or restricts a backend.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnx_subgraph import operators
from onnx_subgraph.backends.array import Array
from onnx_subgraph.backends.backend import Backend, Signature, dtype_name, label, opset_of
from onnx_subgraph.backends.subgraph import constant
from onnx_subgraph.language.capability import Capability, Limit, Range, Rule, read_capability
from onnx_subgraph.model.nested import reads

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_subgraph.backends.subgraph import Subgraph


class Declared(Backend):
    """The backend of a declaration; `runner` compiles and runs its regions."""

    def __init__(self, capability: Capability, runner: Backend) -> None:
        self.name = runner.name  # the runner must exist when the model runs; the file need not
        self.version = runner.version
        self.specializes = runner.specializes
        self.concurrent, self.dynamic = runner.concurrent, runner.dynamic
        self.gain = math.inf  # the runner here does not know the gain on such a machine
        self._capability = capability
        self._runner = runner

    @classmethod
    def of_file(cls, path: Path, runner: Backend) -> Declared:
        """The backend that the file `path` declares. Raises PatternError, with the place, for a mistake in it."""
        return cls(read_capability(path), runner)

    @property
    def title(self) -> str:
        """The id of the file."""
        return self._capability.id

    def supports(self, node: ir.Node) -> bool:
        """Whether the node keeps every rule of the file, and the runner supports it."""
        return not self._objection(node) and self._runner.supports(node)

    def reason(self, node: ir.Node) -> str:
        """The rule that the node breaks."""
        return self._objection(node) or self._runner.reason(node)

    def compile(self, subgraph: Subgraph, signature: Signature) -> Any:
        """As the runner does."""
        return self._runner.compile(subgraph, signature)

    def run(self, compiled: Any, inputs: Sequence[Array]) -> Sequence[Array]:
        """As the runner does."""
        return self._runner.run(compiled, inputs)

    def save(self, compiled: Any) -> bytes | None:
        """As the runner does."""
        return self._runner.save(compiled)

    def restore(self, content: bytes, subgraph: Subgraph, signature: Signature) -> Any:
        """As the runner does."""
        return self._runner.restore(content, subgraph, signature)

    def _objection(self, node: ir.Node) -> str:
        """The first rule that the node breaks, in words; "" if it keeps them all."""
        rule = self._capability.rules.get((node.domain, node.op_type))
        if rule is None:
            return f"{self._capability.id} does not run {label(node)}"
        return next(_broken(node, rule), "")


def _broken(node: ir.Node, rule: Rule) -> Iterator[str]:
    values = (*reads(node), *node.outputs)
    dtypes = dict.fromkeys(dtype_name(value.dtype) for value in values if value.dtype is not None)
    for dtype in dtypes:
        if rule.dtypes and dtype not in rule.dtypes:
            yield f"{label(node)} may not be {dtype}, only {', '.join(sorted(rule.dtypes))}"
    for name, limit in rule.attributes.items():
        value = _attribute(node, name)
        if value is None:
            yield f"{label(node)} leaves {name} open"
        elif not all(_keeps(element, limit) for element in (value if isinstance(value, list | tuple) else (value,))):
            yield f"{label(node)} has {name}={_written(value)}, not {' or '.join(map(str, limit))}"
    yield from _out_of_shape(node, rule)
    for name in rule.constants:
        if any(value is not None and constant(value) is None for value in _inputs(node, name)):
            yield f"{label(node)} has an input {name} that is no constant"


def _out_of_shape(node: ir.Node, rule: Rule) -> Iterator[str]:
    flowing = [value for value in reads(node) if constant(value) is None]
    for value in (*flowing, *(output for output in node.outputs if output.name)):
        shape = value.shape
        if rule.rank and (shape is None or not _keeps(len(shape), rule.rank)):
            found = "a value of unknown rank" if shape is None else f"a value of rank {len(shape)}"
            yield f"{label(node)} has {found}, not {' or '.join(map(str, rule.rank))}"
        for size in shape if rule.sizes and shape is not None else ():
            if not isinstance(size, int) or not _keeps(size, rule.sizes):
                found = f"the size {size}" if isinstance(size, int) else "a size that is open"
                yield f"{label(node)} has {found}, not {' or '.join(map(str, rule.sizes))}"
        if rule.sizes and shape is None:
            yield f"{label(node)} has a value of unknown sizes"


def _inputs(node: ir.Node, name: str) -> Sequence[ir.Value | None]:
    """The input that the specification calls `name`; all of them if it is variadic."""
    schema = operators.schema(node.op_type, node.domain, opset_of(node))
    for index, formal in enumerate(schema.inputs if schema is not None else ()):
        if formal.name == name:
            return node.inputs[index:] if formal.variadic else node.inputs[index : index + 1]
    return ()


def _attribute(node: ir.Node, name: str) -> Any:
    """The value of an attribute, or its default; None if it has neither."""
    attribute = node.attributes.get(name)
    if attribute is not None and not attribute.is_ref():
        return attribute.value
    schema = operators.schema(node.op_type, node.domain, opset_of(node))
    spec = None if schema is None else schema.attributes.get(name)
    return None if spec is None else spec.default


def _keeps(value: Any, limit: Limit) -> bool:
    return any(choice.low <= value <= choice.high if isinstance(choice, Range) else value == choice for choice in limit)


def _written(value: Any) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list | tuple) else str(value)
