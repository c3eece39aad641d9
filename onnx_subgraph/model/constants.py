"""Find the constants of a model and their values, without changing the model.

A constant is an initializer that no caller can override, a `Constant` node, or the result of deterministic operators on
constants. Results are folded on demand by onnx's reference evaluator, one node at a time, and only while they are small.
`see_through` finds the value behind operators that pass their input on unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.defaults import allows_defaults
from onnx_subgraph.model.folding import fold, is_exact
from onnx_subgraph.model.nested import has_bodies
from onnx_subgraph.model.shapes import SHAPE_DATA
from onnx_subgraph.model.transparent import TRANSPARENT, passed_on
from onnx_subgraph.operators.randomness import RANDOM

STRIPPED = "onnx_subgraph.stripped"
"""Key in `Value.meta` of an initializer whose data was removed from the file: it is constant, but its elements are unknown."""

_GROWING = frozenset(
    {
        *(
            "ConstantOfShape",
            "Expand",
            "Tile",
            "Range",
            "Resize",
            "Upsample",
            "Pad",
            "OneHot",
            "EyeLike",
            "Einsum",
            "CenterCropPad",
        ),
        *("MaxUnpool", "AffineGrid", "BlackmanWindow", "HannWindow", "HammingWindow", "MelWeightMatrix", "STFT", "DFT", "Col2Im"),
        *("StringSplit", "ImageDecoder", "ConvTranspose"),
    }
)
"""Operators whose result can be much larger than their operands. They are folded only if the inferred shape bounds the result."""

_MOST_RESULT = 1 << 20
"""Maximum size in bytes of a folded result."""
_MOST_OPERANDS = 1 << 24
"""Maximum size in bytes of all operands of a folded node together."""


class Constants:
    """The constants of one model. Everything is cached, so the model must not change.

    Arrays stored in the model are returned at any size; external ones are memory-mapped.
    """

    def __init__(self, model: ir.Model) -> None:
        self._overridable = allows_defaults(model)
        self._default_opset = model.opset_imports.get("", 1)
        self._opsets = {
            id(graph): function.opset_imports.get("", self._default_opset)
            for function in model.functions.values()
            for graph in (function, function.graph, *function.subgraphs())
        }
        self._constant: dict[ir.Value, bool] = {}
        self._arrays: dict[ir.Value, np.ndarray | None] = {}
        self._behind: dict[ir.Value, ir.Value] = {}

    def is_constant(self, value: ir.Value) -> bool:
        """Whether the value is the same in every run. Does not read weights."""
        known = self._constant.get(value)
        if known is not None:
            return known
        for pending in _inputs_first(value, self._constant, lambda operand: False):
            self._constant[pending] = self._decide(pending)
        return self._constant[value]

    def array(self, value: ir.Value) -> np.ndarray | None:
        """The elements of a constant, read-only; None where the value is not constant or folding it would exceed the limits."""
        if value in self._arrays:
            return self._arrays[value]
        if not self.is_constant(value):
            return None
        for pending in _inputs_first(value, self._arrays, self._stands_alone):
            self._arrays[pending] = self._compute(pending) if self.is_constant(pending) else None
        return self._arrays[value]

    def is_known(self, value: ir.Value) -> bool:
        """Whether the value is a constant that can be stored in place of its node: storing it changes no rounding."""
        node = value.producer()
        if node is None or not self.is_constant(value):
            return False
        array = self.array(value)
        return array is not None and is_exact(node, array)

    def _stands_alone(self, value: ir.Value) -> bool:
        """Whether the operands of the value need no visit: it is not constant, or shape inference knows its elements."""
        return not self.is_constant(value) or _shape_data(value) is not None

    def scalar(self, value: ir.Value) -> float | int | bool | None:
        """The element of a constant that has exactly one, of any rank; None for every other value."""
        array = self.array(value)
        if array is None or array.size != 1 or array.dtype.kind in "OSUc":
            return None
        element = array.reshape(-1)[0]
        if array.dtype.kind == "b":
            return bool(element)
        return int(element) if array.dtype.kind in "iu" else float(element)

    def tensor(self, value: ir.Value) -> ir.TensorProtocol | None:
        """The tensor of a constant: the stored one, unread, or a computed one. None for a value that is not constant."""
        if not self.is_constant(value):
            return None
        array = self.array(value) if value.const_value is None else None
        return value.const_value if array is None else ir.Tensor(array, dtype=value.dtype)

    def see_through(self, value: ir.Value) -> ir.Value:
        """The value behind nodes that pass their input on unchanged (Identity, inference Dropout, a product with one).

        This is only analysis. Other nodes may read the values in between, and one of them may be a graph output.
        """
        try:
            return self._behind[value]
        except KeyError:
            pass
        path = []
        behind: ir.Value | None = value
        while behind is not None and behind not in self._behind:
            path.append(behind)
            behind = passed_on(self, behind)
        end = path[-1] if behind is None else self._behind[behind]
        for passed in path:
            self._behind[passed] = end
        return end

    # Deciding what is constant

    def _decide(self, value: ir.Value) -> bool:
        if value.is_initializer():
            return value.const_value is not None and not (self._overridable and value.is_graph_input())
        node = value.producer()
        if node is None or node.domain:
            return False
        operator = node.op_type
        if operator not in _OF_THEIR_OWN and value.dtype not in _OF_SHAPES and not self._of_constants(node.inputs):
            return False  # the common case
        if node.attributes and any(attribute.is_ref() for attribute in node.attributes.values()):
            return False
        if node.op_type == "Constant":
            return "sparse_value" not in node.attributes
        if _shape_data(value) is not None:
            return True
        source = passed_on(self, value)
        if source is not None:
            return self._constant.get(source, False)
        if node.op_type in RANDOM or has_bodies(node):
            return False
        if value.type is not None and not isinstance(value.type, ir.TensorType):
            return False
        operands = node.inputs
        if node.op_type == "CastLike" and value.dtype is not None:
            operands = node.inputs[:1]  # only the type of the other operand matters, and it is known
        return bool(operands) and self._of_constants(operands)

    def _of_constants(self, operands: Iterable[ir.Value | None]) -> bool:
        constant = self._constant
        return all(operand is None or constant.get(operand, False) for operand in operands)

    # Computing constants

    def _compute(self, value: ir.Value) -> np.ndarray | None:
        if value.is_initializer():
            return None if value.const_value is None or STRIPPED in value.meta else value.const_value.numpy()
        node = value.producer()
        assert node is not None
        array = _constant_node(node) if node.op_type == "Constant" else None
        if array is None:
            array = _shape_data(value)
        if array is None and node.op_type != "Constant":
            source = passed_on(self, value)
            if source is not None:
                array = self._arrays.get(source)
            elif node.op_type == "CastLike":
                array = self._cast(node, value)
            else:
                array = self._fold(node, value)
            array = None if array is None else array.view()
        if array is not None:
            array.flags.writeable = False
        return array

    def _fold(self, node: ir.Node, value: ir.Value) -> np.ndarray | None:
        operands = [None if operand is None else self._arrays.get(operand) for operand in node.inputs]
        if any(array is None and operand is not None for array, operand in zip(operands, node.inputs, strict=True)):
            return None
        if sum(array.nbytes for array in operands if array is not None) > _MOST_OPERANDS:
            return None
        size = _static_bytes(value)
        if size is None and node.op_type == "ConstantOfShape" and operands[0] is not None:
            size = 8 * prod(operands[0].tolist())
        if size is None and (node.op_type in _GROWING or sum(array.nbytes for array in operands if array is not None) > 4096):
            return None
        if size is not None and size > _MOST_RESULT:
            return None
        results = fold(node, operands, self.opset(node))
        result = results[value.index() or 0] if results is not None else None
        return result if isinstance(result, np.ndarray) and result.nbytes <= _MOST_RESULT else None

    def _cast(self, node: ir.Node, value: ir.Value) -> np.ndarray | None:
        """CastLike of a constant; the operand that gives the type need not be constant."""
        array = None if node.inputs[0] is None else self._arrays.get(node.inputs[0])
        if array is None or value.dtype is None or array.nbytes > _MOST_RESULT or array.dtype.kind not in "fiub":
            return None
        return array.astype(value.dtype.numpy())

    def opset(self, node: ir.Node) -> int:
        """The opset of the default domain for the node: the version that its function imports, else the model's."""
        return self._opsets.get(id(node.graph), self._default_opset)


_OF_THEIR_OWN = frozenset({*TRANSPARENT, "Constant", "CastLike"})
"""Operators whose result can be constant although an operand is not."""
_OF_SHAPES = frozenset({ir.DataType.INT64, ir.DataType.INT32, None})
"""The element types for which inference tracks elements."""


def _inputs_first(
    value: ir.Value, known: dict[ir.Value, bool] | dict[ir.Value, np.ndarray | None], alone: Callable[[ir.Value], bool]
) -> list[ir.Value]:
    """The value and all values it is computed from that are not in `known`, operands before results.

    alone: whether a value's operands need no visit. Not recursive: chains can be longer than Python's recursion limit.
    """
    order: list[ir.Value] = []
    seen: set[ir.Value] = set()
    stack: list[tuple[ir.Value, bool]] = [(value, False)]
    while stack:
        current, expanded = stack.pop()
        if expanded:
            order.append(current)
            continue
        if current in seen or current in known:
            continue
        seen.add(current)
        node = current.producer()
        stack.append((current, True))
        if node is not None and not node.domain and not current.is_initializer() and not alone(current):
            stack += [(operand, False) for operand in node.inputs if operand is not None and operand not in known]
    return order


def _constant_node(node: ir.Node) -> np.ndarray | None:
    """The elements of a `Constant` node in any of its forms except the sparse one."""
    for name, attribute in node.attributes.items():
        if name == "value":
            return np.asarray(attribute.value.numpy()).view()  # `as_tensor` is slower: it checks the protocol
        if name == "value_float":
            return np.array(attribute.as_float(), dtype=np.float32)
        if name == "value_int":
            return np.array(attribute.as_int(), dtype=np.int64)
        if name == "value_floats":
            return np.array(attribute.as_floats(), dtype=np.float32)
        if name == "value_ints":
            return np.array(attribute.as_ints(), dtype=np.int64)
        if name == "value_string":
            return np.array(attribute.as_string(), dtype=object)
        if name == "value_strings":
            return np.array(list(attribute.as_strings()), dtype=object)
    return None


def _shape_data(value: ir.Value) -> np.ndarray | None:
    """Elements known from shape inference: the Shape of a value with static dimensions, and what is computed from it."""
    data = value.meta.get(SHAPE_DATA) if value.meta else None
    if data is None or value.shape is None or len(value.shape) > 1 or not all(isinstance(item, int) for item in data):
        return None
    if value.dtype not in (ir.DataType.INT64, ir.DataType.INT32) or (len(value.shape) == 1 and value.shape[0] != len(data)):
        return None
    return np.array(data, dtype=value.dtype.numpy()).reshape([len(data)] if len(value.shape) else [])


def _static_bytes(value: ir.Value) -> int | None:
    sizes = [] if value.shape is None else [dim for dim in value.shape if isinstance(dim, int)]
    return None if value.shape is None or len(sizes) < len(value.shape) else prod(sizes) * 8
