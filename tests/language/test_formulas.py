"""Shared formulas: a use means the written-out formula, inner names are private, and every mistake has its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnx_subgraph.errors import PatternError, Span
from onnx_subgraph.language.formulas import built_in_formulas, parse_formulas, used_formulas
from onnx_subgraph.language.library import load_patterns
from onnx_subgraph.language.source import Scalar
from onnx_subgraph.language.syntax import read_block
from onnx_subgraph.language.term import Block

FORMULAS = """
silu(x): x * Sigmoid(x)
half(x, axes): x / ReduceSum(x, axes=axes)
moments(x, axes): |
  mean = ReduceMean(x, axes=axes)
  var = ReduceMean((x - mean) ** 2, axes=axes)
  mean, var
normal(x, axes, eps): |
  mean, var = moments(x, axes)
  (x - mean) / Sqrt(var + eps)
shifted(x, b): x + b?
either(x): Relu(x) | Tanh(x)
heads(x, h): rearrange(x, "b s (h d) -> b h s d")
"""


def block(text: str) -> Block:
    """The block of these lines, which may use the formulas above."""
    lines = tuple(text.split("\n"))
    places = tuple((i + 1, 1) for i in range(len(lines)))
    scalar = Scalar(text, "|", Span("<text>", 1, 1, len(lines[0]), lines[0]), places, lines)
    return read_block(scalar, "match", formulas=parse_formulas(FORMULAS))


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("y = silu(x)", "y = x * Sigmoid(x)"),
        ("y = a * silu(x)", "y = a * (x * Sigmoid(x))"),
        ("y = silu(x) * a", "y = x * Sigmoid(x) * a"),
        ("y = silu(a + b)", "silu_x = a + b\ny = silu_x * Sigmoid(silu_x)"),
        ("y = half(x, axes=[-1])", "y = x / ReduceSum(x, axes=[-1])"),
        ("y = half(x, n)", "y = x / ReduceSum(x, axes=n)"),
        (
            "m, v = moments(x, axes)\ny = x - m + v",
            "m = ReduceMean(x, axes=axes)\nv = ReduceMean((x - m) ** 2, axes=axes)\ny = x - m + v",
        ),
        (
            "_, v = moments(x, n)\ny = v",
            "moments_mean = ReduceMean(x, axes=n)\nv = ReduceMean((x - moments_mean) ** 2, axes=n)\ny = v",
        ),
        (
            "y = normal(x, [-1], eps) + normal_mean",
            """normal_mean_2 = ReduceMean(x, axes=[-1])
normal_var = ReduceMean((x - normal_mean_2) ** 2, axes=[-1])
y = (x - normal_mean_2) / Sqrt(normal_var + eps) + normal_mean""",
        ),
        ("y = shifted(x, c)", "y = x + c?"),
        ("y = shifted(x, 1)", "y = x + 1"),
        ("y = silu(x) * silu(z)", "y = x * Sigmoid(x) * (z * Sigmoid(z))"),
        (
            "y = heads(x, n) @ heads(z, n)",
            """y = (rearrange(x, "heads_b heads_s (n heads_d) -> heads_b n heads_s heads_d")
                @ rearrange(z, "heads_b_2 heads_s_2 (n heads_d_2) -> heads_b_2 n heads_s_2 heads_d_2"))""",
        ),
    ],
)
def test_a_use_is_the_formula_written_out(written: str, meant: str) -> None:
    assert block(written) == block(meant)


def test_each_use_has_its_own_alternatives() -> None:
    """Alternatives are told apart by identity: one use may be Relu while another is Tanh."""
    (line,) = block("y = either(x) + either(z)").assignments
    first, second = (term for term, _ in line.term.items)  # type: ignore[union-attr]
    assert first is not second and first.alternatives[0] is not second.alternatives[0]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("y = silu(x, z)", "`silu(x)` takes 1 value, not 2", "it is defined as `silu(x)` in formulas.yaml:2:1"),
        ("y = half(x, axis=[-1])", "`half(x, axes)` has no `axis` here", "it is defined as `half(x, axes)`"),
        ("y = silo(x)", "`silo` is neither a word of the language nor a formula", "did you mean `silu`?"),
        ("y = moments(x, [-1])", "`moments(x, axes)` has 2 results, not 1", "it is defined as"),
        (
            "y = Relu(moments(x, [-1]))",
            "`moments(x, axes)` has 2 results",
            "name them in a line of their own, `a, b = moments(x, axes)`",
        ),
        ("y = heads(b?, n)", "`b` can't be optional here", "leave the `?` out"),
    ],
)
def test_a_wrong_use_is_shown_with_the_definition(text: str, message: str, hint: str) -> None:
    with pytest.raises(PatternError) as raised:
        block(text)
    assert message in str(raised.value) and hint in str(raised.value)
    assert raised.value.span is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("silu: x * Sigmoid(x)", "formulas.yaml:1:1: `silu` is not a formula with its parameters"),
        ("id: silu", "a pattern stands in a file of another name"),
        ("Silu(x): x * Sigmoid(x)", "`Silu` can't be the name of a formula or a parameter"),
        ("split(x): Relu(x)", "`split` can't be the name of a formula or a parameter"),
        ("twice(x, x): x * x", "`twice(x, x)` has a parameter twice"),
        ("silu(x): z * Sigmoid(x)", "formulas.yaml:1:10: `z` is no parameter of `silu(x)`"),
        ("silu(x, z): x * Sigmoid(x)", "`silu(x, z)` does not use `z`"),
        ("silu(x): act[Relu | Tanh](x)", "a formula captures nothing"),
        ("silu(x): Conv(x, x, **rest)", "a formula captures nothing"),
        ("silu(x): y = Relu(x)", "the last line of `silu` is no term"),
        ("a(x): b(x)\nb(x): Relu(x)", "`b` is neither a word of the language nor a formula"),
        ("a(x): a(Relu(x))", "`a` is neither a word of the language nor a formula"),
        ("a(x): Relu(x\n", "not a term: '(' was never closed"),
        ("[1]", "the file is not a mapping of keys"),
    ],
)
def test_a_wrong_formula_is_shown_with_its_place(text: str, message: str) -> None:
    with pytest.raises(PatternError) as raised:
        parse_formulas(text)
    assert message in str(raised.value)
    assert raised.value.span is not None


PATTERN = """
id: gate
summary: A gate
match: |
  y = z * {use}
example: {{x: "float32[2]", z: "float32[2]"}}
"""


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """A pack with its own formulas, one of them with the name of a built-in formula."""
    group = tmp_path / "pack" / "gates"
    group.mkdir(parents=True)
    (group.parent / "pack.yaml").write_text("name: gates\n", encoding="utf-8")
    (group.parent / "formulas.yaml").write_text("moments(x): x * Relu(x)\nsoft(x): Tanh(moments(x))\n", encoding="utf-8")
    (group / "gate.yaml").write_text(PATTERN.format(use="soft(x)"), encoding="utf-8")
    return group.parent


@pytest.mark.parametrize("given", [".", "gates", "gates/gate.yaml"])
def test_formulas_of_a_pack_have_priority_over_built_in_ones(pack: Path, given: str) -> None:
    pattern = load_patterns([pack / given], built_in=False).get("gate")
    assert str(pattern.match) == "soft_x = x * Relu(x)\ny = z * Tanh(soft_x)" or str(pattern.match) == "y = z * Tanh(x * Relu(x))"


def test_a_users_pattern_may_use_built_in_formulas(tmp_path: Path) -> None:
    text = PATTERN.format(use="d / Sqrt(var)").replace("  y =", "  _, d, var = moments(x, axes=[-1])\n  y =")
    (tmp_path / "gate.yaml").write_text(text, encoding="utf-8")
    match = load_patterns([tmp_path], built_in=False).get("gate").match
    assert "ReduceMean(x, axes=[-1])" in str(match) and str(match).endswith("y = z * d / Sqrt(var)")


def test_every_built_in_formula_is_used_by_several_patterns() -> None:
    users = [used_formulas(Path(pattern.file), pattern.id) for pattern in load_patterns().patterns]
    for formula in built_in_formulas().values():
        assert sum(formula in used for used in users) > 1, formula
