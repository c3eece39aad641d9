"""Which values are constant, what they are, and operators that are looked through because they return their input."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnx_subgraph.model.constants import STRIPPED, Constants
from onnx_subgraph.model.shapes import infer_shapes


def inferred(text: str) -> ir.Model:
    model = ir.from_onnx_text(text)
    infer_shapes(model)
    return model


def value(model: ir.Model, name: str) -> ir.Value:
    for node in model.graph.all_nodes():
        for found in (*node.outputs, *(operand for operand in node.inputs if operand is not None)):
            if found.name == name:
                return found
    raise KeyError(name)


def constants_of(body: str, *, opset: int = 17, ir_version: int = 8, inputs: str = "float[n, 4] x") -> tuple[ir.Model, Constants]:
    model = inferred(f'<ir_version: {ir_version}, opset_import: ["" : {opset}]> g ({inputs}) => (y) {body}')
    return model, Constants(model)


@pytest.mark.parametrize(
    ("attribute", "expected", "dtype"),
    [
        ("value_float = 0.5", 0.5, np.float32),
        ("value_int = 3", 3, np.int64),
        ("value_floats = [1.5, 2.5]", [1.5, 2.5], np.float32),
        ("value_ints = [1, 2]", [1, 2], np.int64),
        ("value = float16[2] {15360, 16384}", [1, 2], np.float16),
        ("value = bool {1}", True, np.bool_),
    ],
)
def test_a_constant_node_in_each_of_its_forms(attribute: str, expected: object, dtype: type) -> None:
    model, constants = constants_of(f"{{ c = Constant <{attribute}> () y = Identity (c) }}")
    array = constants.array(value(model, "c"))
    assert array is not None
    assert array.dtype == dtype
    assert array.tolist() == expected


def test_constant_strings_are_constant_and_no_scalars() -> None:
    model, constants = constants_of('{ c = Constant <value_string = "abc"> () y = Identity (c) }')
    array = constants.array(value(model, "c"))
    assert array is not None
    assert array.tolist() == "abc"
    assert constants.scalar(value(model, "c")) is None


@pytest.mark.parametrize(("ir_version", "constant"), [(3, True), (4, False), (8, False)])
def test_an_initializer_that_a_caller_can_override_is_no_constant(ir_version: int, constant: bool) -> None:
    """Before IR version 4 every initializer had to be listed as an input, and callers could not override it."""
    model, _ = constants_of("<float[1] w = {2}> { y = Mul (x, w) }", inputs="float[n, 4] x, float[1] w", ir_version=ir_version)
    weight = model.graph.inputs[1]
    assert weight.is_initializer()
    constants = Constants(model)
    assert constants.is_constant(weight) is constant
    assert constants.scalar(weight) == (2.0 if constant else None)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("{ s = Constant <value_ints = [2, 2]> () y = ConstantOfShape <value = float[1] {7}> (s) }", [[7, 7], [7, 7]]),
        ("{ a = Constant <value_float = 2.0> () b = Sqrt (a) y = Mul (b, b) }", pytest.approx(2.0)),
        ("{ a = Constant <value_int = -7> () b = Constant <value_int = 2> () y = Div (a, b) }", -3),
        ("{ a = Constant <value_ints = [1, 2]> () b = Constant <value_ints = [3]> () y = Concat <axis = 0> (a, b) }", [1, 2, 3]),
        ("{ a = Constant <value_floats = [1.0]> () y = Cast <to = 16> (a) }", [1]),
        ("{ s = Shape (x) i = Constant <value_int = 1> () y = Gather (s, i) }", 4),
        ("{ s = Shape <start = 1> (x) y = Cast <to = 7> (s) }", [4]),
    ],
)
def test_foldable_values_are_constant(body: str, expected: object) -> None:
    model, constants = constants_of(body)
    assert constants.is_constant(value(model, "y"))
    array = constants.array(value(model, "y"))
    assert array is not None
    assert array.astype(np.float64).tolist() == expected
    assert not array.flags.writeable


@pytest.mark.parametrize(
    "body",
    [
        "{ y = Shape (x) }",
        "{ y = RandomNormal <shape = [2]> () }",
        "{ c = Constant <value_float = 1.0> () y = RandomNormalLike (c) }",
        "{ c = Constant <value_float = 1.0> () y = my.Function (c) }",
        "{ c = Constant <value_float = 1.0> () y = Add (c, x) }",
        """{ c = Constant <value = bool {1}> () y = If (c) <then_branch = t () => (p) { p = Identity (x) },
        else_branch = e () => (q) { q = Exp (x) }> }""",
    ],
)
def test_values_that_may_differ_between_runs_are_not_constant(body: str) -> None:
    model, constants = constants_of(body)
    assert not constants.is_constant(value(model, "y"))
    assert constants.array(value(model, "y")) is None


def test_folding_does_not_explode() -> None:
    model, constants = constants_of("{ s = Constant <value_ints = [100000, 100000]> () y = ConstantOfShape (s) }")
    assert constants.is_constant(value(model, "y"))
    assert constants.array(value(model, "y")) is None


def test_a_long_chain_does_not_recurse() -> None:
    chain = "c0 = Constant <value_float = 1.0> () " + " ".join(f"c{i + 1} = Neg (c{i})" for i in range(3000))
    model = ir.from_onnx_text(f'<ir_version: 8, opset_import: ["" : 17]> g () => (y) {{ {chain} y = Identity (c3000) }}')
    assert Constants(model).is_constant(value(model, "c3000"))


def test_weights_without_data_are_constant_with_unknown_elements() -> None:
    model, _ = constants_of("<float[1] w = {2}> { y = Mul (x, w) }")
    value(model, "w").meta[STRIPPED] = True
    constants = Constants(model)
    assert constants.is_constant(value(model, "w"))
    assert constants.array(value(model, "w")) is None


def test_reading_constants_changes_nothing() -> None:
    model, constants = constants_of("{ a = Constant <value_float = 2.0> () b = Sqrt (a) y = Mul (x, b) }")
    before = ir.to_onnx_text(model)
    for node in model.graph:
        for output in node.outputs:
            constants.array(output)
            constants.see_through(output)
    assert ir.to_onnx_text(model) == before


TRANSPARENT = [
    "y = Identity (x)",
    "y = Cast <to = 1> (x)",
    "y = Dropout (x)",
    "r = Constant <value_float = 0.5> () f = Constant <value = bool {0}> () y = Dropout (x, r, f)",
    "y = Transpose <perm = [0, 1]> (x)",
    "s = Shape (x) y = Reshape (x, s)",
    "s = Shape (x) y = Expand (x, s)",
    "s = Constant <value_ints = [0, 4]> () y = Reshape (x, s)",
    "a = Constant <value_ints = [0]> () b = Constant <value_ints = [9223372036854775807]> () y = Slice (x, a, b, a)",
    "y = Concat <axis = 0> (x)",
    "n = Constant <value = float[3, 0] {}> () y = Concat <axis = -1> (n, x)",
    """a = Constant <value_ints = [4]> () b = Constant <value_ints = [9]> () one = Constant <value_ints = [1]> ()
    n = Slice (x, a, b, one) y = Concat <axis = 1> (x, n)""",
    "a = Identity (x) b = Dropout (a) y = Identity (b)",
    "y = Split (x)",
    "s = Constant <value_ints = [4]> () y = Split <axis = 1> (x, s)",
    "one = Constant <value_float = 1.0> () y = Mul (x, one)",
    "one = Constant <value_float = 1.0> () y = Mul (one, x)",
    "one = Constant <value_floats = [1.0]> () y = Div (x, one)",
    "zero = Constant <value_float = 0.0> () y = Sub (x, zero)",
]

OPAQUE = [
    "y = Relu (x)",
    "y = Cast <to = 11> (x)",
    "r = Constant <value_float = 0.5> () t = Constant <value = bool {1}> () y = Dropout (x, r, t)",
    "y = Transpose (x)",
    "s = Constant <value_ints = [4, -1]> () y = Reshape (x, s)",
    "s = Constant <value_ints = [3, 1, 1]> () y = Expand (x, s)",
    "a = Constant <value_ints = [1]> () b = Constant <value_ints = [9223372036854775807]> () y = Slice (x, a, b, a)",
    """a = Constant <value_ints = [-1]> () b = Constant <value_ints = [-9223372036854775807]> ()
    c = Constant <value_ints = [0]> () y = Slice (x, a, b, c, a)""",
    "y = Concat <axis = 0> (x, x)",
    "y, z = Split <axis = 1> (x)",
    "s = Constant <value_ints = [3]> () y = Split <axis = 1> (x, s)",  # no valid model
    "n = Constant <value = float[0, 4] {}> () y = Concat <axis = 1> (x, n)",  # empty along another axis
    "y = my.Identity (x)",
    "two = Constant <value_float = 2.0> () y = Mul (x, two)",
    "one = Constant <value_float = 1.0> () y = Div (one, x)",
    "zero = Constant <value_float = 0.0> () y = Sub (zero, x)",
    "zero = Constant <value_float = 0.0> () y = Add (x, zero)",  # -0 + 0 is 0
    "ones = Constant <value = float[1, 1, 1] {1.0}> () y = Mul (x, ones)",  # of another rank
    "one = Constant <value_float = 1.0> () y = my.Mul (x, one)",
]


@pytest.mark.parametrize("body", TRANSPARENT)
def test_operators_that_return_their_input_are_looked_through(body: str) -> None:
    model, constants = constants_of(f"{{ {body} }}")
    for _ in range(2):
        assert constants.see_through(value(model, "y")) is model.graph.inputs[0]


@pytest.mark.parametrize(("one", "seen"), [("float {1}", True), ("float[1] {1}", False)])
def test_a_product_with_one_of_unknown_rank(one: str, seen: bool) -> None:
    """A number has no axes, so it can't raise the rank of the other factor."""
    body = f"{{ s = my.Sizes (x) r = Reshape (x, s) one = Constant <value = {one}> () y = Mul (r, one) }}"
    model, constants = constants_of(body)
    assert (constants.see_through(value(model, "y")) is value(model, "r")) is seen


@pytest.mark.parametrize("body", OPAQUE)
def test_operators_that_change_their_input_are_not_looked_through(body: str) -> None:
    model, constants = constants_of(f"{{ {body} }}")
    assert constants.see_through(value(model, "y")) is value(model, "y")


@pytest.mark.parametrize(
    ("opset", "attribute", "seen"), [(6, "<is_test = 1>", True), (6, "<is_test = 0>", False), (6, "", False), (7, "", True)]
)
def test_dropout_of_old_opsets(opset: int, attribute: str, seen: bool) -> None:
    model, constants = constants_of(f"{{ y = Dropout {attribute} (x) }}", opset=opset)
    assert (constants.see_through(value(model, "y")) is model.graph.inputs[0]) is seen


def test_a_function_has_an_opset_of_its_own() -> None:
    model = ir.from_onnx_text(
        """<ir_version: 8, opset_import: ["" : 17, "my" : 1]> g (float[2] x) => (float[2] y) { y = my.F (x) }
        <domain: "my", opset_import: ["" : 6]> F (a) => (b) { b = Dropout (a) }"""
    )
    (function,) = model.functions.values()
    b = function.outputs[0]
    assert Constants(model).see_through(b) is b
