"""Laws of printing and reading terms."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_subgraph.errors import PatternError
from onnx_subgraph.language.syntax import parse_assignments, parse_term
from onnx_subgraph.language.term import (
    Apply,
    Assignment,
    Block,
    Chain,
    Conditional,
    Either,
    Literal,
    Omitted,
    Operator,
    Rearrange,
    Static,
    Term,
    Variable,
)
from onnx_subgraph.language.vocabulary import DTYPES
from onnx_subgraph.model.element_types import named

names = st.sampled_from(["x", "y", "scale", "bias_1", "_", "é"])
optionals = st.builds(Variable, st.sampled_from(["b", "scale", "é"]), st.none(), st.just(True))
operators = st.builds(
    Operator, st.sampled_from(["Erf", "Relu", "Gelu", "MatMul", "Neg"]), st.sampled_from(["", "com.microsoft", "a.b"])
)
numbers = st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, width=64, min_value=-1e300, max_value=1e300) | st.booleans()
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
statics: st.SearchStrategy[Static] = st.recursive(numbers | texts, lambda s: st.lists(s, max_size=3).map(tuple), max_leaves=5)


def chain(first: Term, rest: list[tuple[Term, bool]], operator: str) -> Term:
    """A chain as the reader makes it.

    Its first item is no chain of the same operator, and its first two items are not both literals.
    """
    if isinstance(first, Chain) and first.operator == operator:
        return chain(first.items[0][0], [*first.items[1:], *rest], operator)
    if isinstance(first, Literal) and isinstance(rest[0][0], Literal):
        return chain(Variable("x"), [(first, False), *rest], operator)
    return Chain(operator, ((first, False), *rest))


def either(terms: list[Term]) -> Term:
    """Alternatives as the reader makes them: none is itself an Either."""
    return Either(tuple(b for a in terms for b in (a.alternatives if isinstance(a, Either) else (a,))))


def has_something(term: Term) -> bool:
    """Whether a chain may be written: with optional names it also needs an item that is neither optional nor a literal."""
    return (
        not isinstance(term, Chain)
        or any(not isinstance(t, Literal) and not (isinstance(t, Variable) and t.optional) for t, _ in term.items)
        or not any(isinstance(t, Variable) and t.optional for t, _ in term.items)
    )


def grown(inner: st.SearchStrategy[Term]) -> st.SearchStrategy[Term]:
    keywords = st.dictionaries(st.sampled_from(["axis", "alpha", "to"]), inner, max_size=2).map(lambda d: tuple(d.items()))
    rest = st.none() | st.just("rest")
    several = st.lists(operators, min_size=1, max_size=3).map(tuple)
    arguments = st.lists(inner | st.just(Omitted()) | optionals, max_size=3).map(tuple)
    items = st.lists(st.tuples(inner | optionals, st.booleans()), min_size=1, max_size=3)
    return st.one_of(
        st.builds(Apply, several, arguments, keywords, rest, st.none() | st.just("act")),
        st.builds(Apply, st.just(()), arguments, keywords, rest, st.just("act")),
        st.builds(chain, inner, items, st.sampled_from("+*")).filter(has_something),
        st.lists(inner, min_size=2, max_size=3).map(either),
        st.builds(Conditional, st.builds(Variable, st.sampled_from(["is_first", "x.rank == 2"])), inner, inner),
        st.builds(Rearrange, st.just("rearrange"), inner, st.just("b (h d) -> b h d"), st.just((("h", Literal(8)),))),
        st.builds(Rearrange, st.just("split"), inner, st.just(""), st.just((("axis", Literal(-1)), ("parts", Literal(2))))),
    )


leaves: st.SearchStrategy[Term] = st.builds(Variable, names) | st.builds(Literal, statics)
terms: st.SearchStrategy[Term] = st.recursive(leaves, grown, max_leaves=12)


@given(terms)
@settings(deadline=None, max_examples=300)
def test_reading_what_was_printed_gives_the_term(term: Term) -> None:
    """Law: parse(str(term)) == term."""
    assert parse_term(f"({term})") == term


@given(st.lists(terms, min_size=1, max_size=3))
@settings(deadline=None, max_examples=50)
def test_reading_what_was_printed_gives_the_block(several: list[Term]) -> None:
    """Law: the same for whole blocks."""
    block = Block(tuple(Assignment((f"r{i}", "_", f"s{i}") if i else ("r0",), term) for i, term in enumerate(several)))
    assert parse_assignments(str(block)) == block


@given(st.text() | terms.map(str).flatmap(lambda t: st.integers(0, len(t)).map(lambda i: t[:i] + t[i + 1 :])))
@settings(deadline=None, max_examples=300)
def test_any_text_is_a_term_or_a_pattern_error(text: str) -> None:
    """Law: bad text raises only PatternError."""
    try:
        parse_assignments(text)
    except PatternError as error:
        assert error.span is not None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 / 3", 1 / 3),
        ("sqrt(2)", math.sqrt(2)),
        ("2 / sqrt(pi)", 2 / math.sqrt(math.pi)),
        ("-3", -3),
        ("-(1 / 4)", -0.25),
        ("2 ** 0.5", math.sqrt(2)),
        ("-inf", -math.inf),
        ("[1, -2, 1 / 2]", (1, -2, 0.5)),
        ("sqrt(1 + 1)", math.sqrt(2)),
        ('"tanh"', "tanh"),
        ("True", True),
    ],
)
def test_arithmetic_on_literals_is_a_literal_that_keeps_its_text(text: str, value: Static) -> None:
    term = parse_term(text)
    assert isinstance(term, Literal)
    assert term.value == value
    assert str(term) == text


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("x / sqrt(2)", Chain("*", ((Variable("x"), False), (Literal(math.sqrt(2)), True)))),
        (
            "x - (a + b)",
            Chain("+", ((Variable("x"), False), (Chain("+", ((Variable("a"), False), (Variable("b"), False))), True))),
        ),
        ("(x + a) + b", Chain("+", ((Variable("x"), False), (Variable("a"), False), (Variable("b"), False)))),
        ("-x", Apply((Operator("Neg"),), (Variable("x"),))),
        ("x ** 2", Apply((Operator("Pow"),), (Variable("x"), Literal(2)))),
        ("ai.onnx.Relu(x)", Apply((Operator("Relu"),), (Variable("x"),))),
        ("a @ b + c | d", Either((parse_term("MatMul(a, b) + c"), Variable("d")))),
        ("a | (b | c)", Either((Variable("a"), Variable("b"), Variable("c")))),
        ("act[Relu | a.B](x)", Apply((Operator("Relu"), Operator("B", "a")), (Variable("x"),), capture="act")),
        ("a if k else b | c", Conditional(Variable("k"), Variable("a"), parse_term("b | c"))),
        ("a | (b if x.rank == 2 else c)", Either((Variable("a"), parse_term("b if x.rank == 2 else c")))),
        ("(Relu | Tanh)(x, **r)", Apply((Operator("Relu"), Operator("Tanh")), (Variable("x"),), rest="r")),
    ],
)
def test_what_the_notation_means(text: str, term: Term) -> None:
    assert parse_term(text) == term


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ("a b", "a recipe has one `->`"),
        ("a -> a b", "the axis `b` is not on the left"),
        ("a b -> a", "the axis `b` is lost on the right"),
        ("a a -> a", "not a recipe"),
        ("(a b -> a b", "not a recipe"),
        ("a 2 -> a 2", "an axis is a name or 1"),
        ("a " + "9" * 5000 + " -> a", "not a recipe"),
        ("await b -> b await", "`await` can't name an axis"),
        ("_ b -> b _", "`_` can't name an axis"),
    ],
)
def test_a_recipe_is_checked(recipe: str, message: str) -> None:
    with pytest.raises(PatternError) as raised:
        parse_term(f'rearrange(x, "{recipe}")')
    assert message in raised.value.message


def test_repeat_may_name_new_axes() -> None:
    term = parse_term('repeat(k, "b g t d -> b (g r) t d", r=4)')
    assert isinstance(term, Rearrange)
    assert term.sizes == (("r", Literal(4)),)


def test_the_name_of_an_element_type_is_its_number_in_an_attribute() -> None:
    """`to=float16` is not a captured name. The numbers are those of ONNX."""
    term = parse_term("Cast(x, to=float16 | int8)")
    assert term == parse_term("Cast(x, to=10 | 3)") and str(term) == "Cast(x, to=float16 | int8)"
    assert {name: named(name).value for name in DTYPES} == DTYPES


def test_the_name_of_an_element_type_may_name_a_value() -> None:
    assert parse_term("Relu(bool)") == Apply((Operator("Relu"),), (Variable("bool"),))
