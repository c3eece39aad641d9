"""The sizes that a model is run at: smaller images where it is slow, if they show something."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from onnx_subgraph.inputs.sizes import FIRST, SECOND, Likely, Sizes
from onnx_subgraph.verification.case import Case
from onnx_subgraph.verification.search import on_smaller_images, trials
from onnx_subgraph.verification.sessions import Failure
from onnx_subgraph.verification.verify import verify
from tests.verification.models import write

MODEL = ir.from_onnx_text(
    """<ir_version: 8, opset_import: ["" : 17]>
    g (float[batch, 3, height, width] x) => (float[batch, 3, height, width] y) { y = Abs (x) }"""
)


class Runs:
    """Gives cases whose runs take a microsecond for each pixel. fails, flat: the heights that do not run, or give one number."""

    def __init__(self, fails: int = 0, flat: int = 0) -> None:
        self.fails, self.flat = fails, flat
        self.asked: list[int] = []

    def __call__(self, sizes: Iterator[Sizes], seed: int, **_: Any) -> Case | Failure:
        given = next(iter(sizes))
        height, width = given["height"], given["width"]
        self.asked.append(height)
        if height == self.fails:
            return Failure("too small")
        y = np.zeros(8, np.float32) if height == self.flat else np.arange(8, dtype=np.float32)
        return Case(given, seed, {}, {"y": y}, seconds=height * width * 1e-6)


def chosen(runs: Runs, slow: float) -> tuple[int, Likely]:
    of = partial(trials, MODEL, {})
    first = runs(of(FIRST), 0)
    assert isinstance(first, Case)
    case, second = on_smaller_images(first, 0, slow, runs, of)
    return case.sizes["height"], second


@pytest.mark.parametrize(("slow", "height", "other"), [(1.0, 64, 96), (0.004, 32, 48), (0.001, 16, 24), (0.0001, 16, 24)])
def test_images_are_smaller_the_slower_the_model_is(slow: float, height: int, other: int) -> None:
    found, second = chosen(Runs(), slow)
    assert (found, second.roles["image"][0]) == (height, other)
    assert {**second.roles, "image": ()} == {**SECOND.roles, "image": ()}


@pytest.mark.parametrize("runs", [Runs(fails=32), Runs(flat=32)], ids=["it does not run", "it shows nothing"])
def test_images_that_are_too_small_are_left(runs: Runs) -> None:
    assert chosen(runs, 0.001) == (64, SECOND)
    assert runs.asked == [64, 32], "smaller ones are not tried then"


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (
            "float[2, 3] x",
            "the original model itself fails in onnxruntime on the only shapes that its inputs have (x: 2x3); export it",
        ),
        ("", "the original model itself fails in onnxruntime, and has no inputs to choose; export it again"),
        ("float[n, 3] x", "the original model does not run on inputs of its shapes; give its feeds with --inputs FEEDS.npz"),
    ],
)
def test_an_original_that_can_not_run_is_told_so(inputs: str, said: str, tmp_path: Path) -> None:
    """As a trace that kept a shape which the model does not have. Other feeds would be of no help."""
    x = "" if inputs else "x = Constant <value = float[2, 3] {1, 2, 3, 4, 5, 6}> ()"
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => (float[7] y) {{
      {x} s = Constant <value = int64[1] {{7}}> ()  r = RandomNormalLike (x)  z = Add (x, r)  y = Reshape (z, s) }}"""
    reason = verify(path := write(tmp_path / "m.onnx", text), path).reason
    assert said in reason and "onnxruntime says: " in reason and "requested shape:{7}" in reason
