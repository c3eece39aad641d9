"""Values that are followed to the nodes behind them."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from onnx_subgraph.model.follow import MOST_STEPS, Follow


def sums(length: int) -> list[ir.Value]:
    """A chain of values, each the sum of the one before with itself; the last one first."""
    lines = "".join(f"v{n + 1} = Add (v{n}, v{n})\n" for n in range(length))
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[1] v0) => (float[1] v{length}) {{\n{lines}}}'
    graph = ir.from_proto(onnx.parser.parse_model(text)).graph
    return [*(node.outputs[0] for node in reversed(graph)), graph.inputs[0]]


def test_each_value_is_asked_about_once_and_none_beyond_the_limit() -> None:
    asked: list[ir.Value] = []

    def rule(value: ir.Value, follow: Follow[int]) -> int:
        asked.append(value)
        node = value.producer()
        return 1 + sum(follow(operand) or 0 for operand in (() if node is None else node.inputs))

    values = sums(2 * MOST_STEPS)
    assert Follow(rule)(values[0]) == 2**MOST_STEPS - 1
    assert asked == values[:MOST_STEPS]


def test_a_second_question_follows_as_far_as_the_first() -> None:
    values = sums(2 * MOST_STEPS)
    reached: list[ir.Value] = []

    def rule(value: ir.Value, follow: Follow[bool]) -> bool | None:
        reached.append(value)
        node = value.producer()
        return None if node is None else follow(node.inputs[0])

    follow = Follow(rule)
    assert follow(values[0]) is None
    assert follow(values[MOST_STEPS]) is None
    assert reached == values[: 2 * MOST_STEPS]
