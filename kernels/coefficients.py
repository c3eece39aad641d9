"""Print the polynomials of `vector.h`, and their errors.

    python kernels/coefficients.py

Each is a least-squares fit at Chebyshev nodes. The weights are raised repeatedly where the error is largest (Lawson 1961), which
converges to nearly the best polynomial of that degree. Terms that must be exact are fixed.
"""

from __future__ import annotations

from math import erfc, exp, expm1, log, log2, sqrt, tanh

import numpy as np


def fit(x: np.ndarray, y: np.ndarray, tolerance: np.ndarray, powers: list[int]) -> np.ndarray:
    """The coefficients of `powers` of x that minimize the largest error, in units of `tolerance`."""
    basis = np.stack([x**p for p in powers], axis=1) / tolerance[:, None]
    target, weight = y / tolerance, np.full(len(x), 1 / len(x))
    best, least = np.zeros(len(powers)), np.inf
    for _ in range(400):
        root = np.sqrt(weight)
        found = np.linalg.lstsq(basis * root[:, None], target * root, rcond=None)[0]
        error = np.abs(basis @ found - target)
        if error.max() < least:
            best, least = found, error.max()
        weight *= error + 1e-300
        weight /= weight.sum()
    return best


def nodes(low: float, high: float, count: int = 2000) -> np.ndarray:
    """The Chebyshev nodes of an interval, without its ends."""
    return (low + high) / 2 + (high - low) / 2 * np.cos(np.pi * (np.arange(count) + 0.5) / count)


def show(name: str, found: np.ndarray, error: float) -> None:
    """Print one polynomial: its coefficients in float32, the lowest power first, and its largest error."""
    print(f"{name}: error {error:.2g}")
    print("   ", ", ".join(f"{np.float32(c):.9g}f" for c in found))


def exponential() -> None:
    """e^r = 1 + r + r² p(r) for |r| ≤ ln 2 / 2; the error is relative."""
    x = nodes(-log(2) / 2, log(2) / 2)
    y = np.array([expm1(v) - v for v in x])
    powers = [2, 3, 4, 5, 6]
    found = fit(x, y, np.exp(x), powers)
    stored = found.astype(np.float32).astype(np.float64)
    error = max(abs(1 + v + sum(c * v**p for c, p in zip(stored, powers, strict=True)) - exp(v)) / exp(v) for v in x)
    show("EXP", found, error)


def tangent(end: float) -> None:
    """tanh(x) = x + x³ p(x²) for |x| ≤ `end`; the error is relative."""
    x = nodes(1e-3, end)
    y = np.array([tanh(v) - v for v in x])
    powers = [3, 5, 7, 9, 11]
    found = fit(x, y, np.tanh(x), powers)
    stored = found.astype(np.float32).astype(np.float64)
    error = max(abs(v + sum(c * v**p for c, p in zip(stored, powers, strict=True)) - tanh(v)) / tanh(v) for v in x)
    show("TANH", found, error)


def tail(degree: int, end: float) -> None:
    """log2(erfc(t / sqrt 2) / 2) for 0 ≤ t ≤ `end`, so that Φ(-t) = 2^p(t); the error is that of t Φ(-t), as in GELU."""
    x = nodes(0.0, end)
    half = np.array([erfc(v / sqrt(2)) / 2 for v in x])
    y = np.log2(half) + 1
    powers = list(range(1, degree + 1))
    found = fit(x, y, 1 / (half * np.maximum(x, 1.0)), powers)
    stored = found.astype(np.float32).astype(np.float64)
    given = sum(c * x**p for c, p in zip(stored, powers, strict=True)) - 1
    error = np.abs((2.0**given - half) * np.maximum(x, 1.0)).max()
    far = np.linspace(end, 14, 50)
    beyond = sum(c * far**p for c, p in zip(stored, powers, strict=True)) - 1
    show(f"TAIL {degree} to {end}", found, error)
    print("    at the end", given[np.argmax(x)], "beyond", beyond.max(), "should be", log2(erfc(end / sqrt(2)) / 2))


if __name__ == "__main__":
    exponential()
    tangent(0.55)
    for degree in (7, 8, 9, 10, 11):
        tail(degree, 6.0)
