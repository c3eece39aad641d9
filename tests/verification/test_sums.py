"""Sums of many terms round by more than their operands; noise shows how far."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.verification.noise import noisy
from onnx_subgraph.verification.sums import FEWEST, SHARE, summed
from onnx_subgraph.verification.verify import verify
from tests.verification.models import write

HEADER = '<ir_version: 8, opset_import: ["" : {}]> g '
SPELLINGS = {
    "MatMul": "y = MatMul (x, w)",
    "another order": "p = Gather <axis = 1> (x, order)  y = MatMul (p, ordered)",
    "Conv": "s = Reshape (x, image)  c = Conv (s, kernels)  y = Flatten (c)",
    "Gemm": "y = Gemm <transB = 1> (x, rows)",
    "Einsum": 'y = Einsum <equation = "bk,nk->bn"> (x, rows)',
}
TERMS = 65536


def product(path: Path, spelling: str, results: int, opset: int, error: float = 0.0) -> Path:
    """A product of a vector with a matrix, in one of the spellings. error: relative, of all weights."""
    rng = np.random.default_rng(results)
    w = (rng.standard_normal((TERMS, results)) * (1 + error)).astype(np.float32)
    order, rows = rng.permutation(TERMS), np.ascontiguousarray(w.T)
    known = {"w": w, "order": order, "ordered": w[order], "rows": rows, "kernels": rows[:, :, None, None]}
    known["image"] = np.asarray([1, TERMS, 1, 1])
    nodes = SPELLINGS[spelling]
    text = f"{HEADER.format(opset)} (float[1, {TERMS}] x) => (float[1, {results}] y) {{ {nodes} }}"
    return write(path, text, **{name: known[name] for name in re.findall(r"\w+", nodes) if name in known})


@pytest.mark.parametrize("spelling", list(SPELLINGS)[1:])
@pytest.mark.parametrize(("results", "opset"), [(2, 17), (3, 22)])
def test_a_long_sum_in_another_order_is_the_same(spelling: str, results: int, opset: int, tmp_path: Path) -> None:
    """About half of such pairs were called different."""
    one = product(tmp_path / "one.onnx", "MatMul", results, opset)
    assert verify(one, product(tmp_path / "other.onnx", spelling, results, opset)).verdict == "equivalent"
    assert verify(one, product(tmp_path / "wrong.onnx", spelling, results, opset, error=1e-4)).verdict == "different"


@pytest.mark.parametrize(
    ("inputs", "node", "operand", "terms"),
    [
        ("float[b, 3, 4096] x, float[4096, 5] w", "MatMul (x, w)", 0, 4096),
        ("float[4096, 4096] x, float[4096] w", "MatMul (x, w)", 1, 4096),
        ("float[4096, 3] x, float[4096, 5] w", "Gemm <transA = 1> (x, w)", 0, 4096),
        ("float[1, 1024, 8, 8] x, float[4, 256, 3, 3] w", "Conv <group = 4> (x, w)", 0, 2304),
        ("float[2, 64, 3, 64] x, float[64, 64] w", 'Einsum <equation = "akbl, kl -> ab"> (x, w)', 1, 4096),
        ("float[3, 4096] x", "ReduceMean <axes = [-1]> (x)", 0, 4096),
        ("float[64, 64] x", "ReduceL2 <keepdims = 0> (x)", 0, 4096),
        ("float[4096, 3] x", "ReduceSum (x, axis)", 0, 4096),
        ("float[4096, 3] x", "ReduceSum (x, twice)", 0, 4096),
        ("float[64, 64] x", "ReduceSum (x)", 0, 4096),
        ("float[64, 64] x", "ReduceSum <noop_with_empty_axes = 1> (x)", 0, 0),
        ("float[1, 3, 64, 64] x", "GlobalAveragePool (x)", 0, 4096),
        ("float[1, 3, 64, 64] x", "AveragePool <kernel_shape = [64, 64]> (x)", 0, 4096),
        ("float[3, 2047] x, float[2047, 5] w", "MatMul (x, w)", 0, 0),
        ("float[3, k] x, float[k, 5] w", "MatMul (x, w)", 0, 0),
        ("float[3, 4096] x, int64[1] a", "ReduceSum (x, a)", 0, 0),
        ("float[3, 4096] x, float[4096] w", 'Einsum <equation = "...k,k"> (x, w)', 0, 0),
        ("float[2, 3, 4096] x, float[4096, 5] w", 'Einsum <equation = "...k,kd->...d"> (x, w)', 1, 4096),
        ("float[2, 3, 4096] x, float[2, 5, 4096] w", 'Einsum <equation = "a...k, a...k -> a..."> (x, w)', 0, 4096),
        ("float[3, 4096] x", "ReduceMax <axes = [-1]> (x)", 0, 0),
        ("float16[3, 4096] x, float16[4096, 5] w", "MatMul (x, w)", 0, 4096),
    ],
)
def test_the_terms_of_a_sum(inputs: str, node: str, operand: int, terms: int) -> None:
    dtype = inputs.partition("[")[0]
    model = ir.from_onnx_text(
        f"{HEADER.format(17)} ({inputs}) => ({dtype}[] y) <int64[1] axis = {{0}}, int64[2] twice = {{0, -2}}> {{ y = {node} }}"
    )
    infer_shapes(model)
    assert summed(model.graph[0]) == (operand, SHARE * math.sqrt(terms))
    moved = noisy(model, 1)
    assert not isinstance(moved, str)
    added = [one for one in moved.graph if str(one.name).startswith("y__") and "__terms_" in str(one.name)]
    assert bool(added) is (terms >= FEWEST and dtype == "float"), "kernels of float16 sum in float32"
