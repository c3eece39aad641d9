"""Selects the runs to compare with onnxruntime, and compares them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from onnx_subgraph.backends.array import Array
from onnx_subgraph.verification.rounding import distance

BOUND = 1e-3
"""The default limit of the difference from onnxruntime's result, as a share of its largest element."""
NUMBERS = "fiub"
"""Numpy's kinds of dtypes that are compared."""


def is_due(number: int, share: float) -> bool:
    """Whether to compare the run of this number, counted from 1; the compared runs are evenly spread."""
    return math.floor(number * share) > math.floor((number - 1) * share)


def problem(outputs: Sequence[Array], plain: Sequence[Array], names: Sequence[str], bound: float) -> str:
    """How an output exceeds `bound`, a share of the largest element of onnxruntime's result; "" if none does."""
    for name, output, own in zip(names, outputs, plain, strict=True):
        if output.shape != own.shape:
            return f"gave {name} of shape {list(output.shape)}, onnxruntime {list(own.shape)}"
        if output.dtype.kind in NUMBERS and (away := distance(output, own)) > bound:
            return f"gave {name} that is {away:.1e} of its largest element from onnxruntime's; {bound:.1e} is allowed"
    return ""
