"""Backends for benchmarks/serving.py that run OpenVINO at first and fail after a number of runs."""

from __future__ import annotations

import itertools
import os
import time
from typing import Any

from onnx_subgraph.backends.openvino import OpenVino

AFTER = 200
"""Number of right runs before the fault."""


class Faulty(OpenVino):
    """Right at first, then faulty."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._runs = itertools.count()

    def run(self, compiled: Any, inputs: Any) -> Any:
        outputs = super().run(compiled, inputs)
        return outputs if next(self._runs) < AFTER else self.fail(outputs)

    def fail(self, outputs: Any) -> Any:
        """The fault."""
        return outputs


class Hangs(Faulty):
    """Answers no more."""

    def fail(self, outputs: Any) -> Any:
        time.sleep(3600)


class Dies(Faulty):
    """Ends its process."""

    def fail(self, outputs: Any) -> Any:
        os.abort()


class Errs(Faulty):
    """Raises."""

    def fail(self, outputs: Any) -> Any:
        raise RuntimeError("the device is lost")


class Wrong(Faulty):
    """Results are 1 % too large."""

    def fail(self, outputs: Any) -> Any:
        return [output * output.dtype.type(1.01) if output.dtype.kind == "f" else output for output in outputs]


class Slow(Faulty):
    """Takes long to compile."""

    def compile(self, subgraph: Any, signature: Any) -> Any:
        time.sleep(15)
        return super().compile(subgraph, signature)


class Missing(Faulty):
    """Missing when the program starts again."""
