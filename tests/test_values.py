"""The functions of the package refuse values that the command line would refuse, before they read a model."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import onnx
import pytest

from onnx_subgraph import (
    BenchOptions,
    Options,
    PartitionOptions,
    UsageError,
    bench,
    explain,
    fuse,
    inline,
    load_patterns,
    partition,
    verify,
)

MISSING = Path("no such file.onnx")
CPU = "CPUExecutionProvider"


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
        *(
            (function, {"seed": 1.5}, "seed is 1.5\nhint: give a whole number")
            for function in (fused, partitioned, verified, timed)
        ),
        *((function, {"rtol": "1e-3"}, "rtol is '1e-3'") for function in (fused, explained, partitioned, verified)),
        *(
            (
                function,
                {"shapes": {"x": shape}},
                f"the shape of the input 'x' is {shape!r}\nhint: give whole numbers of 1 and more",
            )
            for function in (fused, explained, partitioned, verified, timed)
            for shape in (("N", 8), (2.0, 8), (-2, 8), (0, 8), (True, 8), "2x8", 8)
        ),
        (fused, {"fixed": {"x": (0, 8)}}, "the shape of the input 'x' is (0, 8)"),
        *((function, {"providers": ()}, "there is no execution provider to run on") for function in (fused, explained, verified)),
        *(
            (function, {"only": ("gelux",)}, "there is no pattern `gelux`\nhint: did you mean `gelu`?")
            for function in (fused, explained)
        ),
        (fused, {"skip": "gelux"}, "there is no pattern `gelux`"),
        (timed, {"sizes": {"threads": "x"}}, "threads is 'x'"),
        (verified, {"inputs": {"x": 1}}, "a file of inputs is given as a path, and this is of type dict"),
        (timed, {"budget": -1.0}, "budget is -1.0"),
    ],
)
def test_a_value_that_can_not_be_is_named(function: Callable[..., object], options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as error:
        function(**options)
    assert str(error.value).startswith(says)


@pytest.mark.parametrize("model", [onnx.ModelProto(), b"model", BytesIO()], ids=lambda model: type(model).__name__)
@pytest.mark.parametrize(
    "function",
    [
        lambda model: fuse(model, None, load_patterns(), Options()),
        lambda model: explain(model, load_patterns(), Options()),
        lambda model: partition(model, None, PartitionOptions("onnxruntime")),
        lambda model: verify(model, MISSING),
        lambda model: verify(MISSING, model),
        lambda model: inline(model, MISSING),
        lambda model: bench([model], BenchOptions()),
    ],
)
def test_a_model_in_memory_is_to_be_saved_first(function: Callable[[object], object], model: object) -> None:
    with pytest.raises(UsageError) as error:
        function(model)
    name = type(model).__name__
    said = f"a model is given as a path, and this is of type {name}\nhint: save it first, and give the path of the file"
    assert str(error.value) == said


def test_shapes_that_another_mapping_fixes_are_checked_too() -> None:
    for shapes, fixed in (({"x": "bad"}, {"x": (1, 8)}), ({"x": (1, 8)}, {"x": "bad"}), ({"x": ""}, {})):
        with pytest.raises(UsageError, match="the shape of the input 'x' is"):
            verify(MISSING, MISSING, shapes=shapes, fixed=fixed)  # type: ignore[arg-type]


def test_there_must_be_a_model_to_time() -> None:
    with pytest.raises(UsageError, match="there is no model to time"):
        bench([], BenchOptions())


RELU = '<ir_version: 8, opset_import: ["" : 17]> g (float[n, 8] x) => (float[n, 8] y) { y = Relu(x) }'


def test_one_path_one_provider_and_one_id_need_no_list(tmp_path: Path) -> None:
    """A `str` is one word, not its letters, and a word that is given twice counts once."""
    path = str(tmp_path / "relu.onnx")
    onnx.save(onnx.parser.parse_model(RELU), path)
    assert len(bench(path, BenchOptions(budget=0.01, memory=False)).timed) == 1
    once, twice = (verify(path, path, providers=given) for given in (CPU, [CPU, CPU]))
    assert once.verdict == "equivalent" and len(once.runs) == len(twice.runs)
    result = fuse(path, None, load_patterns(), Options(providers=CPU, only="gelu", skip="bias-gelu"))  # type: ignore[arg-type]
    assert result.providers == (CPU,) and result.verdict.verdict == "equivalent"
