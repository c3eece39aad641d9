"""A backend with a precise and a coarse form, and a network for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from onnx_subgraph.backends.array import Array
from onnx_subgraph.backends.backend import Signature
from onnx_subgraph.backends.names import SHIPPED
from onnx_subgraph.backends.onnxruntime import OnnxRuntime
from onnx_subgraph.backends.subgraph import Subgraph
from tests.tuning.scripted import timed_by

PRODUCTS = 8

STEP = 1e-3
"""The relative error that the coarse form adds for each product of a region."""


class Rough(OnnxRuntime):
    """onnxruntime; `rough:coarse` is a little too large by every product of a region."""

    name = "rough"

    def __init__(self, *, is_coarse: bool = False) -> None:
        super().__init__()
        self._step = STEP if is_coarse else 0.0

    @classmethod
    def configured(cls, options: str) -> Rough:
        """Any option makes it coarse."""
        return cls(is_coarse=True)

    @property
    def coarser(self) -> tuple[str, ...]:
        """The coarse form."""
        return () if self._step else ("rough:coarse",)

    def compile(self, subgraph: Subgraph, signature: Signature) -> Any:
        """A session, and the factor of its outputs."""
        products = sum(node.op_type == "MatMul" for node in subgraph.model.graph)
        return super().compile(subgraph, signature), 1.0 + self._step * products

    def run(self, compiled: Any, inputs: Sequence[Array]) -> Sequence[Array]:
        """The outputs, as far off as the form is."""
        nested, factor = compiled
        return [output * output.dtype.type(factor) for output in super().run(nested, inputs)]


def chain(path: Path) -> Path:
    """Write a network of eight products in sequence: float[rows, 32] x0 => x8."""
    nodes = " ".join(f"x{i + 1} = MatMul (x{i}, w{i})" for i in range(PRODUCTS))
    text = f'<ir_version: 10, opset_import: ["" : 20]> g (float[rows, 32] x0) => (float[rows, 32] x{PRODUCTS}) {{ {nodes} }}'
    model, random = onnx.parser.parse_model(text), np.random.default_rng(0)
    for i in range(PRODUCTS):
        values = (random.standard_normal((32, 32)) / 5).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, f"w{i}"))
    onnx.save(model, path)
    return path


def register(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the backend known by its name."""
    monkeypatch.setitem(SHIPPED, "rough", "tests.tuning.rough:Rough")


def prefer_coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a product take a second, but hardly any time in a coarse engine. The weights are inputs of the engines."""

    def cost(node: onnx.NodeProto) -> float:
        is_coarse = any(attribute.s == b"rough:coarse" for attribute in node.attribute)
        return (0.01 if is_coarse else 1.0) * sum(name.startswith("w") for name in node.input)

    timed_by(monkeypatch, cost)
