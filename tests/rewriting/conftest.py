"""Fixtures of the rewriting tests."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest


@pytest.fixture(scope="session")
def draw() -> Callable[..., np.ndarray]:
    """Random numbers of a shape, the same in each run."""

    def numbers(*shape: int, dtype: str = "float32") -> np.ndarray:
        return np.random.default_rng(0).standard_normal(shape).astype(dtype)

    return numbers
