"""The parts between engines: what they compute, and what is kept for them."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from onnx_subgraph import EngineSession
from onnx_subgraph.backends.backend import Signature
from onnx_subgraph.backends.onnxruntime import OnnxRuntime
from onnx_subgraph.backends.subgraph import Subgraph
from onnx_subgraph.partitioning.options import PartitionOptions
from onnx_subgraph.partitioning.partition import partition
from tests.engine.test_control import LIMITS, Only, parted
from tests.partitioning.test_partition import written

HEAD = '<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>'


MAP = f"""{HEAD} g (float[n, 2] x) => (seq(map(int64, float)) y)
  {{ a = Sin (x) b = Softmax (a) y = ai.onnx.ml.ZipMap <classlabels_int64s = [0, 1]> (b) }}"""
PARTS = f"{HEAD} g (float[n, 2] x) => (float[n, 2] y) {{ a = Sin (x) b = Softmax (a) c = Neg (b) d = Sin (c) y = Tanh (d) }}"


@pytest.mark.parametrize("text", [MAP, PARTS], ids=["a map", "two parts"])
@pytest.mark.parametrize("typed", [True, False], ids=["with types", "without types"])
def test_parts_compute_what_onnxruntime_computes(text: str, typed: bool, tmp_path: Path) -> None:
    """Also in a file without the types of its inner values."""
    source, target, result = parted(text, tmp_path, backend := Only("Sin"))
    assert result.engines and result.verdict.verdict == "equivalent"
    if not typed:
        proto = onnx.load(target)
        del proto.graph.value_info[:]
        onnx.save(proto, target)
    given = {"x": np.array([[1, 2], [3, 5]], np.float32)}
    (found,) = EngineSession(target, backends={"scripted": backend}).run(None, given)
    (expected,) = ort.InferenceSession(source).run(None, given)
    if isinstance(found, np.ndarray):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    else:
        assert [one.keys() for one in found] == [one.keys() for one in expected]
        np.testing.assert_allclose([[*one.values()] for one in found], [[*one.values()] for one in expected], rtol=1e-6)


def test_a_value_lives_until_its_last_use(tmp_path: Path) -> None:
    """Also an output of the model that the caller does not ask for."""
    text = f"""{HEAD} g (float[n] x) => (float[n] y, float[n] z)
      {{ a = Sin (x) z = Abs (a) b = Neg (a) c = Sin (b) d = Neg (c) y = Sin (d) }}"""
    made: list[weakref.ref[Any]] = []
    alive: list[int] = []

    def noting(outputs: list[Any]) -> list[Any]:
        alive.append(sum(one() is not None for one in made))
        made.extend(map(weakref.ref, outputs))
        return outputs

    _, target, result = parted(text, tmp_path, Only("Sin", "Abs"))
    assert [len(engine.replaces) for engine in result.engines] == [2, 1, 1]
    session = EngineSession(target, backends={"scripted": Only("Sin", "Abs", answering=noting)})
    session.warm({"x": np.ones(3, np.float32)})
    made.clear()
    alive.clear()
    session.run(["y"], {"x": np.ones(3, np.float32)})
    assert alive == [0, 0, 0]


def test_an_input_that_is_a_map_keeps_its_type(tmp_path: Path) -> None:
    text = f"""{HEAD} g (map(int64, float) m) => (float[1, 2] y) <float[1, 2] a>
      {{ a = ai.onnx.ml.DictVectorizer <int64_vocabulary = [3, 1]> (m) y = Sin (a) }}"""
    options = PartitionOptions("scripted", LIMITS, verify=False)
    result = partition(written(text, tmp_path), tmp_path / "parted.onnx", options, backend=(backend := Only("Sin")))
    assert result.engines and result.output is not None
    (found,) = EngineSession(result.output, backends={"scripted": backend}).run(None, {"m": {1: 0.5, 3: 0.0}})
    np.testing.assert_allclose(found, np.sin([[0, 0.5]]), rtol=1e-6)


def test_a_part_is_compiled_once_under_its_own_name(tmp_path: Path) -> None:
    """Also a Loop that stacks but never runs its body, so that onnxruntime has to run it."""
    text = f"""{HEAD} g (float[2] x, int64 most) => (float[2] y, float[steps, 2] seen)
      {{ y, seen = Loop (most, "", x) <body = step (int64 i, bool go, float[2] s) => (bool next, float[2] t, float[2] u)
        {{ next = Identity (go) v = Sin (s) t = Abs (v) u = Neg (t) }}> }}"""
    names: list[str] = []

    class Noting(OnnxRuntime):
        def compile(self, subgraph: Subgraph, signature: Signature) -> Any:
            names.append(subgraph.name)
            return super().compile(subgraph, signature)

    _, target, result = parted(text, tmp_path, backend := Only("Sin", "Abs"))
    assert result.engines
    session = EngineSession(target, backends={"scripted": backend}, plain=Noting())
    for _ in range(2):
        y, seen = session.run(None, {"x": np.ones(2, np.float32), "most": np.array(0)})
        assert y.tolist() == [1, 1] and seen.shape == (0, 2)
    assert len(set(names)) == len(names) > 1


@pytest.mark.parametrize(
    "unread",
    [
        "u = Exp (a) v = Neg (u)",
        "u = If (c) <then_branch = t () => (p) { m = Sin (b) p = Neg (m) }, else_branch = e () => (q) { q = Neg (b) }>",
    ],
    ids=["a part", "an If with an engine"],
)
def test_what_nobody_reads_is_no_step(unread: str, tmp_path: Path) -> None:
    text = f"""{HEAD} g (float[n] x, bool c) => (float[n] y) {{ a = Sin (x) b = Neg (a) y = Abs (b) {unread} }}"""
    source, target, result = parted(text, tmp_path, backend := Only("Sin"))
    assert result.verdict.verdict == "equivalent" and not result.refused
    given = {"x": np.array([1, 2], np.float32), "c": np.array(True)}
    (found,) = EngineSession(target, backends={"scripted": backend}).run(None, given)
    np.testing.assert_allclose(found, ort.InferenceSession(source).run(None, given)[0], rtol=1e-6)
