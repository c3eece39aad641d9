"""The matcher's shortcuts lose no matches: an explorer that tries everything finds the same."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_subgraph.files.models import load
from onnx_subgraph.language.library import load_patterns
from onnx_subgraph.matching.explorer import Explorer
from onnx_subgraph.matching.matcher import GivenUpError, Matcher
from onnx_subgraph.matching.normal import NormalPattern
from onnx_subgraph.matching.normalise import normalise
from onnx_subgraph.matching.view import View
from onnx_subgraph.matching.whole import first_match
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.shapes import infer_shapes

SAMPLES = Path(__file__).resolve().parents[2] / "sample_models"
ALIKE = (("Add", "Sub", "Mul", "Div"), ("Erf", "Tanh", "Sigmoid", "Exp", "Sqrt", "Neg", "Relu"))
"""Operators that take the same operands, and that another one may be put in the place of."""


@cache
def normals() -> tuple[NormalPattern, ...]:
    """The normal forms of the built-in formulas."""
    return tuple(normalise(p) for p in load_patterns().patterns if p.is_formula)


def sample(name: str) -> ir.Model:
    made = load(SAMPLES / f"{name}.onnx")
    infer_shapes(made)
    return made


def at(matcher: Matcher, root: ir.Value) -> Any:
    """The match at a root: its nodes, bindings and alternatives."""
    match = first_match(matcher, root)
    return None if match is None else (match.nodes, list(match.roots.items()), dict(match.chosen))


def hold_the_law(made: ir.Model) -> int:
    """Assert that the explorer finds the same matches. Returns how many there are."""
    view = View(made.graph, Constants(made), dict(made.opset_imports), made.graph)
    count = 0
    for normal in normals():
        matcher, explorer = Matcher(view, normal), Explorer(view, normal)
        for root in (value for node in view.nodes for value in node.outputs):
            try:
                there = at(explorer, root)
            except GivenUpError:  # the explorer takes more steps, because it tries more
                continue
            assert at(matcher, root) == there, (normal.pattern.id, root.name)
            count += there is not None
    return count


@pytest.mark.parametrize(
    "name", ["mobilenet_v3_torchscript", "llama_dynamo", "yolo_c2f_torchscript", "unet_dynamo", "clip_text_dynamo"]
)
def test_no_match_is_lost(name: str) -> None:
    assert hold_the_law(sample(name)) > 0


@settings(max_examples=5)
@given(st.data(), st.sampled_from(["mobilenet_v3_torchscript", "yolo_c2f_dynamo", "gpt2_dynamo"]))
def test_no_match_is_lost_where_operators_differ(data: st.DataObject, name: str) -> None:
    """A few nodes of an export get another operator with the same operands. Most matches disappear, and some remain."""
    made = sample(name)
    nodes = [(node, alike) for node in made.graph for alike in ALIKE if node.op_type in alike and not node.domain]
    for node, alike in data.draw(st.lists(st.sampled_from(nodes), min_size=1, max_size=5)):
        node.op_type = data.draw(st.sampled_from(alike))
    hold_the_law(made)
