"""The definitions of our operators, in float64."""

from __future__ import annotations

from math import erf

import numpy as np

ERF = np.vectorize(erf, otypes=[np.float64])


def sigmoid(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def gelu(x: np.ndarray) -> np.ndarray:
    return x * (1 + ERF(x / np.sqrt(2))) / 2


def fast_gelu(x: np.ndarray) -> np.ndarray:
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


ACTIVATIONS = {
    "Identity": lambda x, alpha: x,
    "Relu": lambda x, alpha: np.maximum(x, 0),
    "Gelu": lambda x, alpha: gelu(x),
    "FastGelu": lambda x, alpha: fast_gelu(x),
    "Swish": lambda x, alpha: x * sigmoid(alpha * x),
    "Tanh": lambda x, alpha: np.tanh(x),
    "Sigmoid": lambda x, alpha: sigmoid(x),
}
