"""Operators whose results are drawn at random: equal inputs do not give equal results."""

from __future__ import annotations

RANDOM = frozenset(
    (
        *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout"),
        *("BiasDropout", "BitmaskDropout", "BitmaskBiasDropout", "Sampling"),
    )
)
"""Names of the standard's and of onnxruntime's random operators. A Dropout draws in training only."""
