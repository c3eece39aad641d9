"""Canonical operators: several formulas raise to one operator, and its lowering for each target is written once."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnx_subgraph.errors import PatternError
from onnx_subgraph.language.library import headers, load_patterns
from onnx_subgraph.language.operator import CanonicalOperator
from onnx_subgraph.language.operator_reading import operator_of
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.language.reading import parse_pattern
from onnx_subgraph.language.shared import source_of
from onnx_subgraph.language.source import read_text

SWISH = """\
operator: Swish
summary: x · σ(alpha · x), which may be shifted
source: Ramachandran et al. 2017, https://arxiv.org/abs/1710.05941
inputs:
  x: "[…]"
  shift?: "[…]"
attributes:
  alpha: the factor of x in the Sigmoid
  twice?: 1 where the result is doubled
let: |
  factor = 2.0 if twice is not None else 1.0
definition: |
  s = Sigmoid(alpha * x)
  y = factor * x * s + shift
onnxruntime:
  - where: shift is None and twice is None
    lines: y = com.microsoft.QuickGelu(x, alpha=alpha)
  - |
    q = com.microsoft.QuickGelu(x, alpha=alpha)
    y = factor * q + shift
"""
FORMULA = """\
id: wide-swish
summary: x · σ(k · x)
match: |
  y = x * Sigmoid(k * x)
let: |
  alpha = k
raises: y = onnx_subgraph.Swish(x, alpha=alpha)
example: {x: "float32[2, 8]", k: 1.5}
"""


def operator(text: str = SWISH) -> CanonicalOperator:
    return operator_of(read_text(text, "patterns/operators/swish.yaml"), Path("patterns/operators/swish.yaml"))


def formula(text: str = FORMULA) -> Pattern:
    return parse_pattern(text, "patterns/group/wide_swish.yaml", {"Swish": operator()})


def test_a_formula_has_the_lowerings_of_its_operator() -> None:
    pattern = formula()
    first, second = pattern.blocks("onnxruntime")
    assert str(first) == "swish_x = x\ny = com.microsoft.QuickGelu(swish_x, alpha=swish_alpha)"
    assert "swish_q = com.microsoft.QuickGelu(swish_x, alpha=swish_alpha)" in str(second)
    assert {name: str(e) for name, e in pattern.let} == {
        "alpha": "k",
        "swish_alpha": "alpha",
        "swish_twice": "None",
        "swish_factor": "2.0 if swish_twice is not None else 1.0",
    }
    assert pattern.name == "Swish" and pattern.targets == ("onnxruntime", "function")


def test_a_condition_in_the_lines_of_an_operator_asks_about_its_attributes() -> None:
    lines = "y = alpha * com.microsoft.QuickGelu(x, alpha=alpha) if alpha > 1 else com.microsoft.QuickGelu(x, alpha=alpha)"
    text = SWISH[: SWISH.index("onnxruntime:")] + f"onnxruntime: {lines}\n"
    pattern = parse_pattern(FORMULA, "patterns/group/wide_swish.yaml", {"Swish": operator(text)})
    assert dict(pattern.let)["swish_alpha > 1"].text == "swish_alpha > 1"
    with pytest.raises(PatternError, match="`x` is not an attribute"):
        operator(text.replace("alpha > 1", "x.rank > 1"))


def test_a_replacement_in_the_formula_overrides_the_lowering() -> None:
    own = "replace:\n  onnxruntime: y = com.microsoft.QuickGelu(x, alpha=k)\nexample:"
    (block,) = formula(FORMULA.replace("example:", own)).blocks("onnxruntime")
    assert str(block) == "y = com.microsoft.QuickGelu(x, alpha=k)"


def test_a_lowering_is_left_out_if_it_can_not_take_an_argument() -> None:
    shifted = FORMULA.replace("y = x * Sigmoid(k * x)", "y = x * Sigmoid(k * x) + z").replace("Swish(x,", "Swish(x, z,")
    first, second = formula(shifted.replace('"float32[2, 8]"', '"float32[2, 8]", z: "float32[2, 8]"')).blocks("onnxruntime")
    assert "swish_shift" in first.requires.absent and "swish_shift = z" in str(second)


def test_a_lowering_is_left_out_if_it_needs_an_argument_that_is_not_given() -> None:
    text = SWISH.replace("  - |\n    q = com", "  - where: shift is not None\n    lines: |\n      q = com").replace(
        "    y = factor", "      y = factor"
    )
    (block,) = parse_pattern(FORMULA, "patterns/group/wide_swish.yaml", {"Swish": operator(text)}).blocks("onnxruntime")
    assert "QuickGelu(swish_x, alpha=swish_alpha)" in str(block) and "swish_q" not in str(block)


@pytest.mark.parametrize(
    ("written", "instead", "says"),
    [
        (
            "onnx_subgraph.Swish(x, alpha=alpha)",
            "onnx_subgraph.Swisch(x, alpha=alpha)",
            "`onnx_subgraph.Swisch` is not a canonical",
        ),
        ("onnx_subgraph.Swish(x, alpha=alpha)", "com.microsoft.QuickGelu(x, alpha=alpha)", "calls no canonical operator"),
        ("onnx_subgraph.Swish(x, alpha=alpha)", "Relu(onnx_subgraph.Swish(x, alpha=alpha))", "stands on a line of its own"),
        ("Swish(x, alpha=alpha)", "Swish(x)", "`Swish` needs `alpha`"),
        ("Swish(x, alpha=alpha)", "Swish(x, alpha=alpha, beta=alpha)", "`beta` is not an argument of `Swish`"),
        ("Swish(x, alpha=alpha)", "Swish(x, x, x, alpha=alpha)", "takes at most 2 inputs"),
        ("Swish(x, alpha=alpha)", "Swish(x, alpha=Relu(x))", "`alpha` is a number or a name"),
        ("raises: y = ", "raises: y, z = ", "has 1 results"),
    ],
)
def test_a_mistake_in_raises_is_shown_at_its_place(written: str, instead: str, says: str) -> None:
    with pytest.raises(PatternError, match=says) as error:
        formula(FORMULA.replace(written, instead))
    assert error.value.span is not None and error.value.span.file.endswith("wide_swish.yaml")


@pytest.mark.parametrize(
    ("written", "instead", "says"),
    [
        ("operator: Swish", "operator: swish", "is not an operator's name"),
        ("source: Ram", "sauce: Ram", "`sauce` is not a key"),
        ("factor = 2.0 if twice", "factor = 2.0 if x.rank", "`x` is not an attribute"),
        ("y = factor * q + shift", "y = factor * q + shaft", "`shaft` has no meaning here"),
        ("y = com.microsoft.QuickGelu", "z = com.microsoft.QuickGelu", "the lines don't give `y`"),
        ("where: shift is", "where: shaft is", "`shaft` is not an argument"),
        ("where: shift is None", "where: x.is_constant", "`.is_constant` is not a fact about an argument"),
        ("where: shift is None and twice is None", "without: [shift, twice]", "`without` has become a sentence"),
        ("lines: y", "line: y", "`line` is not a key of a lowering"),
        ('  shift?: "[…]"', '  Shift: "[…]"', "`Shift` is not a name"),
        ('  shift?: "[…]"', '  providers?: "[…]"', "`providers` is a word of the language"),
        ('  shift?: "[…]"', '  sqrt?: "[…]"', "`sqrt` is a word of the language"),
    ],
)
def test_a_mistake_in_an_operators_file_is_shown_at_its_place(written: str, instead: str, says: str) -> None:
    with pytest.raises(PatternError, match=says) as error:
        operator(SWISH.replace(written, instead))
    assert error.value.span is not None and error.value.span.file.endswith("swish.yaml")


@pytest.mark.parametrize(
    ("written", "instead", "says"),
    [
        ("s = Sigmoid(alpha * x)", "s = Sigmoyd(alpha * x)", "`Sigmoyd` is not an operator"),
        ("s = Sigmoid(alpha * x)", "s = com.microsoft.QuickGelu(alpha * x)", "is not an operator of the standard"),
        ("s = Sigmoid(alpha * x)", "s = Sigmoid(alpha * x, x)", "takes at most 1 input"),
        ("q = com.microsoft.QuickGelu(x, alpha=alpha)", "q = com.microsoft.QuickGelu(x, beta=alpha)", "`beta`"),
    ],
)
def test_an_operator_without_formulas_is_checked_against_the_schemas_too(
    written: str, instead: str, says: str, tmp_path: Path
) -> None:
    (tmp_path / "operators").mkdir()
    (tmp_path / "operators" / "swish.yaml").write_text(SWISH.replace(written, instead), encoding="utf-8")
    with pytest.raises(PatternError, match=says) as error:
        load_patterns(tmp_path)
    assert error.value.span is not None and error.value.span.file.endswith("swish.yaml")


def test_a_pack_may_define_an_operator_and_its_formulas(tmp_path: Path) -> None:
    (tmp_path / "operators").mkdir()
    (tmp_path / "operators" / "swish.yaml").write_text(SWISH, encoding="utf-8")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "wide_swish.yaml").write_text(FORMULA, encoding="utf-8")
    (tmp_path / "pack.yaml").write_text("name: mine\n", encoding="utf-8")
    library = load_patterns(tmp_path, built_in=False)
    assert [p.id for p in library.patterns] == ["wide-swish"] and list(library.operators) == ["Swish"]


SEVERAL = """\
formulas:
  match: |
    inner = k * x
    s = Sigmoid(inner)
    y = x * s
  where:
    - k > 0
  let: |
    alpha = k
    double = None if two is None else 1
  raises: |
    wide = onnx_subgraph.Swish(x, alpha=alpha, twice=double)
    y = Identity(wide)
  example: {x: "float32[2, 8]", k: 1.5, two: 2.0}
  each:
    - id: plain-swish
      summary: x · σ(k · x)
      raises: y = wide
    - id: double-swish
      summary: two · x · σ(k · x), computed from a quotient
      match: |
        inner = x / k
        y = x * s * two
      where: two == 2
      let: alpha = 1 / k
"""


def several(tmp_path: Path, text: str = SEVERAL) -> tuple[Pattern, ...]:
    (tmp_path / "swish.yaml").write_text(SWISH + text, encoding="utf-8")
    return load_patterns([tmp_path], built_in=False).patterns


def test_formulas_in_an_operators_file_share_unchanged_lines(tmp_path: Path) -> None:
    """A formula's own line replaces the shared one. A name that only another formula has is absent."""
    plain, double = several(tmp_path)
    assert [str(p.match).splitlines() for p in (plain, double)] == [
        ["inner = k * x", "s = Sigmoid(inner)", "y = x * s"],
        ["inner = x / k", "s = Sigmoid(inner)", "y = x * s * two"],
    ]
    assert [[str(e) for e in p.where] for p in (plain, double)] == [["k > 0"], ["k > 0", "two == 2"]]
    lets = [{name: str(e) for name, e in p.let} for p in (plain, double)]
    assert (lets[0]["two"], lets[0]["alpha"], "two" in lets[1], lets[1]["alpha"]) == ("None", "k", False, "1 / k")
    assert [set(p.example) for p in (plain, double)] == [{"x", "k"}, {"x", "k", "two"}]
    assert [str(p.raised.after[-1]) for p in (plain, double) if p.raised] == ["y = wide", "y = Identity(wide)"]
    assert [(p.id, p.group, p.name) for p in (plain, double)] == [
        (i, tmp_path.name, "Swish") for i in ("plain-swish", "double-swish")
    ]
    assert [(h.id, h.targets) for h in headers([tmp_path], built_in=False)] == [(p.id, p.targets) for p in (plain, double)]


def test_the_source_of_a_shared_formula_is_a_complete_pattern_file(tmp_path: Path) -> None:
    known = {"Swish": operator()}
    for pattern in several(tmp_path):
        text = source_of(Path(pattern.file), pattern.id)
        again = parse_pattern(text, f"patterns/group/{pattern.id.replace('-', '_')}.yaml", known)
        assert (again.match, again.replace, again.example) == (pattern.match, pattern.replace, pattern.example)


def test_a_mistake_in_a_shared_line_is_shown_at_its_place(tmp_path: Path) -> None:
    with pytest.raises(PatternError, match="Sigmoide") as error:
        several(tmp_path, SEVERAL.replace("Sigmoid(inner)", "Sigmoide(inner)"))
    span = error.value.span
    assert span is not None and (SWISH + SEVERAL).splitlines()[span.line - 1] == "    s = Sigmoid(inner)"


@pytest.mark.parametrize(
    ("written", "instead", "says"),
    [
        ("  match: |\n    inner", "  mash: |\n    inner", "`mash` is not shared by formulas"),
        (
            "  each:\n    - id: plain-swish\n      summary: x · σ(k · x)\n      raises: y = wide",
            "  each: []\n  x:",
            "not a list|not shared",
        ),
        ("double-swish", "plain-swish", "the id `plain-swish` is taken"),
        ("two is None", "three is None", "`three` is not bound"),
    ],
)
def test_a_mistake_in_shared_formulas_is_an_error(written: str, instead: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(PatternError, match=says):
        several(tmp_path, SEVERAL.replace(written, instead))


ALIKE = """\
match: |
  inner = Exp(x)
  y = inner + k
let: double = 2 * k
replace:
  standard: |
    twice = Mul(inner, inner)
    y = Add(twice, k)
  onnxruntime: y = Sum(x, k)
example: {x: "float32[2]", k: 1.5, z: "float32[2]"}
each:
  - id: alike-sum
    summary: A sum
    where: double > 0
    replace: {standard: "twice = Mul(x, x)"}
  - id: alike-product
    summary: A product
    match: y = inner * z
    replace: {standard: "y = Mul(x, z)", onnxruntime: "y = Max(x, z)"}
"""


def test_the_domain_of_an_operator_is_no_name_that_others_lack(tmp_path: Path) -> None:
    text = ALIKE.replace("inner * z", "com.microsoft.Gelu(inner) * z").replace("Sum(x, k)", "com.microsoft.Gelu(x) + k")
    (tmp_path / "alike.yaml").write_text(text, encoding="utf-8")
    plain, _ = load_patterns([tmp_path], built_in=False).patterns
    assert [name for name, _ in plain.let] == ["double"]


def test_patterns_without_an_operator_share_a_file(tmp_path: Path) -> None:
    """Patterns share replacement lines of each target. Lines whose results no one reads are left out."""
    (tmp_path / "alike.yaml").write_text(ALIKE, encoding="utf-8")
    library = load_patterns([tmp_path], built_in=False)
    plain, other = library.patterns
    assert [(p.id, str(p.match).splitlines()) for p in (plain, other)] == [
        ("alike-sum", ["inner = Exp(x)", "y = inner + k"]),
        ("alike-product", ["inner = Exp(x)", "y = inner * z"]),
    ]
    assert {target: str(block) for target, block in plain.replace.items()} == {
        "standard": "twice = Mul(x, x)\ny = Add(twice, k)",
        "onnxruntime": "y = Sum(x, k)",
    }
    assert {target: str(block) for target, block in other.replace.items()} == {
        "standard": "y = Mul(x, z)",
        "onnxruntime": "y = Max(x, z)",
    }
    assert ([name for name, _ in plain.let], other.let) == (["double"], ())
    assert (set(plain.example), set(other.example), library.operators) == ({"x", "k"}, {"x", "z"}, {})
    assert [(h.id, h.targets) for h in headers([tmp_path], built_in=False)] == [(p.id, p.targets) for p in (plain, other)]
    text = source_of(tmp_path / "alike.yaml", "alike-sum")
    again = parse_pattern(text, "group/alike_sum.yaml")
    assert (again.match, again.replace) == (plain.match, plain.replace)
    for wrong, says in (("double > 0", "`duble`"), ("id: alike-product", "taken"), ("let:", "`lot` is not shared")):
        instead = {"double > 0": "duble > 0", "id: alike-product": "id: alike-sum", "let:": "lot:"}[wrong]
        (tmp_path / "alike.yaml").write_text(ALIKE.replace(wrong, instead), encoding="utf-8")
        with pytest.raises(PatternError, match=says):
            load_patterns([tmp_path], built_in=False)


NORMS = """\
replace:
  onnxruntime: y, _, _, total = com.microsoft.SkipLayerNormalization(x, z, w, epsilon=1e-05)
example: {x: "float32[2, 3, 8]", z: "float32[2, 3, 8]", w: "float32[8]"}
each:
  - id: norm-sum
    summary: A sum that is read elsewhere
    match: |
      total = x + z
      y = LayerNormalization(total, w)
  - id: norm-product
    summary: Another formula
    match: y = LayerNormalization(x * z, w)
"""


def test_a_result_that_only_another_formula_has_is_not_provided(tmp_path: Path) -> None:
    (tmp_path / "norms.yaml").write_text(NORMS, encoding="utf-8")
    call = "com.microsoft.SkipLayerNormalization(x, z, w, epsilon=1e-05)"
    written = [str(p.replace["onnxruntime"]) for p in load_patterns([tmp_path], built_in=False).patterns]
    assert written == [f"y, _, _, total = {call}", f"y, _, _, _ = {call}"]


def test_a_result_that_no_formula_has_is_an_error(tmp_path: Path) -> None:
    wrong = NORMS.replace("_, total = com", "_, totl = com")
    (tmp_path / "norms.yaml").write_text(wrong, encoding="utf-8")
    with pytest.raises(PatternError, match="`totl` is not assigned in `match`") as error:
        load_patterns([tmp_path], built_in=False)
    assert error.value.span is not None and "totl" in wrong.splitlines()[error.value.span.line - 1]


STANDARD = SWISH.replace("  - |\n    q = com", "  - standard\n  - |\n    q = com")


def test_the_name_of_the_other_target_stands_for_its_lines() -> None:
    made = operator(STANDARD + "standard: y = x * Sigmoid(alpha * x) * factor + shift\n")
    assert str(made.lowerings["onnxruntime"][1].block) == str(made.lowerings["standard"][0].block)
    assert [len(several) for several in made.lowerings.values()] == [3, 1]


@pytest.mark.parametrize("more", ["", "standard:\n  - onnxruntime\n"])
def test_lines_that_are_not_there_can_not_be_used(more: str) -> None:
    with pytest.raises(PatternError, match="there are no lines of `standard` to use here") as error:
        operator(STANDARD + more)
    assert error.value.span is not None and STANDARD.splitlines()[error.value.span.line - 1] == "  - standard"


KERNEL = (
    SWISH
    + """\
native: float32
layouts:
  x: "b h s d -> b s (h d)"
  y: "b h s d -> b s (h d)"
"""
)


def test_targets_restricts_a_formula_to_these_targets() -> None:
    known = {"Swish": operator(KERNEL)}

    def targets(more: str) -> tuple[str, ...]:
        return parse_pattern(FORMULA + more, "patterns/group/wide_swish.yaml", known).targets

    assert targets("") == ("onnxruntime", "native", "function")
    assert targets("targets: native") == ("native", "function")
    assert targets("targets: [onnxruntime, standard]") == ("onnxruntime", "function")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("targets: functions", "`functions` is not a target"),
        ("targets: function", "`function` is not a target"),
    ],
)
def test_an_invalid_target_is_an_error(text: str, message: str) -> None:
    with pytest.raises(PatternError, match=message):
        formula(FORMULA + text)


def test_targets_is_allowed_only_beside_raises() -> None:
    text = "id: relu\nsummary: s\nmatch: y = Relu(x)\ntargets: native\nexample: {x: 'float32[2]'}"
    with pytest.raises(PatternError, match="`targets` stands beside `raises`"):
        parse_pattern(text, "patterns/group/relu.yaml")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("native: float32\n", "", "`layouts` is a mapping, for operators with a kernel"),
        ("  x:", "  z:", "`z` is no input or result"),
        ("b s (h d)", "b s (h e)", "the axis `d` is lost on the right"),
    ],
)
def test_layouts_are_recipes_for_inputs_and_results_of_a_native_kernel(old: str, new: str, message: str) -> None:
    head, tail = KERNEL[: KERNEL.index("native:")], KERNEL[KERNEL.index("native:") :]
    assert operator(KERNEL).layouts == dict.fromkeys("xy", "b h s d -> b s (h d)")
    with pytest.raises(PatternError, match=message):
        operator(head + tail.replace(old, new, 1))


@pytest.mark.parametrize("text", [ALIKE, SWISH + SEVERAL], ids=["alike", "several"])
def test_shared_patterns_without_one_of_their_lines_are_read_or_refused_at_a_place(tmp_path: Path, text: str) -> None:
    lines = text.splitlines(keepends=True)
    for number, _ in enumerate(lines):
        (tmp_path / "file.yaml").write_text("".join(lines[:number] + lines[number + 1 :]), encoding="utf-8")
        try:
            load_patterns([tmp_path], built_in=False)
        except PatternError as error:
            assert error.span is not None


@pytest.mark.parametrize("empty", ["let: |\n", "let: ''\n"])
def test_an_empty_shared_block_is_a_mistake(tmp_path: Path, empty: str) -> None:
    (tmp_path / "alike.yaml").write_text(ALIKE.replace("let: double = 2 * k\n", empty), encoding="utf-8")
    with pytest.raises(PatternError, match="the block is empty") as error:
        load_patterns([tmp_path], built_in=False)
    assert error.value.span is not None and error.value.span.line == 4
