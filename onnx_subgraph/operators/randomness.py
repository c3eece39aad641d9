"""Random operators: equal inputs do not give equal results."""

from __future__ import annotations

RANDOM = frozenset(
    (
        *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout"),
        *("BiasDropout", "BitmaskDropout", "BitmaskBiasDropout", "Sampling"),
    )
)
"""Names of the random operators of the standard and of onnxruntime. A Dropout is random in training only."""
