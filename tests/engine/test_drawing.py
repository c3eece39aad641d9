"""Random operators beside engines: the parts of a model draw different numbers, as the nodes of one session do."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, islice
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

from onnx_subgraph import EngineSession
from onnx_subgraph.backends.onnxruntime import OnnxRuntime
from onnx_subgraph.engine import drawing
from onnx_subgraph.errors import ModelError
from tests.engine.test_control import Only, parted

# Between two draws is a Sin, which an engine runs. So each draw is in a part of its own.
PARTS = """
<ir_version: 9, opset_import: ["" : 18]>
parts (float[n, 64] x) => (float[n, 64] a, float[n, 64] b, float[n, 64] c)
{
  a = RandomNormalLike (x)
  s = Sin (a)
  b = RandomNormalLike (s)
  t = Sin (b)
  c = RandomNormalLike (t)
}
"""
IN_A_FUNCTION = """
<ir_version: 9, opset_import: ["" : 18, "local" : 1]>
called (float[n, 64] x) => (float[n, 64] a, float[n, 64] b)
{
  a = local.noise (x)
  s = Sin (a)
  b = local.noise (s)
}
<domain: "local", opset_import: ["" : OPSET]>
noise (x) => (y) { y = RandomUniformLike (x) }
"""
IN_A_FUNCTION_OF_A_FUNCTION = (
    IN_A_FUNCTION.replace("local.noise", "local.more")
    + """
<domain: "local", opset_import: ["" : 18, "local" : 1]>
more (x) => (y) { y = local.noise (x) }
"""
)
IN_A_BODY_OF_A_FUNCTION = IN_A_FUNCTION.replace(
    "{ y = RandomUniformLike (x) }",
    """{
      yes = Constant <value = bool {1}> ()
      y = If (yes) <then_branch = t () => (p) { p = RandomUniformLike (x) }, else_branch = e () => (q) { q = Identity (x) }>
    }""",
)
IN_A_BODY = """
<ir_version: 9, opset_import: ["" : 18]>
looped (float[4, 64] x, int64 most) => (float[steps, 4, 64] first, float[steps, 4, 64] second)
<bool yes = {1}>
{
  y, first, second = Loop (most, yes, x) <
    body = step (int64 i, bool go, float[4, 64] s) => (bool next, float[4, 64] t, float[4, 64] a, float[4, 64] b) {
      a = RandomNormalLike (s)
      t = Sin (a)
      b = RandomNormalLike (t)
      next = Identity (go)
    }>
}
"""


def session(text: str, folder: Path) -> EngineSession:
    backend = Only("Sin")
    _, target, result = parted(text, folder, backend)
    assert result.engines
    return EngineSession(target, backends={"scripted": backend})


def drawn(session: EngineSession) -> list[np.ndarray]:
    return session.run(None, {"x": np.zeros((8, 64), np.float32)})


def correlation(one: np.ndarray, other: np.ndarray) -> float:
    return abs(float(np.corrcoef(one.ravel(), other.ravel())[0, 1]))


def differ(draws: Iterable[np.ndarray]) -> bool:
    return all(correlation(one, other) < 0.3 for one, other in combinations(draws, 2))


@pytest.mark.parametrize(
    "text",
    [PARTS, IN_A_FUNCTION, IN_A_FUNCTION_OF_A_FUNCTION, IN_A_BODY_OF_A_FUNCTION],
    ids=["nodes", "calls of a function", "calls of one that calls it", "a body in a function"],
)
def test_parts_draw_different_numbers(text: str, tmp_path: Path) -> None:
    assert differ(drawn(session(text.replace("OPSET", "18"), tmp_path)))


def test_bodies_draw_different_numbers_in_every_step(tmp_path: Path) -> None:
    first, second = session(IN_A_BODY, tmp_path).run(None, {"x": np.zeros((4, 64), np.float32), "most": np.array(3, np.int64)})
    assert len(first) == 3
    assert differ([*first, *second])


def test_the_seed_of_onnxruntime_repeats_the_numbers(tmp_path: Path) -> None:
    def after(seed: int) -> list[np.ndarray]:
        ort.set_seed(seed)
        return drawn(session(PARTS, tmp_path))

    one, again, other = after(7), after(7), after(8)
    np.testing.assert_array_equal(one, again)
    assert differ([*one, *other])


def test_a_seed_of_the_model_is_kept(tmp_path: Path) -> None:
    text = PARTS.replace("RandomNormalLike (", "RandomNormalLike <seed = 3.0> (")
    a, b, c = drawn(session(text, tmp_path))
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(a, c)


def test_a_function_that_draws_and_can_not_be_inlined_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"(?s)draws random numbers can't be inlined.*hint: give .* the same opset"):
        session(IN_A_FUNCTION.replace("OPSET", "17"), tmp_path)


def test_a_function_whose_numbers_are_seeded_stays(tmp_path: Path) -> None:
    """It draws what its seed says, in whatever part it is; so it need not be inlined."""
    text = IN_A_FUNCTION.replace("OPSET", "17").replace("RandomUniformLike (", "RandomUniformLike <seed = 3.0> (")
    a, b = drawn(session(text, tmp_path))
    np.testing.assert_array_equal(a, b)


def test_seeds_differ_and_none_is_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "_SEEDS", 50)
    numbers = list(islice(drawing.seeds(OnnxRuntime()), 49))
    assert sorted(numbers) == list(range(1, 50))


def test_every_seed_is_exact_as_a_float32() -> None:
    """Else two of them would be one."""
    assert all(float(np.float32(seed)) == seed for seed in islice(drawing.seeds(OnnxRuntime()), 50))


@pytest.mark.parametrize(
    "operator", ["Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"]
)
def test_every_operator_that_is_seeded_by_its_index_gets_a_seed(operator: str) -> None:
    """Also in a body; one of another domain and one with a seed keep what they have."""
    given = "<shape = [2]> ()" if operator in ("RandomNormal", "RandomUniform") else "(x)"
    graph = ir.from_onnx_text(f"""<ir_version: 9, opset_import: ["" : 18, "mine" : 1]>
      g (float[2] x, bool c) => (float[2] y) {{
        a = {operator} {given}  m = mine.{operator} (x)
        b = If (c) <then_branch = t () => (float[2] r) {{ r = {operator} {given} }},
                    else_branch = e () => (float[2] s) {{ s = Add (a, m) }}>
        y = Add (a, b) }}""").graph
    drawing.give_seeds(graph, iter(range(5, 9)))
    found = [node.attributes["seed"].as_float() for node in graph.all_nodes() if "seed" in node.attributes]
    assert found == [5.0, 6.0]
