"""new_pattern(): a pattern written from places proves, matches at least these places, and states what it relies on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

from onnx_subgraph.authoring import author
from onnx_subgraph.authoring.author import Authored, new_pattern
from onnx_subgraph.authoring.choosing import Chosen
from onnx_subgraph.errors import UsageError
from onnx_subgraph.language.library import load_patterns
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.language.reading import parse_pattern
from onnx_subgraph.matching.find import find
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.proving import Proof
from onnx_subgraph.proving.instance import build
from onnx_subgraph.proving.spelling import Spelling
from tests.mining.models import Layer, network, otherwise, saved, spelled

LIBRARY = load_patterns()
MINED = Chosen(mined=1)
FILE = Path("patterns/activation/wave.yaml")


def authored(path: Path, chosen: Chosen = MINED) -> Authored:
    return new_pattern([path], chosen, "wave", FILE, LIBRARY)


def times(made: Authored, text: str) -> int:
    """How often the pattern of the file, loaded again, matches in a model."""
    model = ir.from_onnx_text(text)
    infer_shapes(model)
    return len(find(model, [parse_pattern(made.text, str(FILE))]).matches)


def test_a_mined_unit_becomes_a_pattern_that_proves_and_finds_every_spelling(tmp_path: Path) -> None:
    made = authored(saved(tmp_path / "m.onnx", network(spelled, spelled, spelled)))
    assert made.holds and made.places == 3 and made.proof.targets["function"] > 5
    assert not replace(made, found={}).holds, "it has to be found where it was written from"
    assert times(made, network(otherwise, spelled, otherwise, otherwise)) == 4


def test_numbers_that_differ_become_names_and_equal_numbers_stay(tmp_path: Path) -> None:
    made = authored(saved(tmp_path / "m.onnx", network(spelled, spelled).replace("b1 = {3.25}", "b1 = {2.25}")))
    assert made.formula == "y = 0.444444444 * Sin(a * x) ** 2 + x"
    assert "a is a name: it is 1.5, 2.5 in 2 places." in made.grounds
    assert "0.444444444 is written out: the same in 2 places." in made.grounds
    changed = network(spelled, spelled).replace("b1 = {3.25}", "b1 = {7}").replace("b0 = {2.25}", "b0 = {9}")
    assert times(made, changed) == 0 and times(made, network(spelled)) == 1


def test_a_written_pattern_has_a_test_model_that_fuses_and_one_with_another_number_that_does_not(tmp_path: Path) -> None:
    made = authored(saved(tmp_path / "m.onnx", network(spelled)))
    (fuses,), (keeps,) = made.pattern.fuses, made.pattern.keeps
    assert times(made, fuses.model) == 1 and times(made, keeps.model) == 0
    assert keeps.why == "1.5 is a part of the formula, and 2.25 is another number" and "as in m.onnx" in fuses.why
    assert "place (float[batch,64] v0" in fuses.model
    assert "1.5, 0.444444444 are written out: as in 1 place." in made.grounds


@pytest.mark.parametrize("count", [5, 6])
def test_five_of_the_numbers_of_a_name_are_shown(count: int, tmp_path: Path) -> None:
    made = authored(saved(tmp_path / "m.onnx", network(*[spelled] * count)))
    more = ", …" if count > 5 else ""
    assert f"a is a name: it is 1.5, 2.5, 3.5, 4.5, 5.5{more} in {count} places." in made.grounds


def test_the_proof_with_the_fewest_failures_is_told_if_none_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = iter(("a b c", "a", "a b", "a b c d"))

    def fails(pattern: Pattern) -> Proof:
        return Proof(pattern.id, 1, tuple(next(failures).split()), {})

    monkeypatch.setattr(author, "prove", fails)
    assert authored(saved(tmp_path / "m.onnx", network(spelled))).proof.failures == ("a",)


@pytest.mark.parametrize(("opset", "version"), [(17, 8), (21, 10)])
def test_a_test_model_has_the_ir_version_of_its_opset(opset: int, version: int, tmp_path: Path) -> None:
    made = authored(saved(tmp_path / "m.onnx", network(spelled).replace("17]", f"{opset}]").replace("version: 8", "version: 10")))
    assert f"ir_version: {version}," in made.text


def test_an_absent_input_is_absent_in_the_test_model(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 18]> m (float[2, 3] a) => (y) <float top = {0.5}>
      { e = Sin(a) c = Clip(e, , top) y = Cos(c) }"""
    (fuses,) = authored(saved(tmp_path / "m.onnx", text)).pattern.fuses
    assert 'Clip (v1, "", v2)' in fuses.model


def test_several_results(tmp_path: Path) -> None:
    def gate(n: int, x: str) -> str:
        return f"g{n} = Sin ({x}) k{n} = Exp (g{n}) h{n} = MatMul (g{n}, w) j{n} = MatMul (k{n}, w) z{n} = Add (h{n}, j{n})"

    made = authored(saved(tmp_path / "m.onnx", network(gate, gate)))
    assert made.holds and len(made.pattern.results) == 2
    assert "y2, y are results: others read them." in made.grounds


HEADS = """<ir_version: 8, opset_import: ["" : 17]>
net (float[batch, seq, 64] a, float[batch, seq, 64] b, float[batch, seq, 64] c) => (float[batch, seq, 64] y)
<int64[4] heads = {0, 0, 4, 16}, int64[3] flat = {0, 0, 64}> {
  q4 = Reshape (a, heads) q = Transpose <perm = [0, 2, 1, 3]> (q4)
  k4 = Reshape (b, heads) k = Transpose <perm = [0, 2, 3, 1]> (k4)
  v4 = Reshape (c, heads) v = Transpose <perm = [0, 2, 1, 3]> (v4)
  s = MatMul (q, k) p = Softsign (s) o = MatMul (p, v)
  t = Transpose <perm = [0, 2, 1, 3]> (o) y = Reshape (t, flat)
}"""


def test_only_axes_that_the_computation_makes_equal_share_a_name(tmp_path: Path) -> None:
    """Queries and keys have different lengths, and keys and values different widths, although all are equal in this model."""
    path = saved(tmp_path / "m.onnx", HEADS)
    made = authored(path, Chosen(nodes=tuple(node.name for node in onnx.load(path).graph.node)))
    assert made.holds and made.formula == (
        't1 = rearrange(x, "i j (k l) -> i k j l") @ rearrange(z, "i m (k l) -> i k l m")\n'
        'y = rearrange(Softsign(t1) @ rearrange(u, "i m (k n) -> i k m n"), "i k j n -> i j (k n)")'
    )
    wider = HEADS.replace("seq, 64] c", "seq, 32] c").replace("seq, 64] y", "seq, 32] y").replace("{0, 0, 64}", "{0, 0, 32}")
    wider = wider.replace("Reshape (c, heads)", "Reshape (c, halves)").replace("> {", ", int64[4] halves = {0, 0, 4, 8}> {", 1)
    assert times(made, HEADS) == times(made, wider) == 1


def test_shared_keys_and_values_are_repetitions(tmp_path: Path) -> None:
    """Two heads of queries share a key and a value: the head axis of these is expanded and merged."""
    text = HEADS.replace("seq, 64] b", "seq, 32] b").replace("seq, 64] c", "seq, 32] c")
    text = text.replace("(b, heads)", "(b, few)").replace("(c, heads)", "(c, few)")
    shapes = "int64[4] few = {0, 0, 2, 16}, int64[5] twice = {1, 1, 2, 1, 1}, int64[4] merged = {0, 4, -1, 16}"
    text = text.replace("> {", f", {shapes}, int64[1] two = {{2}}> {{", 1)
    for one, perm in (("k", "0, 2, 3, 1"), ("v", "0, 2, 1, 3")):
        text = text.replace(
            f"{one} = Transpose <perm = [{perm}]> ({one}4)",
            f"{one}t = Transpose <perm = [0, 2, 1, 3]> ({one}4) {one}u = Unsqueeze ({one}t, two) {one}e = Expand ({one}u, twice) "
            f"{one}m = Reshape ({one}e, merged)" + (f" {one} = Transpose <perm = [0, 1, 3, 2]> ({one}m)" if one == "k" else ""),
        )
    text = text.replace("MatMul (p, v)", "MatMul (p, vm)")
    path = saved(tmp_path / "m.onnx", text)
    made = authored(path, Chosen(nodes=tuple(node.name for node in onnx.load(path).graph.node)))
    assert made.holds and times(made, text) == 1
    assert made.formula == (
        't1 = rearrange(x, "i j (k l) -> i k j l") @ repeat(z, "i m (n l) -> i (n o) l m")\n'
        'y = rearrange(Softsign(t1) @ repeat(u, "i m (n p) -> i (n o) m p"), "i q j p -> i j (q p)")'
    )


def test_a_factor_of_one_is_left_out(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    net (float[N, 8] x) => (float[N, 8] y) <float one = {1.0}> { m = Mul (one, x) s = Softsign (m) y = Mul (x, s) }"""
    made = authored(saved(tmp_path / "m.onnx", text), Chosen(nodes=("m", "s", "y")))
    assert made.holds and made.formula == "y = Softsign(x) * x"


def test_equal_axes_of_one_rearrangement_have_names_of_their_own(tmp_path: Path) -> None:
    """Scores of self-attention have the positions twice, and mix their heads by a product after a Transpose."""
    split = "a0, b0, c0 = Split <axis = -1> (a, thirds)"
    text = HEADS.replace("Softsign (s)", "Softsign (m)").replace(
        "s = MatMul (q, k)",
        """s = MatMul (q, k)
      f = Transpose <perm = [0, 2, 3, 1]> (s) g = MatMul (f, mix) m = Transpose <perm = [0, 3, 1, 2]> (g)""",
    )
    text = text.replace("64] a, float[batch, seq, 64] b, float[batch, seq, 64] c)", "192] a, float[4, 4] mix)")
    text = (
        text.replace("Reshape (a,", "Reshape (a0,").replace("Reshape (b,", "Reshape (b0,").replace("Reshape (c,", "Reshape (c0,")
    )
    text = text.replace("> {", ", int64[3] thirds = {64, 64, 64}> {" + split, 1)
    path = saved(tmp_path / "m.onnx", text)
    made = authored(path, Chosen(nodes=tuple(node.name for node in onnx.load(path).graph.node)))
    assert made.holds and made.formula.splitlines()[1:3] == [
        't4 = rearrange(t1, "i j (k l) -> i k j l") @ rearrange(t2, "i j (k l) -> i k l j")',
        't5 = rearrange(rearrange(t4, "i k j o -> i j o k") @ z, "i j o m -> i m j o")',
    ]


def test_from_one_node_to_another(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.onnx", network(spelled, spelled))
    names = [node.name for node in onnx.load(path).graph.node if node.op_type == "Sin"]
    last = [node.name for node in onnx.load(path).graph.node if node.op_type == "Div"]
    made = authored(path, Chosen(first=names[0], last=last[0]))
    assert made.holds and made.places == 1 and made.formula == "y = 0.444444444 * Sin(x) ** 2"
    with pytest.raises(UsageError, match="does not depend on"):
        authored(path, Chosen(first=last[0], last=names[0]))


ROUND_TRIP = ("mish", "hard-swish", "fast-gelu", "glu", "layer-normalization", "lp-normalization", "instance-normalization")


@pytest.mark.parametrize("name", ROUND_TRIP)
def test_an_instance_of_a_pattern_gives_a_pattern_that_finds_it(tmp_path: Path, name: str) -> None:
    """Round trip: an instance of a built-in pattern gives a new pattern, which proves and matches at least the instance."""
    instance = build(LIBRARY.get(name), Spelling())
    onnx.save(instance.proto, tmp_path / "m.onnx")
    made = authored(
        tmp_path / "m.onnx", Chosen(nodes=tuple(n.name for n in instance.proto.graph.node if n.op_type != "Constant"))
    )
    assert not made.proof.failures and sum(made.found.values()) >= 1


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (Chosen(mined=9), "1 unit was mined, and no rank 9"),
        (Chosen(nodes=("Sine_7",)), "has no node 'Sine_7'"),
        (Chosen(module="layer.*"), "no module"),
        (Chosen(nodes=("ConstantOfShape_0",)), "no formula can be written"),
    ],
)
def test_an_invalid_choice_is_an_error(tmp_path: Path, chosen: Chosen, message: str) -> None:
    layer: Layer = spelled
    with pytest.raises(UsageError, match=message):
        authored(saved(tmp_path / "m.onnx", network(layer, layer)), chosen)


@pytest.mark.parametrize(
    ("body", "changes"),
    [
        ("t = Transpose<perm = [0, 2, 1]>(s) y = Transpose<perm = [0, 2, 1]>(t)", False),
        ("t = Transpose<perm = [1, 2, 0]>(s) y = Transpose<perm = [2, 0, 1]>(t)", False),
        ("t = Transpose<perm = [1, 2, 0]>(s) y = Transpose<perm = [1, 2, 0]>(t)", True),
        ("t = Transpose<perm = [0, 2, 1]>(s) r = Relu(t) y = Transpose<perm = [0, 2, 1]>(r)", True),
    ],
)
def test_nodes_that_change_nothing_are_refused(tmp_path: Path, body: str, changes: bool) -> None:
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]> m (float[2, 3, 4] x) => (y) {{ s = Sin(x) {body} }}"""
    )
    for number, node in enumerate(model.graph.node):
        node.name = f"n{number}"
    onnx.save(onnx.shape_inference.infer_shapes(model), tmp_path / "m.onnx")
    chosen = Chosen(nodes=tuple(node.name for node in model.graph.node[1:]))
    if changes:
        assert not authored(tmp_path / "m.onnx", chosen).proof.failures
    else:
        with pytest.raises(UsageError, match="these nodes change nothing"):
            authored(tmp_path / "m.onnx", chosen)


BEFORE = """<ir_version: 8, opset_import: ["" : 18]> m (float[2, 3] a, float[2, 3] w, float[N, 6] b) => (y)
  <int64[1] last = {-1}, float[2] scales = {1, 2}, bool t = {1}> """
LEFT_OUT = {
    "what is compared": ("g = Greater(a, w) n = Not(g) y = Where(n, a, w)", "(Not): it computes bool"),
    "the first node": ("q = Resize(a, , scales) y = Sin(q)", "(Resize): its result follows from a shape"),
    "the last node": ("s = Sin(a) y = ArgMax<axis = 1, keepdims = 0>(s)", "(ArgMax): it computes int64"),
    "three nodes": (
        "g = Greater(a, w) n = Not(g) o = Not(n) y = Where(o, a, w)",
        "(Not): it computes bool, not floating-point values\n",
    ),
    "four nodes": ("g = Greater(a, w) n = Not(g) o = Not(n) p = Not(o) y = Where(p, a, w)", "values; and 1 more\n"),
    "a loop": (
        "q = Loop(, t, a)<body = g (int64 i, bool c, float[2, 3] s) => (bool c, float[2, 3] r) { r = Sin(s) }> y = Exp(q)",
        "(Loop): it has a body",
    ),
}


@pytest.mark.parametrize(("nodes", "said"), LEFT_OUT.values(), ids=LEFT_OUT)
def test_a_node_that_the_formula_would_leave_out_is_named(tmp_path: Path, nodes: str, said: str) -> None:
    path = saved(tmp_path / "m.onnx", f"{BEFORE}{{ {nodes} }}")
    names = tuple(node.output[0] for node in onnx.load(path).graph.node)
    for chosen in (Chosen(nodes=names), Chosen(first=names[0], last=names[-1])):
        with pytest.raises(UsageError, match="not all of these nodes can be written as a formula") as raised:
            authored(path, chosen)
        assert said in str(raised.value) and raised.value.hint


@pytest.mark.parametrize("name", ["a\nid: other", "a\x85b", "a\u2028b", "a\x01", "# a: [", "é"])
def test_any_name_of_a_node_can_be_written_into_the_file(name: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "m.onnx", BEFORE + "{ s = Sin(a) m = Mul(s, w) y = Erf(m) }")
    model = onnx.load(path)
    model.graph.node[-1].name = name
    onnx.save(model, path)
    made = authored(path)
    assert made.holds and made.pattern.id == "wave" and made.text.splitlines()[0].startswith("# Written from 1 place")


@pytest.mark.parametrize(("nodes", "is_joined"), [("s = Sin(a) c = Cos(a)", True), ("s = Sin(a) c = Cos(w)", False)])
def test_nodes_that_share_no_value_are_refused(nodes: str, is_joined: bool, tmp_path: Path) -> None:
    """The matcher goes from one node to the next through values."""
    path = saved(tmp_path / "m.onnx", f"{BEFORE}{{ {nodes} y = Pow(s, c) }}")
    if is_joined:
        assert authored(path, Chosen(nodes=("s", "c"))).holds
    else:
        with pytest.raises(UsageError, match="no value leads from some of these nodes to the others"):
            authored(path, Chosen(nodes=("s", "c")))


def test_an_operator_that_the_standard_has_no_longer_is_part_of_no_formula(tmp_path: Path) -> None:
    """No model of it can be made at the opset of a proof."""
    text = BEFORE.replace('"" : 18', '"" : 9') + "{ s = Sin(a) u = Upsample(s, scales) y = Erf(u) z = Cos(y) }"
    path = saved(tmp_path / "m.onnx", text.replace("=> (y)", "=> (z)"))
    with pytest.raises(UsageError, match=r"\(Upsample\): its operator was taken out of the standard"):
        authored(path, Chosen(nodes=("s", "u", "y")))
    assert "Upsample" not in authored(path).formula


def test_nodes_that_compute_a_shape_are_said_by_the_names_of_axes(tmp_path: Path) -> None:
    nodes = """h = Shape<end = 1>(b) i = Identity(h) j = Concat<axis = 0>(i, last) e = Exp(b) f = Reshape(e, j) y = Sin(f)"""
    made = authored(saved(tmp_path / "m.onnx", f"{BEFORE}{{ {nodes} }}"), Chosen(nodes=("h", "i", "j", "e", "f", "y")))
    assert made.holds and made.formula == "y = Sin(Exp(x))"


BESIDE = {
    "a copy at the end": "e = Sin(a) c = Cos(e) y = Identity(c)",
    "a copy at the beginning": "i = Identity(a) e = Sin(i) y = Cos(e)",
    "a constant": "k = Neg(three) e = Sin(a) m = Mul(e, k) y = Cos(m)",
}


@pytest.mark.parametrize("nodes", BESIDE.values(), ids=BESIDE)
def test_copies_and_constants_may_be_chosen_too(tmp_path: Path, nodes: str) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 18]> m (float[2, 3] a) => (y) <float[3] three = {{1, 2, 3}}> {{ {nodes} }}"""
    path = saved(tmp_path / "m.onnx", text)
    made = authored(path, Chosen(nodes=tuple(node.name for node in onnx.load(path).graph.node)))
    assert made.holds and made.formula.startswith("y = Cos(Sin(x)")


def test_a_name_is_that_of_a_node_before_that_of_a_value(tmp_path: Path) -> None:
    """Nodes without names are known by their results, and lie between others, too."""
    text = """<ir_version: 8, opset_import: ["" : 18]> m (float[2, 3] a) => (y)
      { [n] e = Sin(a) f = Exp(e) n = Erf(f) g = Cos(n) y = Tanh(g) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    assert authored(tmp_path / "m.onnx", Chosen(first="n", last="g")).formula == "y = Cos(Erf(Exp(Sin(x))))"


def test_a_module_may_have_nodes_that_the_formula_leaves_out(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.onnx", f"{BEFORE}{{ e = Sin(a) y = Cos(e) s = ArgMax(y) }}")
    model = onnx.load(path)
    for node in model.graph.node:
        node.name = f"/layer/curve/{node.op_type}"
    onnx.save(model, path)
    assert authored(path, Chosen(module="layer.curve")).formula == "y = Cos(Sin(x))"


def test_an_id_that_is_taken_is_refused_before_anything_is_proved(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.onnx", network(spelled))
    with pytest.raises(UsageError, match=r"the id 'gelu' is taken by .*gelu\.yaml"):
        new_pattern([path], MINED, "gelu", Path("gelu.yaml"), LIBRARY)


CURVE = "s{n} = Sin ({x}) q{n} = Mul (s{n}, s{n}) "
WHOLE = CURVE + "g{n} = Mul (q{n}, v) e{n} = Exp (g{n}) h{n} = Add (e{n}, m) {z} = Tanh (h{n})"
NO_FACTOR = CURVE + "e{n} = Exp (q{n}) h{n} = Add (e{n}, m) {z} = Tanh (h{n})"
NEITHER = CURVE + "e{n} = Exp (q{n}) {z} = Tanh (e{n})"


def curves(*texts: str) -> str:
    """Layers of these texts. `{x}` is the input of a layer, `{z}` its result and `{n}` its number."""

    def layer(text: str) -> Layer:
        return lambda n, x: text.format(x=x, z=f"z{n}", n=n)

    return network(*map(layer, texts)).replace("64] x)", "64] x, float[64] v, float[batch, 64] m)")


@pytest.mark.parametrize("order", [(WHOLE, WHOLE, NO_FACTOR, NO_FACTOR, NEITHER, NEITHER), (NEITHER, NEITHER, WHOLE, WHOLE)])
def test_items_that_some_places_lack_are_optional(tmp_path: Path, order: tuple[str, ...]) -> None:
    """The result is the same whichever unit is chosen: the pattern covers all of them."""
    made = authored(saved(tmp_path / "m.onnx", curves(*order)))
    assert made.formula == "y = Tanh(Exp(Sin(x) ** 2 * z?) + u?)"
    assert made.holds and made.places == len(order) and "z may be absent" in " ".join(made.grounds)
    for text in (WHOLE, NO_FACTOR, NEITHER):
        assert times(made, curves(text)) == 1
    assert len(made.pattern.fuses) == len(set(order))


@pytest.mark.parametrize("rank", [1, 2])
def test_three_items_may_be_absent_at_one_place(rank: int, tmp_path: Path) -> None:
    whole = "s{n} = Sin ({x}) g{n} = Mul (s{n}, v) e{n} = Exp (g{n}) h{n} = Add (e{n}, m) t{n} = Erf (h{n}) k{n} = Mul (t{n}, u) "
    lacking = "s{n} = Sin ({x}) e{n} = Exp (s{n}) t{n} = Erf (e{n}) {z} = Tanh (t{n})"
    text = curves(*[whole + "{z} = Tanh (k{n})"] * 2, *[lacking] * 2).replace("float[64] v", "float[64] v, float[64] u")
    made = authored(saved(tmp_path / "m.onnx", text), Chosen(mined=rank))
    assert made.holds and made.places == 4 and made.formula.count("?") == 3


def test_a_number_of_a_product_can_be_optional(tmp_path: Path) -> None:
    """What is left of the product has more than one factor."""
    bare = "s{n} = Sin ({x}) g{n} = Mul (s{n}, v) e{n} = Exp (g{n}) {z} = Tanh (e{n})"
    text = curves(
        *[bare.replace("Mul (s{n}, v)", "Mul (k{n}, v)").replace("g{n} =", "k{n} = Mul (s{n}, three) g{n} =")] * 2, bare, bare
    )
    made = authored(saved(tmp_path / "m.onnx", text.replace("float two", "float three = {3}, float two")))
    assert made.holds and made.places == 4 and made.formula == "y = Tanh(Exp(a? * Sin(x) * z))"
    assert times(made, curves(bare)) == 1


def test_items_of_other_units_are_theirs(tmp_path: Path) -> None:
    """A unit without optional items is written by itself, though others have such."""
    wave = "s{n} = Sin ({x}) q{n} = Mul (s{n}, v) f{n} = Erf (q{n}) {z} = Sub ({x}, f{n})"
    path = saved(tmp_path / "m.onnx", curves(WHOLE, WHOLE, NEITHER, NEITHER, wave, wave))
    formulas = {authored(path, Chosen(mined=rank)).formula for rank in (1, 2, 3)}
    assert formulas == {"y = Tanh(Exp(Sin(x) ** 2 * z?) + u?)", "y = x - Erf(Sin(x) * z)"}


ENDING = "s{n} = Sin ({x}) k{n} = Mul (s{n}, three) q{n} = Exp (k{n}) {z} = Add (q{n}, v)"
BARE = "s{n} = Sin ({x}) {z} = Exp (s{n})"


@pytest.mark.parametrize("order", [(ENDING, BARE, ENDING), (BARE, ENDING)])
def test_a_number_and_the_last_addend_can_be_optional(tmp_path: Path, order: tuple[str, ...]) -> None:
    """The rest of the sum is then the result of the layer; it does not count as a second result."""
    path = saved(tmp_path / "m.onnx", curves(*order).replace("float two", "float three = {3}, float two"))
    model = onnx.load(path)
    for node in model.graph.node:
        layer = node.output[0][1:]
        node.name = f"/layers.{layer}/curve/{node.op_type}" if layer.isdecimal() and node.op_type != "MatMul" else node.name
    onnx.save(model, path)
    made = authored(path, Chosen(module="layers.*.curve"))
    assert made.formula == "y = Exp(a? * Sin(x)) + z?" and made.pattern.results == ("y",)
    assert made.holds and made.places == len(order)
    assert times(made, curves(BARE)) == 1


def test_a_value_that_is_read_twice_is_not_optional_in_one_place(tmp_path: Path) -> None:
    """A name is absent everywhere or nowhere: `q * v? + v` is no formula."""
    both = CURVE + "g{n} = Mul (q{n}, v) h{n} = Add (g{n}, v) {z} = Tanh (h{n})"
    once = CURVE + "h{n} = Add (q{n}, v) {z} = Tanh (h{n})"
    made = authored(saved(tmp_path / "m.onnx", curves(both, both, once, once)))
    assert made.holds and made.places == 2 and "?" not in made.formula


LONE = {
    "an infinity ends a unit": "i = Where(m, inf, a) e = Exp(a) y = Add(e, i)",
    "a number that raises the rank is a constant": "e = Sin(a) y = Mul(e, high)",
    "a sum with 0 is no part": "e = Sin(a) f = Cos(e) n = Add(f, zero) y = Erf(n)",
    "a Reshape that changes nothing is no part": "e = Sin(a) n = Reshape(e, same) y = Erf(n)",
    "a Softmax over several axes ends a unit": "e = Sin(a) f = Cos(e) n = Softmax(f) y = Erf(n)",
    "a choice of two numbers": "n = Where(m, low, one) c = Clip(n, two, three) s = Sin(c) y = Mul(s, a)",
    "a number that can't be larger": "e = Sin(a) n = Add(e, low) y = Cos(n)",
    "a root of the input": "r = Sqrt(a) s = Sin(r) y = ReduceSum<axes = [0, 1, 2], keepdims = 0>(s)",
}


@pytest.mark.parametrize("nodes", LONE.values(), ids=LONE)
def test_a_pattern_of_a_single_place_proves_and_finds_it(nodes: str, tmp_path: Path) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 12]> m (float[2, 3, 4] a, bool[2, 3, 4] m) => (y)
      <float inf = {{-inf}}, float[1, 1, 1, 1] high = {{1.5}}, float zero = {{0}}, float one = {{-1}}, float two = {{-3}},
       float three = {{3}}, float low = {{-3.4e38}}, int64[3] same = {{2, 3, 4}}> {{ {nodes} }}"""
    made = authored(saved(tmp_path / "m.onnx", text))
    assert made.holds, (made.text, made.proof.failures, made.found)
    assert not any("inf" in case.model for case in made.pattern.keeps)


@pytest.mark.parametrize("exponent", ["2.02", "0.333333343", "1.7", "3"])
def test_an_exponent_is_the_decimal_that_its_type_stands_for(exponent: str, tmp_path: Path) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 17]> m (float[2, 3] a) => (y) <float p = {{{exponent}}}>
      {{ e = Exp(a) n = Pow(e, p) y = Sin(n) }}"""
    made = authored(saved(tmp_path / "m.onnx", text))
    assert made.holds and times(made, text) == 1
    assert not times(made, text.replace(f"{{{exponent}}}", f"{{{float(exponent) * 1.0005}}}"))


def test_sizes_that_nothing_declares_are_those_beside_them(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> m (float[2, 3, 4] a, float[p, q, r] b, float[s, t] c) => (y)
      { e = Sin(a) n = Mul(e, b) f = Erf(n) g = MatMul(f, c) y = Cos(g) }"""
    made = authored(saved(tmp_path / "m.onnx", text))
    assert made.holds and "b" not in made.formula
    shapes = {name: example.shape for name, example in made.pattern.example.items()}
    assert (2, 3, 4) in shapes.values()


def test_a_number_of_float64_has_all_its_digits(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> m (double[2, 3] a) => (y) <double six = {6}>
      { e = Sin(a) n = Div(e, six) y = Erf(n) }"""
    made = authored(saved(tmp_path / "m.onnx", text))
    assert made.holds and "0.16666666666666666 " in made.formula
