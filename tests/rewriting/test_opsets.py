"""The opsets at which a model is fused: an attempt ends as soon as a later opset is known to be better."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from onnx_subgraph import Options, fuse, load_patterns, settling
from onnx_subgraph.files.models import load
from onnx_subgraph.matching import find as find_module
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.rewriting import opsets, rounds
from onnx_subgraph.rewriting.loadability import CPU, Loadability
from onnx_subgraph.rewriting.rounds import Rewriter
from onnx_subgraph.rewriting.wishes import look_ahead
from onnx_subgraph.verification.sessions import Failure
from tests.verification.planted import LATE, layers, patterns


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The opset of the model at each search for patterns."""
    opsets: list[int] = []
    find = rounds.find

    def noted(model: Any, *given: Any, **options: Any) -> Any:
        opsets.append(model.opset_imports[""])
        return find(model, *given, **options)

    monkeypatch.setattr(rounds, "find", noted)
    return opsets


def test_a_model_is_rewritten_only_at_the_opset_that_its_replacements_need(tmp_path: Path, searched: list[int]) -> None:
    model = layers(tmp_path / "m.onnx", [1e-5] * 2)
    options = Options(target="standard", only=("gelu", "layer-normalization"), dry_run=True)
    result = fuse(model, None, load_patterns(), options)
    assert result.opset_after == 20 and set(searched) == {20}


def test_a_look_at_the_model_changes_nothing(tmp_path: Path) -> None:
    library = load_patterns()
    model = load(layers(tmp_path / "m.onnx", [1e-5] * 2))
    infer_shapes(model)
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    rewriter = Rewriter([library.get("gelu"), library.get("layer-normalization")], "standard", [Loadability(CPU)])
    assert look_ahead(model, rewriter) == {20: {"gelu"}}
    assert look_ahead(model, replace(rewriter, target="function")) == {}
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


def test_an_opset_is_abandoned_after_the_round_that_asks_for_a_later_one(
    tmp_path: Path, searched: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where only a rewrite makes the place for another."""
    monkeypatch.setattr(opsets, "look_ahead", lambda model, rewriter: {})
    model = layers(tmp_path / "m.onnx", [1e-5] * 2)
    options = Options(target="standard", only=("gelu", "layer-normalization"), dry_run=True)
    result = fuse(model, None, load_patterns(), options)
    assert result.opset_after == 20 and [r.op for r in result.rewrites].count("LayerNormalization") == 2
    assert searched.count(17) == 1 and searched.count(20) > 1


def test_an_abandoned_opset_continues_where_the_later_one_fails(tmp_path: Path, searched: list[int]) -> None:
    model, packs = layers(tmp_path / "m.onnx", [1e-5] * 2), (patterns(tmp_path, LATE),)
    options = Options(target="standard", only=("late-gelu", "layer-normalization"), dry_run=True)
    result = fuse(model, None, load_patterns(packs), options)
    assert result.opset_after == 17 and [r.op for r in result.rewrites] == ["LayerNormalization"] * 2
    assert searched.count(17) > 2, "once to find what is wanted, and then to the end"


def test_an_opset_at_which_the_model_differs_by_itself_blames_no_rewrite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raise_opset = opsets.raise_opset

    def wrongly(model: ir.Model, opset: int) -> ir.Model:
        raised = raise_opset(model, opset)
        next(n for n in raised.graph if n.op_type == "Erf").op_type = "Tanh"
        return raised

    monkeypatch.setattr(opsets, "raise_opset", wrongly)
    check_sites, checked = settling.check_sites, []

    def noted(base: ir.Model, *given: Any, **options: Any) -> Any:
        checked.append(base.opset_imports[""])
        return check_sites(base, *given, **options)

    monkeypatch.setattr(settling, "check_sites", noted)
    model = layers(tmp_path / "m.onnx", [1e-5] * 2)
    options = Options(target="standard", only=("gelu", "layer-normalization"), dry_run=True)
    result = fuse(model, None, load_patterns(), options)
    assert result.opset_after == 17 and set(checked) == {17}
    reasons = {skip.reason for skip in result.skipped}
    assert reasons and all(one.endswith("; raised to it, the model is not equivalent to the original") for one in reasons)


ATTENTION = """
<ir_version: 8, opset_import: ["" : {opset}]>
g (float[batch, length, 32] query, float[batch, length, 32] key, float[batch, length, 32] value,
    float[batch, 1, length, length] mask) => (float[batch, length, 32] y)
    <int64[4] split = {{0, 0, 4, 8}}, int64[3] join = {{0, 0, 32}}, float scale = {{0.35355338}}>
{{
    by_q = Reshape(query, split)
    q = Transpose<perm=[0, 2, 1, 3]>(by_q)
    by_k = Reshape(key, split)
    k = Transpose<perm=[0, 2, 3, 1]>(by_k)
    by_v = Reshape(value, split)
    v = Transpose<perm=[0, 2, 1, 3]>(by_v)
    s = MatMul(q, k)
    scaled = Mul(s, scale)
    masked = Add(scaled, mask)
    p = Softmax<axis=-1>(masked)
    o = MatMul(p, v)
    back = Transpose<perm=[0, 2, 1, 3]>(o)
    y = Reshape(back, join)
}}"""
"""Attention with a mask of dynamic size."""


@pytest.mark.parametrize("opset", [13, 14])
def test_attention_with_a_mask_needs_no_later_opset(tmp_path: Path, opset: int) -> None:
    """MultiHeadAttention wants the mask for each length, so the replacement asks for sizes, as each opset gives them."""
    onnx.save(onnx.parser.parse_model(ATTENTION.format(opset=opset)), tmp_path / "m.onnx")
    result = fuse(tmp_path / "m.onnx", tmp_path / "f.onnx", load_patterns(), Options(opset="keep", prefer="fusion"))
    assert result.operators_after["com.microsoft.MultiHeadAttention"] == 1 and result.verdict.verdict == "equivalent"
    onnx.checker.check_model(tmp_path / "f.onnx")


@pytest.mark.parametrize("masked", [True, False])
def test_attention_is_raised_in_one_step(masked: bool, tmp_path: Path, searched: list[int]) -> None:
    """It shows at once that the standard's Attention would be faster, so no opset between is tried."""
    text = ATTENTION.format(opset=14)
    if not masked:  # MultiHeadAttention would be taken at this opset
        text = text.replace(",\n    float[batch, 1, length, length] mask", "").replace("Add(scaled, mask)", "Identity(scaled)")
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    result = fuse(tmp_path / "m.onnx", None, load_patterns(), Options(dry_run=True))
    assert result.operators_after["Attention"] == 1
    assert set(searched) == {23}


ONE_HEAD_OF_KEYS = """<ir_version: 8, opset_import: ["" : 17]>
g (float[B, 4, S, 8] q, float[B, 1, 8, S] k, float[B, 1, S, 8] v) => (float[B, S, 32] y)
<float scale = {0.35355338}, int64[3] joined = {0, 0, 32}> {
  s = MatMul(q, k) c = Mul(s, scale) p = Softmax<axis = 3>(c) o = MatMul(p, v)
  t = Transpose<perm = [0, 2, 1, 3]>(o) y = Reshape(t, joined)
}"""


def test_one_head_of_keys_for_all_asks_for_the_opset_of_the_standards_attention(tmp_path: Path) -> None:
    """onnxruntime's MultiHeadAttention does not broadcast the heads, as Falcon's attention needs it."""
    onnx.save(onnx.parser.parse_model(ONE_HEAD_OF_KEYS), tmp_path / "m.onnx")
    result = fuse(tmp_path / "m.onnx", None, load_patterns(), Options(dry_run=True))
    assert result.verdict is not None and result.verdict.verdict == "equivalent"
    assert (result.opset_after, [rewrite.op for rewrite in result.rewrites][:1]) == (23, ["Attention"])


TWO_BATCHES = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[A, 4, S, 8] q, float[A, 4, T, 8] k, float[A, 4, T, 8] v, float[B, 1, S, T] mask) => (float[C, 4, S, 8] y)
<float c = {0.35}> {
  t = Transpose<perm = [0, 1, 3, 2]> (k) s = MatMul (q, t) m = Mul (s, c)
  a = Add (m, mask) p = Softmax<axis = -1> (a) y = MatMul (p, v)
}"""


def test_a_later_opset_that_does_not_help_is_no_reason(tmp_path: Path) -> None:
    """Attention came with opset 23, but at 23 it is refused as well: the mask may have the larger batch."""
    onnx.save(onnx.parser.parse_model(TWO_BATCHES), tmp_path / "m.onnx")
    only = ("multi-head-attention",)
    result = fuse(
        tmp_path / "m.onnx", None, load_patterns(), Options(only=only, target="standard", prefer="fusion", dry_run=True)
    )
    (skip,) = result.skipped
    assert skip.reason.startswith("at opset 23, the shape of the result y can't be shown to be the same: [Max(A, B),4,S,8]")
    assert "opset" not in skip.change


def test_no_reasons_are_sought_at_an_abandoned_opset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its graph has changed since the search: a reason could name a node that was removed. Einsums are written back there."""
    explored, opsets = find_module.explored, list[int]()

    def noted(miss: Any, explorers: Any) -> Any:
        opsets.append(miss.view.graph.opset_imports[""])
        return explored(miss, explorers)

    monkeypatch.setattr(find_module, "explored", noted)
    inputs = "float[batch, 1, length, length] mask"
    text = ATTENTION.format(opset=14).replace(inputs, f"{inputs}, float[batch, h, w, 4] image, float[h, k, 4] table")
    text = text.replace("=> (float[batch, length, 32] y)", "=> (float[batch, length, 32] y, z)")
    text = text.replace(
        "y = Reshape(back, join)", 'y = Reshape(back, join) z = Einsum<equation = "bhwc,hkc->bhwk">(image, table)'
    )
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    result = fuse(tmp_path / "m.onnx", None, load_patterns(), Options(dry_run=True, verify=False))
    assert result.opset_after == 23 and result.near_misses
    assert set(opsets) == {23}


INT8 = """
<ir_version: 8, opset_import: ["" : 17]>
g (int64[N] i, float[N, 4] x) => (float[4, N] y, float[N, 4] z)
    <int8[3, 4] table = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, float s = {0.1}, int8 zero = {0},
     float two = {2.0}, float epsilon = {1e-5}, float[4] scale = {1.0, 2.0, 3.0, 4.0}>
{
    row = Gather(table, i)
    f = DequantizeLinear(row, s, zero)
    y = Transpose<perm = [1, 0]>(f)
    square = Pow(x, two)
    mean = ReduceMean<axes = [-1]>(square)
    sum = Add(mean, epsilon)
    root = Sqrt(sum)
    normal = Div(x, root)
    z = Mul(normal, scale)
}
"""


def test_a_raised_model_that_does_not_load_is_not_written_unverified(tmp_path: Path) -> None:
    """onnxruntime 1.32 moves a Transpose before int8's DequantizeLinear, and then refuses its own node at opset 21."""
    onnx.save(onnx.parser.parse_model(INT8), tmp_path / "m.onnx")
    options = Options(target="standard", only=("rms-normalization",), verify=False)
    result = fuse(tmp_path / "m.onnx", tmp_path / "out.onnx", load_patterns(), options)
    assert result.verdict.verdict == "not-run"
    onnxruntime.InferenceSession(tmp_path / "out.onnx", providers=[CPU])


def test_an_original_that_does_not_load_is_raised_unverified_all_the_same(tmp_path: Path) -> None:
    """A graph without its weights, or with an operator that only another runtime has."""
    model = onnx.load(layers(tmp_path / "m.onnx", [1e-5] * 2))
    model.graph.node.add(op_type="Elsewhere", domain="other", input=[model.graph.input[0].name], output=["also"])
    model.graph.output.add(name="also").type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    model.opset_import.add(domain="other", version=1)
    onnx.save(model, tmp_path / "m.onnx")
    options = Options(target="standard", only=("gelu", "layer-normalization"), verify=False)
    assert fuse(tmp_path / "m.onnx", tmp_path / "out.onnx", load_patterns(), options).opset_after == 20


def test_what_no_provider_loads_at_a_later_opset_stays_at_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "open_model", lambda *given, **options: Failure("no such kernel"))
    model = layers(tmp_path / "m.onnx", [1e-5] * 2)
    options = Options(target="standard", only=("gelu", "layer-normalization"), verify=False)
    result = fuse(model, tmp_path / "out.onnx", load_patterns(), options)
    assert result.opset_after == 17 and result.output and result.verdict.verdict == "not-run"
    reasons = {skip.reason for skip in result.skipped}
    assert reasons and all(one.endswith("; raised to it, the model does not load") for one in reasons)
