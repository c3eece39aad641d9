"""Runs that are held against onnxruntime: which, and whether their results are near enough."""

from __future__ import annotations

import math
from collections.abc import Sequence

from onnx_subgraph.backends.array import Array
from onnx_subgraph.verification.rounding import distance

BOUND = 1e-3
"""How far a result may be from onnxruntime's, as a share of its largest element, where no more was measured and allowed."""
NUMBERS = "fiub"
"""Numpy's kinds of dtypes that results are held to each other in."""


def is_due(number: int, share: float) -> bool:
    """Whether the run of this number, counted from 1, is one of those: as evenly spread as a share of all can be."""
    return math.floor(number * share) > math.floor((number - 1) * share)


def problem(outputs: Sequence[Array], plain: Sequence[Array], names: Sequence[str], bound: float) -> str:
    """How an output is further from onnxruntime's than `bound`, a share of its largest element; "" where none is."""
    for name, output, own in zip(names, outputs, plain, strict=True):
        if output.shape != own.shape:
            return f"gave {name} of shape {list(output.shape)}, onnxruntime {list(own.shape)}"
        if output.dtype.kind in NUMBERS and (away := distance(output, own)) > bound:
            return f"gave {name} that is {away:.1e} of its largest element from onnxruntime's; {bound:.1e} is allowed"
    return ""
