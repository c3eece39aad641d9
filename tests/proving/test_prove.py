"""The requirements of a proof: everything that a pattern claims has to be tested."""

from __future__ import annotations

import re

import numpy as np
import onnx_ir as ir
import pytest

from onnx_subgraph.errors import PatternError
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.language.reading import parse_pattern
from onnx_subgraph.matching.find import find
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.shapes import copied, infer_shapes
from onnx_subgraph.proving import prove
from onnx_subgraph.proving.draw import shifted
from onnx_subgraph.rewriting.apply import apply
from onnx_subgraph.rewriting.loadability import Loadability
from tests.proving.patterns import catalogue, written

X = '{x: "float32[2, 8]"}'


def failures(pattern: Pattern) -> str:
    return "\n".join(prove(pattern).failures)


def test_a_shape_that_nothing_before_it_gives_is_left_out() -> None:
    """`Expand(c, _)` needs a value for `_`; a constant in front of every other operand gives none."""
    example = '{c: "bool[1] constant", x: "float32[2]", z: "float32[2]"}'
    pattern = written("y = Where(Expand(c, _), x, z)", "y = Where(c, x, z)", example, where="y.shape == x.shape")
    assert "follows from no value before it" in failures(pattern)


def test_an_axis_without_a_size_is_named() -> None:
    example = '{x: "float32[2, 4, 6, 6]", z: "float32[1, 4, 1, 1]"}'
    proof = prove(written('y = Max(x, repeat(z, "1 h 1 1 -> b h s 1"))', "y = Max(x, z)", example))
    assert any("no example gives the size of b, s in `repeat(" in note for note in proof.notes)


def test_a_proof_reports_what_was_tried() -> None:
    proof = prove(catalogue().get("silu"))
    assert not proof.failures and not proof.unproved
    assert proof.cases > 20 and set(proof.targets) == {"onnxruntime", "standard", "function"}
    assert all(proof.targets.values())


def test_a_proof_is_deterministic() -> None:
    assert prove(catalogue().get("glu")) == prove(catalogue().get("glu"))


def test_a_wrong_replacement_fails() -> None:
    assert "a fused instance differs" in failures(written("y = x * Sigmoid(x)", "y = com.microsoft.QuickGelu(x, alpha=1.5)", X))


def test_a_replacement_with_a_wrong_default_fails() -> None:
    """QuickGelu's alpha is 1.702 by default."""
    assert "a fused instance differs" in failures(written("y = x * Sigmoid(1.7 * x)", "y = com.microsoft.QuickGelu(x)", X))


def test_a_replacement_may_write_a_term_twice() -> None:
    """Equal nodes of a replacement are merged. None of the original ones is left then."""
    pattern = written("y = 2 * Relu(x) ** 2 + 2 * Relu(x)", "y = Relu(x) * (2 * Relu(x) + 2)", X)
    assert not failures(pattern)


FITTING = """
  - why: shapes that fit
    model: |
      <ir_version: 8, opset_import: ["" : 17]>
      g (float[2, 3] x, float[2, 3] z) => (float[2, 3] y) { s = Add(x, z) y = Relu(s) }"""


def test_a_missing_condition_is_found() -> None:
    """No sentence requires that all axes except the batch are reduced, or that the scale is for the last of them."""
    pattern = written(
        "y = x / Sqrt(ReduceMean(x ** 2, axes=axes) + eps) * scale",
        "y = SimplifiedLayerNormalization(x, scale, axis=-1, epsilon=eps)",
        '{x: "float32[2, 8, 8]", scale: "float32[8]", axes: [-1], eps: 1e-6}',
        where="[len(axes) == 1]",
    )
    said = failures(pattern)
    assert "a mutant fuses and differs" in said and "another axis" in said


def test_an_example_whose_shapes_do_not_fit_proves_nothing() -> None:
    """Also where a model of `fuses` is replaced rightly: it shows only one spelling."""
    example = '{x: "float32[2, 3]", z: "float32[5]"}'
    pattern = written("y = Relu(x + z)", "y = Max(x + z, 0)", example, fuses=FITTING)
    assert "correct `example`: no model of it is evaluated: not evaluated: " in failures(pattern)


def test_an_alternative_that_no_model_has_fails() -> None:
    pattern = written(
        "y = Relu(Gemm(a, b)) | Relu(Gemm(b, a))",
        'y = com.microsoft.FusedGemm(a, b, activation="Relu")',
        '{a: "float32[2, 3]", b: "float32[3, 4]"}',
    )
    assert "the alternative `Relu(Gemm(b, a))` was never proved for onnxruntime: not evaluated" in failures(pattern)


def test_an_alternative_that_the_replacement_can_not_express_fails() -> None:
    pattern = written(
        "y = com.microsoft.Gelu(x + bias) | com.microsoft.Gelu(x)",
        "y = com.microsoft.BiasGelu(x, bias)",
        '{x: "float32[2, 8]", bias: "float32[8]"}',
        where="[bias is None or bias.rank == 1]",
    )
    said = failures(pattern)
    assert "the alternative `com.microsoft.Gelu(x)` was never proved for onnxruntime" in said and "Gelu(x + bias)" not in said


def test_an_example_that_fits_no_operator_fails() -> None:
    pattern = written("y = Relu(a @ b)", "y = com.microsoft.FusedGemm(a, b)", '{a: "float32[2, 3]", b: "float32[5, 4]"}')
    assert "nothing could be proved" in failures(pattern)


def test_a_target_that_does_not_load_here_is_no_failure_and_has_a_reason() -> None:
    proof = prove(catalogue().get("group-normalization-silu"))
    assert not proof.failures and proof.targets["onnxruntime"] == 0
    assert "GroupNorm" in proof.unproved["onnxruntime"]


def test_an_instance_that_is_not_found_shows_how_far_the_pattern_matched() -> None:
    """The sentence is false for every instance. The proof reports this with the actual value and what to change."""
    said = failures(written("y = x * Tanh(x)", "y = com.microsoft.QuickGelu(x, alpha=1.0)", X, where="[x.rank == 3]"))
    assert "it is not found (opset 18, float32, initializer, onnxruntime); nearly at Mul_2, where 2 nodes matched" in said
    assert "expected `x.rank == 3`, found it is false: x.rank is 2; let x.rank be 3; x is `x` (" in said
    assert "probe.yaml:" in said


def test_an_instance_whose_search_was_given_up_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnx_subgraph.matching.matcher.MOST_STEPS", 1000)  # too few for 5! · 2⁵ assignments
    products = " + ".join(f"a{i} * b{i}" for i in range(5))
    example = ", ".join(f'{n}{i}: "float32[2]"' for n in "ab" for i in range(5))
    never = " + ".join(f"{n}{i}.rank" for n in "ab" for i in range(5))
    said = failures(written(f"y = {products}", "y = Sum(a0, b0)", f"{{{example}}}", where=f"[{never} == 3]"))
    assert "the search here was given up after 10000 steps" in said


def test_a_proof_reports_its_progress() -> None:
    told: list[str] = []
    proof = prove(catalogue().get("silu"), told.append)
    assert told[0] == "1 model"
    assert told[-1] == f"{proof.cases} models"


KEPT = """
  - why: {why}
    model: |
      <ir_version: 8, opset_import: ["" : 17]>
      g (float[2, 8] x) => (float[2, 8] y) {{ s = Sigmoid(x) y = Mul(x, s) }}"""


@pytest.mark.parametrize(("key", "said"), [("keeps", "a model to keep is fused"), ("fuses", "a model to fuse is not matched")])
def test_written_test_models_are_checked(key: str, said: str) -> None:
    match = "y = x * Sigmoid(x)" if key == "keeps" else "y = x * Sigmoid(2 * x)"
    alpha = 1.0 if key == "keeps" else 2.0
    pattern = written(match, f"y = com.microsoft.QuickGelu(x, alpha={alpha})", X, **{key: KEPT.format(why="it is said so")})
    found = [f for f in prove(pattern).failures if said in f]
    assert found and all("it is said so" in f and "probe.yaml:" in f for f in found)
    assert key == "keeps" or "; nearly at x, where 2 nodes matched" in found[0]


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("s = Sigmoid(x", "the model is not in ONNX's text form"),
        ("s = Sigmoid(z)", "the model: the Sigmoid node that makes 's' reads 'z', which nothing makes"),
        ("s = Sigmoid(x) s = Tanh(x)", "the model: 's' is made twice"),
    ],
)
@pytest.mark.parametrize("key", ["keeps", "fuses"])
def test_a_mistake_in_a_written_model_has_its_place(key: str, broken: str, said: str) -> None:
    text = KEPT.format(why="it is said so").replace("s = Sigmoid(x)", broken)
    with pytest.raises(PatternError, match=r"probe\.yaml:\d+:\d+: " + re.escape(said)):
        prove(written("y = x * Sigmoid(x)", "y = com.microsoft.QuickGelu(x, alpha=1.0)", X, **{key: text}))


def test_a_float64_is_not_proved_with_a_float32_kernel() -> None:
    """QuickGelu has no double kernel: instances in float64 are skipped, not computed in float32."""
    pattern = written("y = x * Sigmoid(x)", "y = com.microsoft.QuickGelu(x, alpha=1.0)", '{x: "float64[2, 8]"}')
    proof = prove(pattern)
    assert not [f for f in proof.failures if "differs" in f]


MISH = """
  - why: of opset 17
    model: |
      <ir_version: 8, opset_import: ["" : 17]>
      g (float[2, 8] x) => (float[2, 8] y) { s = Softplus(x) t = Tanh(s) y = Mul(x, t) }"""
TYPED = """
  - why: a type of its own
    model: |
      <ir_version: 8, opset_import: ["" : 17]>
      g ({type}[2, 8] x) => ({type}[2, 8] y) {{ s = Sigmoid(x) y = Mul(x, s) }}"""


def test_a_test_model_that_matches_but_is_not_replaced_fails_with_a_reason() -> None:
    """Its instances fuse, but at a later opset than the model's."""
    pattern = written("y = x * Tanh(Softplus(x))", "y = Mish(x)", X, fuses=MISH)
    (said,) = prove(pattern).failures
    assert "a model to fuse is not replaced: of opset 17; onnxruntime: Mish needs opset 18, the model has 17" in said
    assert "probe.yaml:" in said


def test_a_test_model_whose_kernel_is_missing_is_not_proved_here() -> None:
    example = written("y = x * Sigmoid(x)", "y = com.microsoft.QuickGelu(x, alpha=1.0)", X, fuses=TYPED.format(type="double"))
    proof = prove(example)
    assert not proof.failures
    assert "no kernel for double" in proof.unproved["onnxruntime, the model to fuse (a type of its own)"]


TWO_RESULTS = """
id: sample
summary: a gate that is handed on
match: |
  gate = Sigmoid(x)
  y = gate * z
results: [gate, y]
example: {x: "float32[2, 8]", z: "float32[2, 8]"}
"""


def test_a_pattern_without_a_replacement_may_have_several_results() -> None:
    """Both results are provided by the function, where the first has other readers too. Without `results` it is no match."""
    proof = prove(parse_pattern(TWO_RESULTS, "patterns/group/sample.yaml"))
    assert not proof.failures and proof.targets["function"] > 3
    model = parsed("gate = Sigmoid(x) y = Mul(gate, z) r = Relu(gate)", "float[2, 8] y, float[2, 8] r")
    both = parse_pattern(TWO_RESULTS, "patterns/group/sample.yaml")
    one = parse_pattern(TWO_RESULTS.replace("results: [gate, y]\n", ""), "patterns/group/sample.yaml")
    assert fused(model, both) == ["Sample", "Relu"] and fused(model, one) == ["Sigmoid", "Mul", "Relu"]


def parsed(nodes: str, outputs: str) -> ir.Model:
    header = '<ir_version: 8, opset_import: ["" : 17]>'
    model = ir.from_onnx_text(f"{header} g (float[2, 8] x, float[2, 8] z) => ({outputs}) {{ {nodes} }}")
    infer_shapes(model)
    return model


def fused(model: ir.Model, pattern: Pattern) -> list[str]:
    """The operators of a copy of the model after a pattern was replaced by its function."""
    model = copied(model)
    constants = Constants(model)
    matches = find(model, [pattern], constants=constants).matches
    apply(model, matches, target="function", loadability=[Loadability("CPUExecutionProvider")], constants=constants)
    return [node.op_type for node in model.graph]


def test_digits_that_are_lost_far_from_0_are_found() -> None:
    """Of drawn values, which are around 0, both formulas of a square are exact."""
    right, lossy = "d = x - z\ny = d * d", "y = x * x - 2.0 * x * z + z * z"
    assert "far from 0, a fused instance differs" in failures(
        written(right, lossy, '{x, z: "float32[2, 8]"}'.replace("x, z", '"x, z"'))
    )
    assert not failures(written(right, lossy, '{"x, z": "float32[2, 8] in [-3, 3]"}'))


def test_a_result_that_turns_on_the_last_digit_of_an_input_is_not_judged_by_its_luck() -> None:
    """Of sines of thousands, the factor 16 loses no digit, and the sum of two products loses as many as `x` has too few."""
    assert not failures(written("y = Sin(16.0 * x)", "y = Sin(13.0 * x + 3.0 * x)", X))


def test_what_assumes_centred_values_is_still_compared_on_large_ones() -> None:
    wrong = written("y = Relu(x)", "y = Clip(x, 0.0, 6.0)", X, assumes="centred")
    assert "on large values" in failures(wrong) and "far from 0" not in failures(wrong)


def test_an_input_with_a_range_stays_in_it() -> None:
    pattern = written("y = Relu(x)", "y = Clip(x, 0.0, 6.0)", '{x: "float32[2, 8] in [-3, 3]"}')
    assert shifted({"x": np.zeros((2, 8), np.float32)}, pattern) is None


def test_a_difference_of_large_values_is_found() -> None:
    """No drawn value is as large as 6; an example with a range says that values stay there."""
    wrong = written("y = Relu(x)", "y = Clip(x, 0.0, 6.0)", X)
    assert "on large values, a fused instance differs" in failures(wrong)
    assert not failures(written("y = Relu(x)", "y = Clip(x, 0.0, 6.0)", '{x: "float32[2, 8] in [-3, 3]"}'))


def test_a_choice_between_values_that_are_equal_in_float32_is_no_difference() -> None:
    """Softmax of large values gives several 0; the function has the operators of the match, and chooses as these do."""
    text = """
id: sample
summary: the largest probabilities
match: |
  s = Softmax(x, axis=-1)
  v, i = TopK(s, k, axis=-1)
results: [v, i]
example: {x: "float32[2, 8]", k: [3]}
"""
    assert not prove(parse_pattern(text, "patterns/group/sample.yaml")).failures


WHOLE = {
    "literals beside integers": ("y = a * 2 + 1", "y = 1 + 2 * a", '{a: "int64[2, 3]"}'),
    "a power of integers": ("y = Abs(a) * 3 - a ** 2", "y = Abs(a) * 3 - a * a", '{a: "int32[2, 3]"}'),
    "an argument beside integers": ("y = Max(Abs(a), 3) + a", "y = Max(3, Abs(a)) + a", '{a: "int64[2, 3]"}'),
    "a keyword beside integers": ("y = Clip(a * 2, min=0, max=6)", "y = Clip(2 * a, min=0, max=6)", '{a: "int64[2, 3]"}'),
    "an integer beside floats": ("y = Relu(a) * k", "y = k * Relu(a)", '{a: "float32[2, 3]", k: 3}'),
    "a list beside floats": ("y = Relu(a) * [1, 2, 3]", "y = Relu(a) * [1.0, 2.0, 3.0]", '{a: "float32[2, 3]"}'),
    "an index": ("y = Gather(Relu(a), 1, axis=0)", "y = Relu(Gather(a, 1, axis=0))", '{a: "float32[2, 3]"}'),
}


@pytest.mark.parametrize(("match", "replace", "example"), WHOLE.values(), ids=WHOLE)
def test_a_number_has_the_type_of_what_it_meets(match: str, replace: str, example: str) -> None:
    proof = prove(written(match, replace, example))
    assert not proof.failures and not any("mismatch" in note for note in proof.notes), (proof.failures, proof.notes)


@pytest.mark.parametrize(("number", "dtype"), [("0.5", "int64"), ("inf", "int64"), ("300", "uint8")])
def test_a_number_that_the_integers_beside_it_can_not_be_is_named(number: str, dtype: str) -> None:
    pattern = written(f"y = Abs(a) + {number}", f"y = {number} + Abs(a)", f'{{a: "{dtype}[2, 3]"}}')
    assert f"{number} can't be written in {dtype}" in failures(pattern)


def test_an_attribute_that_only_a_rest_has_is_named() -> None:
    pattern = written("y = Relu(MaxPool(x, **rest))", "y = MaxPool(Relu(x), **rest)", '{x: "float32[1, 2, 8, 8]"}')
    assert "`**rest` does not say the kernel_shape of MaxPool; a model in `fuses` does" in failures(pattern)
