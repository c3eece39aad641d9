"""mine(): repeated units are found whole and in any spelling, and units covered by a pattern are left out."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_subgraph.language.library import load_patterns
from onnx_subgraph.mining.mine import Mined, Occurrence, mine
from onnx_subgraph.model.nested import reads
from tests.mining.models import Layer, network, otherwise, saved, spelled

LIBRARY = load_patterns()
SAMPLES = sorted((Path(__file__).parents[2] / "sample_models").glob("*.onnx"))


def mined(folder: Path, *texts: str) -> Mined:
    return mine([saved(folder / f"m{i}.onnx", text) for i, text in enumerate(texts)], LIBRARY)


def test_a_unit_is_found_whole_and_its_numbers_have_names(tmp_path: Path) -> None:
    (unit,) = mined(tmp_path, network(spelled, spelled, spelled)).units
    assert unit.times == 3 and unit.nodes == 5
    assert str(unit.formula) == "y = b * Sin(a * x) ** 2 + x"
    assert set(unit.formula.numbers) == {"a", "b"}, "a number of a layer became a part of the formula"


@given(st.lists(st.sampled_from([spelled, otherwise]), min_size=2, max_size=5))
@settings(max_examples=20, deadline=None)
def test_a_unit_has_one_key_in_every_spelling(tmp_path_factory: pytest.TempPathFactory, layers: list[Layer]) -> None:
    folder = tmp_path_factory.mktemp("mined")
    plain, mixed = network(*[spelled] * len(layers)), network(*layers)
    (unit,) = mined(folder, mixed).units
    assert unit.times == len(layers)
    (together,) = mined(folder, plain, mixed).units
    assert together.times == 2 * len(layers)


def sliced(first: tuple[int, int], second: tuple[int, int], step: int = 1) -> str:
    bounds = zip("abcd", (*first, *second), strict=True)
    constants = ", ".join(f"int64[1] {name} = {{{number}}}" for name, number in (*bounds, ("axis", 1), ("step", step)))
    return f"""<ir_version: 8, opset_import: ["" : 17]> g (float[3, 8] x) => (float[3, n] y) <{constants}> {{
      p = Slice (x, a, b, axis, step) q = Slice (x, c, d, axis, step) s = Sin (p) t = Cos (q) y = Mul (s, t)
    }}"""


@pytest.mark.parametrize("second", [(4, 8), (-4, 8), (4, 2**63 - 1)])
def test_slices_that_make_up_a_value_are_its_parts(second: tuple[int, int], tmp_path: Path) -> None:
    split = """<ir_version: 8, opset_import: ["" : 13]> g (float[3, 8] x) => (float[3, 4] y) {
      p, q = Split <axis = 1> (x) s = Sin (p) t = Cos (q) y = Mul (s, t)
    }"""
    (unit,) = mined(tmp_path, sliced((0, 4), second), split).units
    assert unit.times == 2 and str(unit.formula) == "t1, t2 = split(x, axis=-1, parts=2)\ny = Sin(t1) * Cos(t2)"


@pytest.mark.parametrize(
    ("first", "second", "step"),
    [((0, 3), (5, 8), 1), ((0, 3), (3, 6), 1), ((0, 5), (3, 8), 1), ((1, 4), (5, 8), 1), ((0, 4), (4, 8), 2)],
    ids=["a gap", "an end that is missing", "an overlap", "a start that is missing", "every second"],
)
def test_slices_that_do_not_make_up_a_value_are_not_its_parts(
    first: tuple[int, int], second: tuple[int, int], step: int, tmp_path: Path
) -> None:
    (unit,) = mined(tmp_path, sliced(first, second, step)).units
    assert "split" not in str(unit.formula) and str(unit.formula).count("Slice(x, ") == 2


def test_what_a_unit_would_save_is_its_traffic_without_what_enters_and_leaves(tmp_path: Path) -> None:
    """Of 96 bytes, Sin and Cos read and write each; Add reads two and writes one. As one node, they read one and write one."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[3, 8] x) => (float[3, 8] y) {
      s = Sin (x) c = Cos (s) y = Add (c, x)
    }"""
    (unit,) = mined(tmp_path, text).units
    assert (unit.traffic, unit.saved) == (7 * 96, 5 * 96)


def halved(n: int, x: str) -> str:
    return f"c{n} = Abs ({x}) e{n} = Exp (c{n}) z{n} = Div ({x}, e{n})"


def test_the_same_model_twice_has_the_shares_of_one(tmp_path: Path) -> None:
    text = network(spelled, spelled, halved)
    once, twice = mined(tmp_path, text).units, mined(tmp_path, text, text).units
    for one, both in zip(once, twice, strict=True):
        assert (both.traffic, both.saved, both.times) == (2 * one.traffic, 2 * one.saved, 2 * one.times)
        assert (both.share, both.saved_share) == pytest.approx((one.share, one.saved_share))
        assert one.saved_share / one.share == pytest.approx(one.saved / one.traffic) and one.share < 1


def test_measured_times_are_summed_over_all_places_and_rank_first(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.onnx", network(spelled, spelled, halved))
    nodes = onnx.load(path).graph.node
    times = {node.name: 5000.0 if node.op_type == "Exp" else 2.0 for node in nodes}
    found = mine([path], LIBRARY, profile=lambda _: times)
    assert [unit.milliseconds for unit in found.units] == [pytest.approx(5.004), pytest.approx(2 * 5 * 0.002)]
    assert found.units[0].saved < found.units[1].saved
    assert found.milliseconds == pytest.approx(5.0 + 0.002 * (len(nodes) - 1))


def test_a_model_that_can_not_be_read_is_told_and_the_others_are_mined(tmp_path: Path) -> None:
    good, bad = saved(tmp_path / "good.onnx", network(spelled, spelled)), tmp_path / "bad.onnx"
    bad.write_bytes(b"no model")
    told: list[Path] = []
    found = mine([good, bad], LIBRARY, failed=lambda path, error: told.append(path))
    assert told == [bad] and [unit.times for unit in found.units] == [2] and list(found.each) == [good]


@pytest.mark.parametrize(
    ("nodes", "formula"),
    [
        ("b = MatMul (s, w17)", None),
        ("b = MatMul (s, w16)", "Sin(x) @ w"),
        ("c = MatMul (s, w17) b = Add (c, bias)", None),
        ("b = MatMulInteger (q, r)", None),
        ("b = RandomNormalLike (s)", None),
        ("b = Add (s, far)", None),
        ("b = Mul (s, one)", "y = Exp(Sin(x))"),
        ("b = Reshape (s, shape)", "rearrange"),
    ],
)
def test_a_unit_ends_where_a_formula_can_not_say_a_step(nodes: str, formula: str | None, tmp_path: Path) -> None:
    """A product with a large weight, its bias, what is quantized, drawn or not finite."""
    n = 17 if "w17" in nodes else 16
    end = "y = Cast <to = 1> (b)" if "Integer" in nodes else "y = Exp (b)"
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[3, {n}] x) => (y)
      <int64[2] s16 = {{16, 16}}, int64[2] s17 = {{17, 17}}, int64[1] s1 = {{17}}, int64[3] shape = {{3,4,4}}, float one = {{1}}>
      {{ w16 = ConstantOfShape <value = float[1] {{0.5}}> (s16) w17 = ConstantOfShape <value = float[1] {{0.5}}> (s17)
      bias = ConstantOfShape <value = float[1] {{0.5}}> (s1) r = ConstantOfShape <value = int8[1] {{2}}> (s16)
      s = Sin (x) q = Cast <to = 3> (x) zero = Sub (one, one) far = Div (one, zero) {nodes} {end}
    }}"""
    formulas = [str(unit.formula) for unit in mined(tmp_path, text).units]
    assert (formulas == []) if formula is None else (formula in str(formulas)), formulas


def test_a_small_convolution_is_a_border_too(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[1, 8, 9, 9] x) => (y) <int64[4] shape = {8, 8, 1, 1}> {
      k = ConstantOfShape <value = float[1] {0.5}> (shape) s = Sin (x) c = Conv (s, k) y = Exp (c)
    }"""
    assert mined(tmp_path, text).units == ()


def test_what_only_moves_data_is_no_unit(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[3, 8] x) => (y) <int64[3] shape = {3, 2, 4}> {
      r = Reshape (x, shape) y = Transpose <perm = [1, 0, 2]> (r)
    }"""
    assert mined(tmp_path, text).units == ()


def test_no_unit_has_a_path_around_it(tmp_path: Path) -> None:
    """Between Sin and Add there is a product with a weight, which is in no unit."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[3, 64] x) => (y) <int64[2] shape = {64, 64}> {
      w = ConstantOfShape <value = float[1] {0.01}> (shape) s = Sin (x) p = MatMul (s, w) e = Exp (p) a = Add (s, e) y = Abs (a)
    }"""
    (unit,) = mined(tmp_path, text).units
    assert str(unit.formula) == "y = Abs(Exp(x) + z)"


def test_a_unit_is_no_longer_than_anybody_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnx_subgraph.mining.merging.MOST_ATOMS", 3)
    units = mined(tmp_path, network(spelled, spelled)).units
    assert units and all(len(one.atoms) <= 3 for unit in units for one in unit.occurrences)


def test_what_a_pattern_covers_is_not_mined(tmp_path: Path) -> None:
    def gelu(n: int, x: str) -> str:
        return f"d{n} = Div ({x}, root) e{n} = Erf (d{n}) s{n} = Add (e{n}, one) m{n} = Mul ({x}, s{n}) z{n} = Mul (m{n}, half)"

    text = network(gelu, gelu).replace("float two", "float root = {1.4142135}, float one = {1}, float half = {0.5}, float two")
    assert mined(tmp_path, text).units == ()


def test_a_unit_may_have_several_results(tmp_path: Path) -> None:
    def gate(n: int, x: str) -> str:
        return f"g{n} = Sin ({x}) k{n} = Exp (g{n}) h{n} = MatMul (g{n}, w) j{n} = MatMul (k{n}, w) z{n} = Add (h{n}, j{n})"

    units = mined(tmp_path, network(gate, gate)).units
    first = next(unit for unit in units if "Sin" in str(unit.formula))
    assert first.times == 2 and len(first.formula.results) == 2


def test_no_occurrence_is_lost_to_a_larger_unit(tmp_path: Path) -> None:
    """The same norm occurs three times, only twice behind a sum. So the sum is not part of the unit."""

    def norm(n: int, x: str) -> str:
        return f"c{n} = Abs ({x}) e{n} = Exp (c{n}) z{n} = Div ({x}, e{n})"

    def summed(n: int, x: str) -> str:
        return f"t{n} = Add ({x}, z{n - 1}) {norm(n, f't{n}')}"

    best = mined(tmp_path, network(norm, summed, summed)).units[0]
    assert best.times == 3 and best.nodes == 3


def test_a_repeated_part_inside_a_unit_is_no_unit_of_its_own(tmp_path: Path) -> None:
    def twice(n: int, x: str) -> str:
        return f"i{n} = Abs ({x}) j{n} = Exp (i{n}) c{n} = Softmax (j{n}) d{n} = Abs (c{n}) z{n} = Exp (d{n})"

    (unit,) = mined(tmp_path, network(twice, twice)).units
    assert unit.times == 2 and unit.nodes == 5


@pytest.mark.parametrize("path", SAMPLES[:8], ids=lambda path: path.stem)
def test_units_are_convex_and_do_not_overlap(path: Path) -> None:
    seen: set[int] = set()
    for unit in mine([path], LIBRARY).units:
        for one in unit.occurrences:
            assert seen.isdisjoint(map(id, one.nodes)), "two occurrences share a node"
            seen.update(map(id, one.nodes))
            assert not leaves_and_comes_back(one), f"{one.name}: a path leaves the unit and comes back"


def leaves_and_comes_back(one: Occurrence) -> bool:
    inside = set(one.nodes)
    outside = set()
    for node in one.place.view.nodes:
        sources = {v.producer() for v in reads(node)}
        if node in inside and sources & outside:
            return True
        if node not in inside and sources & (inside | outside):
            outside.add(node)
    return False


def test_mining_twice_gives_the_same(tmp_path: Path) -> None:
    text = network(spelled, otherwise, spelled)
    first, second = (mined(tmp_path, text) for _ in range(2))
    assert [(u.key, u.times, u.saved) for u in first.units] == [(u.key, u.times, u.saved) for u in second.units]


def test_a_fully_covered_model_has_no_units(tmp_path: Path) -> None:
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) { y = Abs (x) }')
    onnx.save(model, tmp_path / "m.onnx")
    assert mine([tmp_path / "m.onnx"], LIBRARY).units == ()


def test_a_root_of_a_quotient_with_a_negative_number_is_read(tmp_path: Path) -> None:
    """The root of the number alone would be no real one."""
    path = tmp_path / "m.onnx"
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[4] y) <float k = {-2.0}> {
        d = Div (k, x)  y = Sqrt (d) }"""
    onnx.save(onnx.parser.parse_model(text), path)
    assert mine([path], LIBRARY).nodes == 2


def test_a_unit_says_what_its_pattern_can_match(tmp_path: Path) -> None:
    """With axes, noop_with_empty_axes means nothing, and the matcher reads its default."""
    path = tmp_path / "m.onnx"
    text = """<ir_version: 8, opset_import: ["": 18]> g (float[4, 5] x) => (float[4] y, float[4, 5] z)
      <int64[1] last = {-1}> {
        a = Sin (x)  y = ReduceSum <keepdims = 0, noop_with_empty_axes = 1> (a, last)
        b = Cos (x)  z = ReduceSum <noop_with_empty_axes = 1> (b) }"""
    onnx.save(onnx.parser.parse_model(text), path)
    found = [str(unit.formula) for unit in mine([path], LIBRARY).units]
    assert any("ReduceSum" in formula and "axes=[-1]" in formula for formula in found), found
    assert not any("axes=[-1]" in formula and "noop_with_empty_axes" in formula for formula in found)


def test_no_unit_reads_strings(tmp_path: Path) -> None:
    """No proof draws them."""
    path = tmp_path / "m.onnx"
    text = """<ir_version: 8, opset_import: ["": 18, "ai.onnx.ml": 3]> g (string[4] s) => (float[4, 2] z) {
        a = ai.onnx.ml.OneHotEncoder <cats_strings = ["a", "b"], zeros = 1> (s)  z = Sin (a) }"""
    onnx.save(onnx.parser.parse_model(text), path)
    assert not any("OneHotEncoder" in str(unit.formula) for unit in mine([path], LIBRARY).units)
