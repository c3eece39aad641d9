"""Shrouds hide a wrong rewrite from a model's outputs: random operators, and outputs that hardly or never depend on it.

Each is added to the graph around a planted instance, like a trap, and does not change the instance.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.soundness.growth import Growth, Value, tensor_type
from tests.soundness.planting import Planted

FAR = 6e4
"""A number that no value of a random graph reaches, and float16 still has."""
BERNOULLI = 15
"""The opset that brought Bernoulli."""
TRAINING = 12
"""The opset at which whether Dropout trains became an input."""


def results(growth: Growth, planted: Planted) -> list[Value]:
    """The float results of the instance that can be read."""
    names = {planted.names[o.name] for o in planted.seed.proto.graph.output}
    return [v for v in growth.here.values if v.name in names and v.is_float]


# Random operators


def randomness(growth: Growth, planted: Planted) -> bool:
    """A random operator draws upon a result of the instance, or beside it upon what the graph has."""
    found = results(growth, planted)
    if not found:
        return False
    value = growth.random.choice(found)
    kinds = [_noise, *((_dropout,) if growth.opset >= TRAINING else ()), *((_bernoulli,) if growth.opset >= BERNOULLI else ())]
    if growth.random.random() < 0.3:
        value = growth.pick_float(1) or value
    growth.random.choice(kinds)(growth, value)
    return True


def _noise(growth: Growth, value: Value) -> Value:
    """Random numbers are added."""
    operator = growth.random.choice(["RandomNormalLike", "RandomUniformLike"])
    seed = growth.random.choice([None, None, 3.0])
    (drawn,) = growth.node(operator, [value], (value.dtype, value.shape), seed=seed, dtype=tensor_type(value.dtype))
    return growth.node("Add", [value, drawn], (value.dtype, value.shape))[0]


def _bernoulli(growth: Growth, value: Value) -> Value:
    """Random zeros and ones are multiplied."""
    (chance,) = growth.node("Sigmoid", [value], (value.dtype, value.shape))
    (drawn,) = growth.node("Bernoulli", [chance], (value.dtype, value.shape), dtype=tensor_type(value.dtype))
    return growth.node("Mul", [value, drawn], (value.dtype, value.shape))[0]


def _dropout(growth: Growth, value: Value) -> Value:
    """A Dropout in training mode."""
    operands = [value, growth.weight(np.asarray(0.5, np.float32)), growth.weight(np.array(True))]
    return growth.node("Dropout", operands, (value.dtype, value.shape))[0]


# Insensitive outputs


def insensitivity(growth: Growth, planted: Planted) -> bool:
    """All float results of the instance are read only by nodes that hardly depend on them."""
    found = results(growth, planted)
    for value in found:
        growth.random.choice(BLINDS)(growth, value)
        growth.hidden.add(value.name)
    return bool(found)


def _tiny(growth: Growth, value: Value) -> None:
    """A hundred-millionth of the result is added to another value."""
    through = growth.pick(lambda v: (v.dtype, v.shape) == (value.dtype, value.shape) and v is not value)
    through = through or growth.weight(growth.numbers(value.shape, value.dtype))
    (little,) = _times(growth, value, 1e-8)
    growth.node("Add", [through, little], (value.dtype, value.shape))


def _times(growth: Growth, value: Value, factor: float) -> list[Value]:
    return growth.node("Mul", [value, growth.weight(np.asarray(factor, value.dtype))], (value.dtype, value.shape))


def _zero(growth: Growth, value: Value) -> None:
    _times(growth, value, 0.0)


def _nan(growth: Growth, value: Value) -> None:
    """NaN everywhere, in a value that is otherwise unread."""
    zero = growth.weight(np.zeros((), value.dtype))
    (nan,) = growth.node("Div", [zero, zero], (value.dtype, ()))
    (result,) = growth.node("Add", [value, nan], (value.dtype, value.shape))
    growth.hidden |= {nan.name, result.name}


def _threshold(growth: Growth, value: Value) -> None:
    """A comparison with a threshold that is never reached."""
    (over,) = growth.node("Greater", [value, growth.weight(np.asarray(FAR, value.dtype))], ("bool", value.shape))
    growth.node("Cast", [over], ("float32", value.shape), to=1)


BLINDS: tuple[Callable[[Growth, Value], None], ...] = (_tiny, _zero, _nan, _threshold)
