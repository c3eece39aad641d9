"""The positions of nodes stay those of the graph, through every change."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

from onnx_subgraph.files.models import load
from onnx_subgraph.language.library import load_patterns
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.rewriting import apply
from onnx_subgraph.rewriting.outline import Outline
from onnx_subgraph.rewriting.rounds import Rewriter
from tests.rewriting.stage import LOADABILITY, pattern, read, rewritten

SAMPLES = Path(__file__).parents[2] / "sample_models"


def _ascend(outline: Outline, graph: ir.Graph) -> bool:
    return all(outline.position[a] < outline.position[b] for a, b in pairwise(graph))


@pytest.mark.parametrize("target", ["onnxruntime", "function"])
def test_positions_are_those_of_the_graph_after_every_rewrite(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    commit, orders = apply.commit, list[bool]()

    def watched(planned, outline, renewed):  # type: ignore[no-untyped-def]
        made = commit(planned, outline, renewed)
        orders.append(_ascend(outline, planned.graph))
        return made

    monkeypatch.setattr(apply, "commit", watched)
    for name in ("t5_torchscript", "llama_dynamo", "unet_torchscript"):
        model = load(SAMPLES / f"{name}.onnx")
        infer_shapes(model)
        Rewriter(load_patterns().patterns, target, [LOADABILITY], simplifying=True)(model)
    assert len(orders) > 40
    assert all(orders)


def test_nodes_that_take_a_place_have_positions_of_their_own() -> None:
    model = read("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[2] x) => (float[2] y) {
            a = Neg(x)
            b = Abs(a)
            y = Relu(b)
        }
    """)
    outline, graph = Outline(model), model.graph
    old = graph[1]
    for _ in range(60):  # more often than a float can be halved
        new = [ir.node("Neg", [old.inputs[0]]), ir.node("Abs", [old.inputs[0]])]
        graph.insert_after(old, new)
        outline.place_at(old, new)
        old.outputs[0].replace_all_uses_with(new[1].outputs[0])
        graph.remove(old, safe=True)
        assert _ascend(outline, graph)
        old = new[1]


def test_a_replacement_stands_before_all_that_read_it() -> None:
    """Also if these are the nodes of one earlier replacement."""
    readers = "abcdefgh"
    split = pattern(
        f"y = {'Sin(' * 9}Concat({', '.join(readers)}, axis=0){')' * 9}",
        example="{" + ", ".join(f"{name}: 'float32[2]'" for name in readers) + "}",
        id_="split",
        onnxruntime="\n".join(
            [*(f"{name}2 = Relu({name})" for name in readers), f"y = Concat({', '.join(f'{n}2' for n in readers)}, axis=0)"]
        ),
    )
    together = pattern(
        "\n".join(f"{name} = x * {number}.0" for number, name in enumerate("abcdefghz", 2)),
        example="{x: 'float32[2]'}",
        id_="together",
        onnxruntime="\n".join(f"{name} = Add(x, x)" for name in "abcdefghz"),
    )
    constants = ", ".join(f"float k{name} = {{{number}}}" for number, name in enumerate("abcdefghz", 2))
    products = "\n".join(f"{name} = Mul(x, k{name})" for name in readers)
    sines = "\n".join(f"s{number + 1} = Sin(s{number})" for number in range(8))
    stage = rewritten(
        f"""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[2] x) => (float[16] y, float[2] z) <{constants}> {{
            {products}
            s0 = Concat <axis = 0> ({", ".join(readers)})
            {sines}
            y = Sin(s8)
            z = Mul(x, kz)
        }}
        """,
        split,
        together,
    )
    assert [r.pattern for r in stage.rewrites] == ["split", "together"]
    onnx.checker.check_model(stage.after)
