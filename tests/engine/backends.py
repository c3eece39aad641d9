"""Backends that fail in various ways, and regions for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from onnx_subgraph.backends.array import Array
from onnx_subgraph.backends.backend import Backend, Signature
from onnx_subgraph.backends.reference import Reference
from onnx_subgraph.backends.subgraph import Subgraph

REGION = """
<ir_version: 10, opset_import: ["" : 17]>
region (float[batch, 4] x) => (float[batch, 4] y, float[batch] total)
<float[4] w = {1.0, 2.0, 3.0, 4.0}, int64[1] last = {-1}>
{
  scaled = Mul (x, w)
  y = Relu (scaled)
  total = ReduceSum <keepdims = 0> (y, last)
}
"""


def region(text: str = REGION, name: str = "/layer.3/Engine") -> Subgraph:
    return Subgraph(name, "key", ir.from_onnx_text(text))


def feed(batch: int = 2) -> list[Array]:
    return [np.arange(batch * 4, dtype=np.float32).reshape(batch, 4) - 3]


@dataclass
class Scripted(Backend):
    """The reference evaluator, with hooks that run before it compiles and after it runs."""

    compiling: Callable[[Signature], None] = lambda signature: None
    answering: Callable[[list[Array]], Any] = lambda outputs: outputs
    compiled: list[Signature] = field(default_factory=list)
    name = "scripted"
    version = "1"

    def supports(self, node: ir.Node) -> bool:
        return True

    def compile(self, subgraph: Subgraph, signature: Signature) -> Any:
        self.compiled.append(signature)
        self.compiling(signature)
        return Reference().compile(subgraph, signature)

    def run(self, compiled: Any, inputs: Sequence[Array]) -> Sequence[Array]:
        result: Sequence[Array] = self.answering(list(Reference().run(compiled, inputs)))
        return result


def fails(error: BaseException) -> Callable[[Any], Any]:
    def fail(_: Any) -> Any:
        raise error

    return fail


def sleeps(seconds: float) -> Callable[[Any], Any]:
    def sleep(value: Any) -> Any:
        time.sleep(seconds)
        return value

    return sleep


def waits(event: threading.Event) -> Callable[[Any], Any]:
    def wait(value: Any) -> Any:
        assert event.wait(30)
        return value

    return wait
