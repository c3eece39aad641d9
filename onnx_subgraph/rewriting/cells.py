"""Recognise the standard's recurrent cells from the formula of one step: LSTM, GRU (both ways to reset) and simple RNN.

The formulas and the order of the gates are those of ONNX's operators. Only these formulas are recognised: no peepholes, clipping
or masks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations

import numpy as np

from onnx_subgraph.rewriting.step import Applied, Linear, Number, Symbol, Term

_ACTIVATIONS = ("Sigmoid", "Tanh", "Relu")
NEVER_EMPTY = frozenset({"GRU"})
"""Operators whose onnxruntime kernel ends the process if a sequence is empty.

The other operators then leave the last states undefined, while a Loop returns the initial ones.
"""
_NEVER_WITHOUT_BATCH = frozenset({"GRU", "LSTM"})
"""Operators whose onnxruntime kernel ends the process if the batch is empty. A Loop runs then."""


@dataclass(frozen=True)
class Cell:
    """A recurrent operator.

    states: the symbols of its states, the hidden state first. weight: (1, gates · hidden, inputs). recurrence: (1, gates ·
    hidden, hidden). bias: (1, 2 · gates · hidden). The layouts are those of the operator.
    """

    operator: str
    states: Sequence[Symbol]
    weight: np.ndarray
    recurrence: np.ndarray
    bias: np.ndarray
    attributes: Mapping[str, int | list[str]] = field(default_factory=dict)

    def assumes(self, batch: object) -> frozenset[str]:
        """What the operator assumes of the data, as a pattern's `assumes`. batch: its size, or the name or absence of one."""
        may_be_empty = not isinstance(batch, int) and self.operator in _NEVER_WITHOUT_BATCH
        return frozenset({"nonempty"} if may_be_empty else ())


def cell_of(states: Mapping[Symbol, Term]) -> Cell | None:
    """The cell whose step computes these new states; None for any other formula."""
    if len(states) == 2:
        return next((c for h, c_ in permutations(states) if (c := _lstm(h, c_, states[h], states[c_])) is not None), None)
    if len(states) != 1:
        return None
    ((hidden, then),) = states.items()
    return _rnn(hidden, then) or _gru(hidden, then)


def _lstm(h: Symbol, c: Symbol, hidden: Term, cell: Term) -> Cell | None:
    """Ct = f ⊙ c + i ⊙ g(z), Ht = o ⊙ h(Ct)."""
    for left, right in _operands("Add", cell):
        for forget, old in _operands("Mul", left):
            for into, fresh in _operands("Mul", right):
                for out, squashed in _operands("Mul", hidden):
                    gates = [_gate(g, f) for g, f in ((into, "Sigmoid"), (out, "Sigmoid"), (forget, "Sigmoid"), (fresh, "Tanh"))]
                    if (
                        old is c
                        and isinstance(squashed, Applied)
                        and squashed.operator == "Tanh"
                        and squashed.operands[0] is cell
                    ):
                        parts = _parts(gates, h)
                        if parts is not None:
                            return Cell("LSTM", (h, c), *parts)
    return None


def _rnn(h: Symbol, hidden: Term) -> Cell | None:
    """Ht = f(x · W + h · R + b)."""
    if not isinstance(hidden, Applied) or hidden.operator not in _ACTIVATIONS:
        return None
    parts = _parts([_gate(hidden, hidden.operator)], h)
    return None if parts is None else Cell("RNN", (h,), *parts, {"activations": [hidden.operator]})


def _gru(h: Symbol, hidden: Term) -> Cell | None:
    """Ht = (1 - z) ⊙ n + z ⊙ h. The reset gate scales h before its product with the recurrence, or scales that product."""
    for left, right in _operands("Add", hidden):
        for update, old in _operands("Mul", left):
            for rest, fresh in _operands("Mul", right):
                if old is h and _is_one_minus(rest, update) and isinstance(fresh, Applied) and fresh.operator == "Tanh":
                    found = _reset_before(h, update, fresh.operands[0]) or _reset_after(h, update, fresh.operands[0])
                    if found is not None:
                        return found
    return None


def _reset_before(h: Symbol, update: Term, fresh: Term) -> Cell | None:
    if not isinstance(fresh, Linear):
        return None
    for term in fresh.weights:
        for reset, old in _operands("Mul", term):
            if old is h:
                candidate = Linear({h if t is term else t: w for t, w in fresh.weights.items()}, fresh.bias)
                parts = _parts([_gate(update, "Sigmoid"), _gate(reset, "Sigmoid"), candidate], h)
                if parts is not None and h not in fresh.weights:
                    return Cell("GRU", (h,), *parts)
    return None


def _reset_after(h: Symbol, update: Term, fresh: Term) -> Cell | None:
    for direct, product in _operands("Add", fresh):
        for reset, again in _operands("Mul", product):
            inner = isinstance(direct, Linear) and isinstance(again, Linear) and set(again.weights) == {h}
            if not inner or not isinstance(direct, Linear) or not isinstance(again, Linear) or h in direct.weights:
                continue
            size = again.weights[h].shape[1]
            parts = _parts(
                [_gate(update, "Sigmoid"), _gate(reset, "Sigmoid"), Linear({**direct.weights, **again.weights}, None)], h
            )
            if parts is None:
                continue
            weight, recurrence, bias = parts
            zeros = np.zeros(size, weight.dtype)
            bias = bias.copy()
            bias[0, 2 * size : 3 * size] = zeros if direct.bias is None else direct.bias
            bias[0, 5 * size :] = zeros if again.bias is None else again.bias
            return Cell("GRU", (h,), weight, recurrence, bias, {"linear_before_reset": 1})
    return None


def _is_one_minus(term: Term, of: Term) -> bool:
    """Whether a term is 1 - `of`."""
    if not isinstance(term, Applied) or term.operator != "Sub" or term.operands[1] is not of:
        return False
    one = term.operands[0]
    return isinstance(one, Number) and one.array.item() == 1


def _operands(operator: str, term: Term) -> Iterator[tuple[Term, Term]]:
    """The operands of a commutative operator, in both orders."""
    if isinstance(term, Applied) and term.operator == operator:
        a, b = term.operands
        yield from ((a, b), (b, a))


def _gate(term: Term, activation: str) -> Linear | None:
    if not isinstance(term, Applied) or term.operator != activation or not isinstance(term.operands[0], Linear):
        return None
    return term.operands[0]


def _parts(gates: Sequence[Linear | None], h: Symbol) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Weight, recurrence and bias of the gates; None for another form of gate.

    Each gate must be a sum of a product of the step's input, the same in all, and one of the hidden state.
    """
    known = [gate for gate in gates if gate is not None]
    rows = {term for gate in known for term in gate.weights if term is not h}
    if len(known) < len(gates) or len(rows) != 1 or any(len(gate.weights) != 2 or h not in gate.weights for gate in known):
        return None
    (row,) = rows
    if not isinstance(row, Symbol) or row.kind != "input":
        return None
    weights, recurrences = ([gate.weights[term].T for gate in known] for term in (row, h))
    hidden = recurrences[0].shape[0]
    if any(r.shape != (hidden, hidden) for r in recurrences) or any(w.shape != (hidden, weights[0].shape[1]) for w in weights):
        return None
    kind = weights[0].dtype
    biases = [np.zeros(hidden, kind) if gate.bias is None else gate.bias for gate in known]
    if any(array.dtype != kind for array in (*weights, *recurrences, *biases)):
        return None
    bias = np.concatenate([*biases, np.zeros(hidden * len(known), kind)])
    return np.concatenate(weights)[None], np.concatenate(recurrences)[None], bias[None]
