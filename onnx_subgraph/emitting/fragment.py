"""A replacement before it is committed: detached nodes that read stand-ins for the graph's values.

Building and dropping a fragment does not change the model, so everything is checked first and committed afterwards. Shapes and
dtypes are inferred on the fragment alone, as a model whose inputs are the stand-ins. Nodes that depend on constants only are
folded into initializers. Large ones are folded lazily, so that no weight is read before the model is written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir
from onnx_shape_inference import SYM_DATA_KEY, infer_symbolic_shapes

from onnx_subgraph import operators
from onnx_subgraph.emitting.constant_arithmetic import check_folded
from onnx_subgraph.emitting.known import folded, is_foldable, sizes_of
from onnx_subgraph.emitting.refused import Refused
from onnx_subgraph.language.term import Operator
from onnx_subgraph.model import inference
from onnx_subgraph.model.dimensions import symbols
from onnx_subgraph.model.shapes import SHAPE_DATA, same_shape
from onnx_subgraph.operators import Schema
from onnx_subgraph.operators.later import later_opset, takes

SHAPE_OF_PART = 15
"""The opset since which Shape has `start` and `end`."""

ConstantOf = Callable[[ir.Value], "ir.TensorProtocol | None"]
"""The constant that a value of the graph holds, not yet read from disk, or None."""


@dataclass(slots=True, eq=False)
class Fragment:
    """Detached nodes, the values that they read and the results that they provide.

    opset_imports: domain → version that the nodes are written for. read: stand-in → the value of the graph it stands for.
    fold_constants: whether constants may be computed (not in a function's definition).
    constants: new initializers (with `const_value`). provides: root name → value of this fragment that replaces the root.
    functions: definitions that the nodes call. computed: whether a constant was computed from those of the graph.
    """

    opset_imports: Mapping[str, int]
    constant_of: ConstantOf
    fold_constants: bool = True
    nodes: list[ir.Node] = field(default_factory=list)
    read: dict[ir.Value, ir.Value] = field(default_factory=dict)
    constants: list[ir.Value] = field(default_factory=list)
    provides: dict[str, ir.Value] = field(default_factory=dict)
    functions: list[ir.Function] = field(default_factory=list)
    computed: bool = False
    _stand_ins: dict[ir.Value, ir.Value] = field(default_factory=dict)
    _pending: list[ir.Node] = field(default_factory=list)  # not inferred yet
    _sizes: set[ir.Value] = field(default_factory=set)  # results whose elements are inferred, at least as symbols
    _numbers: dict[ir.Value, ir.TensorProtocol] = field(default_factory=dict)  # other results with inferred numbers
    _fresh: int = 0

    def stand_in(self, value: ir.Value) -> ir.Value:
        """The stand-in for `value` of the graph: of the same type, shape and constant."""
        if value not in self._stand_ins:
            shape = None if value.shape is None else ir.Shape(self._named(d) for d in value.shape)
            tensor = self.constant_of(value)
            stand_in = ir.Value(name=self._name("in"), type=value.type, shape=shape, const_value=tensor)
            if tensor is not None:
                stand_in.type, stand_in.shape = ir.TensorType(tensor.dtype), ir.Shape(tensor.shape.numpy())
            elif SHAPE_DATA in value.meta:
                data = [d if isinstance(d, int) else d.value for d in value.meta[SHAPE_DATA]]
                stand_in.metadata_props[SYM_DATA_KEY] = json.dumps(data)
            self._stand_ins[value] = stand_in
            self.read[stand_in] = value
        return self._stand_ins[value]

    def __contains__(self, value: ir.Value) -> bool:
        """Whether a value is one of this fragment, not one of the graph."""
        return value in self.read or value in self.constants or any(value.producer() is node for node in self.nodes)

    def constant(self, array: np.ndarray | ir.TensorProtocol) -> ir.Value:
        """A new constant of this fragment."""
        tensor = ir.Tensor(array) if isinstance(array, np.ndarray) else array
        value = ir.Value(
            name=self._name("const"), type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape.numpy()), const_value=tensor
        )
        self.constants.append(value)
        return value

    def node(
        self,
        operator_name: str,
        inputs: Iterable[ir.Value | None],
        attributes: Iterable[ir.Attr] = (),
        *,
        domain: str = "",
        outputs: Iterable[bool] = (True,),
        overload: str = "",
    ) -> tuple[ir.Value, ...]:
        """Append a node; `outputs` says of each result whether it is emitted.

        Returns one value per result, named "" if omitted.
        """
        values = [ir.Value(name=self._name("out") if emitted else "") for emitted in outputs]
        given = list(inputs)
        while given and given[-1] is None:
            given.pop()
        node = ir.Node(domain, operator_name, given, attributes, overload=overload, outputs=values)
        self.nodes.append(node)
        self._pending.append(node)
        return tuple(values)

    def sizes(self, value: ir.Value, start: int, end: int) -> ir.Value:
        """The sizes of the axes from `start` to before `end`: a Shape node, before opset 15 with a Gather."""
        if self.opset_imports.get("", 1) >= SHAPE_OF_PART:
            return self.node("Shape", [value], [ir.AttrInt64("start", start), ir.AttrInt64("end", end)])[0]
        whole = self.node("Shape", [value])[0]
        return self.node("Gather", [whole, self.constant(np.arange(start, end))])[0]

    def infer(self) -> None:
        """Infer the dtype and shape of every value of the fragment from the stand-ins, where possible.

        Each node is inferred once, except nodes that compute sizes: they are inferred again with each new reader, because
        inference propagates sizes within one run and accepts none as given. Raises Refused where an operator can't be applied to
        its operands.
        """
        if not self._pending:
            return
        inference.install()
        pending = set(self._pending)
        nodes = [n for n in self.nodes if n in pending or any(o in self._sizes for o in n.outputs)]
        inferred = {o for n in self.nodes if n not in pending for o in n.outputs}
        for value, tensor in self._numbers.items():
            value.const_value = tensor
        graph = ir.Graph(
            [v for v in self.read if v.const_value is None],
            [v for v in inferred if v.shape is not None],  # so that new symbols get names that these do not use
            nodes=nodes,
            initializers=[v for v in (*self.read, *self.constants) if v.const_value is not None],
            opset_imports=dict(self.opset_imports),
        )
        model = ir.Model(graph, ir_version=10, functions=self.functions)
        try:
            infer_symbolic_shapes(model, warn_on_missing=False, adopt_declared_symbols=False)
        except Exception as error:  # the library's errors, and whatever its rules raise on unusual operands
            raise Refused(f"the replacement can't be applied to these operands: {error}") from error
        finally:
            graph.outputs.clear()
            graph.remove(nodes)
            graph.initializers.clear()
            graph.inputs.clear()
            for function in self.functions:
                model.functions.pop(function.identifier(), None)
                for value in (*function.inputs, *(o for n in function for o in n.outputs)):
                    value.type = value.shape = None  # a definition is valid for every shape
                    _forget(value)
            for value in (o for n in nodes for o in n.outputs):
                if SYM_DATA_KEY in value.metadata_props:
                    self._sizes.add(value)
                elif value.const_value is not None:
                    self._numbers[value] = value.const_value
            for value in (*(o for n in nodes for o in n.outputs), *self._numbers):
                _forget(value)
            self._pending.clear()

    def shape(self, value: ir.Value) -> ir.Shape | None:
        """The shape of a value of the fragment, inferred if it is not known yet."""
        if value.shape is None and value.producer() is not None:
            self.infer()
        return value.shape

    def schema(self, operator: Operator, keywords: tuple[str, ...], arguments: int) -> Schema:
        """The operator's schema at the fragment's opset.

        Raises Refused where no schema takes these keywords; its `opset` is set where a later opset has one.
        """
        if not operators.is_domain(operator.domain):
            return operators.schema_of_anything(operator.name, operator.domain, keywords)
        version = self.opset_imports.get(operator.domain, 1)
        found = operators.schema(operator.name, operator.domain, version)
        if found is not None and takes(found, keywords, arguments):
            return found
        if not operator.domain and (later := later_opset(operator.name, keywords, arguments, version)) is not None:
            raise Refused(f"{operator} needs opset {later}, the model has {version}", later, operator.name)
        what = "is not an operator" if found is None else f"does not take {', '.join(keywords) or f'{arguments} inputs'}"
        raise Refused(f"{operator} {what} at version {version} of its domain")

    def foreign(self, dim: int | ir.SymbolicDim) -> bool:
        """Whether a dimension has a symbol that no value read by the fragment has. Nothing is known about such a symbol."""
        if isinstance(dim, int):
            return False
        if dim.value is None:
            return True
        known = {s for v in self.read if v.shape is not None for d in v.shape for s in symbols(d)}
        return not symbols(dim) <= known

    def fold(self) -> None:
        """Replace every node whose inputs are constants, or known sizes, by constants. Call after `infer`."""
        if not self.fold_constants:
            return
        for node in list(self.nodes):
            if (sizes := sizes_of(node)) is not None:
                self._become_constant(node.outputs[0], ir.Tensor(np.asarray(sizes, np.int64)))
            elif is_foldable(node):
                self.computed = self.computed or any(value in self.read for value in node.inputs)
                for index, output in enumerate(node.outputs):
                    if output.name and (constant := folded(node, output, index, self.opset_imports)) is not None:
                        check_folded(node, constant)
                        self._become_constant(output, constant)
        self.drop_dead(self.provides.values())
        self._drop_unread()

    def simplify(self) -> None:
        """Drop nodes without effect: a Cast to the same dtype, an Expand to the same shape and the like. Call after `infer`."""
        if not self.fold_constants:
            return
        for node in self.nodes:
            source, result = next(iter(node.inputs), None), node.outputs[0]
            if node.domain or node.op_type not in _NEUTRAL or source is None:
                continue
            names = [name for name, value in self.provides.items() if value is result]
            if names and source.producer() is None:
                continue  # the fragment can't provide a value from outside it
            if source.dtype == result.dtype and same_shape(source.shape, result.shape):
                result.replace_all_uses_with(source)
                self.provides.update(dict.fromkeys(names, source))
        self.drop_dead(self.provides.values())
        self._drop_unread()

    def drop_dead(self, results: Iterable[ir.Value]) -> None:
        """Drop the nodes that neither these results nor other nodes read."""
        provided = set(results)
        for node in reversed(list(self.nodes)):
            if not any(o.uses() or o in provided for o in node.outputs):
                node.resize_inputs(0)
                self.nodes.remove(node)

    def _become_constant(self, output: ir.Value, tensor: ir.TensorProtocol) -> None:
        constant = self.constant(tensor)
        output.replace_all_uses_with(constant)
        for name, value in self.provides.items():
            if value is output:
                self.provides[name] = constant

    def _drop_unread(self) -> None:
        provided = set(self.provides.values())
        self.constants[:] = [v for v in self.constants if v.uses() or v in provided]
        for stand_in in [v for v in self.read if not v.uses() and v not in provided]:
            del self._stand_ins[self.read.pop(stand_in)]

    def _name(self, stem: str) -> str:
        self._fresh += 1
        return f"{stem}_{self._fresh}"

    def _named(self, dim: int | ir.SymbolicDim) -> int | ir.SymbolicDim:
        # An anonymous dimension gets a unique name, so that it equals only itself.
        if isinstance(dim, int) or dim.value is not None:
            return dim
        self._fresh += 1
        return ir.SymbolicDim(f"anonymous_{self._fresh}")


def _forget(value: ir.Value) -> None:
    """Remove the notes of shape inference from a value, so that they are not written into the model."""
    value.metadata_props.pop(SYM_DATA_KEY, None)
    value.const_value = None


_NEUTRAL = frozenset({"Cast", "Expand", "Identity", "Reshape"})
"""Operators that return their first input where neither dtype nor shape change."""
