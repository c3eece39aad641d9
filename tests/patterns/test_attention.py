"""Attention is found in every spelling, becomes one operator, and computes the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np
import onnx
import onnx.compose
import onnx.parser
import onnxruntime
import pytest

from onnx_subgraph.language.library import Library, load_patterns
from onnx_subgraph.language.term import operators_of
from onnx_subgraph.operators.names import operator_of
from onnx_subgraph.options import Options
from onnx_subgraph.pipeline import fuse
from onnx_subgraph.proving.covering import base_spellings
from onnx_subgraph.proving.instance import build
from onnx_subgraph.proving.spelling import UnbuildableError
from onnx_subgraph.result import FuseResult
from onnx_subgraph.verification.verify import verify
from tests.patterns.spellings_attention import (
    ATTENTION,
    MIN,
    OUT,
    SELF,
    Spelling,
    by_heads,
    infinity,
    joined,
    plain,
    spellings,
    weighted,
    written,
)
from tests.patterns.spellings_text import Text

SPELLINGS = tuple(spellings())


@pytest.fixture(scope="module")
def library() -> Library:
    return load_patterns()


def test_no_two_spellings_are_the_same_graph() -> None:
    assert len({s.model for s in SPELLINGS}) == len(SPELLINGS)


def reasons(result: FuseResult) -> str:
    """Why nothing fused, for the message of a test that fails: to find it takes longer than to fuse."""
    misses = (f"{m.pattern}: {m.expected}, found {m.found} at {m.node}" for m in result.near_misses)
    refusals = (f"{s.pattern}: {s.reason}" for s in result.skipped)
    return "\n".join((*misses, *refusals))


ALIKE = [(name, [*group]) for name, group in groupby(SPELLINGS, key=lambda s: (s.family, s.operators))]
GROUPS = [(*named, group[n : n + 8]) for named, group in ALIKE for n in range(0, len(group), 8)]


def side_by_side(spellings: Sequence[Spelling]) -> onnx.ModelProto:
    """One model with the graphs of all of them. Their values have the name of the spelling in front."""
    parts = [onnx.compose.add_prefix(onnx.parser.parse_model(s.model), f"{s.name}: ", rename_nodes=False) for s in spellings]
    for field in ("node", "initializer", "input", "output"):
        for part in parts[1:]:
            getattr(parts[0].graph, field).extend(getattr(part.graph, field))
    return parts[0]


def behind(value: str, graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The nodes that compute a value."""
    needed, found = {value}, []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            needed.update(node.input)
            found.append(node)
    return found


@pytest.mark.parametrize(("operators", "spellings"), [g[1:] for g in GROUPS], ids=[f"{g[0]}: {g[2][0].name}" for g in GROUPS])
def test_each_spelling_becomes_one_operator(
    operators: tuple[str, ...], spellings: Sequence[Spelling], library: Library, tmp_path: Path
) -> None:
    """Several are in one model, which takes less time."""
    model, fused = tmp_path / "model.onnx", tmp_path / "fused.onnx"
    onnx.save(side_by_side(spellings), model)
    result = fuse(model, fused, library, Options(prefer="fusion"))
    assert "Softmax" not in result.operators_after, reasons(result)
    graph = onnx.load(fused).graph
    for spelling in spellings:
        own = [node for node in behind(f"{spelling.name}: y", graph) if operator_of(node) in operators]
        assert len(own) == 1, f"{spelling.model}\n{reasons(result)}"
    assert (result.verdict.verdict, result.verdict.strength) == ("equivalent", "kernel")


@pytest.mark.parametrize("spelling", [s for s in SPELLINGS if s.family == "repeated heads"], ids=lambda s: s.name)
def test_shared_keys_become_one_operator_of_an_early_opset_too(spelling: Spelling, library: Library, tmp_path: Path) -> None:
    """The standard's Attention, which takes shared keys as they are, needs opset 23. MultiHeadAttention takes repeated ones."""
    model = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(spelling.model), model)
    result = fuse(model, tmp_path / "fused.onnx", library, Options(prefer="fusion", opset="keep"))
    assert result.operators_after["com.microsoft.MultiHeadAttention"] == 1 and "Softmax" not in result.operators_after
    assert "Gather" in result.operators_after or "Transpose" not in result.operators_after, "heads are repeated where they are"
    assert result.operators_after["Reshape"] <= 4, "two for keys and two for values"
    assert result.verdict.verdict == "equivalent"


PADDED = {
    "added": ("float[b, 1, s, s] mask", lambda t, s: t.call("Add", s, "mask")),
    "added to all heads": ("float[b, 2, s, s] mask", lambda t, s: t.call("Add", "mask", s)),
    "kept": ("bool[b, 1, s, s] mask", lambda t, s: t.call("Where", "mask", s, MIN)),
    "dropped": ("bool[b, 1, s, s] mask", lambda t, s: t.call("Where", t.call("Not", "mask"), -1e9, s)),
    "kept, by rows": ("bool[b, 1, 1, s] mask", lambda t, s: t.call("Where", "mask", s, -1e4)),
    "kept, in a sum": ("bool[b, 1, s, s] mask", lambda t, s: t.call("Add", s, t.call("Where", "mask", 0.0, MIN))),
}
"""How a mask is applied: the mask's declaration, and what writes it over the scores."""


def padded(seed: int, batch: int, length: int) -> np.ndarray:
    """The mask of a causal decoder for sequences padded on the left or on the right, one of them entirely padding."""
    draw = np.random.default_rng(seed)
    kept = np.tril(np.ones((batch, 1, length, length), bool))
    for row in range(batch):
        padding = int(draw.integers(1, length + 1))
        kept[row, ..., slice(0, padding) if row % 2 else slice(padding, None)] = False
    kept[-1] = False
    return kept


GUARDED = {
    "-inf, added": PADDED["added"],
    "-inf, kept": ("bool[b, 1, s, s] mask", lambda t, s: t.call("Where", "mask", s, infinity(t))),
    "-inf, dropped": ("bool[b, 1, s, s] mask", lambda t, s: t.call("Where", t.call("Not", "mask"), infinity(t), s)),
    "-inf, kept, in a sum": ("bool[b, 1, s, s] mask", lambda t, s: t.call("Add", s, t.call("Where", "mask", 0.0, infinity(t)))),
}
"""Masks that leave a row nothing, which a guard against NaN makes zeros of: what torch's scaled_dot_product_attention is."""


@pytest.mark.parametrize("target", ["onnxruntime", "standard"])
@pytest.mark.parametrize("how", [*PADDED, *(f"{how}, behind a guard" for how in (*PADDED, *GUARDED))])
def test_padding_masks_and_fully_masked_rows(how: str, target: str, library: Library, tmp_path: Path) -> None:
    """Fully masked rows: a finite mask gives the mean of the values, -inf with a guard gives zeros."""
    guard = how.endswith(", behind a guard")
    declared, write = (PADDED | GUARDED)[how.removesuffix(", behind a guard")]
    low = -np.inf if how.startswith("-inf") else np.finfo(np.float32).min
    model, fused = tmp_path / "model.onnx", tmp_path / "fused.onnx"
    opset = 23 if target == "standard" else 17
    text = written(lambda t: plain(t, write, guard=guard), f"{SELF}, {declared}", OUT, opset)
    onnx.save(onnx.parser.parse_model(text), model)
    result = fuse(model, fused, library, Options(prefer="fusion", target=target))
    assert sum(result.operators_after.get(o, 0) for o in ATTENTION) == 1
    for seed, (batch, length) in enumerate([(2, 5), (3, 9), (3, 1)]):
        draw, kept = np.random.default_rng(seed), padded(seed, batch, length)
        feeds = {name: draw.standard_normal((batch, length, 8)).astype(np.float32) for name in ("query", "key", "value")}
        if declared.startswith("bool"):
            feeds["mask"] = kept[:, :, -1:] if "1, 1, s" in declared else kept
        else:
            heads = 2 if "b, 2" in declared else 1
            feeds["mask"] = np.where(np.repeat(kept, heads, axis=1), 0, low).astype(np.float32)
        np.savez(tmp_path / "feeds.npz", **feeds)
        # noise on the mask moves fully masked rows by their own size, so a bound is given
        verdict = verify(model, fused, inputs=tmp_path / "feeds.npz", atol=1e-5)
        assert (verdict.verdict, verdict.strength) == ("equivalent", "kernel"), (batch, length, verdict.worst)
        (last,) = onnxruntime.InferenceSession(fused, providers=["CPUExecutionProvider"]).run(None, feeds)
        assert bool(last[-1].any()) == (low > -np.inf), "the last sequence is padding throughout"


HOLLOW = [p.id for p in load_patterns().patterns if "IsNaN" in operators_of(p.match)]
"""The patterns that write the guard themselves."""


@pytest.mark.parametrize("target", ["onnxruntime", "standard"])
@pytest.mark.parametrize("identifier", HOLLOW)
def test_each_pattern_tells_rows_of_infinity_from_rows_of_the_lowest_number(
    identifier: str, target: str, library: Library, tmp_path: Path
) -> None:
    """With a guard, the first row gives zeros and the second the mean of the values, for each masking in the formula."""
    pattern = library.get(identifier)
    guards = {id(found[0]): 1 for name in ("weights", "flat_weights") if (found := pattern.match.definition(name))}
    assert guards
    model, tried = tmp_path / "model.onnx", 0
    for spelling in base_spellings(pattern):
        try:
            instance = build(pattern, replace(spelling, chosen={**spelling.chosen, **guards}, opset=23))
        except UnbuildableError:  # excluded by a sentence
            continue
        added = {name: array.copy() for name, array in instance.feeds.items() if name in ("mask", "offset", "window")}
        if not added or target not in pattern.replace:
            continue
        for array in added.values():
            array[..., 0, :], array[..., 1, :] = -np.inf, MIN if len(added) == 1 else 0
        for name, array in instance.feeds.items():
            if array.dtype == bool:  # these two rows are masked by numbers alone: two numbers in a row are neither case
                array[..., :2, :] = name in ("keep", "allow")
        onnx.save(instance.proto, model)
        fused = tmp_path / f"{tried}.onnx"
        result = fuse(model, fused, library, Options(prefer="fusion", target=target, only=(identifier,), verify=False))
        assert [r.pattern for r in result.rewrites] == [identifier], str(spelling)
        expected, found = (
            onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"]).run(None, instance.feeds | added)
            for file in (model, fused)
        )
        for a, b in zip(expected, found, strict=True):
            assert np.isfinite(a).all(), "the guard is there"
            np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5, err_msg=str(spelling))
        tried += 1
    assert tried or target not in pattern.replace


@pytest.mark.parametrize("low", [-np.inf, np.finfo(np.float32).min])
def test_bounded_scores_give_the_mean_of_the_values_where_all_is_masked(low: float, library: Library, tmp_path: Path) -> None:
    (spelling,) = (s for s in SPELLINGS if (s.family, s.name) == ("batch and heads as one", "bounded"))
    model, fused = tmp_path / "model.onnx", tmp_path / "fused.onnx"
    onnx.save(onnx.parser.parse_model(spelling.model), model)
    fuse(model, fused, library, Options(prefer="fusion"))
    draw = np.random.default_rng(0)
    feeds = {name: draw.standard_normal((3, 6, 8)).astype(np.float32) for name in ("query", "key", "value")}
    np.savez(tmp_path / "feeds.npz", **feeds, mask=np.where(padded(0, 3, 6), 0, low).astype(np.float32))
    verdict = verify(model, fused, inputs=tmp_path / "feeds.npz", atol=1e-5)
    assert (verdict.verdict, verdict.strength) == ("equivalent", "kernel"), verdict.worst


@pytest.mark.parametrize(("also", "wheres"), [("", 1), (", float[b, 1, s, s] second", 2)])
def test_equal_masks_of_several_layers_are_computed_once(also: str, wheres: int, library: Library, tmp_path: Path) -> None:
    """TorchScript gives each layer its own Where and constants. A mask that is a graph output stays too."""

    def layers(t: Text) -> str:
        x = "query"
        for result in ("first", "second"):
            t.lines.append(f"{result} = Where(mask, {t.number(0.0)}, {infinity(t)})")
            q, k, v = by_heads(t, x), by_heads(t, "key", transposed=True), by_heads(t, "value")
            scores = t.call("Add", t.call("Div", t.call("MatMul", q, k), 2.0), result)
            x = joined(t, weighted(t, scores, v, guard=True))
        return x

    model, fused = tmp_path / "model.onnx", tmp_path / "fused.onnx"
    onnx.save(onnx.parser.parse_model(written(layers, f"{SELF}, bool[b, 1, s, s] mask", OUT + also)), model)
    result = fuse(model, fused, library, Options())
    assert (result.verdict.verdict, result.verdict.strength) == ("equivalent", "kernel")
    operators = result.operators_after
    assert [operators.get(o) for o in ("Attention", "Clip", "IsInf", "Where")] == [2, None, None, wheres]


@pytest.mark.parametrize("also", ["", ", float[b, 1, s, s] mask"])
def test_an_attention_without_a_mask_needs_no_guard(also: str, library: Library, tmp_path: Path) -> None:
    heads = "float[b, 2, s, 4]"
    text = f"""<ir_version: 10, opset_import: ["" : 23]> g ({heads} q, {heads} k, {heads} v{also}) => ({heads} y) {{
      y = Attention (q, k, v{", mask" if also else ""}) }}"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    fuse(tmp_path / "model.onnx", tmp_path / "fused.onnx", library, Options(target="function"))
    (call,) = onnx.load(tmp_path / "fused.onnx").graph.node
    assert call.domain == "onnx_subgraph" and any(a.name == "guarded" for a in call.attribute) == bool(also)


def test_a_mask_that_hides_nothing_hides_nothing_on_drawn_values(library: Library, tmp_path: Path) -> None:
    """So small values show little, and the fusion is also checked on drawn ones. The fused node has no mask."""
    text = """<ir_version: 10, opset_import: ["" : 17]> g (float[b, 2, s, 4] x) => (float[b, 2, s, 4] y)
    <bool[1, 1, 1, 1] all = {1}, float yes = {0}, float no = {-inf}, float small = {0.00001},
     int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3}> {
      shape = Shape (x) b = Slice (shape, zero, one) s = Slice (shape, two, three) sizes = Concat <axis = 0> (b, one, s, s)
      seen = Expand (all, sizes) mask = Where (seen, yes, no) q = Mul (x, small) t = Transpose <perm = [0, 1, 3, 2]> (q)
      m = MatMul (q, t) masked = Add (m, mask) p = Softmax <axis = -1> (masked) y = MatMul (p, q) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    result = fuse(tmp_path / "model.onnx", None, library, Options(dry_run=True))
    assert not result.undone and result.operators_after == {"Attention": 1, "Mul": 1}


DECODER = """<ir_version: 8, opset_import: ["" : 18]>
g (float[b, s, 16] query, float[b, s, 8] key, float[b, s, 8] value, float[b, 2, p, 4] past_key, float[b, 2, {past}, 4] past_value)
  => (float[b, s, 16] y{given})
<int64[4] heads = {{0, 0, -1, 4}}, int64[3] joined = {{0, 0, 16}}, int64[1] two = {{2}}, int64[5] twice = {{1, 1, 2, 1, 1}},
 int64[4] four = {{0, 4, -1, 4}}, float half = {{0.5}}> {{
  q1 = Reshape(query, heads) q = Transpose <perm = [0, 2, 1, 3]> (q1)
  k1 = Reshape(key, heads) k = Transpose <perm = [0, 2, 1, 3]> (k1)
  v1 = Reshape(value, heads) v = Transpose <perm = [0, 2, 1, 3]> (v1)
  keys = Concat <axis = -2> (past_key, k) values = Concat <axis = 2> (past_value, v)
  k2 = Unsqueeze(keys, two) k3 = Tile(k2, twice) k4 = Reshape(k3, four) kt = Transpose <perm = [0, 1, 3, 2]> (k4)
  v2 = Unsqueeze(values, two) v3 = Tile(v2, twice) v4 = Reshape(v3, four)
  d = MatMul(q, kt) w = Mul(d, half) a = Softmax <axis = -1> (w) o = MatMul(a, v4)
  t = Transpose <perm = [0, 2, 1, 3]> (o) y = Reshape(t, joined) }}"""


@pytest.mark.parametrize(
    ("past", "given", "operator"),
    [
        ("p", ", float[b, 2, m, 4] keys, float[b, 2, m, 4] values", "Attention"),
        ("p", ", float[b, 2, m, 4] keys", "Concat"),  # values that are not returned are no cache
        ("p", ", float[b, 2, m, 4] values", "Concat"),  # nor are such keys
        # the length may differ from that of the keys
        ("r", ", float[b, 2, m, 4] keys, float[b, 2, z, 4] values", "Concat"),
    ],
)
def test_a_cache_becomes_part_of_attention(past: str, given: str, operator: str, library: Library, tmp_path: Path) -> None:
    """Four query heads share two heads of keys and values, for a prompt and for single tokens."""
    model, fused = tmp_path / "model.onnx", tmp_path / "fused.onnx"
    onnx.save(onnx.parser.parse_model(DECODER.format(past=past, given=given)), model)
    result = fuse(model, fused, library, Options(verify=False))  # which would undo what does not run
    assert result.operators_after.get("Attention") == 1
    assert next(node.op_type for node in onnx.load(fused).graph.node if "keys" in node.output) == operator
    for seed, (batch, length, before) in enumerate([(1, 1, 7), (2, 5, 0), (3, 1, 64)]):
        draw = np.random.default_rng(seed)
        sizes = {"query": (length, 16), "key": (length, 8), "value": (length, 8)}
        feeds = {name: draw.standard_normal((batch, *size)).astype(np.float32) for name, size in sizes.items()}
        feeds |= {f"past_{x}": draw.standard_normal((batch, 2, before, 4)).astype(np.float32) for x in ("key", "value")}
        np.savez(tmp_path / "feeds.npz", **feeds)
        verdict = verify(model, fused, inputs=tmp_path / "feeds.npz")
        assert (verdict.verdict, verdict.strength) == ("equivalent", "kernel"), (batch, length, before, verdict.worst)


BLOCKS = """<ir_version: 8, opset_import: ["" : 17]>
blocks (float[b, n, 3, h, e] query, float[b, n, 6, h, e] key, float[b, n, 6, h, e] value, float[1, 1, 2, 3, 6] bias)
  => (float[b, n, 3, 2, e] y) {
  product = Einsum <equation = "...shd,...thd->...hst"> (query, key)
  scores = Add(product, bias)
  p = Softmax <axis = -1> (scores)
  y = Einsum <equation = "...hst,...thd->...shd"> (p, value) }"""


RELATIVE = """<ir_version: 8, opset_import: ["" : 18]>
g (float[8, 6, 8] q, float[8, 8, 6] k, float[8, 6, 8] v, float[8, 6, 6] relative, bool[2, 1, 6, 6] keep) => (float[8, 6, 8] y)
<int64[4] apart = {2, 4, 6, 6}, int64[3] joined = {8, 6, 6}, float low = {-3.4028235e38}> {
  s = MatMul(q, k) a = Add(s, relative) r = Reshape(a, apart) w = Where(keep, r, low) p = Softmax <axis = -1> (w)
  f = Reshape(p, joined) y = MatMul(f, v) }"""


def test_scores_of_positions_are_not_taken_for_a_mask(library: Library, tmp_path: Path) -> None:
    """As in DeBERTa. To bound them as a mask is bounded takes three passes over an element for each pair of positions."""
    onnx.save(onnx.parser.parse_model(RELATIVE), tmp_path / "model.onnx")
    result = fuse(tmp_path / "model.onnx", None, library, Options(dry_run=True))
    assert result.verdict.verdict == "equivalent", result.verdict
    assert result.operators_after["Attention"] == 1 and not {"IsInf", "Clip"} & set(result.operators_after)


def test_the_number_of_heads_is_read_from_the_scores(library: Library, tmp_path: Path) -> None:
    """As in TorchScript's LongT5: operands of unknown shapes, and a bias for each of two heads."""
    model = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(BLOCKS), model)
    result = fuse(model, None, library, Options(prefer="fusion", dry_run=True))
    assert "multi-head-attention" in {r.pattern for r in result.rewrites}, [s.reason for s in result.skipped]
    assert result.verdict.verdict == "equivalent"


BROADCAST = {
    "one head": ("b, 1, t, 8", "b, 1, t, 8"),
    "one head, one batch": ("1, 1, t, 8", "1, 1, t, 8"),
    "one batch": ("1, 4, t, 8", "1, 4, t, 8"),
    "one head of keys": ("b, 1, t, 8", "b, 4, t, 8"),
    "one head of values": ("b, 4, t, 8", "b, 1, t, 8"),
}
"""Keys and values along which a MatMul broadcasts."""
SHARED = """<ir_version: 8, opset_import: ["" : 17]>
shared (float[b, 4, s, 8] query, float[{keys}] key, float[{values}] value) => (float[b, 4, s, 8] y) <float scale = {{0.35}}> {{
  k = Transpose <perm = [0, 1, 3, 2]> (key) w = MatMul(query, k) c = Mul(w, scale) p = Softmax <axis = -1> (c)
  y = MatMul(p, value) }}"""
ONE_HEAD = """<ir_version: 8, opset_import: ["" : 17]>
shared (float[b, 4, s, 8] query, float[b, t, 8] key, float[b, t, 8] value) => (float[b, 4, s, 8] y) <float scale = {0.35}> {
  w = Einsum <equation = "bhid,bjd->bhij"> (query, key) c = Mul(w, scale) p = Softmax <axis = -1> (c)
  y = Einsum <equation = "bhij,bjd->bhid"> (p, value) }"""


@pytest.mark.parametrize("target", ["onnxruntime", "standard", "function"])
@pytest.mark.parametrize("how", BROADCAST)
def test_keys_that_broadcast_never_give_an_operator_that_does_not_run(
    how: str, target: str, library: Library, tmp_path: Path
) -> None:
    model, fused = tmp_path / "model.onnx", tmp_path / "fused.onnx"
    keys, values = BROADCAST[how]
    onnx.save(onnx.parser.parse_model(SHARED.format(keys=keys, values=values)), model)
    fuse(model, fused, library, Options(verify=False, prefer="fusion", target=target))
    assert verify(model, fused).verdict == "equivalent"


BATCH_OF_TWO = """<ir_version: 9, opset_import: ["" : 20]>
shared (float[{queries}, s, 32] query, float[2, t, 32] key, float[2, t, 32] value) => (float[n, s, 32] y)
<float scale = {{0.35}}, int64[4] apart = {{0, 0, 4, 8}}, int64[3] joined = {{0, 0, 32}}> {{
  q4 = Reshape(query, apart) q = Transpose <perm = [0, 2, 1, 3]> (q4)
  k4 = Reshape(key, apart) k = Transpose <perm = [0, 2, 3, 1]> (k4)
  v4 = Reshape(value, apart) v = Transpose <perm = [0, 2, 1, 3]> (v4)
  w = MatMul(q, k) c = Mul(w, scale) p = Softmax <axis = -1> (c) o = MatMul(p, v)
  t4 = Transpose <perm = [0, 2, 1, 3]> (o) y = Reshape(t4, joined) }}"""


@pytest.mark.parametrize(("queries", "count"), [("b", 0), ("?", 1), ("2", 1)])
def test_a_named_batch_of_queries_may_be_one_beside_two_of_keys(
    queries: str, count: int, library: Library, tmp_path: Path
) -> None:
    """Then the products broadcast. A size without a name is one that the exporter did not know."""
    onnx.save(onnx.parser.parse_model(BATCH_OF_TWO.format(queries=queries)), tmp_path / "model.onnx")
    result = fuse(tmp_path / "model.onnx", None, library, Options(verify=False, dry_run=True))
    assert result.operators_after.get("Attention", 0) == count
    if not count:
        assert any("does not broadcast the batch, and its operands have b and 2" in skip.reason for skip in result.skipped)


@pytest.mark.parametrize("text", [SHARED.format(keys=BROADCAST["one head"][0], values=BROADCAST["one head"][1]), ONE_HEAD])
def test_one_head_of_keys_for_all_is_the_standards_attention(text: str, library: Library, tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    result = fuse(tmp_path / "model.onnx", None, library, Options(prefer="fusion", dry_run=True))
    assert result.operators_after["Attention"] == 1 and result.verdict.verdict == "equivalent"


def test_the_lowest_number_of_float16_is_raised_as_well(tmp_path: Path) -> None:
    """It is far above that of float32. Attention gives zeros for a row of it, where the original gives a mean."""
    body = "b = Where(keep, zero, low) s = MatMul(q, k) m = Add(s, b) p = Softmax(m) y = MatMul(p, v)"
    inputs = "float16[2, 4, 8, 16] q, float16[2, 4, 16, 8] k, float16[2, 4, 8, 16] v, bool[2, 1, 1, 8] keep"
    proto = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 23]> g ({inputs}) => (float16[2, 4, 8, 16] y) {{ {body} }}'
    )
    for name, number in (("zero", 0), ("low", np.finfo(np.float16).min)):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(number, np.float16), name))
    model, fused = tmp_path / "model.onnx", tmp_path / "fused.onnx"
    onnx.save(proto, model)
    fuse(model, fused, load_patterns(), Options(prefer="fusion", target="standard"))
    assert "Attention" in [node.op_type for node in onnx.load(fused).graph.node]
    draw = np.random.default_rng(0)
    shapes = {"q": (2, 4, 8, 16), "k": (2, 4, 16, 8), "v": (2, 4, 8, 16)}
    feeds = {name: draw.standard_normal(shape).astype(np.float16) for name, shape in shapes.items()}
    (found,) = onnxruntime.InferenceSession(fused, providers=["CPUExecutionProvider"]).run(
        None, feeds | {"keep": np.zeros((2, 1, 1, 8), bool)}
    )
    assert found.any()


SCALED = """
<ir_version: 8, opset_import: ["": 17]>
bart (float[b, s, 16] x, float[b, s, 16] k, float[b, s, 16] v, float[b, 1, s, s] mask) => (float[b, s, 16] y)
<float scale = {0.35355339}, int64[4] apart = {0, -1, 2, 8}> {
  q = Mul(x, scale)  shape = Shape(x)  zero = Constant <value_int = 0> ()  one = Constant <value_int = 1> ()
  n = Constant <value_ints = [-1]> ()  eight = Constant <value_ints = [8]> ()  two = Constant <value_ints = [2]> ()
  wide = Constant <value_ints = [16]> ()  first = Constant <value_ints = [0]> ()
  bs = Gather(shape, zero)  ss = Gather(shape, one)  b1 = Unsqueeze(bs, first)  s1 = Unsqueeze(ss, first)
  h1 = Mul(b1, two)  flat = Concat <axis = 0> (h1, s1, eight)  heads = Concat <axis = 0> (b1, two, s1, s1)
  weights = Concat <axis = 0> (h1, s1, s1)  back = Concat <axis = 0> (b1, two, s1, eight)
  whole = Concat <axis = 0> (b1, s1, wide)
  q4 = Reshape(q, apart)  qt = Transpose <perm = [0, 2, 1, 3]> (q4)  q3 = Reshape(qt, flat)
  k4 = Reshape(k, apart)  kt = Transpose <perm = [0, 2, 1, 3]> (k4)  k3 = Reshape(kt, flat)
  v4 = Reshape(v, apart)  vt = Transpose <perm = [0, 2, 1, 3]> (v4)  v3 = Reshape(vt, flat)
  kk = Transpose <perm = [0, 2, 1]> (k3)  scores = MatMul(q3, kk)  s4 = Reshape(scores, heads)  masked = Add(s4, mask)
  s3 = Reshape(masked, weights)  p = Softmax <axis = -1> (s3)  o = MatMul(p, v3)
  o4 = Reshape(o, back)  ot = Transpose <perm = [0, 2, 1, 3]> (o4)  y = Reshape(ot, whole)
}
"""


def test_the_scale_of_queries_is_taken_where_batch_and_heads_are_one_axis(library: Library, tmp_path: Path) -> None:
    """As in BART: the queries are scaled before their heads are told apart."""
    onnx.save(onnx.parser.parse_model(SCALED), tmp_path / "model.onnx")
    result = fuse(tmp_path / "model.onnx", None, library, Options(prefer="fusion", dry_run=True))
    assert result.operators_after["Attention"] == 1 and not {"Mul", "Reshape", "Transpose"} & result.operators_after.keys()
    assert result.verdict.verdict == "equivalent"


MULTIHEAD = """
<ir_version: 8, opset_import: ["": 18]>
multihead (float[b, s, 16] x) => (float[b, s, 16] y)
<float scale = {0.35355339}, float one = {1}, float low = {-1e38}, int64 next = {1}, int64 first = {0}, int64 second = {1},
 int64 third = {2}> {
  bs = Shape <start = 0, end = 1> (x)  ss = Shape <start = 1, end = 2> (x)  t = Transpose <perm = [1, 0, 2]> (x)
  three = Constant <value_ints = [3]> ()  wide = Constant <value_ints = [16]> ()  size = Constant <value_ints = [8]> ()
  two = Constant <value_ints = [2]> ()  rows = Constant <value_ints = [-1, 16]> ()  zero = Constant <value_ints = [0]> ()
  m = MatMul (t, w)  h = Add (m, bias)  parts = Concat <axis = 0> (ss, bs, three, wide)  r = Reshape (h, parts)
  p = Transpose <perm = [2, 0, 1, 3]> (r)  q = Gather (p, first)  k = Gather (p, second)  v = Gather (p, third)
  bh = Mul (bs, two)  heads = Concat <axis = 0> (ss, bh, size)
  q1 = Reshape (q, heads)  q2 = Transpose <perm = [1, 0, 2]> (q1)  q3 = Mul (q2, scale)
  k1 = Reshape (k, heads)  k2 = Transpose <perm = [1, 2, 0]> (k1)  v1 = Reshape (v, heads)  v2 = Transpose <perm = [1, 0, 2]> (v1)
  square = Concat <axis = 0> (ss, ss)  ones = Expand (one, square)  above = Trilu (ones, next)  mask = Mul (above, low)
  all = Unsqueeze (mask, zero)  scores = MatMul (q3, k2)  masked = Add (scores, all)  weights = Softmax <axis = -1> (masked)
  o = MatMul (weights, v2)  o1 = Transpose <perm = [1, 0, 2]> (o)  o2 = Reshape (o1, rows)
  g = Gemm <transB = 1> (o2, w_out, bias_out)
  back = Concat <axis = 0> (ss, bs, wide)  y1 = Reshape (g, back)  y = Transpose <perm = [1, 0, 2]> (y1)
}
"""


def test_a_factor_behind_each_projection_is_folded_before_they_are_packed(library: Library, tmp_path: Path) -> None:
    """As MobileBERT's, which has such a factor and addend in the place of LayerNorm."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
    projections (float[2, 16, 64] x) => (float[2, 16, 64] q, float[2, 16, 64] k, float[2, 16, 64] v) {
      q1 = MatMul (x, wq)  q2 = Add (q1, b)  q3 = Mul (q2, f)  q = Add (q3, a)  k1 = MatMul (x, wk)  k2 = Add (k1, b)
      k3 = Mul (k2, f)  k = Add (k3, a)  v1 = MatMul (x, wv)  v = Add (v1, b) }""")
    draw = np.random.default_rng(0)
    for name, shape in {"wq": (64, 64), "wk": (64, 64), "wv": (64, 64), "a": (64,), "b": (64,), "f": (64,)}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(draw.standard_normal(shape).astype(np.float32), name))
    onnx.save(model, tmp_path / "model.onnx")
    result = fuse(tmp_path / "model.onnx", tmp_path / "fused.onnx", library, Options(prefer="fusion", target="standard"))
    assert result.verdict.verdict == "equivalent"
    left = [node.op_type for node in onnx.load(tmp_path / "fused.onnx").graph.node]
    assert sorted(left) == ["Add", "MatMul", "Split"]


def test_torchs_multihead_attention_becomes_one_packed_operator(library: Library, tmp_path: Path) -> None:
    """As torch.nn.MultiheadAttention(batch_first=True) is exported for inputs of any size, with weights and a causal mask."""
    model = onnx.parser.parse_model(MULTIHEAD)
    draw = np.random.default_rng(0)
    for name, shape in {"w": (16, 48), "bias": (48,), "w_out": (16, 16), "bias_out": (16,)}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(draw.standard_normal(shape).astype(np.float32), name))
    onnx.save(model, tmp_path / "model.onnx")
    result = fuse(tmp_path / "model.onnx", tmp_path / "fused.onnx", library, Options(prefer="fusion"))
    assert result.verdict.verdict == "equivalent"
    left = onnx.load(tmp_path / "fused.onnx").graph.node
    (attention,) = [node for node in left if node.op_type == "Attention"]
    assert attention.domain == "com.microsoft" and attention.input[:2] == ["x", "w"]
    assert {a.name: a.i for a in attention.attribute if a.name in ("num_heads", "unidirectional")} == {
        "num_heads": 2,
        "unidirectional": 1,
    }
    assert not {"Transpose", "Trilu", "Softmax"} & {node.op_type for node in left}
