"""Mutation tests of the proofs: with any one safety check removed from the tool, some proof fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import onnx_ir as ir
import pytest

from onnx_subgraph.emitting.emit import Emitter
from onnx_subgraph.matching import attributes, expansion, matcher, static_values, whole
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.proving import comparison, prove
from onnx_subgraph.rewriting import checks, plan
from tests.proving.patterns import catalogue, written

Sabotage = Callable[[pytest.MonkeyPatch], None]


def drop_the_consumer_check(patch: pytest.MonkeyPatch) -> None:
    """Remove the consumer check of the matcher and of the rewriter: each alone would suffice."""
    patch.setattr(whole, "live_reader", lambda *_: None)
    patch.setattr(plan, "redirects", lambda *_: [])


def accept_another_constant(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(matcher, "close", lambda *_: True)


def accept_another_literal(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(attributes, "equals_literal", lambda view, _, value: view.scalar(value) is not None)


def take_an_overridable_initializer_for_a_constant(patch: pytest.MonkeyPatch) -> None:
    held = Constants.array

    def array(self: Constants, value: ir.Value) -> Any:
        return value.const_value.numpy() if value.is_graph_input() and value.const_value is not None else held(self, value)

    is_constant = Constants.is_constant
    patch.setattr(Constants, "array", array)
    patch.setattr(
        Constants,
        "is_constant",
        lambda self, v: (v.is_graph_input() and v.const_value is not None) or is_constant(self, v),
    )


def swap_two_inputs(patch: pytest.MonkeyPatch) -> None:
    emit = Emitter._emit

    def swapped(self: Emitter, operator: Any, operands: list[Any], *more: Any) -> Any:
        return emit(self, operator, [*operands[1::-1], *operands[2:]], *more)

    patch.setattr(Emitter, "_emit", swapped)


def lose_an_input(patch: pytest.MonkeyPatch) -> None:
    emit = Emitter._emit
    patch.setattr(
        Emitter,
        "_emit",
        lambda self, o, operands, *m: emit(self, o, operands[:-1] if len(operands) > 2 else operands, *m),
    )


def accept_any_attribute(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(static_values, "equal", lambda *_, **__: True)


def accept_any_axis(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(static_values, "_same_axes", lambda *_: True)


def let_a_constant_raise_the_rank(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(expansion, "is_rank_safe", lambda *_: True)
    patch.setattr(checks, "check_result", lambda *_: None)


def forget_the_conditions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(whole, "evaluate", lambda sentence, names: find_evaluate(sentence, names) or True)


find_evaluate = whole.evaluate

CASES: list[tuple[Sabotage, str, str]] = [
    (drop_the_consumer_check, "silu", "second consumer"),
    (drop_the_consumer_check, "mish", "body of an If"),
    (drop_the_consumer_check, "conv-activation", "graph output"),
    (accept_another_constant, "gelu", "the constant"),
    (accept_another_literal, "hard-swish", "the constant"),
    (take_an_overridable_initializer_for_a_constant, "gelu", "can be overridden"),
    (take_an_overridable_initializer_for_a_constant, "conv-affine", "can be overridden"),
    (swap_two_inputs, "bias-gelu", "never proved"),
    (swap_two_inputs, "fused-matmul", "instance differs"),
    (lose_an_input, "gemm-add", "instance differs"),
    (accept_any_attribute, "bias-gelu", "approximate=tanh"),
    (accept_any_attribute, "conv-pad", "mode=reflect"),
    (accept_any_axis, "layer-normalization", "axes"),
    (let_a_constant_raise_the_rank, "gelu", "has rank"),
    (forget_the_conditions, "layer-normalization", "differs"),
]
"""What is taken out, a pattern whose proof needs it, and what its failure says. That it holds otherwise: tests/patterns."""


@pytest.mark.parametrize(("sabotage", "pattern", "said"), CASES, ids=[f"{s.__name__}-{p}" for s, p, _ in CASES])
def test_without_a_safety_check_a_proof_fails(
    sabotage: Sabotage, pattern: str, said: str, thorough: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `--thorough` in the same few models as in tests/patterns/test_proofs.py."""
    sabotage(monkeypatch)
    failures = prove(catalogue().get(pattern), pairs=thorough).failures
    assert any(said in failure for failure in failures), "\n".join(failures)


SILU_OF_ANY_TYPE = "y = x * Sigmoid(x)"


@pytest.fixture
def untyped() -> Iterator[Any]:
    """SiLU that looks through casts and does not require the result to have x's type; the rewriter has to check it."""
    example = '{x: "float32[2, 8]"}'
    yield written(SILU_OF_ANY_TYPE, "y = com.microsoft.QuickGelu(x, alpha=1.0)", example, mixed_precision="true")


def test_the_rewriter_alone_refuses_a_result_of_another_type(untyped: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not prove(untyped).failures
    monkeypatch.setattr(checks, "check_result", lambda *_: None)
    assert any("not cast back" in failure for failure in prove(untyped).failures)


def test_with_a_comparison_that_always_succeeds_every_proof_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "distance", lambda *_, **__: None)
    for name in ("bias-gelu", "swiglu", "conv-affine", "cast-cast"):
        assert any("planted" in failure for failure in prove(catalogue().get(name), pairs=False).failures)


def test_an_exception_in_an_attempt_is_a_failure_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("onnx_subgraph.proving.prove"), "apply", lambda *_, **__: {}["nothing"])
    assert any("fusing raises KeyError" in failure for failure in prove(catalogue().get("swiglu")).failures)
