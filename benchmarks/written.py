"""Compares a written model with its original by numbers and by onnx's checker, without the project's own verification."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx


def relative_error(found: np.ndarray, reference: np.ndarray) -> float:
    """The largest difference over the largest magnitude of `reference`; infinite if shapes or non-finite elements differ."""
    if found.shape != reference.shape:
        return float("inf")
    a, b = found.astype(np.float64), reference.astype(np.float64)
    both = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return float("inf")
    return float(np.abs(a - b)[both].max(initial=0.0) / max(np.abs(b[both]).max(initial=0.0), 1e-12))


def complaint_of_checker(original: Path, written: Path) -> str:
    """The error of onnx's checker on the written model, if it accepts the original; "" if there is none."""
    if _complaint(original):
        return ""
    return _complaint(written)


def _complaint(path: Path) -> str:
    try:
        onnx.checker.check_model(str(path))
    except Exception as error:  # the checker has its own errors, and onnx's C++ code others
        return str(error).strip().splitlines()[0][:200] or type(error).__name__
    return ""
