"""The equalities that hold in every pattern, one row each; matcher, prefilter, anchors and docs/language.md read this table.

An operator that is a product or sum of its operands is a `Step`. An operator that graphs also write as a formula of others, or as
another operator, is a `Synonym`. To add one, add a row to `PRODUCTS`, `SUMS` or `SYNONYMS`. The matcher, the choice of anchors,
the table in docs/language.md and the test that both sides are equal use the new row without further changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import permutations
from typing import NamedTuple, TypeVar

from onnx_subgraph.operators import elementwise

T = TypeVar("T")
Identity = tuple[str, str]
"""Domain and operator."""


class Step(NamedTuple):
    """An operator as constant * Π operand ** power, or in a sum as Σ power * operand.

    powers: of each operand, in order. variadic: whether it accepts any number of operands, all with the first power.
    floats: whether it holds only for floating-point values. For integers it is then a chain of its own.
    """

    operator: str
    powers: tuple[float, ...]
    constant: float = 1.0
    variadic: bool = False
    floats: bool = False

    def powers_of(self, count: int) -> tuple[float, ...] | None:
        """The powers for this number of operands; None where the operator does not accept it."""
        if self.variadic:
            return self.powers[:1] * count
        return self.powers if len(self.powers) == count else None


def _by_operator(*steps: Step) -> Mapping[str, Step]:
    return {step.operator: step for step in steps}


PRODUCTS = _by_operator(
    Step("Mul", (1.0, 1.0)),
    Step("Div", (1.0, -1.0), floats=True),
    Step("Neg", (1.0,), constant=-1.0),
    Step("Reciprocal", (-1.0,)),
    Step("Sqrt", (0.5,)),
)
"""Operators that are a product of powers of their operands. `Pow` with a constant exponent is one, too."""
SUMS = _by_operator(
    Step("Add", (1.0, 1.0)),
    Step("Sub", (1.0, -1.0)),
    Step("Neg", (-1.0,)),
    Step("Sum", (1.0,), variadic=True),
)
"""Operators that are a sum of their operands, some negated."""
POWER = "Pow"
"""The operator whose second operand, if constant, is the exponent of the first."""
REARRANGING = elementwise.REARRANGING
"""Operators that only rearrange the elements of their operand."""
LINEAR = REARRANGING | {"MatMul"}
"""Operators through which a scalar factor of an operand can be moved."""
ASSOCIATIVE = frozenset({"Max", "Min", "And", "Or"})
"""Operators other than + and * whose operands can be grouped in any way."""
COMMUTATIVE = frozenset(
    {"Add", "Max", "Min", "And", "Or", "Xor", "Equal", "Sum", "Mean", "BitwiseAnd", "BitwiseOr", "BitwiseXor"}
)
"""Operators whose operands can be in any order."""
SWAPPING = frozenset({("com.microsoft", "SkipLayerNormalization"), ("com.microsoft", "SkipSimplifiedLayerNormalization")})
"""Operators whose first two operands can be swapped."""


class Synonym(NamedTuple):
    """A call, and other formulas for what it computes, in the pattern language. Its arguments stand for any term.

    where: a sentence about numbers among the arguments, which must be true for the formulas to hold.
    """

    call: str
    formulas: tuple[str, ...]
    where: str = ""


SYNONYMS = (
    Synonym("Sigmoid(a)", ("1 / (1 + Exp(-a))",)),
    Synonym("Softplus(a)", ("Log(1 + Exp(a))",)),
    Synonym("Relu(a)", ("Max(a, 0)",)),
    Synonym("Clip(a, min=0, max=c)", ("Min(Relu(a), c)", "Max(Min(a, c), 0)", "Relu(Min(a, c))"), "c >= 0"),
    Synonym("Clip(a, min=b, max=c)", ("Min(Max(a, b), c)", "Max(Min(a, c), b)"), "c >= b"),
    Synonym("HardSigmoid(a, alpha=b, beta=c)", ("Clip(b * a + c, min=0, max=1)",)),
    Synonym("ReduceL1(a, **rest)", ("ReduceSum(Abs(a), **rest)",)),
    Synonym("ReduceL2(a, **rest)", ("Sqrt(ReduceSumSquare(a, **rest))",)),
    Synonym("ReduceSumSquare(a, **rest)", ("ReduceSum(a ** 2, **rest)",)),
    Synonym("com.microsoft.Gelu(a)", ('Gelu(a, approximate="none")',)),
    Synonym("com.microsoft.FastGelu(a)", ('Gelu(a, approximate="tanh")',)),
    Synonym("com.microsoft.QuickGelu(a, alpha=b)", ("a * Sigmoid(b * a)", "Swish(a, alpha=b)")),
)
"""Operators as patterns call them, and what graphs contain instead. The first row that fits a call applies."""

# An affine map is a MatMul, and a sum with a MatMul.

GEMM, MATMUL = "Gemm", "MatMul"
PLAIN = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0}
"""The attributes of a Gemm that computes `a @ b + c`."""
POOL, MEAN = "GlobalAveragePool", "ReduceMean"
MATCHED_AS: Mapping[Identity, Identity] = {("", GEMM): ("", MATMUL), ("", POOL): ("", MEAN)}
"""Operators whose nodes can be matched as another one: a Gemm without addend, and a mean over all axes from the third one on."""

PRODUCT_OPERATORS = frozenset(("", operator) for operator in (*PRODUCTS, POWER))
"""The operators whose result can be a product."""
SUM_OPERATORS = frozenset(("", operator) for operator in (*SUMS, GEMM))
"""The operators whose result can be a sum."""


def standing_for(operators: Collection[Identity]) -> frozenset[Identity]:
    """These operators, and those whose nodes can be matched as one of them."""
    return frozenset(operators).union(operator for operator, other in MATCHED_AS.items() if other in operators)


def is_associative(operators: Iterable[Identity]) -> bool:
    """Whether the operands of one of these operators can be grouped in any way."""
    return any(not domain and operator in ASSOCIATIVE for domain, operator in operators)


def orders(identity: Identity, operands: Sequence[T]) -> Iterable[tuple[T, ...]]:
    """The orders of operands that an operator allows, the given one first."""
    domain, operator = identity
    if operator in COMMUTATIVE and not domain:
        return permutations(operands)
    given = tuple(operands)
    return (given, (given[1], given[0], *given[2:])) if identity in SWAPPING and len(given) > 1 else (given,)


class Equality(NamedTuple):
    """Two equal graphs, as text in onnx's notation from inputs `a`, `b`, `c` to `z`, and how patterns write both.

    called: the call of the operator. formula: the equal formula in a pattern. where: the condition, in words. left, right: the
    graphs; "" for a synonym, since patterns can write both sides. sizes: of the inputs of the graphs.
    """

    called: str
    formula: str
    left: str = ""
    right: str = ""
    where: str = ""
    constants: str = ""
    sizes: tuple[int, ...] = (3, 3)


def equalities() -> tuple[Equality, ...]:
    """Every row about operators, for docs/language.md and its test."""
    steps = [_equality(step, is_product=True) for step in PRODUCTS.values()]
    steps += [_equality(step, is_product=False) for step in SUMS.values() if step.operator not in PRODUCTS]
    cubed = "s = Mul(a, a) z = Mul(s, a)"
    power = Equality("Pow(a, 3)", "a ** 3", "z = Pow(a, k)", cubed, "the power is a constant", "float k = {3}")
    plain = f"no {', '.join(PLAIN)}"
    gemm = Equality("Gemm(a, b, c)", "a @ b + c", "z = Gemm(a, b, c)", "m = MatMul(a, b) z = Add(m, c)", plain)
    matmul = Equality("Gemm(a, b)", "a @ b", "z = Gemm(a, b)", "z = MatMul(a, b)", plain)
    means = map(_mean, (3, 4))
    groupings = map(_grouping, ("Max", "Min"))
    synonyms = (Equality(formula, row.call, where=row.where) for row in SYNONYMS for formula in row.formulas)
    moved = Equality("0.5 + 0.5 * Exp(a)", "0.5 * (1 + Exp(a))", where="the factor is a power of two, and the sum has a number")
    return (*steps, power, gemm, matmul, *means, *groupings, *synonyms, moved)


def _equality(step: Step, *, is_product: bool) -> Equality:
    names = "abc"[: 3 if step.variadic else len(step.powers)]
    powers = step.powers_of(len(names))
    assert powers is not None
    called = f"{step.operator}({', '.join(names)})"
    if is_product:
        parts = [name if power == 1 else f"{name} ** {power:g}" for name, power in zip(names, powers, strict=True)]
        formula = " * ".join([*([] if step.constant == 1 else [f"{step.constant:g}"]), *parts])
    else:
        formula = " ".join(f"{'+' if power > 0 else '-'} {name}" for name, power in zip(names, powers, strict=True))
        formula = formula.removeprefix("+ ")
    lines, constants, terms = [], [], []
    for name, power in zip(names, powers, strict=True):
        if power != 1:
            constants.append(f"float p{name} = {{{power:g}}}")
            lines.append(f"t{name} = {POWER if is_product else 'Mul'}({name}, p{name})")
        terms.append(name if power == 1 else f"t{name}")
    if is_product and step.constant != 1:
        constants.append(f"float k = {{{step.constant:g}}}")
        terms.insert(0, "k")
    for number, term in enumerate(terms[1:]):
        result = f"s{number}"
        lines.append(f"{result} = {'Mul' if is_product else 'Add'}({terms[0]}, {term})")
        terms[0] = result
    right = " ".join([*lines, f"z = Identity({terms[0]})"])
    where = "floating-point values; a quotient of integers, alone" if step.floats else ""
    return Equality(called, formula, f"z = {called}", right, where, ", ".join(constants))


def _mean(rank: int) -> Equality:
    axes = list(range(2, rank))
    formula, mean = f"{MEAN}(a, axes={axes})", f"z = {MEAN}(a, axes)"
    constants = f"int64[{len(axes)}] axes = {{{', '.join(map(str, axes))}}}"
    sizes = (3, *(1,) * (rank - 2), 3)
    return Equality(f"{POOL}(a)", formula, f"z = {POOL}(a)", mean, f"`a` has the rank {rank}", constants, sizes)


def _grouping(operator: str) -> Equality:
    called, formula = f"{operator}({operator}(a, b), c)", f"{operator}(c, b, a)"
    left, right = f"s = {operator}(a, b) z = {operator}(s, c)", f"s = {operator}(c, b) z = {operator}(a, s)"
    return Equality(called, formula, left, right)
