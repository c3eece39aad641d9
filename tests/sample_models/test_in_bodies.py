"""A model in the body of a Loop, or in the branches of an If, is rewritten as it is outside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import onnx
import onnx.compose
import pytest
from onnx import TensorProto, helper

from onnx_subgraph.language.library import load_patterns
from onnx_subgraph.options import Options
from onnx_subgraph.pipeline import fuse

SAMPLES = Path(__file__).resolve().parents[2] / "sample_models"


def body(graph: onnx.GraphProto, prefix: str) -> onnx.GraphProto:
    """The graph, reading its inputs from outside, with other names for its own values."""
    renamed = onnx.compose.add_prefix_graph(graph, prefix, rename_inputs=False)
    del renamed.input[:]
    return renamed


def in_a_loop(model: onnx.ModelProto) -> None:
    graph, inner = model.graph, body(model.graph, "step.")
    step, go, still = (helper.make_tensor_value_info(f"step.{name}", TensorProto.BOOL, []) for name in ("number", "go", "still"))
    step.type.tensor_type.elem_type = TensorProto.INT64
    inner.input.extend([step, go])
    inner.node.append(helper.make_node("Identity", [go.name], [still.name]))
    inner.output.insert(0, still)
    graph.input.append(helper.make_tensor_value_info("steps", TensorProto.INT64, []))
    _replace(graph, helper.make_node("Loop", ["steps", ""], [value.name for value in graph.output], body=inner))
    for value in graph.output:
        value.type.tensor_type.ClearField("shape")


def in_an_if(model: onnx.ModelProto) -> None:
    graph, (then, other) = model.graph, (body(model.graph, prefix) for prefix in ("then.", "else."))
    graph.input.append(helper.make_tensor_value_info("choice", TensorProto.BOOL, []))
    results = [value.name for value in graph.output]
    _replace(graph, helper.make_node("If", ["choice"], results, then_branch=then, else_branch=other))


def _replace(graph: onnx.GraphProto, node: onnx.NodeProto) -> None:
    for field in ("node", "initializer", "value_info"):
        graph.ClearField(field)
    graph.node.append(node)


@pytest.mark.parametrize(("wrap", "copies"), [(in_a_loop, 1), (in_an_if, 2)])
@pytest.mark.parametrize("sample", ["bert_torchscript", "gpt2_dynamo", "llama_torchscript", "t5_torchscript"])
def test_a_sample_in_a_body_gets_the_same_operators(
    sample: str, wrap: Callable[[onnx.ModelProto], None], copies: int, tmp_path: Path
) -> None:
    """Masks, positions and shapes that exporters compute are simplified there, too, and every fusion is found."""
    model, library, options = SAMPLES / f"{sample}.onnx", load_patterns(), Options(verify=False, dry_run=True)
    proto = onnx.load(model)
    wrap(proto)
    onnx.save(proto, tmp_path / "wrapped.onnx")
    alone, wrapped = (fuse(path, None, library, options) for path in (model, tmp_path / "wrapped.onnx"))
    assert Counter(rewrite.pattern for rewrite in wrapped.rewrites) == Counter(
        {pattern: copies * count for pattern, count in Counter(rewrite.pattern for rewrite in alone.rewrites).items()}
    )
    around = {"Constant", "Identity", "If", "Loop"}
    expected = {operator: copies * count for operator, count in alone.operators_after.items() if operator not in around}
    assert {operator: count for operator, count in wrapped.operators_after.items() if operator not in around} == expected
