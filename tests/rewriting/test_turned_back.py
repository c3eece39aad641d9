"""Rotary embeddings that turn back: x₁ · cos + x₂ · sin, x₂ · cos - x₁ · sin, as in modded-nanoGPT."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from onnx_subgraph import Options, fuse, load_patterns

TURN = """
  QL, QH = Split <axis = -1, num_outputs = 2> (Q)
  QLc = Mul(QL, c)  QHs = Mul(QH, s)  QF = Add(QLc, QHs)
  QLn = Mul(QL, n)  QHc = Mul(QH, c)  QS = Add(QLn, QHc)
  Qy = Concat <axis = -1> (QF, QS)
"""
MODEL = """
<ir_version: 10, opset_import: ["" : 23]>
g (float[b, 3, LENGTH, 8] q, float[b, 3, LENGTH, 8] k ANGLES) => (float[b, 3, LENGTH, 8] qy, float[b, 3, LENGTH, 8] ky) <TABLES> {
  NODES
}
"""


def _table(name: str, numbers: np.ndarray) -> str:
    return f"float[1, 1, 5, 4] {name} = {{{', '.join(f'{x:.9g}' for x in numbers.ravel())}}}"


def _model(*, is_constant: bool, negative: float = -1.0) -> onnx.ModelProto:
    angles = np.linspace(0, 3, 20, dtype=np.float32)
    tables = {"c": np.cos(angles), "s": np.sin(angles), "n": negative * np.sin(angles)}
    nodes = "" if is_constant else "c = Cos(angles)  s = Sin(angles)  n = Neg(s)"
    text = MODEL.replace("NODES", nodes + TURN.replace("Q", "q") + TURN.replace("Q", "k"))
    text = text.replace("ANGLES", "" if is_constant else ", float[1, 1, LENGTH, 4] angles")
    text = text.replace("<TABLES>", f"<{', '.join(_table(*t) for t in tables.items())}>" if is_constant else "")
    return onnx.parser.parse_model(text.replace("LENGTH", "5" if is_constant else "l"))


@pytest.mark.parametrize("target", ["onnxruntime", "standard", "native", "function"])
@pytest.mark.parametrize("is_constant", [True, False])
def test_they_are_rotary_embeddings_with_negative_sines(is_constant: bool, target: str, tmp_path: Path) -> None:
    """The negative sines are a second table, or computed once for the queries and the keys."""
    onnx.save(_model(is_constant=is_constant), path := tmp_path / "m.onnx")
    result = fuse(path, tmp_path / "f.onnx", load_patterns(), Options(target=target))
    assert [rewrite.pattern for rewrite in result.rewrites].count("rotary-embedding") == 2
    assert result.verdict.verdict == "equivalent" and not result.undone
    left = Counter(node.op_type for node in onnx.load(tmp_path / "f.onnx").graph.node)
    assert not left["Mul"] and left["Neg"] <= (not is_constant)


def test_another_table_is_not_the_negative(tmp_path: Path) -> None:
    onnx.save(_model(is_constant=True, negative=-1.001), path := tmp_path / "m.onnx")
    assert "rotary-embedding" not in [
        rewrite.pattern for rewrite in fuse(path, None, load_patterns(), Options(dry_run=True)).rewrites
    ]
