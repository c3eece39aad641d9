"""The functions of the package refuse values that the command line would refuse, before they read a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onnx_subgraph import (
    BenchOptions,
    Options,
    PartitionOptions,
    UsageError,
    bench,
    explain,
    fuse,
    load_patterns,
    partition,
    verify,
)

MISSING = Path("no such file.onnx")


def fused(**options: Any) -> object:
    return fuse(MISSING, None, load_patterns(), Options(**options))


def explained(**options: Any) -> object:
    return explain(MISSING, load_patterns(), Options(**options))


def partitioned(**options: Any) -> object:
    return partition(MISSING, None, PartitionOptions("onnxruntime", **options))


def verified(**options: Any) -> object:
    return verify(MISSING, MISSING, **options)


def timed(**options: Any) -> object:
    return bench([MISSING], BenchOptions(**options))


@pytest.mark.parametrize(
    ("function", "options", "says"),
    [
        (fused, {"target": "auto"}, "target is 'auto'\nhint: give one of onnxruntime, standard, native, function"),
        (fused, {"target": None}, "target is None"),
        (fused, {"numerics": "bf8", "target": "native"}, "numerics is 'bf8'"),
        (fused, {"prefer": "size"}, "prefer is 'size'\nhint: give one of speed, fusion"),
        (fused, {"opset": "newest"}, "opset is 'newest'"),
        (fused, {"opset": -1}, "opset is -1"),
        (fused, {"opset": 0}, "opset is 0"),
        *(
            (function, {"seed": -1}, "seed is -1\nhint: give a number that is 0 or more")
            for function in (fused, explained, partitioned, verified, timed)
        ),
        *((function, {"rtol": -1e-3}, "rtol is -0.001") for function in (fused, explained, partitioned, verified)),
        *((function, {"atol": float("nan")}, "atol is nan") for function in (fused, partitioned, verified)),
        *((function, {"rtol": float("inf")}, "rtol is inf") for function in (fused, partitioned, verified)),
        *((function, {"accuracy": -0.1}, "accuracy is -0.1") for function in (fused, partitioned)),
        (timed, {"threads": -2}, "threads is -2"),
        (timed, {"budget": -1.0}, "budget is -1.0"),
    ],
)
def test_a_value_that_can_not_be_is_named(function: Callable[..., object], options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as error:
        function(**options)
    assert str(error.value).startswith(says)
