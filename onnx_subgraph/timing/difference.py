"""How far the outputs of two runs are apart."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def difference(found: Mapping[str, Any], expected: Mapping[str, Any]) -> float | None:
    """The largest difference of an output's element, relative to the largest element of that output."""
    worst: float | None = None
    for name, wanted in expected.items():
        other = found.get(name)
        if not isinstance(wanted, np.ndarray) or wanted.dtype.kind not in "fiub" or not isinstance(other, np.ndarray):
            continue
        if other.shape != wanted.shape:
            return math.inf
        if not wanted.size:
            continue
        with np.errstate(all="ignore"):
            a, b = wanted.astype(np.float64), other.astype(np.float64)
            apart = np.abs(np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, a - b)).max()
            largest = np.abs(a[np.isfinite(a)]).max(initial=0.0)
        share = float(apart / largest) if largest else float(apart)
        worst = share if worst is None else max(worst, share)
    return worst
