"""Einsums as matrix products: the same numbers, found by every pattern, and put back exactly as they were."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_subgraph import FuseResult, Options, fuse, load_patterns
from onnx_subgraph.language.library import Library
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.rewriting.einsum import put_back, write_as_products
from onnx_subgraph.rewriting.equation import product_of
from onnx_subgraph.simplification.simplify import simplify
from tests.rewriting.stage import run

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[{first}] a, float[{second}] b) => (float[{result}] y) {{ [sum] y = Einsum <equation = "{equation}"> (a, b) }}"""
SIZES = {"b": 2, "c": 3, "i": 4, "j": 5, "k": 6, "l": 2, "m": 3, "n": 4}


def read(text: str) -> ir.Model:
    model = ir.from_onnx_text(text)
    infer_shapes(model)
    return model


def operators(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph if node.op_type != "Constant"]


@pytest.fixture(scope="module")
def library() -> Library:
    return load_patterns()


@st.composite
def products(draw: st.DrawFn) -> tuple[str, str, str]:
    """The axes of two operands and of a product of them, in any order."""
    batch, inner = draw(st.sampled_from(["", "b", "bc"])), draw(st.sampled_from(["k", "kl"]))
    rows, columns = draw(st.sampled_from(["i", "ij"])), draw(st.sampled_from(["m", "mn"]))

    def shuffled(letters: str) -> str:
        return "".join(draw(st.permutations(letters)))

    return shuffled(batch + rows + inner), shuffled(batch + inner + columns), shuffled(batch + rows + columns)


@given(products(), st.sets(st.sampled_from(sorted(SIZES))), st.sampled_from([12, 13, 17]))
def test_a_product_computes_the_einsum_and_is_put_back(letters: tuple[str, str, str], dynamic: set[str], opset: int) -> None:
    first, second, result = letters
    equation = f"{first},{second}->{result}"
    shapes = [", ".join(f"d{c}" if c in dynamic else str(SIZES[c]) for c in side) for side in letters]
    text = MODEL.format(first=shapes[0], second=shapes[1], result=shapes[2], equation=equation)
    model = read(text.replace('"" : 17', f'"" : {opset}'))
    before = ir.to_proto(model).SerializeToString()
    a, b = (np.arange(np.prod([SIZES[c] for c in side])).reshape([SIZES[c] for c in side]) for side in letters[:2])
    feeds = {"a": (a % 7).astype(np.float32), "b": (b % 5).astype(np.float32)}
    if write_as_products(model):
        assert "MatMul" in operators(model) and "Einsum" not in operators(model)
        (found,) = run(ir.to_proto(model), feeds)
        np.testing.assert_array_equal(found, np.einsum(equation, feeds["a"], feeds["b"]))
        infer_shapes(model)  # finds no contradiction
        put_back(model)
    else:
        assert dynamic
    assert ir.to_proto(model).SerializeToString() == before


@pytest.mark.parametrize(
    ("equation", "first", "second", "result"),
    [
        ("...ik,...jk->...ij", "2, 3, 4, 5", "3, 6, 5", "2, 3, 4, 6"),  # the second has fewer axes
        ("b...k,bkm->b...m", "2, 3, 4, 5", "2, 5, 6", "2, 3, 4, 6"),
        ("ik,kj", "4, 5", "5, 6", "4, 6"),
        ("...ik,...kj", "2, 3, 4, 5", "2, 3, 5, 6", "2, 3, 4, 6"),
        ("...ik,...jk->...ij", "2, 1, 4, 5", "1, 3, 6, 5", "2, 3, 4, 6"),
    ],
)
def test_an_ellipsis_and_an_equation_without_result(
    equation: str, first: str, second: str, result: str, draw: Callable[..., np.ndarray]
) -> None:
    model = read(MODEL.format(first=first, second=second, result=result, equation=equation))
    feeds = {name: draw(*map(int, shape.split(","))) for name, shape in (("a", first), ("b", second))}
    assert write_as_products(model)
    np.testing.assert_allclose(
        run(ir.to_proto(model), feeds)[0], np.einsum(equation, feeds["a"], feeds["b"]), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize(
    ("equation", "ranks"),
    [
        ("ij,jk->k", (2, 2)),  # i is summed in one operand alone
        ("iik,kj->ij", (3, 2)),  # a diagonal
        ("bk,bk->b", (2, 2)),  # factors would be vectors
        ("ij,j->i", (2, 1)),
        ("i,j->ij", (1, 1)),  # no axis is summed
        ("bi,bj->bij", (2, 2)),
        ("ij,jk,kl->il", (2, 2)),
        ("ij->ji", (2, 2)),
        ("ik,kj->ij->", (2, 2)),
        ("ik,kj->ij", (3, 2)),  # not the rank of the operand
        ("i1,1j->ij", (2, 2)),
        ("...ik,...kj->ij", (3, 3)),  # the axes of the ellipsis are summed
    ],
)
def test_other_equations_are_no_product(equation: str, ranks: tuple[int, int]) -> None:
    assert product_of(equation, *ranks) is None


TURNED = """<ir_version: 8, opset_import: ["" : 17]> g (float[3, 2, 4] x, float[4, 5] w) => (float[2, 3, 5] y) {
  t = Transpose <perm = [1, 2, 0]> (x) y = Einsum <equation = "bds,de->bse"> (t, w) }"""


def fed(model: ir.Model, weight: tuple[int, ...] = (4, 5)) -> np.ndarray:
    draw = np.random.default_rng(0).standard_normal
    feeds = {"x": draw((3, 2, 4)).astype(np.float32), "w": draw(weight).astype(np.float32)}
    return np.asarray(run(ir.to_proto(model), feeds)[0])


def test_a_transpose_that_was_joined_with_the_models_own_is_not_taken_for_its_step() -> None:
    """Simplification gives the joined Transpose the keys of the last one."""
    model, wanted = read(TURNED), fed(read(TURNED))
    assert write_as_products(model)
    infer_shapes(model)
    assert simplify(model).simpler
    put_back(model)
    np.testing.assert_allclose(fed(model), wanted, rtol=1e-5)


@pytest.mark.parametrize("operator", ["MatMul", "Transpose", "Reshape"])
def test_a_node_with_the_keys_of_another_is_not_taken_for_it(operator: str) -> None:
    """What replaces a node may be several nodes, and all have its keys."""
    text = (
        TURNED.replace("bds,de->bse", "bds,dhe->bshe")
        .replace("float[4, 5] w", "float[4, 5, 1] w")
        .replace("3, 5] y", "3, 5, 1] y")
    )
    model, wanted = read(text), fed(read(text), (4, 5, 1))
    assert write_as_products(model)
    product = next(node for node in model.graph if node.op_type == "MatMul")
    makers = [None if value is None else value.producer() for value in product.inputs]
    index = next((i for i, maker in enumerate(makers) if maker is not None and maker.op_type == operator), 0)
    keeper = product if operator == "MatMul" else makers[index]
    assert keeper is not None and keeper.op_type == operator
    between = ir.Node("", "Identity", [product.inputs[index]], name="between")
    between.meta.update(keeper.meta)
    model.graph.insert_before(product, between)
    product.replace_input_with(index, between.outputs[0])
    put_back(model)
    np.testing.assert_allclose(fed(model, (4, 5, 1)), wanted, rtol=1e-5)


def test_a_product_with_another_reader_is_not_computed_twice() -> None:
    model = read(MODEL.format(first="2, 3, 5", second="3, 2, 4", result="5, 2, 4", equation="bki,kbj->ibj"))
    assert write_as_products(model)
    product = next(node for node in model.graph if node.op_type == "MatMul")
    assert [use.node.op_type for use in product.outputs[0].uses()] == ["Transpose"]
    model.graph.append(ir.node("Relu", product.outputs))
    put_back(model)
    assert "Einsum" not in operators(model) and operators(model).count("MatMul") == 1


def test_a_summed_axis_that_broadcasts_stays_an_einsum() -> None:
    model = read(MODEL.format(first="2, 1", second="3, 4", result="2, 4", equation="ik,kj->ij"))
    assert not write_as_products(model)


LAYER = """<ir_version: 8, opset_import: ["" : 17]>
g (float[n, s, 32] x, float[n, t, 32] z) => (float[n, s, 32] y, float[n, s, t] between)
  <int64[4] apart = {0, 0, 4, 8}, int64[3] flat = {0, 0, 32}, float half = {0.5}, float scale = {0.35355338}> {
    half_x = Mul(x, half)
    relu = Relu(half_x)
    q = Reshape(relu, apart)
    k = Reshape(z, apart)
    [scores] raw = Einsum <equation = "bihd,bjhd->bhij"> (q, k)
    scaled = Mul(raw, scale)
    p = Softmax <axis = -1> (scaled)
    [values] o = Einsum <equation = "bhij,bjhd->bihd"> (p, k)
    y = Reshape(o, flat)
    [other] between = Einsum <equation = "bid,bjd->bij"> (x, z)
  }"""
"""Attention as einsums, and an Einsum that nothing fuses."""


def test_attention_of_einsums_is_fused_and_named_as_in_the_file(library: Library, tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(LAYER), tmp_path / "model.onnx")
    options = Options(prefer="fusion", skip=("fused-matmul",))
    result = fuse(tmp_path / "model.onnx", tmp_path / "fused.onnx", library, options)
    (attention,) = [rewrite for rewrite in result.rewrites if rewrite.pattern == "multi-head-attention"]
    assert {"scores", "values"} < set(attention.replaces) and not any("__" in name for name in attention.replaces)
    assert result.verdict.verdict == "equivalent"
    (kept,) = [node for node in onnx.load(tmp_path / "fused.onnx").graph.node if node.op_type == "Einsum"]
    assert (kept.name, list(kept.input), list(kept.output)) == ("other", ["x", "z"], ["between"])


@pytest.mark.parametrize("weights", ["bhij", "bihj"])
@pytest.mark.parametrize("last", ["bihd", "bhid"])
@pytest.mark.parametrize("length", ["5", "s"])
def test_keys_that_all_heads_share_are_found_in_any_order_of_the_axes(
    weights: str, last: str, length: str, library: Library, tmp_path: Path
) -> None:
    """Multi-query attention as Shazeer wrote it. The rows of the second product are heads and positions, in either order."""
    moved = "" if last == "bihd" else "m = Transpose <perm = [0, 2, 1, 3]> (o)"
    text = f"""<ir_version: 10, opset_import: ["" : 23]>
    g (float[n, {length}, 32] x, float[n, t, 8] k, float[n, t, 8] v) => (float[n, {length}, 32] y)
      <int64[4] apart = {{0, 0, 4, 8}}, int64[3] flat = {{0, 0, 32}}, float scale = {{0.35355338}}> {{
        q = Reshape(x, apart)
        raw = Einsum <equation = "bihd,bjd->{weights}"> (q, k)
        scaled = Mul(raw, scale)
        p = Softmax <axis = -1> (scaled)
        o = Einsum <equation = "{weights},bjd->{last}"> (p, v)
        {moved}  y = Reshape({"m" if moved else "o"}, flat)
      }}"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    result = fuse(tmp_path / "model.onnx", tmp_path / "fused.onnx", library, Options())
    assert "multi-head-attention" in [rewrite.pattern for rewrite in result.rewrites]
    assert result.verdict.verdict == "equivalent"
    assert "Softmax" not in [node.op_type for node in onnx.load(tmp_path / "fused.onnx").graph.node]


def test_a_model_in_which_nothing_is_fused_is_copied(library: Library, tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(MODEL.format(first="2, 3", second="3, 4", result="2, 4", equation="ik,kj->ij")), model)
    result = fuse(model, tmp_path / "fused.onnx", library, Options())
    assert result.unchanged and (tmp_path / "fused.onnx").read_bytes() == model.read_bytes()


OWN = """id: own-sum
summary: Scores of positive operands
match: |
  y = Einsum(Relu(Relu(a)), b, equation="bihd,bjhd->bhij")
replace:
  standard: |
    y = Einsum(Relu(a), b, equation="bihd,bjhd->bhij")
example: {a: "float32[2, 3, 4, 8]", b: "float32[2, 3, 4, 8]"}
"""


def with_own_sum(folder: Path, activation: str) -> FuseResult:
    """Fuse an Einsum of a Relu and this activation with the user's pattern, which asks for two Relus."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[n, s, 4, 8] x, float[n, t, 4, 8] z) => (float[n, 4, s, t] y) {{
      q = Relu(x) r = {activation}(q) y = Einsum <equation = "bihd,bjhd->bhij"> (r, z) }}"""
    onnx.save(onnx.parser.parse_model(text), folder / "model.onnx")
    (folder / "own_sum.yaml").write_text(OWN)
    library = load_patterns((folder / "own_sum.yaml",))
    return fuse(folder / "model.onnx", None, library, Options(prefer="fusion", dry_run=True, thorough=True))


@pytest.mark.parametrize("equation", ["bsd,de->bse", "bsd,de->bes", "sbd,de->bse"])
def test_an_einsum_of_which_one_row_is_read_is_computed_for_the_row(library: Library, tmp_path: Path, equation: str) -> None:
    """The nodes in front of it, which take the row, are not taken for it when it is put back."""
    axis = equation.partition("->")[2].index("s")
    text = f'''<ir_version: 8, opset_import: ["" : 17]> g (float[3, 3, 4] x, float[4, 5] w) => (float[p, q] y, float[m] z)
      <int64 first = {{0}}> {{ r = Relu (x) e = Einsum <equation = "{equation}"> (r, w) s = Softsign (e)
      y = Gather <axis = {axis}> (s, first) z = ReduceMax <keepdims = 0, axes = [1, 2]> (r) }}'''
    model = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), model)
    result = fuse(model, tmp_path / "fused.onnx", library, Options())
    assert result.verdict is not None and result.verdict.verdict == "equivalent" and result.simplified.narrowed >= 2
    assert {node.op_type for node in onnx.load(tmp_path / "fused.onnx").graph.node} & {"Einsum", "MatMul"}


def test_a_pattern_of_the_user_can_name_an_einsum(tmp_path: Path) -> None:
    assert "own-sum" in {rewrite.pattern for rewrite in with_own_sum(tmp_path, "Relu").rewrites}


def test_a_pattern_with_an_einsum_says_why_it_does_not_match(tmp_path: Path) -> None:
    misses = with_own_sum(tmp_path, "Neg").near_misses
    assert "Neg" in {miss.found.split()[-1] for miss in misses if miss.pattern == "own-sum"}


INSIDE = """<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
g (float[2, 5, 32] x, bool deep) => (float[2, 5, 32] y) {
    y = If (deep) <
        then_branch = a () => (float[2, 5, 32] p) { p = local.attention(x) },
        else_branch = b () => (float[2, 5, 32] q) {
            w = Einsum <equation = "bid,bjd->bij"> (x, x)
            s = Softmax <axis = -1> (w)
            q = Einsum <equation = "bij,bjd->bid"> (s, x)
        }>
}
<domain: "local", opset_import: ["" : 17]>
attention (x) => (y) {
    w = Einsum <equation = "bid,bjd->bij"> (x, x)
    s = Softmax <axis = -1> (w)
    y = Einsum <equation = "bij,bjd->bid"> (s, x)
}"""


def test_einsums_in_branches_and_functions_are_found_or_stay(library: Library, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(INSIDE)
    onnx.save(model, tmp_path / "model.onnx")
    result = fuse(tmp_path / "model.onnx", tmp_path / "fused.onnx", library, Options(prefer="fusion"))
    assert result.verdict.verdict == "equivalent" and "multi-head-attention" in {r.pattern for r in result.rewrites}
    fused = onnx.load(tmp_path / "fused.onnx")
    left = [node.op_type for function in fused.functions for node in function.node]
    assert "MatMul" not in left, "the shapes in a function are not known, so its einsums stay"
