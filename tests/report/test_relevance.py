"""Which near misses `fuse` reports: those that a user would want to know. `explain` has the rest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from onnx_subgraph.language.library import load_patterns
from onnx_subgraph.language.syntax import parse_assignments
from onnx_subgraph.matching.failure import Kind
from onnx_subgraph.matching.match import NearMiss
from onnx_subgraph.report.relevance import absence, answering, asked, missing, size, telling, unfused
from onnx_subgraph.rewriting.rewrite import Rewrite
from tests.report.test_reports import RESULT

LIBRARY = load_patterns()


def told(miss: NearMiss, *rewrites: Rewrite, target: str = "onnxruntime") -> bool:
    result = telling(replace(RESULT, near_misses=(miss,), rewrites=rewrites, target=target), LIBRARY)
    return bool(result.near_misses)


def miss(pattern: str, matched: int, expected: str = "Erf", found: str = "Tanh", kind: Kind = Kind.TERM) -> NearMiss:
    """A near miss of this kind; a term has the operator `found` in place of `expected`."""
    operators, there = ((expected,), found) if kind is Kind.TERM else ((), "")
    return NearMiss(pattern, None, "anchor", "node", expected, found, matched, kind=kind, operators=operators, there=there)


def number(pattern: str, matched: int, wanted: float, found: float) -> NearMiss:
    """A near miss by another number."""
    failed = miss(pattern, matched, f"the constant {wanted}", str(found), Kind.NUMBER)
    return replace(failed, numbers=(wanted, found))


@pytest.mark.parametrize(("pattern", "operators"), [("gelu", 5), ("silu", 2), ("gemm-add", 2), ("mish", 3)])
def test_the_size_is_that_of_the_smallest_graph_that_matches(pattern: str, operators: int) -> None:
    assert size(LIBRARY.get(pattern).match) == operators


def test_the_size_of_lines_that_read_each_other_twice_is_found() -> None:
    """2²⁰⁰ graphs match, so they are not counted one by one."""
    lines = [f"x{n} = Tanh(x{n - 1}) | Exp(Neg(x{n - 1}))" for n in range(1, 201)]
    assert size(parse_assignments("\n".join(lines))) == 200


def test_a_near_miss_that_matched_most_of_the_pattern_is_reported() -> None:
    assert told(miss("gelu", 5)) and told(miss("gelu", 4))
    assert not told(miss("gelu", 3))


def test_a_different_constant_is_reported() -> None:
    assert told(number("gelu", 2, 0.707107, 0.704225))
    assert not told(miss("gelu", 2, "the constant 0.707107", "a graph input"))


def test_two_matching_operators_are_not_reported() -> None:
    assert not told(miss("gemm-add", 2))


def test_a_pattern_of_sums_alone_is_not_reported() -> None:
    assert not told(miss("affine", 9))


def test_a_place_that_another_pattern_replaced_is_not_reported() -> None:
    elsewhere = Rewrite("fast-gelu", "com.microsoft.FastGelu", "FastGelu", ("other",), 1)
    assert told(miss("gelu", 5), elsewhere)
    assert not told(miss("gelu", 5), replace(elsewhere, replaces=("anchor",)))
    assert not told(miss("gelu", 5), replace(elsewhere, replaces=("node",)))


def test_a_node_that_another_pattern_made_into_the_same_operator_is_not_reported() -> None:
    assert not told(miss("gelu", 5), Rewrite("my-gelu", "com.microsoft.Gelu", "node", ("other",), 1))


def test_a_pattern_without_the_target_is_not_reported() -> None:
    assert told(miss("geglu", 9), target="function")
    assert not told(miss("geglu", 9)) and not told(miss("geglu", 9), target="standard")
    assert told(miss("mish", 3)), "the target onnxruntime takes a standard operator where it has none of its own"


def test_an_unknown_pattern_is_not_reported() -> None:
    assert not told(miss("no-such-pattern", 9))


def answered(miss: NearMiss, *rewrites: Rewrite) -> bool:
    return bool(answering(unfused(replace(RESULT, near_misses=(miss,), rewrites=rewrites)), LIBRARY).near_misses)


def test_explain_also_reports_patterns_without_the_target() -> None:
    assert answered(miss("geglu", 9)) and not answered(miss("geglu", 2))


def test_explain_reports_of_a_small_pattern_what_the_same_network_can_mend() -> None:
    sentence = miss("gemm-add", 2, "`a.rank == 2 and b.rank == 2`", "the rank of `a` is not known", Kind.SENTENCE)
    assert answered(replace(sentence, unknown=True)) and not answered(sentence), "of rank 3 it is another network"
    weight = miss("conv-affine", 2, "a constant for b", "`w`, an initializer that is a graph input as well", Kind.CONSTANT)
    assert answered(weight) and not answered(replace(weight, found="Relu", there="Relu"))
    elsewhere = miss(
        "conv-activation", 2, "an inner value that only the match reads", "value `c` is an output", Kind.READ_ELSEWHERE
    )
    assert answered(elsewhere) and not answered(miss("conv-activation", 2, "Conv", "Add"))


def test_explain_reports_each_near_miss_of_a_pattern_of_the_user(tmp_path: Path) -> None:
    text = "id: shifted\nsummary: s\nmatch: y = Relu(x + 1)\nexample: {x: 'float32[2]'}\n"
    (tmp_path / "group").mkdir()
    (tmp_path / "group" / "shifted.yaml").write_text(text, encoding="utf-8")
    near = replace(RESULT, near_misses=(miss("shifted", 2),))
    assert answering(near, load_patterns((tmp_path,))).near_misses


def test_explain_reports_no_computed_operand_that_must_be_constant() -> None:
    assert answered(miss("gelu", 5, "a constant", "`w`, a graph input", Kind.CONSTANT))
    assert not answered(replace(miss("gelu", 5, "a constant", "Relu", Kind.CONSTANT), there="Relu"))


def test_explain_reports_a_number_that_is_nearly_right() -> None:
    assert answered(number("gelu", 2, 0.707107, 0.704225))
    assert not answered(number("gelu", 2, 0.707107, 7))


def test_explain_reports_no_near_miss_where_the_place_was_fused() -> None:
    """Unless far more matched than was fused."""
    own = Rewrite("gelu", "com.microsoft.Gelu", "Gelu", ("anchor", "other"), 1)
    assert not answered(miss("gelu", 5), own)
    assert not answered(miss("gelu", 4), replace(own, pattern="fast-gelu"))
    assert answered(miss("gelu", 5), replace(own, pattern="fast-gelu"))


def test_a_near_miss_at_an_operator_that_fusing_made_is_not_reported() -> None:
    fused = Rewrite("fused-matmul", "com.microsoft.FusedMatMul", "node", ("elsewhere",), 1)
    assert not answered(miss("gelu", 5, "MatMul", "com.microsoft.FusedMatMul"), fused)
    assert answered(miss("gelu", 5, "MatMul", "com.microsoft.FusedMatMul"))


def test_missing_readers_and_other_layouts_are_reported_only_on_request() -> None:
    assert not answered(miss("gelu", 5, "a product `x` that reads `t`", "Sin", Kind.READER))
    assert not answered(miss("depth-to-space", 1, 'rearrange "b c -> c b"', "another one, from [2, 3] to [2, 3]", Kind.LAYOUT))


# Asked about one pattern


def about(pattern: str, *misses: NearMiss, operators: tuple[str, ...] = (), fused: bool = False) -> tuple[list[int], str]:
    """How far the reported near misses matched, and the sentence where there are none."""
    rewrites = (Rewrite(pattern, "Gelu", "n", ("m",), 1),) if fused else ()
    result = replace(RESULT, near_misses=misses, rewrites=rewrites, skipped=(), operators_before=dict.fromkeys(operators, 2))
    chosen = LIBRARY.get(pattern)
    return [m.matched for m in asked(result, chosen).near_misses], absence(result, chosen, LIBRARY)


def test_explain_of_a_pattern_reports_the_near_misses_that_matched_about_as_far_as_the_best() -> None:
    assert about("gelu", miss("gelu", 2), miss("gelu", 1), operators=("Erf",))[0] == [2]
    assert about("gelu", miss("gelu", 4), miss("gelu", 3), miss("gelu", 2), operators=("Erf",))[0] == [4, 3]


def test_where_the_pattern_fuses_elsewhere_a_short_match_is_not_reported() -> None:
    assert about("gelu", miss("gelu", 2), operators=("Erf",), fused=True)[0] == []
    assert about("gelu", miss("gelu", 3), operators=("Erf",), fused=True)[0] == [3]
    nearly = number("gelu", 1, 0.707107, 0.704225)
    assert about("gelu", nearly, operators=("Erf",), fused=True)[0] == [1], "a constant that is nearly right always is"


def test_where_an_operator_is_missing_matches_of_sums_and_products_are_not_reported() -> None:
    assert missing(replace(RESULT, operators_before={"Mul": 9}), LIBRARY.get("mish")) == ("Tanh",)
    assert about("mish", miss("mish", 2, "Tanh", "Add"), operators=("Mul", "Add"))[0] == []
    assert about("mish", miss("mish", 1, "Tanh that reads `s`", "Sigmoid", Kind.READER), operators=("Softplus",))[0] == [1]
    assert about("gelu", miss("gelu", 3, "Erf", "mine.Erf"), operators=("mine.Erf",))[0] == [3], "an operator in its place does"
    assert missing(replace(RESULT, operators_before={"Gemm": 1, "Relu": 1}), LIBRARY.get("gemm-activation")) == ()


@pytest.mark.parametrize(
    ("pattern", "operators", "words"),
    [
        ("gelu", ("Mul", "Add"), "gelu is not in the model: it needs Erf, and there is none."),
        ("silu", ("Mul",), "silu is not in the model: it needs Exp or Sigmoid, and there is none."),
        (
            "bias-gelu",
            ("Add",),
            "Gelu or com.microsoft.FastGelu or com.microsoft.Gelu, and there is none; fast-gelu and gelu can make one.",
        ),
        ("layer-normalization", ("LayerNormalization",), "finds nothing to fuse; LayerNormalization is there already, 2 times."),
        ("gelu", ("Erf",), "gelu is not in the model: nothing is like it."),
    ],
)
def test_an_absent_pattern_is_explained_in_one_sentence(pattern: str, operators: tuple[str, ...], words: str) -> None:
    assert about(pattern, operators=operators)[1].endswith(words)


def test_a_pattern_whose_beginning_matched_is_explained_by_the_number_of_operators() -> None:
    assert about("gelu", miss("gelu", 2), operators=("Erf",))[1].endswith("at most 2 of its 5 operators are found together.")
