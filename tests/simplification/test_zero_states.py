"""Initial states that are zero are left out of recurrent networks, with the nodes that gave them; all others stay."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.simplification.simplify_first import simplify_first
from tests.simplification.test_simplify import operators, parsed, run, simplified

WIDTH, HIDDEN = 3, 2
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
OF_THE_BATCH = f"""sizes = Shape(x) one = Constant<value_ints = [1]>() batch = Gather(sizes, one)
  hidden = Constant<value_ints = [{HIDDEN}]>() two = Constant<value_ints = [2]>() shape = Concat<axis = 0>(two, batch, hidden)
  states = ConstantOfShape<value = float[1] {{0}}>(shape) h, c = Split<axis = 0>(states)"""
"""The zeros of both states at once, as PyTorch gives them to an LSTM of two directions or layers."""
FIXED = " ".join(f"{name} = Constant<value = float[1, 2, {HIDDEN}] {{0, 0, 0, 0}}>()" for name in "hc")


def network(operator: str, states: str, operands: str, inputs: str = "") -> onnx.ModelProto:
    rows = GATES[operator] * HIDDEN
    draw = np.random.default_rng(0)
    weights = ", ".join(
        f"float[1, {', '.join(map(str, shape))}] {name} = {{{', '.join(map(str, draw.standard_normal(shape).ravel().round(3)))}}}"
        for name, shape in (("w", (rows, WIDTH)), ("r", (rows, HIDDEN)), ("b", (2 * rows,)), ("p", (3 * HIDDEN,)))
    )
    body = f"{states} y = {operator}<hidden_size = {HIDDEN}>(x, w, r, b, , {operands})"
    return parsed(body, f"float[T, N, {WIDTH}] x{inputs}", "float[T, D, N, H] y", weights)


def quantized(states: str, operands: str) -> onnx.ModelProto:
    """A DynamicQuantizeLSTM: its weights have the features before the gates."""
    gates, draw = 4 * HIDDEN, np.random.default_rng(0)
    weights = ", ".join(
        f"uint8[1, {rows}, {gates}] {name} = {{{', '.join(map(str, draw.integers(0, 256, rows * gates)))}}}"
        for name, rows in (("w", WIDTH), ("r", HIDDEN))
    )
    scale = "float[1] s = {0.01}, uint8[1] z = {128}, float[1, 6] p = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6}"
    call = f"y = com.microsoft.DynamicQuantizeLSTM<hidden_size = {HIDDEN}>(x, w, r, , , {operands}, s, z, s, z)"
    proto = parsed(f"{states} {call}", f"float[T, N, {WIDTH}] x", "float[T, D, N, H] y", f"{weights}, {scale}")
    proto.opset_import.add(domain="com.microsoft", version=1)
    return proto


def first(proto: onnx.ModelProto) -> tuple[int, onnx.ModelProto]:
    """The number of states left out, and the model that is written."""
    found, written = simplified(proto, simplify_first)
    return found.passed, written


@pytest.mark.parametrize("states", [OF_THE_BATCH, FIXED], ids=["of the batch", "fixed"])
@pytest.mark.parametrize(
    ("operator", "operands", "read", "number"),
    [("RNN", "h", 4, 1), ("GRU", "h", 4, 1), ("LSTM", "h, c", 4, 2), ("LSTM", "h, c, p", 8, 2), ("LSTM", ", c", 4, 1)],
)
def test_states_of_zeros_are_left_out(operator: str, operands: str, read: int, number: int, states: str) -> None:
    proto = network(operator, states, operands)
    found, written = first(proto)
    assert found == number and (states == FIXED or operators(written) == {operator: 1})
    assert len(written.graph.node[-1].input) == read
    feeds = {"x": np.random.default_rng(1).standard_normal((4, 2, WIDTH)).astype(np.float32)}
    np.testing.assert_array_equal(run(written, feeds)[0], run(proto, feeds)[0])


@pytest.mark.parametrize("states", [OF_THE_BATCH, FIXED], ids=["of the batch", "fixed"])
@pytest.mark.parametrize(("operands", "number"), [("h, c, ", 2), ("h, c, p", 2), (", c, ", 1)])
def test_states_of_a_quantized_network_are_left_out(operands: str, number: int, states: str) -> None:
    """Its scales, which come after the states, are left where they are."""
    proto = quantized(states, operands)
    found, written = first(proto)
    assert found == number and list(written.graph.node[-1].input[4:8]) == ["", "", "", operands.split(", ")[2]]
    assert list(written.graph.node[-1].input[8:]) == ["s", "z", "s", "z"]
    assert states == FIXED or operators(written) == {"DynamicQuantizeLSTM": 1}
    feeds = {"x": np.random.default_rng(1).standard_normal((4, 2, WIDTH)).astype(np.float32)}
    np.testing.assert_array_equal(run(written, feeds)[0], run(proto, feeds)[0])


@pytest.mark.parametrize("number", ["1", "-0.0", "0, 0, 0, 1"])
def test_other_numbers_stay(number: str) -> None:
    numbers = number if "," in number else ", ".join([number] * 4)
    proto = network("LSTM", f"h = Constant<value = float[1, 2, {HIDDEN}] {{{numbers}}}>()", "h")
    found, written = first(proto)
    assert not found and written.graph.node[-1].input == proto.graph.node[-1].input


def test_a_state_that_the_program_gives_stays() -> None:
    """Zeros beside it are left out, and a default that a program may replace is no zero."""
    found, written = first(
        network("LSTM", OF_THE_BATCH.replace("h, c", "unread, c"), "given, c", f", float[1, N, {HIDDEN}] given")
    )
    assert (found, list(written.graph.node[-1].input[4:])) == (1, ["", "given"])
    proto = network("GRU", "", "given", f", float[1, 2, {HIDDEN}] given")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((1, 2, HIDDEN), np.float32), "given"))
    found, written = first(proto)
    assert not found and written.graph.node[-1].input == proto.graph.node[-1].input


def test_an_operator_of_another_domain_keeps_its_zeros() -> None:
    proto = network("LSTM", FIXED, "h")
    proto.graph.node[-1].domain = "com.acme"
    proto.opset_import.add(domain="com.acme", version=1)
    model = ir.from_proto(proto)
    infer_shapes(model)
    assert not simplify_first(model)


def test_zeros_that_others_read_stay_for_them() -> None:
    proto = network("LSTM", OF_THE_BATCH + " also = Add(h, h)", "h, c")
    proto.graph.output.append(onnx.helper.make_tensor_value_info("also", onnx.TensorProto.FLOAT, [1, None, HIDDEN]))
    found, written = first(proto)
    assert found == 2 and operators(written)["Split"] == 1 and len(written.graph.node[-1].input) == 1 + 3
