"""Numbers that a network computes in float16 are known as they are meant, so a scale of an operator is not rounded twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from onnx_subgraph import Options, fuse, load_patterns
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.model.unrounded import unrounded
from tests.verification.models import write

CHAINS = {
    "i = Constant <value_int = 64> ()  f = Cast <to = 10> (i)  r = Sqrt (f)  q = Div (one, r)  y = Sqrt (q)": 64**-0.25,
    "i = Constant <value_int = 48> ()  f = Cast <to = 10> (i)  r = Sqrt (f)  y = Reciprocal (r)": 48**-0.5,
    "i = Constant <value_int = 3> ()  f = Cast <to = 10> (i)  q = Div (one, f)  u = Unsqueeze (q, axis)  y = Mul (u, u)": 1 / 9,
    "i = Constant <value_float = 0.1> ()  y = Cast <to = 10> (i)": float(np.float32(0.1)),
    "i = Constant <value_float = 1e-12> ()  y = Cast <to = 10> (i)": 0.0,
    "i = Constant <value_float = 0.0015> ()  f = Cast <to = 10> (i)  p = Add (one, f)  y = Sub (p, one)": 2.0**-9,
    "e = Erf (one)  y = Sqrt (e)": float(np.sqrt(np.float64(np.float16(0.8427007929)))),
    "y = Identity (third)": float(np.float16(0.1)),
    "z = Sub (one, one)  y = Div (one, z)": np.inf,
    "i = Constant <value_int = 300> ()  f = Cast <to = 10> (i)  y = Mul (f, f)": np.inf,
    "i = Constant <value_int = 4096> ()  f = Cast <to = 10> (i)  q = Div (one, f)  p = Add (one, q)  y = Sub (p, one)": 0.0,
}


@pytest.mark.parametrize(("chain", "number"), CHAINS.items())
def test_a_chain_is_computed_without_roundings_from_the_stored_numbers(chain: str, number: float) -> None:
    """An overflow and a cancellation stay: there the number that is meant is not the one that the network has."""
    model = ir.from_onnx_text(f"""<ir_version: 8, opset_import: ["" : 18]> g (float16[n] x) => (float16[m] o)
        <float16 one = {{15360}}, float16 third = {{11878}}, int64[1] axis = {{0}}> {{ {chain}  o = Mul (x, y) }}""")
    infer_shapes(model)
    product = model.graph[-1]
    y = product.inputs[1]
    assert y is not None
    assert unrounded(Constants(model), y) == pytest.approx(number, rel=1e-12)
    assert unrounded(Constants(model), product.outputs[0]) is None


def test_the_scale_of_an_attention_in_float16_is_the_one_that_is_meant(tmp_path: Path) -> None:
    """Half of it is multiplied to queries and half to keys. The product of the two rounded halves would be 0.12497."""
    model = write(
        tmp_path / "m.onnx",
        """<ir_version: 8, opset_import: ["" : 17]> g (float16[b, 4, s, 64] q, float16[b, 4, s, 64] k, float16[b, 4, s, 64] v)
        => (float16[b, 4, s, 64] y) <float16 one = {15360}> {
          size = Shape <start = -1> (q)  f = Cast <to = 10> (size)  r = Sqrt (f)  d = Div (one, r)  half = Sqrt (d)
          t = Transpose <perm = [0, 1, 3, 2]> (k)  i = Mul (q, half)  j = Mul (t, half)  w = MatMul (i, j)
          p = Softmax <axis = -1> (w)  y = MatMul (p, v) }""",
    )
    result = fuse(model, None, load_patterns(), Options(dry_run=True, prefer="fusion"))
    assert result.undone == ()
    (rewrite,) = result.rewrites
    assert dict(rewrite.attributes)["scale"] == pytest.approx(0.125, rel=1e-9)
